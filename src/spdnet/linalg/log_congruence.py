r"""Logarithm of a congruence from singular values, accurate for small eigenvalues.

With :math:`X = K K^\top` and the singular value decomposition :math:`W K = U \Sigma Q^\top`, the
logarithm of :math:`W X W` is :math:`2 U \log(\Sigma) U^\top`. The condition number of :math:`W K`
is the square root of that of the product, so :math:`\Sigma` is accurate and positive where
eigenvalues computed from the product are rounding errors of either sign.
"""

import math

import torch
from torch import Tensor

from spdnet._autograd import can_branch
from spdnet._precision import disable_autocast, in_float64
from spdnet.linalg.cholesky import cholesky
from spdnet.linalg.congruence import congruence
from spdnet.linalg.eigh import eigh
from spdnet.linalg.pencil import accurate_svd
from spdnet.linalg.scalar import Log, Power
from spdnet.linalg.spectral import map_decomposed


@in_float64
@disable_autocast
def log_congruence(X: Tensor, W: Tensor, power: float = 1.0) -> Tensor:
    r"""Compute :math:`\log(W X^p W)` in float64, rounded to the dtype of ``X``.

    ``X`` and ``W`` are SPD ``(..., n, n)`` and broadcast; ``power`` is the exponent :math:`p`, not
    zero. Twice differentiable in reverse and forward mode. The input is not validated; a matrix
    that is not positive definite gives NaN.
    """
    K = cholesky(X.detach(), check=False)
    valid = (K.diagonal(dim1=-2, dim2=-1).real > 0).all(-1)[..., None, None]
    K = torch.where(valid, K, torch.eye(K.shape[-1], dtype=K.dtype, device=K.device))
    if power != 1:
        sigma, U = _left_svd(K)
        X = map_decomposed(X, sigma.square(), U, Power(power))
        K = U * sigma.pow(power)[..., None, :]
    Y = congruence(X, W)
    sigma, U = _left_svd(W.detach() @ K)
    return torch.where(valid, map_decomposed(Y, sigma.square(), U, Log()), torch.nan)


def _left_svd(M: Tensor) -> tuple[Tensor, Tensor]:
    """Compute singular values and left singular vectors of a constant matrix."""
    if can_branch(M):
        return accurate_svd(M)[:2]
    if M.is_cuda:
        return _svd_by_eigh(M)
    U, sigma, _ = torch.linalg.svd(M)
    return sigma, U


def _svd_by_eigh(M: Tensor) -> tuple[Tensor, Tensor]:
    r"""Compute singular values and left singular vectors by a solver that CUDA graphs can capture.

    The eigenvalues of :math:`\begin{bmatrix} 0 & M \\ M^\top & 0 \end{bmatrix}` are :math:`\pm
    \sigma`, with eigenvectors :math:`(u, \pm v) / \sqrt 2`. They are as accurate as a singular
    value decomposition, unlike the eigenvalues of :math:`M M^\top`.
    """
    n, zero = M.shape[-1], torch.zeros_like(M)
    rows = torch.cat([zero, M], -1), torch.cat([M.mH, zero], -1)
    s, V = eigh(torch.cat(rows, -2), check=False)
    return s[..., n:], math.sqrt(2) * V[..., :n, n:]
