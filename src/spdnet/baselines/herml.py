"""Hybrid Euclidean and Riemannian metric learning."""

from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from spdnet._checks import require_count, require_number
from spdnet._inputs import seed_of
from spdnet.baselines.log_det import bounds, choose_pairs, project_in_turn, root
from spdnet.baselines.progress import Progress
from spdnet.baselines.sets import SetClassifier, Sets
from spdnet.covariance import gaussian_embedding, regularize, sample_covariance
from spdnet.linalg import logm, vech
from spdnet.manifolds.pairs import euclidean

_RIDGE = 1e-8
#: squared distances in a kernel's space, of points of length 1, that rounding leaves
_ALIKE = 1e-13


class HERML(ClassifierMixin, SetClassifier):  # type: ignore[misc]
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
        random_state: Any = 0,
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

    def _require_settings(self) -> None:
        for name in ("slack", "spread", "tol", "reg"):
            require_number("HERML", name, getattr(self, name), above=0)
        for name in ("max_sweeps", "n_pairs"):
            if getattr(self, name) is not None:
                require_count("HERML", name, getattr(self, name))

    def _learn(self, sets: list[NDArray[Any]], codes: NDArray[numpy.int64]) -> None:
        self.codes_, self.reg_ = codes, self.reg
        self.statistics_ = self._statistics(sets)
        squares = [_squares(S, S) for S in self.statistics_]
        off = ~numpy.eye(len(sets), dtype=bool)
        self.widths_ = [
            _width(float(numpy.sqrt(D[off]).mean()), float(numpy.abs(S).max()))
            for D, S in zip(squares, self.statistics_, strict=True)
        ]
        start = [_gaussian(D, w) for D, w in zip(squares, self.widths_, strict=True)]
        learnt = self._learn_kernels([K.copy() for K in start])
        ridge = _RIDGE * numpy.eye(len(sets))
        self.corrections_ = []
        for K, before in zip(learnt, start, strict=True):
            half = numpy.linalg.solve(before + ridge, K - before)
            self.corrections_.append(numpy.linalg.solve(before + ridge, half.T))
        self.kernels_ = start

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
            C = regularize(sample_covariance(signal), self.reg_, "trace")
            P = gaussian_embedding(signal, reg=self.reg_, mode="trace", scale_det=True)
            means.append(values.mean(0))
            covariances.append(vech(logm(C)).numpy())
            gaussians.append(vech(logm(P)).numpy())
        return [numpy.stack(rows) for rows in (means, covariances, gaussians)]

    def _learn_kernels(self, kernels: list[NDArray[Any]]) -> list[NDArray[Any]]:
        pairs, sign = choose_pairs(self.codes_, self.n_pairs, seed_of(self.random_state))

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
