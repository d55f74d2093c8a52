r"""Clamped eigenvalues from the eigenvectors on one side of the threshold.

``max(eps, s)`` is ``s`` plus a function that vanishes above the threshold, and ``eps`` plus one
that vanishes below it. With the eigenvectors :math:`V` of the smaller side,

.. math::
    Y = X + V (\epsilon - S_V) V^\top \quad\text{or}\quad
    Y = \epsilon I + V (S_V - \epsilon) V^\top,

and the derivative is four products with :math:`V`. That is a fraction of the work of
:math:`U f(S) U^\top` for a matrix of low rank, and never more than half of it.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from spdnet._autograd import is_concrete
from spdnet.linalg.scalar import Clamp
from spdnet.linalg.symmetric import symmetrize

#: smallest matrices for which grouping by the number of eigenvectors is faster
_MIN_SIZE = 24
#: maximum number of group widths
_N_WIDTHS = 8


def is_faster(s: Tensor) -> bool:
    """Return whether grouping by the number of eigenvectors is possible and faster."""
    return s.shape[-1] >= _MIN_SIZE and s.device.type == "cpu" and s.numel() > 0 and is_concrete(s)


def value(X: Tensor, s: Tensor, U: Tensor, f: Clamp) -> Tensor:
    """Compute ``U f(S) U^T`` from ``X (..., n, n)`` and its decomposition."""
    return _by_group(_value, X, s, U, f)


def first(s: Tensor, U: Tensor, f: Clamp, G: Tensor) -> Tensor:
    """Compute the derivative of :func:`value` in the direction ``G (..., n, n)``."""
    return _by_group(_first, G, s, U, f)


def _value(X: Tensor, s: Tensor, U: Tensor, eps: Tensor, side: slice) -> Tensor:
    V, s = U[..., side], s[..., side]
    low = side.start == 0
    weight = torch.clamp(eps - s if low else s - eps, min=0) / 2  # 0 on the other side
    Y = (V * weight[:, None, :]) @ V.mH
    Y = Y + Y.mH
    if low:
        return Y.add_(symmetrize(X))
    Y.diagonal(dim1=-2, dim2=-1).add_(eps)
    return Y


def _first(G: Tensor, s: Tensor, U: Tensor, eps: Tensor, side: slice) -> Tensor:
    V = U[..., side]
    low = side.start == 0
    c = Clamp(eps[:, 0]).first(s[..., side, None], s[..., None, :])  # (B, few, n)
    if low:
        c -= 1
    c[..., side] /= 2  # counted in both terms of the sum below
    G = symmetrize(G)
    K = (V.mH @ G @ U).mul_(c)
    if low:
        D = V @ (K @ U.mH)
        return (D + D.mH).add_(G)
    D = torch.bmm(V, K @ U.mH, out=G)
    return D + D.mH


def _by_group(function: Callable[..., Tensor], X: Tensor, s: Tensor, U: Tensor, f: Clamp) -> Tensor:
    """Apply a function to groups of matrices that need the same slice of eigenvectors."""
    shape, n = X.shape, X.shape[-1]
    X, U = X.reshape(-1, n, n), U.reshape(-1, n, n)
    eps = torch.as_tensor(f.threshold(s), dtype=s.dtype).expand(*s.shape[:-1], 1).reshape(-1, 1)
    s = s.reshape(-1, n)
    groups = list(_groups(s, eps))
    if len(groups) == 1:
        return function(X, s, U, eps, groups[0][1]).reshape(shape)
    Y = torch.empty_like(X, memory_format=torch.contiguous_format)
    for index, side in groups:
        Y[index] = function(X[index], s[index], U[index], eps[index], side)
    return Y.reshape(shape)


def _groups(s: Tensor, eps: Tensor) -> Iterator[tuple[Tensor, slice]]:
    """Yield the indices of matrices that need the same slice of eigenvectors, and the slice."""
    n = s.shape[-1]
    n_low = (s < eps).sum(-1)
    low = 2 * n_low <= n
    few = torch.where(low, n_low, n - n_low)
    part = -(-n // _N_WIDTHS)
    width = part * ((few + part - 1) // part).clamp(min=1)
    width = torch.where(low, width, -width)
    for w in width.unique().tolist():
        yield (width == w).nonzero()[:, 0], slice(0, w) if w > 0 else slice(n + w, n)
