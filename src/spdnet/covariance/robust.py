r"""Robust covariance estimators: M-estimators and the minimum covariance determinant.

An M-estimator is a solution of

.. math:: C = \frac1T \sum_t u(d_t) (x_t - m)(x_t - m)^\top, \qquad
    m = \frac{\sum_t v(d_t) x_t}{\sum_t v(d_t)}, \qquad d_t = (x_t - m)^\top C^{-1} (x_t - m),

with weights that decrease with the squared Mahalanobis distance. The center is estimated, too,
because outliers move the mean without bound. All estimators are affine equivariant: ``A X`` has the
covariance ``A C A^T``.
"""

from collections.abc import Callable

import numpy
import torch
from torch import Tensor

from spdnet._autograd import is_differentiated
from spdnet._checks import require_number
from spdnet._precision import in_float64
from spdnet.covariance.arrays import accept_arrays, require_signals
from spdnet.linalg import symmetrize
from spdnet.linalg.validate import UNIT, singular_ratio

#: largest deviation of a fixed point, in whitened coordinates
TOLERANCE = 1e-10
MAX_STEPS = 1000
#: squared distances below this fraction of the median count as zero: they have no direction
ZERO_DISTANCE = 1e-16
#: weights ``u`` of the covariance, and those of the center, which sum to 1, for ``d (..., T)``
Weights = Callable[[Tensor], tuple[Tensor, Tensor]]


@accept_arrays
@in_float64
def huber(X: Tensor, *, q: float = 0.9) -> Tensor:
    r"""Compute Huber's M-estimator, which limits the weight of distant observations.

    .. math:: u(d) = \frac1b \min(1, c / d), \qquad v(d) = \min(1, c / d)^{1/2}, \qquad
        c = \chi^2_{p, q}

    The constant :math:`b` makes the result consistent: for Gaussian data it tends to the
    covariance. Few or no outliers cost little accuracy; the weight of a single outlier is bounded.

    Parameters
    ----------
    X : Tensor or array, shape (..., channels, time)
        More observations than channels, in general position.
    q : float
        Fraction of Gaussian observations with the full weight; 1 is the limit of the sample
        covariance, and small values approach :func:`tyler`.

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

    _, L = _fixed_point("huber", X, *_start("huber", X), weigh)
    return symmetrize(L @ L.mT)


@accept_arrays
@in_float64
def student_t(X: Tensor, *, nu: float = 5.0) -> Tensor:
    r"""Compute the covariance of the multivariate t distribution of maximum likelihood.

    .. math:: u(d) = v(d) = \frac{p + \nu}{\nu + d}, \qquad
        \text{returns } \frac{\nu}{\nu - 2} C

    Parameters
    ----------
    X : Tensor or array, shape (..., channels, time)
        More observations than channels, in general position.
    nu : float
        Degrees of freedom, more than 2; small for heavy tails.

    References
    ----------
    J. T. Kent, D. E. Tyler, Y. Vardi, "A curious likelihood identity for the multivariate
    t-distribution", Commun. Stat. Simul. Comput., 1994. https://doi.org/10.1080/03610919408813180

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
    _, L = _student_t("student_t", X, nu)
    return symmetrize(L @ L.mT) * (nu / (nu - 2))


@accept_arrays
@in_float64
def tyler(X: Tensor) -> Tensor:
    r"""Compute Tyler's M-estimator, which depends on the directions of the observations only.

    .. math:: u(d) = p / d

    It is the most robust M-estimator, and the same for all elliptical distributions up to its
    scale. The scale is set such that the median of :math:`d` is that of the :math:`\chi^2_p`
    distribution: for Gaussian data the result tends to the covariance, and outliers hardly change
    it. The center is that of :func:`student_t`. Observations at the center have no direction and
    are left out.

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

    def weigh(d: Tensor) -> tuple[Tensor, Tensor]:
        known = _has_direction(d)
        u = torch.where(known, p / torch.where(known, d, 1.0), 0.0)
        return u / known.to(d).mean(-1, keepdim=True), torch.zeros_like(d)

    center, L = _fixed_point("tyler", X, *_student_t("tyler", X, 5.0), weigh)
    d = _whitened(L, X - center).square().sum(-2)
    median = torch.where(_has_direction(d), d, torch.nan).nanmedian(-1).values
    return symmetrize(L @ L.mT) * (median / _chi2_quantile(0.5, p))[..., None, None]


@accept_arrays
@in_float64
def mcd(X: Tensor, *, seed: int = 0) -> Tensor:
    """Compute the minimum covariance determinant with :class:`sklearn.covariance.MinCovDet`.

    The estimate uses the half of the observations whose covariance has the smallest determinant,
    and then those close to it, with factors that make it consistent for Gaussian data. It resists
    clusters of outliers, up to almost half of the observations, which M-estimators do not. It is
    slow, because it processes signals one by one, and has no derivative.

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
    >>> X[:, :400] += 100.0  # a cluster
    >>> covariance.mcd(X).diagonal().round()
    array([1., 1.])
    """
    from sklearn.covariance import MinCovDet

    require_signals("mcd", X)
    if is_differentiated(X):
        raise NotImplementedError("mcd: has no derivative; use huber, or give X.detach()")
    _start("mcd", X)
    # scikit-learn has absolute tolerances for the determinant: scale the channels
    scale = (X - X.median(-1, keepdim=True).values).abs().median(-1, keepdim=True).values
    _require("mcd", (scale > 0).all(-2)[..., 0], X, "half of the values of a channel are equal")
    C = X.new_empty(*X.shape[:-1], X.shape[-2])
    for index in numpy.ndindex(*X.shape[:-2]):
        x = (X[index] / scale[index]).mT.cpu().numpy()
        C[index] = torch.from_numpy(MinCovDet(random_state=seed).fit(x).covariance_)
    return symmetrize(C) * (scale * scale.mT)


def _student_t(who: str, X: Tensor, nu: float) -> tuple[Tensor, Tensor]:
    """Return the center and the Cholesky factor of the scatter matrix of a t distribution."""
    p = X.shape[-2]

    def weigh(d: Tensor) -> tuple[Tensor, Tensor]:
        v = _normalized((p + nu) / (nu + d))
        # the mean of u is 1 at the solution; setting it converges faster
        return v * d.shape[-1], v

    return _fixed_point(who, X, *_start(who, X), weigh)


def _start(who: str, X: Tensor) -> tuple[Tensor, Tensor]:
    """Return an observation near the medians, and the factor of a covariance of directions."""
    p, T = X.shape[-2:]
    if p >= T:
        raise ValueError(
            f"{who}: expected X with more observations than channels, got {T} observations of {p} "
            "channels; use a shrinkage estimator such as ledoit_wolf"
        )
    # differences of observations have the linear dependencies of the channels
    near = (X - X.median(-1, keepdim=True).values).square().sum(-2, keepdim=True).argmin(-1)
    center = X.take_along_dim(near[..., None], -1)
    Z = X - center
    size = Z.square().sum(-2, keepdim=True)
    directions = torch.where(size > 0, Z / torch.where(size > 0, size, 1.0).sqrt(), 0.0)
    S = symmetrize(directions @ directions.mT) / T
    # that of the correlations does not depend on the units of the channels
    scale = S.diagonal(dim1=-2, dim2=-1).rsqrt()
    R = S * scale[..., None, :] * scale[..., :, None]
    _require(who, _has_full_rank(R), X, "the channels are linearly dependent")
    median = torch.where(size > 0, size, torch.nan).nanmedian(-1, keepdim=True).values
    return center, torch.linalg.cholesky(S * median)


def _fixed_point(
    who: str, X: Tensor, center: Tensor, L: Tensor, weigh: Weights
) -> tuple[Tensor, Tensor]:
    """Iterate each signal until it converges; return the centers and the Cholesky factors."""
    batch, (p, T) = X.shape[:-2], X.shape[-2:]
    flat, center, start = X.reshape(-1, p, T), center.reshape(-1, p, 1), L.reshape(-1, p, p)
    L = start
    eye = torch.eye(p, dtype=X.dtype, device=X.device)
    rest = torch.arange(len(flat), device=X.device)
    failed = torch.zeros(len(flat), dtype=torch.bool, device=X.device)
    for _ in range(MAX_STEPS):
        if len(rest) == 0 or failed.any():
            break
        m, K = center[rest], L[rest]
        W = _whitened(K, flat[rest] - m)
        u, v = weigh(W.square().sum(-2))
        # in these coordinates, the solution is at zero with the identity
        M = symmetrize((W * u[..., None, :]) @ W.mT) / T
        shift = W @ v[..., None]
        step, info = torch.linalg.cholesky_ex(M)
        center = center.index_copy(0, rest, m + K @ shift)
        L = L.index_copy(0, rest, K @ step)
        failed[rest] = info != 0
        error = torch.maximum((M - eye).abs().amax(-1), shift.abs()[..., 0]).amax(-1)
        rest = rest[~(error <= TOLERANCE)]
    else:
        failed[rest] = True
    Q = _whitened(start, L)
    failed |= ~_has_full_rank(Q @ Q.mT)
    _require(who, ~failed.reshape(batch), X, "too many observations lie in a subspace")
    return center.reshape(*batch, p, 1), L.reshape(*batch, p, p)


def _has_full_rank(C: Tensor) -> Tensor:
    """Return whether the smallest eigenvalue exceeds rounding errors."""
    finite = C.isfinite().all(-1).all(-1)
    s = torch.linalg.eigvalsh(torch.where(finite[..., None, None], C.detach(), 0.0))
    return s[..., 0] > singular_ratio(C.shape[-1], UNIT) * s[..., -1]


def _require(who: str, valid: Tensor, X: Tensor, reason: str) -> None:
    """Raise a ValueError that names the first signal without an estimate."""
    if valid.all():
        return
    index = tuple((~valid).nonzero()[0].tolist()) if valid.ndim else ()
    place = f"X[{', '.join(map(str, index))}]" if index else "X"
    raise ValueError(
        f"{who}: expected signals that determine a robust covariance, but in {place} {reason}; "
        "remove channels, give longer signals, or use another estimator such as ledoit_wolf"
    )


def _whitened(L: Tensor, Z: Tensor) -> Tensor:
    return torch.linalg.solve_triangular(L, Z, upper=False)


def _normalized(v: Tensor) -> Tensor:
    return v / v.sum(-1, keepdim=True)


def _has_direction(d: Tensor) -> Tensor:
    """Return which observations are not at the center."""
    return d > ZERO_DISTANCE * d.median(-1, keepdim=True).values


def _chi2_quantile(q: float, p: int) -> float:
    from scipy.special import gammaincinv

    return 2 * float(gammaincinv(p / 2, q))
