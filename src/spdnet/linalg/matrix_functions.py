"""Named functions of symmetric matrices.

They accept ``X (..., n, n)`` and raise a ValueError if it is not finite, symmetric and in the
domain of the function; ``check=False`` skips this validation.
"""

from torch import Tensor

from spdnet._checks import require_number
from spdnet.linalg.rectify import rectify
from spdnet.linalg.scalar import Clamp, Exp, InvSqrt, Log, Power, Sqrt
from spdnet.linalg.spectral import spectral_map
from spdnet.linalg.symmetric import symmetrize
from spdnet.linalg.validate import require_finite


def logm(X: Tensor, *, check: bool = True) -> Tensor:
    r"""Compute the matrix logarithm :math:`U \log(S) U^\top` of SPD matrices.

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg import logm
    >>> logm(torch.tensor([[1.0, 0.0], [0.0, 2.0]])).diagonal().round(decimals=4)
    tensor([0.0000, 0.6931])
    """
    return spectral_map(X, Log(), check=check, who="logm")


def expm(X: Tensor, *, check: bool = True) -> Tensor:
    r"""Compute the matrix exponential :math:`U \exp(S) U^\top` of symmetric matrices.

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg import expm
    >>> expm(torch.zeros(2, 2)).diagonal().round(decimals=4)
    tensor([1., 1.])
    """
    return spectral_map(X, Exp(), check=check, who="expm")


def sqrtm(X: Tensor, *, check: bool = True) -> Tensor:
    """Compute the square root :math:`X^{1/2}` of SPD matrices.

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg import sqrtm
    >>> sqrtm(4 * torch.eye(2)).diagonal().round(decimals=4)
    tensor([2., 2.])
    """
    return spectral_map(X, Sqrt(), check=check, who="sqrtm")


def invsqrtm(X: Tensor, *, check: bool = True) -> Tensor:
    """Compute the inverse square root :math:`X^{-1/2}` of SPD matrices.

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg import invsqrtm
    >>> invsqrtm(4 * torch.eye(2)).diagonal().round(decimals=4)
    tensor([0.5000, 0.5000])
    """
    return spectral_map(X, InvSqrt(), check=check, who="invsqrtm")


def powm(X: Tensor, p: float, *, check: bool = True) -> Tensor:
    r"""Compute the real power :math:`X^p = U S^p U^\top` of SPD matrices.

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg import powm
    >>> powm(4 * torch.eye(2), -1).diagonal().round(decimals=4)
    tensor([0.2500, 0.2500])
    """
    require_number("powm", "p", p)
    return spectral_map(X, Power(float(p)), check=check, who="powm")


def clamp_eig(X: Tensor, eps: float | Tensor, *, check: bool = True) -> Tensor:
    r"""Raise small eigenvalues to a threshold, :math:`U \max(\epsilon, S) U^\top`.

    With a scalar threshold, only matrices with smaller eigenvalues are decomposed; an eigenvalue
    that is below the threshold only by rounding counts as not below it.

    Parameters
    ----------
    X : Tensor, shape (..., n, n)
    eps : float or Tensor
        Threshold; a tensor has the leading shape of ``X``, or the first of its dimensions, and is
        treated as a constant.
    check : bool
        Raise a ValueError unless the input is finite and symmetric.

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg import clamp_eig
    >>> clamp_eig(torch.tensor([[1.0, 0.0], [0.0, -1.0]]), 0.5).diagonal().round(decimals=4)
    tensor([1.0000, 0.5000])
    """
    if not isinstance(eps, Tensor):
        require_number("clamp_eig", "eps", eps)
        return symmetrize(rectify(X, float(eps), check=check, who="clamp_eig"))
    if eps.shape != X.shape[: eps.ndim] or eps.ndim > X.ndim - 2:
        raise ValueError(
            f"clamp_eig: expected eps with the leading shape of X, {tuple(X.shape[:-2])}, or none, "
            f"got {tuple(eps.shape)}; give one threshold for each matrix"
        )
    if check:
        require_finite("clamp_eig", eps[..., None, None], "eps")
    return spectral_map(X, Clamp(eps), check=check, who="clamp_eig")
