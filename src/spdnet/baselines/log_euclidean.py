"""Vector classifiers on matrix logarithms."""

from dataclasses import KW_ONLY, dataclass
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
from spdnet.baselines.estimator import IntArray, SPDClassifier
from spdnet.manifolds import log_euclidean

#: standard deviation of an entry, relative to the largest entry, below which it is rounding
_ROUNDING = 1e-12


def _has_probabilities(model: Any) -> bool:
    if hasattr(model, "classifier_"):
        return hasattr(model.classifier_, "predict_proba")
    return model.method in ("logistic", "lda")


@dataclass(eq=False, repr=False)
class LogEuclideanClassifier(SPDClassifier):
    r"""Linear classifier or support vector machine on the standardized entries of :math:`\log X`.

    If there are more features than matrices, the features of the linear methods are first rotated
    into the span of the matrices. This only saves time, except for ``lda``, which shrinks its
    covariance in that space.

    Parameters
    ----------
    C : float
        Inverse strength of the L2 penalty; the penalty of ``ridge`` is 1 / C, ``lda`` has none.
    method : {"logistic", "lda", "ridge", "svm"}
        Logistic regression, linear discriminant analysis with Ledoit-Wolf shrinkage, ridge
        classifier, or support vector machine with a Gaussian kernel.
    max_iter : int
        Maximum number of iterations of the logistic regression.

    Attributes
    ----------
    classifier_ : the scikit-learn classifier
    n_iter_ : int
        Iterations of the logistic regression.

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

    C: float = 1.0
    _: KW_ONLY
    method: str = "logistic"
    max_iter: int = 2000

    def _require_settings(self) -> None:
        require_number("LogEuclideanClassifier", "C", self.C, above=0)
        methods = ("logistic", "lda", "ridge", "svm")
        require_choice("LogEuclideanClassifier", "method", self.method, methods)

    def _fit(self, X: Tensor, codes: IntArray) -> None:
        features = log_euclidean.vectors(X).numpy()
        self.scaler_ = StandardScaler().fit(features)
        noise = self.scaler_.scale_ <= _ROUNDING * numpy.abs(features).max()
        self.scaler_.scale_[noise] = 1.0  # do not amplify entries that are always zero
        features = self.scaler_.transform(features)
        self.rotation_ = None
        if features.shape[1] > features.shape[0] and self.method != "svm":
            # the penalties are invariant to rotation, and the weights lie in the span of the data
            self.rotation_ = numpy.linalg.qr(features.T)[0]
            features = features @ self.rotation_
        self.classifier_ = self._make_classifier().fit(features, codes)
        if self.method == "logistic":
            self.n_iter_ = int(self.classifier_.n_iter_.max())

    def _make_classifier(self) -> Any:
        if self.method == "lda":
            return LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
        if self.method == "ridge":
            return RidgeClassifier(1 / self.C)
        if self.method == "svm":
            return SVC(C=self.C, random_state=0)  # the default consumes the global generator
        return LogisticRegression(C=self.C, max_iter=self.max_iter)

    def _predict(self, X: Tensor) -> IntArray:
        return self.classifier_.predict(self._features(X))

    def decision_function(self, X: ArrayLike) -> NDArray[Any]:
        """Return the scores of the scikit-learn classifier."""
        return self.classifier_.decision_function(self._features(self._validate_fitted(X)))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Compute probabilities ``(N, n_classes)``, for ``logistic`` and ``lda``."""
        return self.classifier_.predict_proba(self._features(self._validate_fitted(X)))

    def _features(self, X: Tensor) -> NDArray[Any]:
        features = self.scaler_.transform(log_euclidean.vectors(X).numpy())
        return features if self.rotation_ is None else features @ self.rotation_
