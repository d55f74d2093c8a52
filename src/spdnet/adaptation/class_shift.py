"""Estimation of the class proportions of an unlabeled domain after recentering."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray
from sklearn.covariance import ledoit_wolf

from spdnet.data.split import assign_folds

Array = NDArray[numpy.float64]

#: smallest relative class separation of a domain; bounds and default of its standard deviation
_MIN_SEPARATION, _MIN_STD, _MAX_STD, _DEFAULT_STD = 0.05, 0.1, 1.0, 0.3
#: weights of a single class in the candidates that mix it with the training proportions
_STEPS = (0.25, 0.5, 0.75, 0.95, 1.0)
_NEARLY_SINGLE, _CERTAIN = 0.95, 0.8  # weight of a single class, and its smallest probability
_LOG_ODDS = 0.5  # log prior odds that the class proportions are those of training
_ROUNDING = 1e-12  # smallest ratio of the variances of scores
_PRIOR_COUNT = 0.5  # weight of the prior of the proportions, as a number of samples
_LOCATION = 0.25  # location of a single training domain, relative to the variance within classes
_DOF = 4  # degrees of freedom of the prior of the location: Student's t
_ITERATIONS, _TOLERANCE = 200, 1e-3


class _Fit(NamedTuple):
    """Maximum of the likelihood."""

    proportions: Array
    log_likelihood: float
    separation: float


@dataclass(frozen=True)
class ClassScores:
    r"""Gaussian model of discriminant scores of recentered matrices.

    Tangent vectors of a domain with class proportions :math:`\pi` have scores distributed as

    .. math:: \sum_c \pi_c \, N(\kappa (m_c - \textstyle\sum_j \pi_j m_j), I),

    since recentering subtracts their mean. The separation :math:`\kappa` of the classes differs
    between domains.

    Attributes
    ----------
    weights : array, shape (n_features, n_classes - 1)
        Linear map from tangent vectors to scores with covariance :math:`I` within classes.
    means : array, shape (n_classes, n_classes - 1)
        Class means :math:`m_c`, of matrices that were not used to compute the weights.
    prior : array, shape (n_classes,)
        Class proportions of the training set.
    separation : float
        Standard deviation of :math:`\kappa` over domains; its mean is 1.
    trust : float
        Power of the likelihood, from 0 to 1. It is below 1 if the model finds class proportions of
        the training domains that differ from the true ones by more than chance.
    location_weights, location_means : array
        The same as ``weights`` and ``means`` without recentering: discriminant scores in which the
        classes differ more than the domains.
    location : float
        Mean squared distance of the training domains from their center in the space of these
        scores; for a single domain, a fraction of the variance within classes.
    """

    weights: Array
    means: Array
    prior: Array
    separation: float
    trust: float
    location_weights: Array
    location_means: Array
    location: float

    def estimate(self, V: Array, raw: Array) -> tuple[Array | None, float]:
        """Estimate the class proportions of a domain.

        ``V (N, n_features)`` are the tangent vectors of its matrices at their mean, and ``raw``
        those at the center of the training domains. Return the proportions, or None if the domain
        seems to contain a single class that cannot be identified. Also return twice the logarithm
        of the likelihood ratio between the best proportions and those of training, which is
        approximately chi-squared distributed.
        """
        if self.trust == 0:
            return self.prior, 0.0
        scores, where = V @ self.weights, raw.mean(0) @ self.location_weights
        scores = scores - scores.mean(0)
        candidates, log_odds, single = self._candidates(self._best(scores, where), len(V))
        fits = [self._maximize_likelihood(scores, p) for p in candidates]
        likelihood = self.trust * numpy.array([fit.log_likelihood for fit in fits])
        logs = likelihood + log_odds + [self._log_prior(p, where) for p in candidates]
        weight = numpy.exp(logs - logs.max())
        weight /= weight.sum()
        statistic = 2 * max(0.0, likelihood[-1] - likelihood[0])
        of_class = [weight[single == c].sum() for c in range(len(self.prior))]
        if sum(of_class) > 0.5 and max(of_class) < _CERTAIN * sum(of_class):
            return None, statistic
        return self._decide(scores, candidates, weight, fits), statistic

    def _best(self, scores: Array, where: Array) -> Array:
        """Return the proportions of maximum likelihood times the prior of the location."""
        vertices = numpy.eye(len(self.prior))
        starts = [(1 - a) * self.prior + a * vertex for a in (0.6, 0.95) for vertex in vertices]
        fits = [
            self._maximize_likelihood(scores, start, free=True) for start in (self.prior, *starts)
        ]
        return max(
            fits, key=lambda fit: fit.log_likelihood + self._log_prior(fit.proportions, where)
        ).proportions

    def _candidates(self, best: Array, n_samples: int) -> tuple[Array, Array, NDArray[Any]]:
        """Return candidates for the proportions, and their prior log odds to those of training.

        Also return the class of each candidate that consists almost entirely of one class, else -1.
        """
        n_classes = len(self.prior)
        vertices = numpy.eye(n_classes)
        paths = [self.prior + a * (vertex - self.prior) for vertex in vertices for a in _STEPS]
        single = [c if a >= _NEARLY_SINGLE else -1 for c in range(n_classes) for a in _STEPS]
        fitted = [(self.prior + best) / 2, best]
        n_effective = max(self.trust * n_samples, 2)
        log_odds = numpy.r_[
            0.0,
            numpy.full(len(paths), -_LOG_ODDS - numpy.log(len(paths))),
            numpy.full(2, -_LOG_ODDS - (n_classes - 1) / 2 * numpy.log(n_effective) - numpy.log(2)),
        ]
        return numpy.array([self.prior, *paths, *fitted]), log_odds, numpy.r_[-1, single, -1, -1]

    def _decide(self, scores: Array, candidates: Array, weight: Array, fits: list[_Fit]) -> Array:
        """Return the candidate, or the mean of all, whose classes agree best with those of all.

        The agreement with a candidate is weighted by its weight and by the certainty of its
        classes, because uncertain classes do not favor any candidate.
        """
        certainty = [
            self._posterior(scores, p, fit.separation)[0].max(1).mean()
            for p, fit in zip(candidates, fits, strict=True)
        ]
        options = numpy.r_[[weight @ candidates], candidates]
        classes = numpy.stack([self._classify(scores, p) for p in options])
        agreement = [(weight * certainty) @ (classes[1:] == own).mean(1) for own in classes]
        return options[int(numpy.argmax(agreement))]

    def _classify(self, scores: Array, p: Array) -> NDArray[numpy.int64]:
        """Return the classes of a domain with proportions ``p``, for equal costs of all errors."""
        moved = scores + p @ self.means
        return (moved @ self.means.T - (self.means**2).sum(1) / 2).argmax(1)

    def _posterior(self, scores: Array, p: Array, k: float) -> tuple[Array, float]:
        """Return the probabilities of the classes, and the log likelihood."""
        centered = self.means - p @ self.means
        logs = k * (scores @ centered.T) - k**2 * (centered**2).sum(1) / 2
        logs += numpy.log(numpy.maximum(p, numpy.finfo(float).tiny))
        top = logs.max(1, keepdims=True)  # the norm of the scores is a constant and is omitted
        found = numpy.exp(logs - top)
        total = found.sum(1, keepdims=True)
        likelihood = (top + numpy.log(total)).sum() - ((k - 1) / self.separation) ** 2 / 2
        return found / total, float(likelihood)

    def _maximize_likelihood(self, scores: Array, p: Array, *, free: bool = False) -> _Fit:
        """Maximize the likelihood over the class separation and, if ``free``, the proportions."""
        precision, k, best = self.separation**-2, 1.0, _Fit(p, -numpy.inf, 1.0)
        for _ in range(_ITERATIONS):
            found, likelihood = self._posterior(scores, p, k)
            if likelihood - best.log_likelihood < _TOLERANCE:
                break
            best = _Fit(p, likelihood, k)
            centered = self.means - p @ self.means
            along = (scores * (found @ centered)).sum() + precision
            size = (found @ (centered**2).sum(1)).sum() + precision
            k = max(along / size, _MIN_SEPARATION)
            if free:
                p = (found.sum(0) + _PRIOR_COUNT * self.prior) / (len(scores) + _PRIOR_COUNT)
        return best

    def _log_prior(self, p: Array, where: Array) -> float:
        """Return the log density of the location that the proportions imply for the domain."""
        k = len(where)
        expected = (p - self.prior) @ self.location_means
        distance = ((where - expected) ** 2).sum() * k / self.location
        return float(-(_DOF + k) / 2 * numpy.log1p(distance / _DOF))


def fit_scores(
    V: Array, raw: Array, y: NDArray[Any], domains: NDArray[Any], prior: Array
) -> ClassScores | None:
    """Fit the model to training domains.

    ``V (N, n_features)`` are tangent vectors after recentering, and ``raw`` those before. The
    scores are computed by cross-validation in folds of whole domains. Return None if there are too
    few samples.
    """
    n_classes = len(prior)
    single = domains.max() == 0
    fold, _ = assign_folds(y, None if single else domains)
    train_classes = [numpy.unique(y[fold != k]) for k in numpy.unique(fold)]
    if len(train_classes) < 2 or any(len(present) < n_classes for present in train_classes):
        return None
    parts = fold if single else domains
    weights, scores, means = _whitened_scores(V, y, fold, prior, parts)
    location_weights, found, location_means = _whitened_scores(raw, y, fold, prior)
    offsets = found - location_means[y]
    shifts = numpy.stack([offsets[domains == d].mean(0) for d in numpy.unique(domains)])
    model = ClassScores(
        weights=weights,
        means=means,
        prior=prior,
        separation=_separation(scores, means, y, parts),
        trust=1.0,
        location_weights=location_weights,
        location_means=location_means,
        location=_LOCATION * (n_classes - 1) if single else float((shifts**2).sum(1).mean()) + 1e-3,
    )
    return replace(model, trust=_trust(model, scores, y, parts))


def _whitened_scores(
    V: Array,
    y: NDArray[Any],
    fold: NDArray[Any],
    prior: Array,
    parts: NDArray[Any] | None = None,
) -> tuple[Array, Array, Array]:
    """Compute cross-validated discriminant scores with covariance I within classes.

    The scores of each fold are computed from the other folds. The covariance is that of the scores
    within ``parts``, if given, else that of the discriminant analysis. Return the weights for new
    vectors, the scores, and the class means.
    """
    n_classes = len(prior)
    basis = numpy.linalg.qr(V.T)[0] if V.shape[1] > len(V) else numpy.eye(V.shape[1])
    V, scores = V @ basis, numpy.empty((len(V), n_classes - 1))
    for k in numpy.unique(fold):
        scores[fold == k] = V[fold == k] @ _discriminant(V[fold != k], y[fold != k])[0]
    means = numpy.stack([scores[y == c].mean(0) for c in range(n_classes)])
    means -= prior @ means
    weights, within = _discriminant(V, y)
    if parts is not None:
        within = numpy.atleast_2d(numpy.cov(_centered(scores - means[y], parts).T))
    s, U = numpy.linalg.eigh(within)
    whitening = U * numpy.sqrt(1 / numpy.maximum(s, s[-1] * _ROUNDING))
    return basis @ weights @ whitening, scores @ whitening, means @ whitening


def _discriminant(V: Array, y: NDArray[Any]) -> tuple[Array, Array]:
    """Return the map of a linear discriminant analysis, and the covariance of its scores.

    Their shapes are ``(n_features, n_classes - 1)`` and ``(n_classes - 1, n_classes - 1)``.
    """
    means = numpy.stack([V[y == c].mean(0) for c in range(y.max() + 1)])
    covariance, _ = ledoit_wolf(V - means[y], assume_centered=True)
    contrasts = numpy.linalg.svd(numpy.eye(len(means)) - 1 / len(means))[0][:, :-1]
    found = numpy.linalg.solve(covariance, means.T @ contrasts)
    return found, found.T @ covariance @ found


def _centered(scores: Array, parts: NDArray[Any]) -> Array:
    """Subtract the mean of each part."""
    centered = scores.copy()
    for part in numpy.unique(parts):
        centered[parts == part] -= scores[parts == part].mean(0)
    return centered


def _separation(scores: Array, means: Array, y: NDArray[Any], parts: NDArray[Any]) -> float:
    """Return the standard deviation of the class separation over parts."""
    scores, expected = _centered(scores, parts), _centered(means[y], parts)
    found = []
    for part in numpy.unique(parts):
        own = parts == part
        if (size := (expected[own] ** 2).sum()) > 0:
            found.append((scores[own] * expected[own]).sum() / size)
    spread = float(numpy.std(found)) if len(found) > 1 else _DEFAULT_STD
    return min(max(spread, _MIN_STD), _MAX_STD)


def _trust(model: ClassScores, scores: Array, y: NDArray[Any], parts: NDArray[Any]) -> float:
    """Return the largest power of the likelihood that does not reject the true proportions.

    These are the class proportions of the training domains, known from their labels.
    """
    gains = []
    for part in numpy.unique(parts):
        own = parts == part
        true = numpy.bincount(y[own], minlength=len(model.prior)) / own.sum()
        centered = scores[own] - scores[own].mean(0)
        found = model._maximize_likelihood(centered, model.prior, free=True).proportions
        gain = (
            model._maximize_likelihood(centered, found).log_likelihood
            - model._maximize_likelihood(centered, true).log_likelihood
        )
        gains.append(max(gain, 0.0))
    chance = (len(model.prior) - 1) / 2
    return min(1.0, chance / max(float(numpy.mean(gains)), numpy.finfo(float).tiny))
