"""Expressionlets: the covariances of the modes of a mixture."""

from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, TransformerMixin
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.mixture import GaussianMixture

from spdnet._checks import require_count, require_number
from spdnet._inputs import seed_of
from spdnet.baselines.sets import SetClassifier, Sets
from spdnet.linalg import logm, vech


class ExpressionletClassifier(ClassifierMixin, TransformerMixin, SetClassifier):  # type: ignore[misc]
    """Expressionlets in a reduced form (after Liu et al., 2014).

    A Gaussian mixture of all local features; of each sample and each mode the covariance of the
    features, weighted by how much they belong to the mode, as a logarithm; all modes as one vector,
    and linear discriminant analysis with shrinkage, in the space that the samples span. The
    original takes dense local features of space and time from the video itself; here they are
    given.

    Fitting costs the mixture, one eigendecomposition of d by d for each sample and mode, and the
    discriminant analysis of n_modes d (d + 1) / 2 numbers.

    Parameters
    ----------
    n_modes : int
        Of the mixture.
    reg : float
        Added to covariances, times their trace.
    max_features : int
        At most so many local features, drawn at random, fit the mixture.
    random_state : int, RandomState or None
        Of the mixture.

    Attributes
    ----------
    classes_ : array, shape (n_classes,)
    mixture_ : GaussianMixture
    discriminant_ : LinearDiscriminantAnalysis

    References
    ----------
    M. Liu, S. Shan, R. Wang, X. Chen, "Learning expressionlets on spatio-temporal manifold for
    dynamic facial expression recognition", CVPR 2014.

    Examples
    --------
    >>> import numpy
    >>> from spdnet.baselines import ExpressionletClassifier
    >>> rng = numpy.random.default_rng(0)
    >>> y = numpy.arange(60) % 2
    >>> X = [rng.normal(size=(40, 3)) * (1 + label) for label in y]
    >>> model = ExpressionletClassifier(n_modes=2).fit(X[:40], y[:40])
    >>> bool(model.score(X[40:], y[40:]) > 0.9)
    True
    """

    def __init__(
        self,
        n_modes: int = 8,
        *,
        reg: float = 1e-3,
        max_features: int = 20_000,
        random_state: Any = 0,
    ) -> None:
        self.n_modes = n_modes
        self.reg = reg
        self.max_features = max_features
        self.random_state = random_state

    def _require_settings(self) -> None:
        require_count("ExpressionletClassifier", "n_modes", self.n_modes)
        require_count("ExpressionletClassifier", "max_features", self.max_features)
        require_number("ExpressionletClassifier", "reg", self.reg, above=0)

    def _learn(self, sets: list[NDArray[Any]], codes: NDArray[numpy.int64]) -> None:
        self.reg_ = self.reg
        seed = seed_of(self.random_state)
        features = numpy.concatenate(sets)
        if len(features) > self.max_features:
            rng = numpy.random.default_rng(seed)
            features = features[rng.permutation(len(features))[: self.max_features]]
        self.mixture_ = GaussianMixture(
            self.n_modes, covariance_type="diag", reg_covar=1e-6, random_state=seed
        ).fit(features)
        vectors = self._expressionlets(sets)
        self.mean_, self.rotation_ = vectors.mean(0), None
        if vectors.shape[1] > vectors.shape[0]:  # a covariance of all would not fit
            self.rotation_ = numpy.linalg.qr((vectors - self.mean_).T)[0]
        self.discriminant_ = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
        self.discriminant_.fit(self._rotated(vectors), codes)

    def _rotated(self, vectors: NDArray[Any]) -> NDArray[Any]:
        """In the space that the training samples span, where it has fewer dimensions."""
        return vectors if self.rotation_ is None else (vectors - self.mean_) @ self.rotation_

    def transform(self, X: Sets) -> NDArray[Any]:
        """Logarithms ``(N, n_modes d (d + 1) / 2)`` of the covariances of all modes."""
        return self._expressionlets(self._sets(X))

    def predict(self, X: Sets) -> NDArray[Any]:
        """The class of each set."""
        expressionlets = self.transform(X)
        return self.classes_[self.discriminant_.predict(self._rotated(expressionlets))]

    def _expressionlets(self, sets: list[NDArray[Any]]) -> NDArray[Any]:
        d = self.n_features_in_
        rows = []
        for values in sets:
            belongs = self.mixture_.predict_proba(values) + 1e-6  # (T, modes)
            weight = belongs / belongs.sum(0)
            means = weight.T @ values  # (modes, d)
            centred = values[None] - means[:, None]  # (modes, T, d)
            C = numpy.einsum("tm,mti,mtj->mij", weight, centred, centred)
            trace = numpy.trace(C, axis1=1, axis2=2)
            ridge = numpy.where(trace > 0, self.reg_ * trace, 1e-6)
            C += ridge[:, None, None] * numpy.eye(d)
            rows.append(vech(logm(torch.from_numpy(C))).numpy().reshape(-1))
        return numpy.stack(rows)
