r"""Raise small eigenvalues to a threshold, and decompose only the matrices that have any.

Most matrices that a ReEig sees have no eigenvalue below the threshold :math:`\epsilon`: covariances
are regularised, and a BiMap with orthonormal columns never goes below the smallest eigenvalue of
its input. Such a matrix is its own result, and the derivative there is the identity. A Cholesky
decomposition of :math:`X - \epsilon I` tells, at a tenth of the cost of eigenvectors.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor

from spdnet._autograd import can_branch
from spdnet._checks import require_square
from spdnet._precision import without_autocast, working_dtype
from spdnet.linalg.scalar import Clamp
from spdnet.linalg.spectral import decompose, map_decomposed
from spdnet.linalg.validate import fails_cholesky, require_symmetric


@dataclass
class _Assumption:
    violated: Tensor
    after: int


_assumption: ContextVar[_Assumption | None] = ContextVar("assumption", default=None)


@contextmanager
def assuming_nothing_is_low(violated: Tensor, after: int = 0) -> Iterator[None]:
    """Take no matrix to have an eigenvalue below the threshold, and note where that is wrong.

    For what cannot branch, such as the capture of a CUDA graph; the caller has to look at
    ``violated`` afterwards, and throw the result away where it is true.

    Parameters
    ----------
    violated : Tensor of bool, shape ()
        Becomes true if a matrix had an eigenvalue below its threshold.
    after : int
        As many calls of :func:`rectify` assume nothing yet.
    """
    token = _assumption.set(_Assumption(violated, after))
    try:
        yield
    finally:
        _assumption.reset(token)


def rectify(X: Tensor, eps: float, *, check: bool = True, who: str = "rectify") -> Tensor:
    r"""As :func:`spdnet.linalg.clamp_eig` with one threshold for all matrices.

    An eigenvalue that only rounding has put below the threshold counts as not below it. A matrix
    that has none below it comes back as it is, and as a copy.

    Parameters
    ----------
    X : Tensor, shape (..., n, n)
        Symmetric.
    eps : float
    check : bool
        Refuse input that is not finite and symmetric.
    who : str
        The caller that an error names.

    Returns
    -------
    Tensor, shape (..., n, n)
    """
    require_square(who, X)
    if check:
        require_symmetric(who, X)
    assumption = None if torch.compiler.is_compiling() else _assumption.get()
    if assumption is not None and assumption.after == 0:
        assumption.violated.logical_or_(_has_lower(X.detach(), eps).any())
        return X
    if assumption is not None:
        assumption.after -= 1
    if not can_branch(X):
        return _rectify_all(X, eps, who)
    low = _has_lower(X.detach(), eps)
    n_low = int(low.sum())
    if n_low == low.numel():
        return _rectify_all(X, eps, who)
    if n_low == 0:
        return X.clone()  # a change of the result in place must not change the data
    index = low.nonzero()[:, 0]
    n = X.shape[-1]
    flat = X.reshape(-1, n, n)
    return flat.index_copy(0, index, _rectify_all(flat[index], eps, who)).reshape(X.shape)


def _rectify_all(X: Tensor, eps: float, who: str) -> Tensor:
    f = Clamp(eps)
    s, U = decompose(X, f, check=False, who=who)
    lowest = eps - _rounding(s.abs().amax(-1, keepdim=True), eps, s.shape[-1])
    s = torch.where((s < eps) & (s >= lowest), eps, s)
    return map_decomposed(X, s, U, f)


def _has_lower(X: Tensor, eps: float) -> Tensor:
    """Which of the matrices have an eigenvalue below ``eps``; flat, rounding forgiven."""
    n = X.shape[-1]
    with without_autocast(X):
        A = X.to(working_dtype(X.dtype)).reshape(-1, n, n)
        A = A.clone(memory_format=torch.contiguous_format)
        diagonal = A.diagonal(dim1=-2, dim2=-1)
        diagonal.sub_((eps - _rounding(diagonal.amax(-1), eps, n))[:, None])
        return fails_cholesky(A)


def _rounding(size: Tensor, eps: float, n: int) -> Tensor:
    """How far below ``eps`` an eigenvalue may be by rounding, for matrices of a size.

    A product of ``n`` by ``n`` matrices leaves some ``sqrt(n)`` units of the last digit of the
    largest entry. Never more than a small part of ``eps``, so that a zero eigenvalue is always
    below it.
    """
    unit = 4 * math.sqrt(n) * torch.finfo(size.dtype).eps
    return torch.clamp(unit * size.abs(), max=abs(eps) / 16)
