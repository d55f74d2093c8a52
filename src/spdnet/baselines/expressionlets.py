"""Expressionlets: covariances of the components of a Gaussian mixture."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from sklearn.base import TransformerMixin
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.mixture import GaussianMixture

from spdnet._inputs import seed_of
from spdnet.baselines.estimator import IntArray, count, positive
from spdnet.baselines.sets import SetClassifier, Sets
from spdnet.linalg import logm, vech


@dataclass(eq=False, repr=False)
class ExpressionletClassifier(TransformerMixin, SetClassifier):  # type: ignore[misc]
    """Simplified expressionlets, given local features.

    Fits a Gaussian mixture to the local features of all samples. A sample is described by the
    logarithms of the covariances of its features, one per component of the mixture, weighted by the
    posterior probabilities, and classified by linear discriminant analysis with shrinkage. The
    original method extracts dense spatio-temporal features from videos.

    Parameters
    ----------
    n_modes : int
        Number of components of the mixture.
    reg : float
        Added to the covariances, times their trace.
    max_features : int
        Maximum number of local features that the mixture is fitted to, drawn at random.
    random_state : int, RandomState or None
        Seed of the mixture.

    References
    ----------
    M. Liu et al., "Learning expressionlets on spatio-temporal manifold for dynamic facial
    expression recognition", CVPR 2014.

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

    n_modes: int = count(8)
    _: KW_ONLY
    reg: float = positive(1e-3)
    max_features: int = count(20_000)
    random_state: Any = 0

    def _fit(self, sets: list[NDArray[Any]], codes: IntArray) -> None:
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
        if vectors.shape[1] > vectors.shape[0]:  # the full covariance would be too large
            self.rotation_ = numpy.linalg.qr((vectors - self.mean_).T)[0]
        self.discriminant_ = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
        self.discriminant_.fit(self._rotate(vectors), codes)

    def _rotate(self, vectors: NDArray[Any]) -> NDArray[Any]:
        return vectors if self.rotation_ is None else (vectors - self.mean_) @ self.rotation_

    def transform(self, X: Sets) -> NDArray[Any]:
        """Compute the logarithms ``(N, n_modes d (d + 1) / 2)`` of the covariances."""
        return self._expressionlets(self._validate_fitted(X))

    def _predict(self, sets: list[NDArray[Any]]) -> IntArray:
        return self.discriminant_.predict(self._rotate(self._expressionlets(sets)))

    def _expressionlets(self, sets: list[NDArray[Any]]) -> NDArray[Any]:
        d = self.n_features_in_
        rows = []
        for values in sets:
            posterior = self.mixture_.predict_proba(values) + 1e-6  # (T, modes)
            weight = posterior / posterior.sum(0)
            means = weight.T @ values  # (modes, d)
            centered = values[None] - means[:, None]  # (modes, T, d)
            C = numpy.einsum("tm,mti,mtj->mij", weight, centered, centered)
            trace = numpy.trace(C, axis1=1, axis2=2)
            ridge = numpy.where(trace > 0, self.reg_ * trace, 1e-6)
            C += ridge[:, None, None] * numpy.eye(d)
            rows.append(vech(logm(torch.from_numpy(C))).numpy().reshape(-1))
        return numpy.stack(rows)
