r"""Logarithm of a congruence from singular values, which keeps the digits of small eigenvalues.

With :math:`X = K K^\top` and the singular value decomposition :math:`W K = U \Sigma Q^\top`, the
logarithm of :math:`W X W` is :math:`2 U \log(\Sigma) U^\top`. The condition number of :math:`W K`
is the square root of that of the product, so :math:`\Sigma` is accurate and positive where the
eigenvalues computed from the product are rounding errors of either sign.
"""

import math

import torch
from torch import Tensor

from spdnet._autograd import can_branch
from spdnet._precision import accurately, unlowered
from spdnet.linalg.cholesky import cholesky
from spdnet.linalg.congruence import congruence
from spdnet.linalg.eigh import eigh
from spdnet.linalg.pencil import singular
from spdnet.linalg.scalar import Log, Power
from spdnet.linalg.spectral import map_decomposed


@accurately
@unlowered
def log_congruence(X: Tensor, W: Tensor, power: float = 1.0) -> Tensor:
    r"""Compute :math:`\log(W X^p W)` in float64, rounded to the dtype of ``X``.

    Once and twice differentiable in reverse and forward mode. The input is not checked; the result
    is NaN for a matrix that is not positive definite.

    Parameters
    ----------
    X, W : Tensor, shape (..., n, n)
        Symmetric positive definite; the leading shapes broadcast.
    power : float
        The exponent :math:`p`, not zero.

    Returns
    -------
    Tensor, shape (..., n, n)

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg.log_congruence import log_congruence
    >>> log_congruence(torch.e * torch.eye(2), torch.eye(2), 3.0).diagonal().round(decimals=4)
    tensor([3., 3.])
    """
    K = cholesky(X.detach(), check=False)
    valid = (K.diagonal(dim1=-2, dim2=-1) > 0).all(-1)[..., None, None]
    K = torch.where(valid, K, torch.eye(K.shape[-1], dtype=K.dtype, device=K.device))
    if power != 1:
        sigma, U = _singular(K)
        X = map_decomposed(X, sigma.square(), U, Power(power))
        K = U * sigma.pow(power)[..., None, :]
    Y = congruence(X, W)
    sigma, U = _singular(W.detach() @ K)
    return torch.where(valid, map_decomposed(Y, sigma.square(), U, Log()), torch.nan)


def _singular(M: Tensor) -> tuple[Tensor, Tensor]:
    """Singular values and left singular vectors of a constant matrix."""
    if can_branch(M):
        return singular(M)[:2]
    if M.is_cuda:
        return _by_eigenvalues(M)
    U, sigma, _ = torch.linalg.svd(M)
    return sigma, U


def _by_eigenvalues(M: Tensor) -> tuple[Tensor, Tensor]:
    r"""Singular values and left singular vectors by a solver that CUDA graphs can capture.

    The eigenvalues of :math:`\begin{bmatrix} 0 & M \\ M^\top & 0 \end{bmatrix}` are :math:`\pm
    \sigma`, with eigenvectors :math:`(u, \pm v) / \sqrt 2`. They are as accurate as those of a
    singular value decomposition, unlike the eigenvalues of :math:`M M^\top`.
    """
    n, zero = M.shape[-1], torch.zeros_like(M)
    rows = torch.cat([zero, M], -1), torch.cat([M.mT, zero], -1)
    s, V = eigh(torch.cat(rows, -2), check=False)
    return s[..., n:], math.sqrt(2) * V[..., :n, n:]
