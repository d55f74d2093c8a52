r"""Clamped eigenvalues from the eigenvectors on one side of the threshold.

``max(eps, s)`` is ``s`` plus a function that vanishes above the threshold, and ``eps`` plus one
that vanishes below it. With the eigenvectors :math:`V` of the smaller side,

.. math::
    Y = X + V (\epsilon - S_V) V^\top \quad\text{or}\quad
    Y = \epsilon I + V (S_V - \epsilon) V^\top,

and the derivative is four products with :math:`V`. That is a fraction of the work of
:math:`U f(S) U^\top` for a matrix of low rank, and never more than half of it.
"""

import math
from collections.abc import Callable

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
    G = symmetrize(G)
    K = (V.mH @ G @ U).mul_(_differences(s, eps, side))
    if low:
        D = V @ (K @ U.mH)
        return (D + D.mH).add_(G)
    D = torch.bmm(V, K @ U.mH, out=G)
    return D + D.mH


def _differences(s: Tensor, eps: Tensor, side: slice) -> Tensor:
    """Compute divided differences ``(B, few, n)`` of the part that vanishes beyond the threshold.

    Those of two eigenvectors of this part are halved: they are counted in both terms of the sum.
    """
    low = side.start == 0
    is_part = s < eps if low else s >= eps
    few, in_part = s[..., side], is_part[..., side]
    excess = torch.where(in_part, few - eps, 0.0)
    # an eigenvector on the side that is not of this part gets 0
    far = torch.where(in_part, few, -math.inf if low else math.inf)
    mixed = excess[..., None] / (far[..., None] - s[..., None, :]).abs_()
    within = in_part.to(s.dtype) * (-0.5 if low else 0.5)
    return torch.where(is_part[..., None, :], within[..., None], mixed)


def _by_group(function: Callable[..., Tensor], X: Tensor, s: Tensor, U: Tensor, f: Clamp) -> Tensor:
    """Apply a function to groups of matrices that need the same slice of eigenvectors."""
    shape, n = X.shape, X.shape[-1]
    X, U = X.reshape(-1, n, n), U.reshape(-1, n, n)
    eps = torch.as_tensor(f.threshold(s), dtype=s.dtype).expand(*s.shape[:-1], 1).reshape(-1, 1)
    s = s.reshape(-1, n)
    groups = _groups(s, eps)
    if len(groups) == 1:
        return function(X, s, U, eps, groups[0][1]).reshape(shape)
    Y = torch.empty_like(X, memory_format=torch.contiguous_format)
    for index, side in groups:
        Y[index] = function(X[index], s[index], U[index], eps[index], side)
    return Y.reshape(shape)


def _groups(s: Tensor, eps: Tensor) -> list[tuple[list[int], slice]]:
    """Return the indices of matrices that need the same slice of eigenvectors, and the slice."""
    n = s.shape[-1]
    step = -(-n // _N_WIDTHS)
    members: dict[tuple[bool, int], list[int]] = {}
    for i, n_low in enumerate((s < eps).sum(-1).tolist()):
        low = 2 * n_low <= n
        few = n_low if low else n - n_low
        members.setdefault((low, step * max(1, -(-few // step))), []).append(i)
    return [
        (index, slice(0, width) if low else slice(n - width, n))
        for (low, width), index in members.items()
    ]
