"""A linear classifier on matrix logarithms: what a network has to beat."""

from typing import Any

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from spdnet._checks import require_number, require_square
from spdnet.linalg import logm, vech

_PIECE = 1024


class LogEuclideanClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Logistic regression on the standardised entries of :math:`\log X`.

    The cost of ``fit`` is that of N eigendecompositions, and of a logistic regression with
    ``min(N, n (n + 1) / 2)`` features: where there are more features than matrices they are first
    rotated into the space that the matrices span, which changes nothing but the time.

    Parameters
    ----------
    C : float
        Inverse strength of the L2 penalty.
    max_iter : int

    Attributes
    ----------
    classes_ : array, shape (n_classes,)
    n_iter_ : int
        Iterations of the logistic regression; ``max_iter`` means that it has not converged, of
        which scikit-learn warns.

    References
    ----------
    V. Arsigny, P. Fillard, X. Pennec, N. Ayache, "Geometric Means in a Novel Vector Space Structure
    on Symmetric Positive-Definite Matrices", SIAM J. Matrix Anal. Appl., 2007.
    https://doi.org/10.1137/050637996

    Examples
    --------
    >>> from spdnet.baselines import LogEuclideanClassifier
    >>> from spdnet.datasets import load_digits_spd
    >>> X, y = load_digits_spd()
    >>> bool(LogEuclideanClassifier().fit(X[:900], y[:900]).score(X[900:], y[900:]) > 0.95)
    True
    """

    classes_: NDArray[Any]
    n_iter_: int

    def __init__(self, C: float = 1.0, *, max_iter: int = 2000) -> None:
        self.C = C
        self.max_iter = max_iter

    def fit(self, X: ArrayLike, y: ArrayLike) -> "LogEuclideanClassifier":
        """Fit to SPD matrices ``(N, n, n)`` and their classes ``(N,)``."""
        require_number("LogEuclideanClassifier", "C", self.C, above=0)
        features = self._features(X)
        self.n_features_in_ = numpy.asarray(X).shape[-1]
        self.scaler_ = StandardScaler().fit(features)
        features = self.scaler_.transform(features)
        self.rotation_ = None
        if features.shape[1] > features.shape[0]:
            # the penalty does not see a rotation, and the weights lie in the span of the data
            self.rotation_ = numpy.linalg.qr(features.T)[0]
            features = features @ self.rotation_
        self.regression_ = LogisticRegression(C=self.C, max_iter=self.max_iter).fit(features, y)
        self.classes_ = self.regression_.classes_
        self.n_iter_ = int(self.regression_.n_iter_.max())
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class of each matrix."""
        features = self._seen(X)
        return self.regression_.predict(features)

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Probabilities ``(N, n_classes)`` in the order of ``classes_``."""
        features = self._seen(X)
        return self.regression_.predict_proba(features)

    def _seen(self, X: ArrayLike) -> NDArray[Any]:
        check_is_fitted(self, "regression_")
        features = self.scaler_.transform(self._features(X, n=self.n_features_in_))
        return features if self.rotation_ is None else features @ self.rotation_

    def _features(self, X: ArrayLike, n: int | None = None) -> NDArray[Any]:
        X = numpy.asarray(X)
        if X.dtype != numpy.float32:
            X = X.astype(numpy.float64)
        matrices = torch.as_tensor(X)
        require_square("LogEuclideanClassifier", matrices, n=n)
        return torch.cat([vech(logm(part)) for part in matrices.split(_PIECE)]).numpy()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.two_d_array = False
        return tags
