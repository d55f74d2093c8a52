"""Covariance matrices of signals as scikit-learn transformers."""

from dataclasses import dataclass
from typing import Any, Self

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from spdnet._checks import require_choice
from spdnet._inputs import TakesMatrices, checked_signals
from spdnet.covariance.estimators import ESTIMATORS, estimate, regularize


@dataclass(eq=False, repr=False)
class SignalTransformer(TakesMatrices, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Base class of transformers from signals to covariance matrices."""

    estimator: str = "sample"
    reg: float = 1e-3
    mode: str = "mean"

    def _fit(self, X: ArrayLike) -> Tensor:
        who = type(self).__name__
        require_choice(who, "estimator", self.estimator, ESTIMATORS)
        regularize(torch.eye(1), self.reg, self.mode)  # raises for invalid settings
        signals = checked_signals(who, X)
        self.n_features_in_ = int(signals.shape[1])
        return signals

    def _signals(self, X: ArrayLike) -> Tensor:
        check_is_fitted(self)
        return checked_signals(type(self).__name__, X, n=self.n_features_in_)

    def _estimate(self, signals: Tensor) -> Tensor:
        found: Tensor = estimate(signals, self.estimator, reg=self.reg, mode=self.mode)
        return found


@dataclass(eq=False, repr=False)
class Covariances(SignalTransformer):
    """Compute the covariance matrix of each signal with :func:`estimate`.

    Fitting only stores the number of channels.

    Parameters
    ----------
    estimator : str
        Any of ``ESTIMATORS``: see :func:`estimate`.
    reg, mode
        See :func:`regularize`.

    Attributes
    ----------
    n_features_in_ : int
        Number of channels.

    Examples
    --------
    >>> import numpy
    >>> from sklearn.pipeline import make_pipeline
    >>> from spdnet.baselines import MinimumDistanceToMean
    >>> from spdnet.covariance import Covariances
    >>> y = numpy.repeat(["left", "right"], 10)
    >>> X = numpy.random.default_rng(0).normal(size=(20, 4, 100))
    >>> X[:10, 0] *= 3
    >>> pipeline = make_pipeline(Covariances("oas"), MinimumDistanceToMean())
    >>> float(pipeline.fit(X, y).score(X, y))
    1.0
    """

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Check the settings and signals ``X (N, channels, time)``; ``y`` is ignored."""
        self._fit(X)
        return self

    def transform(self, X: ArrayLike) -> NDArray[numpy.float64]:
        """Return the matrices ``(N, n, n)`` of signals ``(N, channels, time)``."""
        return self._estimate(self._signals(X)).numpy()
