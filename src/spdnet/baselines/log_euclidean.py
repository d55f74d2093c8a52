"""Vector classifiers on matrix logarithms."""

import warnings
from dataclasses import KW_ONLY, dataclass
from itertools import product
from typing import Any, ClassVar, Self

import numpy
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.svm import SVC
from sklearn.utils.metaestimators import available_if
from threadpoolctl import threadpool_limits
from torch import Tensor

from spdnet._checks import as_array
from spdnet.baselines.estimator import IntArray, SPDClassifier, choice, positive, subsample
from spdnet.data.split import scored_folds
from spdnet.manifolds import log_euclidean

#: root mean square of centered logarithms, relative to the largest entry, due to rounding
_ROUNDING = 1e-12
#: candidates of the cross-validation, from strong to weak regularization
_C = tuple(10.0**e for e in range(-2, 5))
_C_SVM, _GAMMA = (1.0, 10.0, 100.0), (0.1, 0.3, 1.0, 3.0)
#: smallest number of matrices for cross-validation, and the largest number that it uses
_FEWEST, _MOST = 8, 2000
#: C and gamma if there are fewer
_FIXED = 3.0, 1.0
#: gradient at which the logistic regression stops, relative to that of zero weights
_TOLERANCE = 1e-4


def _has_probabilities(model: Any) -> bool:
    if hasattr(model, "classifier_"):
        return hasattr(model.classifier_, "predict_proba")
    return model.method in ("logistic", "lda")


@dataclass(eq=False, repr=False)
class LogEuclideanClassifier(SPDClassifier):
    r"""Linear classifier or support vector machine on the entries of :math:`\log X`.

    The features are the entries on and above the diagonal, those above multiplied by
    :math:`\sqrt 2`. They are centered and divided by one number, so that their mean squared norm in
    the training set is 1.

    Parameters
    ----------
    C : float, optional
        Inverse strength of the L2 penalty; the penalty of ``ridge`` is 1 / C, ``lda`` has none. By
        default chosen by 4-fold cross-validation, from 10^-2 to 10^4 (``svm``: from 1 to 100).
    method : {"logistic", "lda", "ridge", "svm"}
        Logistic regression, linear discriminant analysis with a Ledoit-Wolf covariance of each
        class, ridge classifier, or support vector machine with the kernel
        :math:`e^{-\gamma \|x - y\|^2}`.
    gamma : float, optional
        :math:`\gamma` of ``svm``. By default chosen together with C, from 0.1 to 3.
    max_iter : int
        Maximum number of iterations of the logistic regression.

    Attributes
    ----------
    C_, gamma_ : float
        The values used, if the method has them.
    classifier_ : the scikit-learn classifier
    n_iter_ : int
        Iterations of the logistic regression.

    Notes
    -----
    The folds of the cross-validation keep groups together if ``fit`` is given at least two.
    Otherwise a fold has consecutive matrices of each class, so that neighboring windows of a
    recording stay together. Of equally accurate values, the strongest penalty is chosen. With more
    than 2000 matrices, a stratified subset is used. With fewer than 8, or if no two matrices of a
    class are in different folds, C is 3 and :math:`\gamma` is 1.

    References
    ----------
    V. Arsigny, P. Fillard, X. Pennec, N. Ayache, "Geometric Means in a Novel Vector Space Structure
    on Symmetric Positive-Definite Matrices", SIAM J. Matrix Anal. Appl., 2007.
    https://doi.org/10.1137/050637996

    O. Ledoit, M. Wolf, "A well-conditioned estimator for large-dimensional covariance matrices",
    J. Multivar. Anal., 2004. https://doi.org/10.1016/S0047-259X(03)00096-4

    Examples
    --------
    >>> from spdnet.baselines import LogEuclideanClassifier
    >>> from spdnet.data import load_digits_spd
    >>> X, y = load_digits_spd()
    >>> model = LogEuclideanClassifier().fit(X[:900], y[:900])
    >>> bool(model.score(X[900:], y[900:]) > 0.95), bool(0.01 <= model.C_ <= 10**4)
    (True, True)
    """

    supports_complex: ClassVar[bool] = True

    C: float | None = positive(None)
    _: KW_ONLY
    method: str = choice("logistic", choices=("logistic", "lda", "ridge", "svm"))
    gamma: float | None = positive(None)
    max_iter: int = 2000

    #: cross-validation by groups passes them to fit, too, without set_fit_request
    __metadata_request__fit = {"groups": True}  # noqa: RUF012, as scikit-learn reads it

    def fit(  # type: ignore[override]
        self, X: ArrayLike, y: ArrayLike, *, groups: ArrayLike | None = None
    ) -> Self:
        """Fit to matrices ``X`` with classes ``y (N,)``.

        The cross-validation keeps the matrices of each group together, given ``groups (N,)``.
        """
        return super().fit(X, y, groups=groups)

    # several BLAS threads are no faster here, and on small data they wait for each other
    @threadpool_limits.wrap(limits=1, user_api="blas")  # type: ignore[untyped-decorator]
    def _fit(self, X: Tensor, codes: IntArray, groups: ArrayLike | None = None) -> None:
        group_of = None if groups is None else as_array("LogEuclideanClassifier", groups, "groups")
        if group_of is not None and group_of.shape != codes.shape:
            raise ValueError(
                f"LogEuclideanClassifier: expected groups of shape {codes.shape}, one for each "
                f"matrix, got {group_of.shape}"
            )
        features = log_euclidean.vectors(X).numpy()
        self.mean_ = features.mean(0)
        size = float(numpy.sqrt(((features - self.mean_) ** 2).sum(1).mean()))
        self.scale_ = size if size > _ROUNDING * numpy.abs(features).max() else 1.0
        features = (features - self.mean_) / self.scale_
        C, gamma = self._choose(features, codes, group_of)
        if self.method != "lda":
            self.C_ = C
        if self.method == "svm":
            self.gamma_ = gamma
        self.rotation_ = None if self.method == "svm" else _span(features)
        features = _rotate(features, self.rotation_)
        self.classifier_ = self._make_classifier(features, codes)
        self.classifier_.set_params(**self._strength(C, gamma)).fit(features, codes)
        if self.method == "logistic":
            self.n_iter_ = int(self.classifier_.n_iter_.max())

    def _make_classifier(self, features: NDArray[Any], codes: IntArray) -> Any:
        if self.method == "lda":
            covariance = _LedoitWolf(len(self.mean_))
            return LinearDiscriminantAnalysis("lsqr", covariance_estimator=covariance)
        if self.method == "ridge":
            return RidgeClassifier()
        if self.method == "svm":
            return SVC(random_state=0)  # the default consumes the global generator
        targets = numpy.eye(codes.max() + 1)[codes]
        gradient = features.T @ (targets - targets.mean(0)) / len(codes)  # of zero weights
        tol = _TOLERANCE * numpy.abs(gradient).max()
        return LogisticRegression(max_iter=self.max_iter, tol=tol)

    def _strength(self, C: float, gamma: float) -> dict[str, float]:
        """Return the parameters of the scikit-learn classifier."""
        known = {"svm": {"C": C, "gamma": gamma}, "ridge": {"alpha": 1 / C}, "lda": {}}
        return known.get(self.method, {"C": C})

    def _choose(
        self, features: NDArray[Any], codes: IntArray, groups: NDArray[Any] | None
    ) -> tuple[float, float]:
        """Choose C and gamma by cross-validation."""
        Cs = {"svm": _C_SVM, "lda": _FIXED[:1]}.get(self.method, _C)
        gammas = _GAMMA if self.method == "svm" else _FIXED[1:]
        few = subsample(codes, _MOST)
        by = None if groups is None else groups[few]
        folds = list(scored_folds(codes[few], by)) if len(few) >= _FEWEST else []
        if not folds:
            Cs, gammas = _FIXED[:1], _FIXED[1:]
        Cs = Cs if self.C is None else (float(self.C),)
        gammas = gammas if self.gamma is None else (float(self.gamma),)
        candidates = list(product(Cs, gammas))
        if len(candidates) == 1:
            return candidates[0]
        features, codes = features[few], codes[few]
        if self.method == "svm":
            features = euclidean_distances(features, squared=True)
        else:
            features = _rotate(features, _span(features))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about convergence and small classes
            right = [self._count_right(features, codes, *fold, candidates) for fold in folds]
        return candidates[int(numpy.sum(right, 0).argmax())]  # the first of equally good ones

    def _count_right(
        self,
        features: NDArray[Any],
        codes: IntArray,
        train: IntArray,
        test: IntArray,
        candidates: list[tuple[float, float]],
    ) -> list[int]:
        """Count the right predictions of each candidate; ``svm`` takes squared distances."""
        y, right = codes[train], []
        model = self._make_classifier(features[train], y)
        faster: dict[str, Any] = {
            "logistic": {"warm_start": True},
            "svm": {"kernel": "precomputed"},
        }
        model.set_params(**faster.get(self.method, {}))
        for C, gamma in candidates:
            A = numpy.exp(-gamma * features[:, train]) if self.method == "svm" else features
            model.set_params(**self._strength(C, gamma)).fit(A[train], y)
            right.append(int((model.predict(A[test]) == codes[test]).sum()))
        return right

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
        features = (log_euclidean.vectors(X).numpy() - self.mean_) / self.scale_
        return _rotate(features, self.rotation_)


class _LedoitWolf(BaseEstimator):  # type: ignore[misc]
    """Ledoit-Wolf covariance of vectors that were rotated into their span.

    It is shrunk toward a multiple of the identity by as much as in the original space of dimension
    ``n_features``.
    """

    def __init__(self, n_features: int) -> None:
        self.n_features = n_features

    def fit(self, X: NDArray[Any]) -> Self:
        N, p = len(X), self.n_features
        X = X - X.mean(0)
        norms = (X**2).sum(1)
        mu = norms.mean() / p
        S = X.T @ X / N
        square = (S**2).sum()
        distance = square - p * mu**2  # squared, of S to the target mu I
        error = min(((norms**2).mean() - square) / N, distance)
        shrinkage = error / distance if error > 0 else 0.0
        self.covariance_ = (1 - shrinkage) * S
        self.covariance_.flat[:: X.shape[1] + 1] += shrinkage * mu
        return self


def _span(features: NDArray[Any]) -> NDArray[Any] | None:
    """Return an orthonormal basis of the span if there are more features than samples.

    Penalties are invariant to rotation, and the weights of linear methods lie in the span.
    """
    return numpy.linalg.qr(features.T)[0] if features.shape[1] > features.shape[0] else None


def _rotate(features: NDArray[Any], basis: NDArray[Any] | None) -> NDArray[Any]:
    return features if basis is None else features @ basis
