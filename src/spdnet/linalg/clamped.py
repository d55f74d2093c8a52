r"""Raised eigenvalues with only the eigenvectors on one side of the threshold.

``max(eps, s)`` is ``s`` plus a function that vanishes above the threshold, and ``eps`` plus one
that vanishes below it. With the eigenvectors :math:`V` of the side that has fewer,

.. math::
    Y = X + V (\epsilon - S_V) V^\top \quad\text{or}\quad Y = \epsilon I + V (S_V - \epsilon) V^\top,

and the derivative is four products with :math:`V`, too. That is a fraction of the work of
:math:`U f(S) U^\top` for a matrix of low rank, and never more than half of it.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from spdnet._checks import is_concrete
from spdnet.linalg.scalar import Clamp
from spdnet.linalg.symmetric import symmetrize
from spdnet.linalg.threads import over_slices

#: matrices smaller than this are not worth sorting by the number of eigenvectors
_SMALLEST = 24
#: eigenvectors are taken by this part of their number, or there would be too many groups
_PART = 8


def is_worth_it(s: Tensor) -> bool:
    """Whether values may decide what is done, and the decision costs less than it saves."""
    return s.shape[-1] >= _SMALLEST and s.device.type == "cpu" and s.numel() > 0 and is_concrete(s)


def value(X: Tensor, s: Tensor, U: Tensor, f: Clamp) -> Tensor:
    """``U f(S) U^T``, given ``X (..., n, n)`` and its decomposition."""
    return _by_group(_value, X, s, U, f)


def first(s: Tensor, U: Tensor, f: Clamp, G: Tensor) -> Tensor:
    """The derivative of :func:`value` in the direction ``G (..., n, n)``."""
    return _by_group(_first, G, s, U, f)


def _value(X: Tensor, s: Tensor, U: Tensor, eps: Tensor, side: slice) -> Tensor:
    low = side.start == 0
    V, weight = U[..., side], (s[..., side] - eps).abs()
    weight = weight.masked_fill((s[..., side] < eps) ^ low, 0)
    Y = symmetrize((V * weight[:, None, :]) @ V.mT)
    if low:
        return Y.add_(symmetrize(X))
    Y.diagonal(dim1=-2, dim2=-1).add_(eps)
    return Y


def _first(G: Tensor, s: Tensor, U: Tensor, eps: Tensor, side: slice) -> Tensor:
    low = side.start == 0
    V = U[..., side]
    c = Clamp(eps[:, 0]).first(s[..., side, None], s[..., None, :])  # (B, few, n)
    if low:
        c -= 1
    c[..., side] /= 2  # in both halves of the sum below
    G = symmetrize(G)
    D = V @ (((V.mT @ G @ U).mul_(c)) @ U.mT)
    D = D + D.mT
    return D.add_(G) if low else D


def _by_group(function: Callable[..., Tensor], X: Tensor, s: Tensor, U: Tensor, f: Clamp) -> Tensor:
    """A function of matrices of which the same eigenvectors are wanted, a few at a time."""
    n = X.shape[-1]
    Y = torch.empty_like(X, memory_format=torch.contiguous_format)
    out, X, U = Y.view(-1, n, n), X.reshape(-1, n, n), U.reshape(-1, n, n)
    eps = torch.as_tensor(f.threshold(s), dtype=s.dtype).expand(*s.shape[:-1], 1).reshape(-1, 1)
    s = s.reshape(-1, n)

    for index, side in _groups(s, eps):

        def work(part: slice, index: Tensor | None = index, side: slice = side) -> None:
            i = part if index is None else index[part]
            out[i] = function(X[i], s[i], U[i], eps[i], side)

        few = side.stop - side.start
        over_slices(work, len(s) if index is None else len(index), cost=n * n * few)
    return Y


def _groups(s: Tensor, eps: Tensor) -> Iterator[tuple[Tensor | None, slice]]:
    """Which matrices, all for None, and which of their eigenvectors; it depends on each alone."""
    n = s.shape[-1]
    n_low = (s < eps).sum(-1)
    low = 2 * n_low <= n
    few = torch.where(low, n_low, n - n_low)
    part = -(-n // _PART)
    width = part * (few.sub_(1).div_(part, rounding_mode="floor") + 1).clamp_(min=1)
    width = torch.where(low, width, -width)
    widths = width.unique().tolist()
    for w in widths:
        index = None if len(widths) == 1 else (width == w).nonzero()[:, 0]
        yield index, slice(0, w) if w > 0 else slice(n + w, n)
