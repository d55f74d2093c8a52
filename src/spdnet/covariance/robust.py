r"""Robust covariance estimators: M-estimators and the minimum covariance determinant.

An M-estimator is a solution of

.. math:: C = \frac1T \sum_t u(d_t) (x_t - m)(x_t - m)^\top, \qquad
    m = \frac{\sum_t v(d_t) x_t}{\sum_t v(d_t)}, \qquad d_t = (x_t - m)^\top C^{-1} (x_t - m),

with weights that decrease with the squared Mahalanobis distance. The center is estimated, too,
because outliers move the mean without bound. The estimators are affine equivariant: ``A X`` has the
covariance ``A C A^T``. M-estimators resist many outliers in random directions, but only a fraction
of about ``1 / p`` of outliers in one direction.
"""

import numpy
import torch
from torch import Tensor

from spdnet._autograd import is_differentiated
from spdnet._checks import require_number
from spdnet._precision import in_float64
from spdnet.covariance.arrays import accept_arrays, require_signals
from spdnet.covariance.fixed_point import (
    fixed_point,
    has_full_rank,
    require_estimable,
    starting_point,
    whitened,
)
from spdnet.linalg import symmetrize
from spdnet.linalg.cholesky import whiten


@accept_arrays
@in_float64
def huber(X: Tensor, *, q: float = 0.9) -> Tensor:
    r"""Compute Huber's M-estimator, which limits the weight of distant observations.

    .. math:: u(d) = \frac1b \min(1, c / d), \qquad v(d) = \min(1, c / d)^{1/2}, \qquad
        c = \chi^2_{p, q}

    The constant :math:`b` makes the result consistent: for Gaussian data it tends to the
    covariance. The influence of each outlier is bounded, and little efficiency is lost on clean
    data.

    Parameters
    ----------
    X : Tensor or array, shape (..., channels, time)
        More observations than channels, in general position.
    q : float
        Fraction of Gaussian observations with the full weight; toward 1, the result tends to the
        sample covariance. The iteration is slow for small values: use :func:`tyler` instead.

    References
    ----------
    R. A. Maronna, "Robust M-Estimators of Multivariate Location and Scatter", Ann. Stat., 1976.
    https://doi.org/10.1214/aos/1176343347

    Examples
    --------
    >>> import numpy
    >>> from spdnet import covariance
    >>> X = numpy.random.default_rng(0).normal(size=(2, 1000))
    >>> X[:, :50] = 100.0  # artifacts
    >>> covariance.sample_covariance(X).diagonal().round()
    array([477., 477.])
    >>> covariance.huber(X).diagonal().round()
    array([1., 1.])
    """
    from scipy.special import gammainc

    require_number("huber", "q", q, above=0, below=1)
    require_signals("huber", X)
    p = X.shape[-2]
    c = _chi2_quantile(q, p)
    b = float(gammainc(p / 2 + 1, c / 2)) + c * (1 - q) / p

    def weigh(d: Tensor) -> tuple[Tensor, Tensor]:
        w = c / d.clamp(min=c)
        return w / b, _normalized(w.sqrt())

    L = fixed_point("huber", X, *starting_point("huber", X), weigh)
    return symmetrize(L @ L.mT)


@accept_arrays
@in_float64
def student_t(X: Tensor, *, nu: float = 5.0) -> Tensor:
    r"""Compute the maximum-likelihood covariance under a multivariate t distribution.

    .. math:: u(d) = v(d) = \frac{p + \nu}{\nu + d}, \qquad
        \text{returns } \frac{\nu}{\nu - 2} C

    Parameters
    ----------
    X : Tensor or array, shape (..., channels, time)
        More observations than channels, in general position.
    nu : float
        Degrees of freedom, more than 2; small for heavy tails. For data with lighter tails, such as
        Gaussian data, the result is larger than the covariance, up to ``nu / (nu - 2)`` times.

    References
    ----------
    J. T. Kent, D. E. Tyler, Y. Vardi, "A curious likelihood identity for the multivariate
    t-distribution", Communications in Statistics, 1994. https://doi.org/10.1080/03610919408813180

    Examples
    --------
    >>> import numpy
    >>> from spdnet import covariance
    >>> X = numpy.random.default_rng(0).standard_t(5, size=(1, 10000))
    >>> covariance.student_t(X, nu=5).round(1)  # 5 / (5 - 2)
    array([[1.6]])
    """
    require_number("student_t", "nu", nu, above=2)
    require_signals("student_t", X)
    p = X.shape[-2]

    def weigh(d: Tensor) -> tuple[Tensor, Tensor]:
        v = _normalized((p + nu) / (nu + d))
        # the mean of u is 1 at the solution; setting it converges faster
        return v * d.shape[-1], v

    L = fixed_point("student_t", X, *starting_point("student_t", X), weigh)
    return symmetrize(L @ L.mT) * (nu / (nu - 2))


@accept_arrays
@in_float64
def tyler(X: Tensor) -> Tensor:
    r"""Compute Tyler's M-estimator, which depends only on the directions of the observations.

    .. math:: u(d) = p / d

    It is the most robust M-estimator, and the same for all elliptical distributions up to its
    scale. The scale is set such that the median of :math:`d` is that of the :math:`\chi^2_p`
    distribution: for Gaussian data the result tends to the covariance, and outliers hardly change
    it. The center is the median of each channel, so that affine equivariance holds up to the
    sampling error of the center. Observations at the center have no direction and are left out.

    Parameters
    ----------
    X : Tensor or array, shape (..., channels, time)
        More observations than channels, in general position.

    References
    ----------
    D. E. Tyler, "A Distribution-Free M-Estimator of Multivariate Scatter", Ann. Stat., 1987.
    https://doi.org/10.1214/aos/1176350263

    Examples
    --------
    >>> import numpy
    >>> from spdnet import covariance
    >>> X = numpy.random.default_rng(0).normal(size=(2, 1000))
    >>> X[:, :50] = 100.0  # artifacts
    >>> covariance.tyler(X).diagonal().round()
    array([1., 1.])
    """
    require_signals("tyler", X)
    p = X.shape[-2]
    center = _median(X)
    _, L = starting_point("tyler", X)

    def weigh(d: Tensor) -> tuple[Tensor, Tensor]:
        known = d > 0
        u = torch.where(known, p / torch.where(known, d, 1.0), 0.0)
        return u / known.to(d).mean(-1, keepdim=True), torch.zeros_like(d)

    L = fixed_point("tyler", X, center, L, weigh)
    d = whitened(L, X - center).square().sum(-2)
    median = torch.where(d > 0, d, torch.nan).nanmedian(-1).values
    return symmetrize(L @ L.mT) * (median / _chi2_quantile(0.5, p))[..., None, None]


@accept_arrays
@in_float64
def mcd(X: Tensor, *, seed: int = 0) -> Tensor:
    """Compute the minimum covariance determinant with :class:`sklearn.covariance.MinCovDet`.

    The estimate uses the half of the observations whose covariance has the smallest determinant,
    and then those close to it, with factors that make it consistent for Gaussian data. It resists
    outliers in one direction and clusters of up to about a quarter of the observations; the search
    of scikit-learn may miss larger ones. It is slow, because it processes signals one by one, and
    has no derivative.

    Parameters
    ----------
    X : Tensor or array, shape (..., channels, time)
        Several times more observations than channels.
    seed : int
        Seed of the random subsets that the search starts from, the same for each signal.

    References
    ----------
    P. J. Rousseeuw, K. Van Driessen, "A Fast Algorithm for the Minimum Covariance Determinant
    Estimator", Technometrics, 1999. https://doi.org/10.1080/00401706.1999.10485670

    Examples
    --------
    >>> import numpy
    >>> from spdnet import covariance
    >>> X = numpy.random.default_rng(0).normal(size=(2, 1000))
    >>> X[:, :200] += 100.0  # a cluster
    >>> covariance.mcd(X).diagonal().round()
    array([1., 1.])
    """
    from sklearn.covariance import MinCovDet

    require_signals("mcd", X)
    if is_differentiated(X):
        raise NotImplementedError("mcd: has no derivative; use huber, or give X.detach()")
    _, L = starting_point("mcd", X)
    # scikit-learn has absolute tolerances for the determinant: scale the channels
    scale = _median((X - _median(X)).abs())
    require_estimable(
        "mcd", (scale > 0).all(-2)[..., 0], X, "half of the values of a channel are equal"
    )
    C = X.new_empty(*X.shape[:-1], X.shape[-2])
    for index in numpy.ndindex(*X.shape[:-2]):
        x = (X[index] / scale[index]).mT.cpu().numpy()
        C[index] = torch.from_numpy(MinCovDet(random_state=seed).fit(x).covariance_)
    C = symmetrize(C) * (scale * scale.mT)
    require_estimable(
        "mcd", has_full_rank(whiten(L, C)), X, "too many observations lie in a subspace"
    )
    return C


def _normalized(v: Tensor) -> Tensor:
    return v / v.sum(-1, keepdim=True)


def _median(X: Tensor) -> Tensor:
    """Return the median of each channel, the mean of the middle two for an even number."""
    ordered, T = X.sort(-1).values, X.shape[-1]
    return (ordered[..., (T - 1) // 2, None] + ordered[..., T // 2, None]) / 2


def _chi2_quantile(q: float, p: int) -> float:
    from scipy.special import gammaincinv

    return 2 * float(gammaincinv(p / 2, q))
