"""Regularization of covariance matrices, and correlations."""

import torch
from torch import Tensor

from spdnet._autograd import is_concrete
from spdnet._checks import require_choice, require_number, require_square
from spdnet.covariance.arrays import accept_arrays
from spdnet.linalg.symmetric import trace
from spdnet.linalg.validate import require_symmetric

REGULARIZERS = ("trace", "mean", "absolute", "shrinkage", "none")


@accept_arrays
def regularize(C: Tensor, reg: float = 1e-3, mode: str = "mean") -> Tensor:
    r"""Make covariance matrices positive definite.

    =============  ==========================================================
    ``mean``       :math:`C + r \frac{\mathrm{tr} C}{n} I`, relative to the mean eigenvalue
    ``trace``      :math:`C + r \, \mathrm{tr}(C) I`, common in action and face recognition
    ``absolute``   :math:`C + r I`, which also repairs a zero matrix
    ``shrinkage``  :math:`(1 - r) C + r \frac{\mathrm{tr} C}{n} I`, which preserves the trace
    ``none``       :math:`C` unchanged
    =============  ==========================================================

    Parameters
    ----------
    C : Tensor or array, shape (..., n, n)
    reg : float
        The factor :math:`r`.
    mode : {"mean", "trace", "absolute", "shrinkage", "none"}

    Examples
    --------
    >>> from spdnet.covariance import regularize
    >>> regularize([[1, -1], [-1, 1]], 0.1, "trace")
    array([[ 1.2, -1. ],
           [-1. ,  1.2]])
    """
    require_square("regularize", C, "C")
    require_choice("regularize", "mode", mode, REGULARIZERS)
    most = 1 if mode == "shrinkage" else 1e300
    require_number("regularize", "reg", reg, at_least=0, at_most=most)
    require_symmetric("regularize", C, "C")
    if mode == "none":
        return C
    size = trace(C)
    if mode == "shrinkage":
        return shrink(C, torch.full_like(size, reg))
    if mode != "trace":
        size = size / C.shape[-1] if mode == "mean" else torch.ones_like(size)
    return C + (reg * size)[..., None, None] * eye(C)


@accept_arrays
def correlation(C: Tensor) -> Tensor:
    r"""Compute the correlation matrix :math:`C_{ij} / \sqrt{C_{ii} C_{jj}}` of a covariance matrix.

    Parameters
    ----------
    C : Tensor or array, shape (..., n, n)
        With a positive diagonal.

    Examples
    --------
    >>> from spdnet.covariance import correlation
    >>> correlation([[4.0, 1.0], [1.0, 1.0]])
    array([[1. , 0.5],
           [0.5, 1. ]])
    """
    require_square("correlation", C, "C")
    require_symmetric("correlation", C, "C")
    variance = C.diagonal(dim1=-2, dim2=-1)
    if is_concrete(C) and not (variance > 0).all():
        index = tuple((variance <= 0).nonzero()[0].tolist())
        raise ValueError(
            f"correlation: expected a positive variance of every channel, got "
            f"{variance[index].item():.3g} at {index}; drop that channel or regularize"
        )
    scale = variance.rsqrt()
    R = C * (scale[..., :, None] * scale[..., None, :])
    return R - torch.diag_embed(R.diagonal(dim1=-2, dim2=-1)) + eye(R)  # exact ones


def eye(C: Tensor) -> Tensor:
    """Return the identity of the size of ``C (..., n, n)``."""
    return torch.eye(C.shape[-1], dtype=C.dtype, device=C.device)


def shrink(C: Tensor, rho: Tensor) -> Tensor:
    """Shrink ``C (..., n, n)`` by the factors ``rho (...)`` towards a multiple of the identity."""
    mu = trace(C) / C.shape[-1]
    return (1 - rho)[..., None, None] * C + (rho * mu)[..., None, None] * eye(C)
