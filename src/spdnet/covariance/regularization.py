"""Covariance matrices made positive definite, and scaled to correlations."""

import torch
from torch import Tensor

from spdnet._autograd import is_concrete
from spdnet._checks import require_choice, require_number, require_square
from spdnet.covariance.arrays import same_kind
from spdnet.linalg.validate import require_symmetric

REGULARIZERS = ("trace", "mean", "absolute", "shrinkage", "none")


@same_kind
def regularize(C: Tensor, reg: float = 1e-3, mode: str = "mean") -> Tensor:
    r"""Make covariance matrices positive definite.

    =============  ==========================================================
    ``mean``       :math:`C + r \frac{\mathrm{tr} C}{n} I`, relative to the mean eigenvalue
    ``trace``      :math:`C + r \, \mathrm{tr}(C) I`, the custom in action and face recognition
    ``absolute``   :math:`C + r I`, which also repairs a zero matrix
    ``shrinkage``  :math:`(1 - r) C + r \frac{\mathrm{tr} C}{n} I`, which keeps the trace
    ``none``       :math:`C` as it is
    =============  ==========================================================

    Parameters
    ----------
    C : Tensor or array, shape (..., n, n)
    reg : float
        The factor :math:`r`.
    mode : {"mean", "trace", "absolute", "shrinkage", "none"}

    Returns
    -------
    Tensor or array, shape (..., n, n)

    Examples
    --------
    >>> from spdnet.covariance import regularize
    >>> regularize([[1, -1], [-1, 1]], 0.1, "trace")
    array([[ 1.2, -1. ],
           [-1. ,  1.2]])
    """
    require_square("regularize", C, "C")
    require_choice("regularize", "mode", mode, REGULARIZERS)
    require_number(
        "regularize", "reg", reg, at_least=0, at_most=1 if mode == "shrinkage" else 1e300
    )
    require_symmetric("regularize", C, "C")
    size = {
        "mean": lambda: trace(C) / C.shape[-1],
        "trace": lambda: trace(C),
        "absolute": lambda: torch.ones_like(trace(C)),
    }
    if mode == "none":
        return C
    if mode == "shrinkage":
        return shrunk(C, torch.full_like(trace(C), reg))
    return C + (reg * size[mode]())[..., None, None] * eye(C)


@same_kind
def correlation(C: Tensor) -> Tensor:
    r"""Correlation matrix :math:`C_{ij} / \sqrt{C_{ii} C_{jj}}` of a covariance matrix.

    Parameters
    ----------
    C : Tensor or array, shape (..., n, n)
        With a positive diagonal.

    Returns
    -------
    Tensor or array, shape (..., n, n)

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
            f"{variance[index].item():.3g} at {index}; drop that channel or regularise"
        )
    scale = variance.rsqrt()
    R = C * (scale[..., :, None] * scale[..., None, :])
    return R - torch.diag_embed(R.diagonal(dim1=-2, dim2=-1)) + eye(R)  # ones exactly


def trace(C: Tensor) -> Tensor:
    """Traces ``(...)`` of matrices ``(..., n, n)``."""
    return C.diagonal(dim1=-2, dim2=-1).sum(-1)


def eye(C: Tensor) -> Tensor:
    """The identity of the size of ``C (..., n, n)``."""
    return torch.eye(C.shape[-1], dtype=C.dtype, device=C.device)


def shrunk(C: Tensor, rho: Tensor) -> Tensor:
    """``C (..., n, n)`` moved by the shares ``rho (...)`` towards a multiple of the identity."""
    mu = trace(C) / C.shape[-1]
    return (1 - rho)[..., None, None] * C + (rho * mu)[..., None, None] * eye(C)
