"""Numerical rank of positive semi-definite matrices, and a basis of their range."""

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from spdnet._inputs import checked_matrices
from spdnet.linalg import congruence
from spdnet.linalg.validate import chunk_size, fails_cholesky, singular_ratios

#: eigenvalues less than this factor above rounding errors are noise if a wide gap follows
_WINDOW = 30.0


def find_rank(X: ArrayLike) -> NDArray[numpy.int64]:
    r"""Compute the numerical ranks ``(N,)`` of positive semi-definite matrices ``(N, n, n)``.

    The rank is the number of eigenvalues of the correlation matrix :math:`D^{-1/2} X D^{-1/2}`,
    :math:`D = \mathrm{diag}(X)`, above a threshold, so that it does not depend on the units of the
    channels. The threshold is in the widest gap between eigenvalues of the order of rounding
    errors. The size of rounding errors is estimated from negative eigenvalues and from the number
    of digits of the entries, so that it is also right for a float64 array of numbers that were
    rounded to float32 or to six or more decimal digits.

    A channel whose variance is within the rounding error of the largest variance counts only if it
    is correlated with larger channels.

    Examples
    --------
    >>> import numpy
    >>> from spdnet.adaptation import find_rank
    >>> X = numpy.cov(numpy.random.default_rng(0).normal(size=(8, 100)))
    >>> centering = numpy.eye(8) - 1 / 8
    >>> find_rank([X, centering @ X @ centering])
    array([8, 7])
    """
    return count_dimensions(checked_semidefinite("find_rank", X))[0].numpy()


def count_dimensions(X: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ranks, and the size of rounding errors relative to the largest eigenvalue."""
    parts = [_count_chunk(part) for part in X.split(chunk_size(X.shape[-1], X.device))]
    ranks, errors = zip(*parts, strict=True)
    return torch.cat(ranks), torch.cat(errors)


def _count_chunk(X: Tensor) -> tuple[Tensor, Tensor]:
    n, errors = X.shape[-1], singular_ratios(X)
    R = _correlations(X.double(), errors)
    ranks = torch.full(X.shape[:1], n, device=X.device)
    # the largest eigenvalue is at most the trace, n
    shifted = R.clone()
    shifted.diagonal(dim1=-2, dim2=-1).sub_(_WINDOW * n * errors[:, None])
    doubt = fails_cholesky(shifted)
    if doubt.any():
        s = torch.linalg.eigvalsh(R[doubt])
        errors[doubt] = torch.maximum(errors[doubt], -s[:, 0] / s[:, -1].clamp(min=1))
        ranks[doubt] = _count(s, errors[doubt])
    return ranks, errors


def _correlations(X: Tensor, errors: Tensor) -> Tensor:
    """Return the correlation matrices, zero in channels whose variance is a rounding error."""
    variance = X.diagonal(dim1=-2, dim2=-1).clamp(min=0)
    scale = torch.where(variance > 0, variance, torch.inf).rsqrt()
    R = X * scale[:, :, None] * scale[:, None, :]
    share = variance / variance.amax(-1, keepdim=True).clamp(min=torch.finfo(X.dtype).tiny)
    large = share > errors[:, None]
    # a small variance is not a rounding error if the channel is correlated with a large one
    related = (R.abs() * large[:, None, :]).amax(-1) > errors[:, None] ** 0.25
    kept = large | (related & (share > (errors[:, None] / 16) ** 2))
    return R * kept[:, :, None] * kept[:, None, :]


def _count(s: Tensor, errors: Tensor) -> Tensor:
    """Count eigenvalues ``(N, n)``, ascending, above the widest gap just above rounding errors."""
    top = s[:, -1:]
    low = errors[:, None].clamp(max=1.0)
    high = (low * _WINDOW).clamp(max=1.0)
    inside = (s / torch.where(top > 0, top, 1.0)).clamp(low, high)
    gaps = torch.cat([low, inside, high], -1).log().diff(dim=-1)
    return torch.where(top[:, 0] > 0, s.shape[-1] - gaps.argmax(-1), 0)


def range_basis(X: Tensor, error: Tensor) -> Tensor:
    """Return orthonormal eigenvectors ``(n, r)`` of one matrix of rank ``r``, the largest first.

    Their signs are arbitrary. ``error`` is the size of rounding errors relative to the largest
    eigenvalue.
    """
    R = _correlations(X[None], error[None])
    s, U = torch.linalg.eigh(R[0])
    most = int(_count(s[None], error[None]))
    spread = X.diagonal().clamp(min=0).sqrt()[:, None] * U[:, X.shape[-1] - most :]
    F = torch.linalg.qr(spread).Q
    return F @ torch.linalg.eigh(congruence(X, F)).eigenvectors.flip(-1)


def checked_semidefinite(who: str, X: ArrayLike, n: int | None = None) -> Tensor:
    """Return positive semi-definite matrices as a float64 tensor, exactly symmetric."""
    return checked_matrices(who, X, n=n, wanted="positive semi-definite")
