"""Methods on sets of vectors, such as the frames of a video, instead of one matrix for each."""

from collections.abc import Sequence
from typing import Any

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.mixture import GaussianMixture
from sklearn.utils.validation import check_is_fitted

from spdnet._checks import require_count, require_number
from spdnet.baselines.estimator import encode_labels, euclidean
from spdnet.baselines.log_det import bounds, choose_pairs, project_in_turn, root
from spdnet.baselines.progress import Progress
from spdnet.covariance import gaussian_embedding, regularize, sample_covariance
from spdnet.linalg import logm, vech

Sets = Sequence[ArrayLike]
_RIDGE = 1e-8
#: squared distances in a kernel's space, of points of length 1, that rounding leaves
_ALIKE = 1e-13


class _OnSets(BaseEstimator):  # type: ignore[misc]
    """Checks of sets of vectors ``(T_i, d)``."""

    n_features_in_: int

    def _sets(self, X: Sets, *, fitting: bool = False) -> list[NDArray[Any]]:
        who = type(self).__name__
        if fitting:
            self.n_features_in_ = 0
        else:
            check_is_fitted(self)
        sets = []
        for i, values in enumerate(X):
            values = numpy.asarray(values)
            d = self.n_features_in_ or (values.shape[-1] if values.ndim == 2 else 0)
            if values.ndim != 2 or values.shape[1] != d or len(values) == 0 or d == 0:
                raise ValueError(
                    f"{who}: expected sets of vectors (frames, {d or 'features'}), got shape "
                    f"{values.shape} at X[{i}]"
                )
            if values.dtype.kind not in "iuf" or not numpy.isfinite(values).all():
                raise ValueError(f"{who}: expected finite numbers, got others in X[{i}]")
            self.n_features_in_ = d
            sets.append(values.astype(numpy.float64))
        if not sets:
            raise ValueError(f"{who}: expected at least one set of vectors, got none")
        return sets

    def _labels(self, y: ArrayLike, n: int) -> NDArray[numpy.int64]:
        self.classes_, codes = encode_labels(type(self).__name__, y, n)
        return codes

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        return tags


class MeanFeatureVerifier(TransformerMixin, _OnSets):  # type: ignore[misc]
    """The mean direction of the vectors of a set, compared by the cosine.

    What a face network does with a video once it has a feature of each frame: nothing is learnt.

    Examples
    --------
    >>> import numpy
    >>> from spdnet.baselines import MeanFeatureVerifier
    >>> A, B = [numpy.array([[1.0, 0.0], [0.0, 1.0]])], [numpy.array([[2.0, 2.0]])]
    >>> MeanFeatureVerifier().fit(A).pair_score(A, B).round(6)
    array([1.])
    """

    def fit(self, X: Sets, y: ArrayLike | None = None) -> "MeanFeatureVerifier":
        """Note the number of features."""
        self._sets(X, fitting=True)
        return self

    def transform(self, X: Sets) -> NDArray[Any]:
        """Mean directions ``(N, d)``; the vectors count by direction, not by length."""
        means = []
        for values in self._sets(X):
            length = numpy.linalg.norm(values, axis=1, keepdims=True)
            mean = (values / numpy.where(length > 0, length, 1)).mean(0)
            size = numpy.linalg.norm(mean)
            means.append(mean / size if size > 0 else mean)
        return numpy.stack(means)

    def pair_score(self, A: Sets, B: Sets) -> NDArray[Any]:
        """Cosines ``(N,)`` of the pairs ``A[i], B[i]``."""
        return (self.transform(A) * self.transform(B)).sum(1)


class HERML(ClassifierMixin, _OnSets):  # type: ignore[misc]
    r"""Hybrid Euclidean and Riemannian metric learning (Huang et al., 2014).

    A set has a mean, a covariance, and the Gaussian of both, embedded as an SPD matrix of
    determinant one. Each has a Gaussian kernel of its own, of the distance of vectors or of
    logarithms, and in each kernel's space a metric is learnt, all together, so that pairs of one
    class come nearer than a bound and others farther. The class is that of the nearest training
    set.

    Fitting costs N^2 operations for each pair and sweep, and N^3 once.

    Parameters
    ----------
    slack : float
        Weight of the bounds against the distance of the metrics from the first ones.
    spread : float
        The bounds are so many deviations below and above the mean squared distance of the pairs.
    n_pairs : int, optional
        Half of one class; when not given, 40 C (C - 1) for C classes, at most 2000.
    reg : float
        Added to covariances, times their trace.
    tol, max_sweeps, random_state, verbose
        As in :class:`LEML`.

    Attributes
    ----------
    classes_ : array, shape (n_classes,)
    n_iter_ : int
        Sweeps.

    References
    ----------
    Z. Huang, R. Wang, S. Shan, X. Chen, "Hybrid Euclidean-and-Riemannian metric learning for image
    set classification", ACCV 2014.

    Examples
    --------
    >>> import numpy
    >>> from spdnet.baselines import HERML
    >>> rng = numpy.random.default_rng(0)
    >>> y = numpy.arange(40) % 2
    >>> X = [rng.normal(size=(30, 4)) * (1 + label) for label in y]
    >>> bool(HERML().fit(X[:20], y[:20]).score(X[20:], y[20:]) > 0.9)
    True
    """

    def __init__(
        self,
        slack: float = 1.0,
        spread: float = 0.1,
        *,
        n_pairs: int | None = None,
        reg: float = 1e-3,
        tol: float = 1e-3,
        max_sweeps: int = 100,
        random_state: int = 0,
        verbose: bool = False,
    ) -> None:
        self.slack = slack
        self.spread = spread
        self.n_pairs = n_pairs
        self.reg = reg
        self.tol = tol
        self.max_sweeps = max_sweeps
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Sets, y: ArrayLike) -> "HERML":
        """Learn the metrics from sets of vectors ``(T_i, d)`` and their classes ``(N,)``."""
        for name in ("slack", "spread", "tol", "reg"):
            require_number("HERML", name, getattr(self, name), above=0)
        for name in ("max_sweeps", "n_pairs"):
            if getattr(self, name) is not None:
                require_count("HERML", name, getattr(self, name))
        sets = self._sets(X, fitting=True)
        self.codes_ = self._labels(y, len(sets))
        self.statistics_ = self._statistics(sets)
        squares = [_squares(S, S) for S in self.statistics_]
        off = ~numpy.eye(len(sets), dtype=bool)
        self.widths_ = [
            _width(float(numpy.sqrt(D[off]).mean()), float(numpy.abs(S).max()))
            for D, S in zip(squares, self.statistics_, strict=True)
        ]
        start = [_gaussian(D, w) for D, w in zip(squares, self.widths_, strict=True)]
        learnt = self._learn([K.copy() for K in start])
        ridge = _RIDGE * numpy.eye(len(sets))
        self.corrections_ = []
        for K, before in zip(learnt, start, strict=True):
            half = numpy.linalg.solve(before + ridge, K - before)
            self.corrections_.append(numpy.linalg.solve(before + ridge, half.T))
        self.kernels_ = start
        return self

    def predict(self, X: Sets) -> NDArray[Any]:
        """The class of the nearest training set."""
        nearest = self.distances(X).argmin(1)
        return self.classes_[self.codes_[nearest]]

    def distances(self, X: Sets) -> NDArray[Any]:
        """Learnt squared distances ``(M, N)`` to the training sets, of all statistics together."""
        statistics = self._statistics(self._sets(X))
        return numpy.sum(
            [
                self._to_known(r, _gaussian(_squares(S, self.statistics_[r]), self.widths_[r]))
                for r, S in enumerate(statistics)
            ],
            axis=0,
        )

    def pair_score(self, A: Sets, B: Sets) -> NDArray[Any]:
        """How alike the sets of pairs are, ``(N,)``: minus their learnt distance."""
        total = numpy.zeros(len(A))
        parts = (self._statistics(self._sets(X)) for X in (A, B))
        for r, (a, b) in enumerate(zip(*parts, strict=True)):
            known = self.statistics_[r]
            g, h = (_gaussian(_squares(S, known), self.widths_[r]) for S in (a, b))
            k = _gaussian(numpy.square(a - b).sum(1), self.widths_[r])
            d = g - h
            total += 2 - 2 * k + ((d @ self.corrections_[r]) * d).sum(1)
        return -numpy.sqrt(numpy.maximum(total, 0))

    def _to_known(self, r: int, k: NDArray[Any]) -> NDArray[Any]:
        """Learnt squared distances of new points, with kernel values ``k (M, N)``, to the known."""
        M, K = self.corrections_[r], self.kernels_[r]
        new, known = ((k @ M) * k).sum(1), ((K @ M) * K).sum(1)
        return 2 - 2 * k + new[:, None] + known[None, :] - 2 * k @ M @ K

    def _statistics(self, sets: list[NDArray[Any]]) -> list[NDArray[Any]]:
        """Mean, logarithm of the covariance and of the embedded Gaussian, as vectors ``(N, p)``."""
        means, covariances, gaussians = [], [], []
        for i, values in enumerate(sets):
            if len(values) < 2 or not values.std(0).any():
                raise ValueError(
                    f"HERML: expected sets of vectors that differ, got {len(values)} of one kind "
                    f"at X[{i}]; their covariance is zero"
                )
            signal = torch.from_numpy(values.T)
            C = regularize(sample_covariance(signal), self.reg, "trace")
            P = gaussian_embedding(signal, reg=self.reg, mode="trace", scale_det=True)
            means.append(values.mean(0))
            covariances.append(vech(logm(C)).numpy())
            gaussians.append(vech(logm(P)).numpy())
        return [numpy.stack(rows) for rows in (means, covariances, gaussians)]

    def _learn(self, kernels: list[NDArray[Any]]) -> list[NDArray[Any]]:
        pairs, sign = choose_pairs(self.codes_, self.n_pairs, self.random_state)

        def squares(i: int, j: int) -> NDArray[Any]:
            return numpy.array([K[i, i] + K[j, j] - 2 * K[i, j] for K in kernels])

        first = numpy.stack([squares(i, j) for i, j in pairs])
        differs = first.max(1) >= _ALIKE
        pairs, sign, first = pairs[differs], sign[differs], first[differs]
        R = len(kernels)

        def step(c: int, xi: float, multiplier: float) -> tuple[float, float]:
            i, j = pairs[c]
            p = numpy.maximum(squares(i, j), 0)
            if p.max() < _ALIKE:
                return xi, multiplier
            a = min(multiplier, sign[c] * root(p, xi, self.slack, 1 / R))
            s = sign[c] * a
            for r, K in enumerate(kernels):
                column = K[:, i] - K[:, j]
                K += s / (1 - s * p[r]) * numpy.outer(column, column)
            return 1 / (1 / xi + s / self.slack), multiplier - a

        self.n_iter_ = 0
        if len(pairs):
            with Progress(self.verbose, "HERML, sweep") as progress:
                self.n_iter_ = project_in_turn(
                    "HERML",
                    step,
                    bounds(first.mean(1), sign, self.spread),
                    sign,
                    tol=self.tol,
                    max_sweeps=self.max_sweeps,
                    progress=progress,
                )
        return kernels


def _squares(A: NDArray[Any], B: NDArray[Any]) -> NDArray[Any]:
    """Squared distances ``(M, N)`` of the rows."""
    return euclidean(torch.from_numpy(A), torch.from_numpy(B)).square().numpy()


def _width(mean: float, size: float) -> float:
    """That of a kernel; infinite, so that it says nothing, where all are alike but for rounding."""
    return mean if mean > 1e-10 * max(size, 1e-300) else numpy.inf


def _gaussian(squares: NDArray[Any], width: float) -> NDArray[Any]:
    return numpy.exp(-squares / (2 * width**2))


class ExpressionletClassifier(ClassifierMixin, TransformerMixin, _OnSets):  # type: ignore[misc]
    """Expressionlets in a reduced form (after Liu et al., 2014).

    A Gaussian mixture of all local features; of each sample and each mode the covariance of the
    features, weighted by how much they belong to the mode, as a logarithm; all modes as one vector,
    and linear discriminant analysis with shrinkage, in the space that the samples span. The
    original takes dense local features of
    space and time from the video itself; here they are given.

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
    random_state : int
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
        random_state: int = 0,
    ) -> None:
        self.n_modes = n_modes
        self.reg = reg
        self.max_features = max_features
        self.random_state = random_state

    def fit(self, X: Sets, y: ArrayLike) -> "ExpressionletClassifier":
        """Fit to sets of local features ``(T_i, d)`` and their classes ``(N,)``."""
        require_count("ExpressionletClassifier", "n_modes", self.n_modes)
        require_count("ExpressionletClassifier", "max_features", self.max_features)
        require_number("ExpressionletClassifier", "reg", self.reg, above=0)
        sets = self._sets(X, fitting=True)
        codes = self._labels(y, len(sets))
        features = numpy.concatenate(sets)
        if len(features) > self.max_features:
            rng = numpy.random.default_rng(self.random_state)
            features = features[rng.permutation(len(features))[: self.max_features]]
        self.mixture_ = GaussianMixture(
            self.n_modes, covariance_type="diag", reg_covar=1e-6, random_state=self.random_state
        ).fit(features)
        vectors = self._expressionlets(sets)
        self.mean_, self.rotation_ = vectors.mean(0), None
        if vectors.shape[1] > vectors.shape[0]:  # a covariance of all would not fit
            self.rotation_ = numpy.linalg.qr((vectors - self.mean_).T)[0]
        self.discriminant_ = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
        self.discriminant_.fit(self._rotated(vectors), codes)
        return self

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
            ridge = numpy.where(trace > 0, self.reg * trace, 1e-6)
            C += ridge[:, None, None] * numpy.eye(d)
            rows.append(vech(logm(torch.from_numpy(C))).numpy().reshape(-1))
        return numpy.stack(rows)
