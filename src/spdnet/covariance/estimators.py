"""Covariance estimators for signals, regularization, and correlations."""

from functools import partial

import torch
from torch import Tensor

from spdnet._autograd import is_concrete
from spdnet._checks import require_choice, require_number, require_square
from spdnet.covariance.arrays import accept_arrays, require_signals
from spdnet.covariance.robust import huber, mcd, student_t, tyler
from spdnet.linalg import symmetrize
from spdnet.linalg.symmetric import trace
from spdnet.linalg.validate import require_symmetric

REGULARIZERS = ("trace", "mean", "absolute", "shrinkage", "none")


@accept_arrays
def sample_covariance(X: Tensor) -> Tensor:
    r"""Compute the sample covariance :math:`\frac{1}{T - 1} \sum_t (x_t - m)(x_t - m)^\top`.

    ``X (..., channels, time)`` gives ``(..., channels, channels)``. The result is singular if there
    are no more observations than channels: see :func:`regularize`.

    Examples
    --------
    >>> from spdnet.covariance import sample_covariance
    >>> sample_covariance([[1, 2, 3], [3, 2, 1]])
    array([[ 1., -1.],
           [-1.,  1.]])
    """
    X, T = _centered("sample_covariance", X)
    return symmetrize(X @ X.mT) / (T - 1)


@accept_arrays
def ledoit_wolf(X: Tensor) -> Tensor:
    r"""Compute the covariance with Ledoit-Wolf shrinkage toward a multiple of the identity.

    :math:`(1 - \rho) C + \rho \mu I` with :math:`\mu = \mathrm{tr} C / n` and the :math:`\rho` that
    minimizes the expected squared error, estimated from the data: :math:`\rho = \frac1{T^2} \sum_t
    \lVert x_t x_t^\top - C \rVert^2 / \lVert C - \mu I \rVert^2`, at most 1, where :math:`C` has
    the denominator ``T``. Parameters and return value as in :func:`sample_covariance`.

    References
    ----------
    O. Ledoit, M. Wolf, "A well-conditioned estimator for large-dimensional covariance matrices",
    J. Multivar. Anal., 2004. https://doi.org/10.1016/S0047-259X(03)00096-4

    Examples
    --------
    >>> from spdnet.covariance import ledoit_wolf
    >>> ledoit_wolf([[1, 2, 3, 5], [3, 2, 1, 0]]).round(3)
    array([[ 2.003, -0.987],
           [-0.987,  1.434]])
    """
    X, T = _centered("ledoit_wolf", X)
    n = X.shape[-2]
    C = symmetrize(X @ X.mT) / T
    mu = trace(C) / n
    # mean squared distances of the outer products of observations from C, and of C from mu I
    spread = X.square().sum(-2).square().sum(-1) / T - C.square().sum((-2, -1))
    distance = C.square().sum((-2, -1)) - n * mu**2
    return _shrink(C, _clipped_ratio(spread / T, distance))


@accept_arrays
def oas(X: Tensor) -> Tensor:
    r"""Compute the covariance with oracle approximating shrinkage.

    As :func:`ledoit_wolf`, with a :math:`\rho` that approximates the optimum for Gaussian data,

    .. math:: \rho = \frac{\mathrm{tr}(C^2) + \mathrm{tr}^2 C}
                       {(T + 1) (\mathrm{tr}(C^2) - \mathrm{tr}^2 C / n)},

    at most 1. This is scikit-learn's form: it omits terms with :math:`2 / n` of the original, which
    means more shrinkage for fewer than about ten channels.

    References
    ----------
    Y. Chen, A. Wiesel, Y. C. Eldar, A. O. Hero, "Shrinkage Algorithms for MMSE Covariance
    Estimation", IEEE Trans. Signal Process., 2010. https://doi.org/10.1109/TSP.2010.2053029

    Examples
    --------
    >>> from spdnet.covariance import oas
    >>> oas([[1, 2, 3, 5], [3, 2, 1, 0]]).round(3)
    array([[ 1.803, -0.293],
           [-0.293,  1.634]])
    """
    X, T = _centered("oas", X)
    C = symmetrize(X @ X.mT) / T
    return _shrink(C, oas_shrinkage(C, T))


def oas_shrinkage(C: Tensor, T: int | Tensor) -> Tensor:
    r"""Return the factors :math:`\rho` of :func:`oas` for covariances of ``T`` observations."""
    square, total = C.square().sum((-2, -1)), trace(C).square()
    return _clipped_ratio(square + total, (T + 1) * (square - total / C.shape[-1]))


ESTIMATORS = {
    "sample": sample_covariance,
    "ledoit_wolf": ledoit_wolf,
    "oas": oas,
    "huber": huber,
    "student_t": student_t,
    "tyler": tyler,
    "mcd": mcd,
}


@accept_arrays
def estimate(
    X: Tensor, estimator: str = "sample", *, reg: float = 1e-3, mode: str = "mean"
) -> Tensor:
    """Compute a covariance with a named estimator, regularized to be positive definite.

    Parameters
    ----------
    X : Tensor or array, shape (..., channels, time)
        Estimate signals of unequal length one by one.
    estimator : {"sample", "ledoit_wolf", "oas", "huber", "student_t", "tyler", "mcd"}
        The last four are robust against outliers.
    reg, mode
        See :func:`regularize`.

    Examples
    --------
    >>> from spdnet import covariance
    >>> covariance.estimate([[1, 2, 3], [3, 2, 1]], reg=0.5)
    array([[ 1.5, -1. ],
           [-1. ,  1.5]])
    """
    require_choice("estimate", "estimator", estimator, ESTIMATORS)
    return regularize(ESTIMATORS[estimator](X), reg, mode)


@partial(accept_arrays, allow_complex=True)
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
        Real or complex.
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
        return _shrink(C, torch.full_like(size, reg))
    if mode != "trace":
        size = size / C.shape[-1] if mode == "mean" else torch.ones_like(size)
    return C + (reg * size)[..., None, None] * _eye(C)


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
    return R - torch.diag_embed(R.diagonal(dim1=-2, dim2=-1)) + _eye(R)  # exact ones


def _centered(who: str, X: Tensor) -> tuple[Tensor, int]:
    """Return the centered signals and the number of observations."""
    require_signals(who, X)
    return X - X.mean(-1, keepdim=True), X.shape[-1]


def _clipped_ratio(part: Tensor, whole: Tensor) -> Tensor:
    """Compute ``part / whole`` clipped to [0, 1]; 1 if ``whole`` is zero, with derivatives."""
    less = (part < whole) & (whole > 0)
    return torch.where(less, (part / torch.where(less, whole, 1.0)).clamp(min=0), 1.0)


def _eye(C: Tensor) -> Tensor:
    """Return the identity of the size of ``C (..., n, n)``."""
    return torch.eye(C.shape[-1], dtype=C.dtype, device=C.device)


def _shrink(C: Tensor, rho: Tensor) -> Tensor:
    """Shrink ``C (..., n, n)`` by the factors ``rho (...)`` toward a multiple of the identity."""
    mu = trace(C) / C.shape[-1]
    return (1 - rho)[..., None, None] * C + (rho * mu)[..., None, None] * _eye(C)
