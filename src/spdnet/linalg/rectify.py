r"""Rectification of eigenvalues that decomposes only the matrices that need it.

Most matrices that a ReEig sees have no eigenvalue below the threshold :math:`\epsilon`: covariances
are regularized, and a BiMap with orthonormal columns never lowers the smallest eigenvalue. Such a
matrix is returned unchanged, and its derivative is the identity. A Cholesky decomposition of
:math:`X - \epsilon I` finds such matrices at a tenth of the cost of eigenvectors.
"""

import math
from typing import Any

import torch
from torch import Tensor

from spdnet._autograd import can_branch
from spdnet._checks import require_square
from spdnet._precision import without_autocast, working_dtype
from spdnet.linalg.scalar import Clamp, ClampedExp, Exp
from spdnet.linalg.spectral import decompose, map_decomposed
from spdnet.linalg.validate import (
    fails_cholesky,
    require_semidefinite_eigenvalues,
    require_symmetric,
)


def rectify(
    X: Tensor,
    eps: float,
    *,
    violated: Tensor | None = None,
    check: bool = True,
    strict: bool = False,
    copy: bool = True,
    log: bool = False,
    who: str = "rectify",
) -> Tensor:
    """Compute :func:`spdnet.linalg.clamp_eig` with one threshold for all matrices.

    With a boolean tensor ``violated``, return ``X`` itself, and set ``violated`` to True if a
    matrix has an eigenvalue below the threshold. This is for the capture of a CUDA graph, which
    cannot branch: the caller discards the result if ``violated`` is True. ``strict`` raises a
    ValueError if a decomposition finds an eigenvalue that is negative beyond rounding. Without
    ``copy``, the result may be ``X`` itself. With ``log``, ``X`` is the logarithm of the matrices,
    and one decomposition serves the exponential and the clamp.
    """
    require_square(who, X)
    if check:
        require_symmetric(who, X)
    if log:
        return clamp_exp(X, *decompose(X, Exp(), check=False, who=who), eps)
    if violated is not None:
        violated.logical_or_(_has_lower(X.detach(), eps).any())
        return X
    if not can_branch(X):
        return _rectify_all(X, eps, who)
    low = _has_lower(X.detach(), eps)
    n_low = int(low.sum())
    if n_low == low.numel():
        return _rectify_all(X, eps, who, strict)
    if n_low == 0:
        return X.clone() if copy else X  # changing the result in place must not change the data
    index = low.nonzero()[:, 0]
    n = X.shape[-1]
    flat = X.reshape(-1, n, n)
    return flat.index_copy(0, index, _rectify_all(flat[index], eps, who, strict)).reshape(X.shape)


def _rectify_all(X: Tensor, eps: float, who: str, strict: bool = False) -> Tensor:
    f = Clamp(eps)
    s, U = decompose(X, f, check=False, who=who)
    if strict:
        require_semidefinite_eigenvalues(who, s)
    return map_decomposed(X, torch.where(_is_tie(s, eps), eps, s), U, f)


def clamp_exp(X: Tensor, s: Tensor, U: Tensor, eps: float | Tensor) -> Tensor:
    """Compute ``max(eps, exp(X))`` from the decomposition of ``X``, with one threshold for all.

    An eigenvalue that is below the threshold only by rounding counts as not below it.
    """
    f = ClampedExp(eps)
    s = torch.where(_is_tie(s.exp(), eps), f.inner(s).threshold(s), s)
    return map_decomposed(X, s, U, f)


def _has_lower(X: Tensor, eps: float) -> Tensor:
    """Return which matrices have an eigenvalue below ``eps``, up to rounding, as a flat tensor."""
    n = X.shape[-1]
    with without_autocast(X):
        A = X.to(working_dtype(X.dtype)).reshape(-1, n, n)
        A = A.clone(memory_format=torch.contiguous_format)
        diagonal = A.diagonal(dim1=-2, dim2=-1)
        diagonal.sub_(_lowest(diagonal.real.amax(-1), eps, n)[:, None])
        return fails_cholesky(A)


def _is_tie(s: Tensor, eps: float | Tensor) -> Tensor:
    """Return which eigenvalues are equal to ``eps``, or below it only by rounding."""
    return (s <= eps) & (s >= _lowest(s.abs().amax(-1, keepdim=True), eps, s.shape[-1]))


def _lowest(size: Tensor, eps: Any, n: int) -> Tensor:
    """Return the smallest number that counts as ``eps``, given the size of the entries."""
    # a product has an error of about sqrt(n) units in the last digit of the largest entry; the
    # bound is a small part of eps, so that a zero eigenvalue is always below eps
    unit = 4 * math.sqrt(n) * torch.finfo(size.dtype).eps
    return (eps - unit * size).clamp(min=eps - abs(eps) / 16)
