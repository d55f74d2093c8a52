"""Outlier detection for SPD matrices, such as those of trials with artifacts."""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from spdnet._checks import as_array, require_number
from spdnet._inputs import TakesMatrices, checked_matrices
from spdnet._precision import accurate_dtype
from spdnet.adaptation.domains import domain_codes, domain_parts
from spdnet.manifolds import FlatMetric, Metric, get_metric

#: smallest number of matrices to screen: for 20, the deviation has a standard error of 25 %
MIN_MATRICES = 20
_MAD_TO_STD = 1.4826  # standard deviation of a normal distribution, in median absolute deviations
_MIN_SCALE = 1e-8  # distances whose logarithms differ by less are equal up to rounding


class _Clean(NamedTuple):
    """Statistics of the clean matrices of one domain."""

    centers: Tensor  #: mean of each class, as points
    location: float  #: median of the logarithms of the distances
    scale: float  #: their deviation; infinite if the domain is not screened


@dataclass(eq=False, repr=False)
class Potato(TakesMatrices, OutlierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Find outliers by their distance from the mean: the Riemannian potato.

    With the distance :math:`d_i` of matrix :math:`X_i` from the mean of the clean matrices,

    .. math:: z_i = \frac{\ln d_i - \mathrm{median}(\ln d)}{1.4826 \, \mathrm{MAD}(\ln d)}.

    Matrices with :math:`z_i \ge` ``threshold`` are dropped, and mean, median and median absolute
    deviation (MAD) are computed from the others, until none is dropped. The published method uses
    the mean and the standard deviation instead: with these, equal outliers are never found if they
    are more than 1 in :math:`1 + \mathtt{threshold}^2`, which is 10 % for the default.

    Each domain, such as a subject, is screened separately. Domains of fewer than 20 matrices, or
    whose matrices are all equally far from the mean, get scores of zero. With classes ``y``, the
    distance to the nearest class mean is used, so that rare classes are not outliers. A matrix that
    is alone in its class is not an outlier either. It counts neither for the 20 nor for the median.

    Parameters
    ----------
    metric : str or Metric
        Metric of the mean and of the distances, any of :data:`spdnet.manifolds.METRICS`.
        ``log_euclidean`` is many times faster than the default for large matrices.
    threshold : float
        Smallest :math:`z` of an outlier.

    Attributes
    ----------
    domains_ : array, shape (n_domains,), or None
        Domains of the training set.
    location_, scale_ : array, shape (n_domains,)
        Median and deviation of :math:`\ln d`; the deviation of a domain that is not screened is
        infinite.
    offset_ : float
        Score of an outlier at the threshold, ``-threshold``.
    n_features_in_ : int
        Size of the matrices.

    References
    ----------
    A. Barachant, A. Andreev, M. Congedo, "The Riemannian Potato: an automatic and adaptive artifact
    detection method for online experiments using Riemannian geometry", TOBI Workshop IV, 2013.
    https://hal.science/hal-00781701

    Examples
    --------
    >>> import numpy
    >>> from spdnet.adaptation import Potato
    >>> X = numpy.eye(2) * numpy.exp(numpy.linspace(-1, 1, 30))[:, None, None]
    >>> X[4, 0, 0] = 1e6
    >>> numpy.flatnonzero(Potato().fit_predict(X) == -1)
    array([4])
    """

    metric: str | Metric = "affine_invariant"
    threshold: float = 3.0

    def fit(
        self, X: ArrayLike, y: ArrayLike | None = None, *, domains: ArrayLike | None = None
    ) -> Self:
        """Fit to SPD matrices ``X (N, n, n)``.

        ``y (N,)`` are classes, and ``domains (N,)`` the names or numbers of the domains. Without
        them, all matrices belong to one class or one domain.
        """
        get_metric(self.metric, who="Potato")
        require_number("Potato", "threshold", self.threshold, above=0)
        self.fit_score_tensor(checked_matrices("Potato", X, allow_complex=True), y, domains)
        return self

    def fit_score_tensor(
        self, X: Tensor, y: ArrayLike | None = None, domains: ArrayLike | None = None
    ) -> NDArray[numpy.float64]:
        """Fit to valid matrices, and compute their scores."""
        classes = numpy.zeros(len(X)) if y is None else as_array("Potato", y, "y")
        if classes.shape != (len(X),):
            raise ValueError(
                f"Potato: expected y of shape ({len(X)},), one class for each of X, got "
                f"{classes.shape}"
            )
        codes, self.domains_ = domain_codes("Potato", domains, len(X))
        of_class = torch.from_numpy(numpy.unique(classes, return_inverse=True)[1])
        self._clean, scores = [], numpy.zeros(len(X))
        for own in domain_parts(codes).values():
            points = self._points(X[own])
            self._clean.append(self._fit_one(points, of_class[own]))
            scores[own.numpy()] = self._score(points, self._clean[-1])
        self.location_ = numpy.array([clean.location for clean in self._clean])
        self.scale_ = numpy.array([clean.scale for clean in self._clean])
        self.offset_ = -float(self.threshold)
        self.n_features_in_ = int(X.shape[-1])
        return scores

    def score_samples(
        self, X: ArrayLike, *, domains: ArrayLike | None = None
    ) -> NDArray[numpy.float64]:
        """Compute the scores ``-z (N,)``: the lower, the more abnormal.

        A domain of :meth:`fit` is compared with its training matrices. The matrices of a new
        domain are compared with each other: pass all of them at once. Without ``domains``, the
        matrices belong to one domain, which is new if :meth:`fit` had domains.
        """
        check_is_fitted(self)
        matrices = checked_matrices("Potato", X, n=self.n_features_in_, allow_complex=True)
        is_same = (domains is None) == (self.domains_ is None)
        known = self._clean if is_same else []  # otherwise no domain is one of fit
        codes, _ = domain_codes(
            "Potato", domains, len(matrices), self.domains_ if is_same else None
        )
        scores = numpy.zeros(len(matrices))
        for code, own in domain_parts(codes).items():
            points = self._points(matrices[own])
            one_class = torch.zeros(len(own), dtype=torch.int64)
            clean = known[code] if code < len(known) else self._fit_one(points, one_class)
            scores[own.numpy()] = self._score(points, clean)
        return scores

    def decision_function(
        self, X: ArrayLike, *, domains: ArrayLike | None = None
    ) -> NDArray[numpy.float64]:
        """Compute ``threshold - z (N,)``, which is not positive for outliers."""
        scores = self.score_samples(X, domains=domains)
        return numpy.asarray(scores - self.offset_)

    def predict(self, X: ArrayLike, *, domains: ArrayLike | None = None) -> NDArray[numpy.int64]:
        """Return -1 for outliers and 1 for other matrices ``(N,)``: see :meth:`score_samples`."""
        return numpy.where(self.decision_function(X, domains=domains) > 0, 1, -1)

    def fit_predict(
        self, X: ArrayLike, y: ArrayLike | None = None, *, domains: ArrayLike | None = None
    ) -> NDArray[numpy.int64]:
        """Fit to matrices, and return -1 for outliers among them and 1 for the others."""
        return self.fit(X, y, domains=domains).predict(X, domains=domains)

    def _fit_one(self, points: Tensor, classes: Tensor) -> _Clean:
        """Find the clean matrices of one domain."""
        kept = torch.ones(len(points), dtype=torch.bool)
        shared = classes.bincount()[classes] > 1  # others equal the mean of their class
        while shared.sum() >= MIN_MATRICES:
            of = [kept & (classes == code) for code in classes[kept].unique()]
            centers = torch.stack([self._center(points[own]) for own in of])
            distances = self._log_distances(points, centers)
            known = distances[kept & shared]
            location = known.quantile(0.5).item()
            scale = _MAD_TO_STD * (known - location).abs().quantile(0.5).item()
            if not _MIN_SCALE < scale < numpy.inf:  # infinite or NaN if most are zero
                break
            outside = kept & ((distances - location) / scale >= self.threshold)
            if not outside.any():
                return _Clean(centers, location, scale)
            kept &= ~outside
        return _Clean(points[:0], 0.0, numpy.inf)

    def _score(self, points: Tensor, clean: _Clean) -> NDArray[numpy.float64]:
        if not numpy.isfinite(clean.scale):
            return numpy.zeros(len(points))
        x = self._log_distances(points, clean.centers).numpy()
        return numpy.asarray((clean.location - x) / clean.scale)

    def _points(self, X: Tensor) -> Tensor:
        """Return the matrices in float64, or their coordinates in a flat metric."""
        metric, X = get_metric(self.metric, who="Potato"), X.to(accurate_dtype(X))
        return metric.vectors(X) if isinstance(metric, FlatMetric) else X

    def _center(self, points: Tensor) -> Tensor:
        if points.ndim == 2:
            return points.mean(0)
        return get_metric(self.metric).mean(points, check=False)

    def _log_distances(self, points: Tensor, centers: Tensor) -> Tensor:
        """Compute the logarithm of the distance of each point to the nearest center."""
        if points.ndim == 2:
            near = centers[0]  # cdist loses digits far from zero
            return torch.cdist(points - near, centers - near).amin(-1).log()
        distance = get_metric(self.metric).distance
        return torch.stack([distance(M, points, check=False) for M in centers]).amin(0).log()
