"""Vector classifiers on matrix logarithms: what a network has to beat."""

from typing import Any

import numpy
from numpy.typing import ArrayLike, NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.metaestimators import available_if
from torch import Tensor

from spdnet._checks import require_choice, require_number
from spdnet.baselines.estimator import SPDClassifier
from spdnet.manifolds import log_euclidean

#: deviation of an entry, relative to the largest, that rounding alone may have
_ROUNDING = 1e-12
METHODS = ("logistic", "lda", "ridge", "svm")


def _has_probabilities(model: Any) -> bool:
    if hasattr(model, "classifier_"):
        return hasattr(model.classifier_, "predict_proba")
    return model.method in ("logistic", "lda")


class LogEuclideanClassifier(SPDClassifier):
    r"""A linear classifier, or a support vector machine, on the standardised entries of
    :math:`\log X`.

    The cost of ``fit`` is that of N eigendecompositions, and of the classifier. Where there are
    more features than matrices, those of the linear ones are first rotated into the space that the
    matrices span, which changes nothing but the time for logistic and ridge regression; ``lda``
    shrinks its covariance inside that space.

    Parameters
    ----------
    C : float
        Inverse strength of the L2 penalty; ``ridge`` has the penalty 1 / C, ``lda`` has none.
    method : {"logistic", "lda", "ridge", "svm"}
        Logistic regression, discriminant analysis with Ledoit-Wolf shrinkage, ridge regression to
        the classes, or a support vector machine with a Gaussian kernel.
    max_iter : int
        Of the logistic regression.

    Attributes
    ----------
    classes_ : array, shape (n_classes,)
    classifier_ : the scikit-learn classifier
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
    >>> from spdnet.data import load_digits_spd
    >>> X, y = load_digits_spd()
    >>> bool(LogEuclideanClassifier().fit(X[:900], y[:900]).score(X[900:], y[900:]) > 0.95)
    True
    """

    n_iter_: int

    def __init__(self, C: float = 1.0, *, method: str = "logistic", max_iter: int = 2000) -> None:
        self.C = C
        self.method = method
        self.max_iter = max_iter

    def _require_settings(self) -> None:
        require_number("LogEuclideanClassifier", "C", self.C, above=0)
        require_choice("LogEuclideanClassifier", "method", self.method, METHODS)

    def _learn(self, X: Tensor, codes: NDArray[numpy.int64]) -> None:
        features = log_euclidean.vectors(X).numpy()
        self.scaler_ = StandardScaler().fit(features)
        noise = self.scaler_.scale_ <= _ROUNDING * numpy.abs(features).max()
        self.scaler_.scale_[noise] = 1.0  # an entry that is always zero would be blown up
        features = self.scaler_.transform(features)
        self.rotation_ = None
        if features.shape[1] > features.shape[0] and self.method != "svm":
            # no penalty sees a rotation, and the weights lie in the span of the data
            self.rotation_ = numpy.linalg.qr(features.T)[0]
            features = features @ self.rotation_
        self.classifier_ = self._make().fit(features, codes)
        if self.method == "logistic":
            self.n_iter_ = int(self.classifier_.n_iter_.max())

    def _make(self) -> Any:
        if self.method == "lda":
            return LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
        if self.method == "ridge":
            return RidgeClassifier(1 / self.C)
        if self.method == "svm":
            return SVC(C=self.C, random_state=0)  # nothing is random, but a number is drawn
        return LogisticRegression(C=self.C, max_iter=self.max_iter)

    def _codes(self, X: Tensor) -> NDArray[numpy.int64]:
        return self.classifier_.predict(self._features(X))

    def decision_function(self, X: ArrayLike) -> NDArray[Any]:
        """As that of the scikit-learn classifier."""
        matrices = self._matrices(X)
        return self.classifier_.decision_function(self._features(matrices))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Probabilities ``(N, n_classes)`` in the order of ``classes_``; of logistic and LDA."""
        matrices = self._matrices(X)
        return self.classifier_.predict_proba(self._features(matrices))

    def _features(self, X: Tensor) -> NDArray[Any]:
        features = log_euclidean.vectors(X).numpy()
        features = self.scaler_.transform(features)
        return features if self.rotation_ is None else features @ self.rotation_
