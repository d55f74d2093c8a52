"""Hybrid Euclidean and Riemannian metric learning."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy
import torch
from numpy.typing import NDArray

from spdnet._inputs import seed_of
from spdnet.baselines.estimator import IntArray, positive
from spdnet.baselines.leml import LogDetMixin, cyclic_projections, draw_pairs, solve_step
from spdnet.baselines.sets import SetClassifier, Sets
from spdnet.covariance import gaussian_embedding, regularize, sample_covariance
from spdnet.linalg import logm, vech
from spdnet.manifolds.pairs import euclidean

_RIDGE = 1e-8
#: squared distances in the space of a kernel below this value are rounding errors
_ROUNDING = 1e-13


@dataclass(eq=False, repr=False)
class HERML(LogDetMixin, SetClassifier):
    """Hybrid Euclidean and Riemannian metric learning with a nearest-neighbor classifier.

    Describes a set by its mean, its covariance, and its Gaussian embedded as an SPD matrix of
    determinant one. Each statistic has a Gaussian kernel of the distances between vectors or
    logarithms. Metrics in the spaces of the kernels are learned jointly such that pairs of the same
    class are closer than a bound, and other pairs farther apart. Fitting costs N^2 operations per
    pair and sweep, and N^3 once.

    Parameters
    ----------
    slack : float
        Weight of the bounds against the divergence of the metrics from the initial ones.
    reg : float
        Added to the covariances, times their trace.
    spread, n_pairs, tol, max_sweeps, random_state, verbose : see :class:`LEML`

    References
    ----------
    Z. Huang et al., "Hybrid Euclidean-and-Riemannian metric learning for image set classification",
    ACCV 2014.

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

    slack: float = positive(1.0)
    _: KW_ONLY
    reg: float = positive(1e-3)

    def _fit(self, sets: list[NDArray[Any]], codes: IntArray) -> None:
        self.codes_, self.reg_ = codes, self.reg
        self.statistics_ = self._statistics(sets)
        off = ~numpy.eye(len(sets), dtype=bool)
        self.widths_, self.kernels_, self.corrections_ = [], [], []
        for S in self.statistics_:
            D = _squares(S, S)
            mean, size = float(numpy.sqrt(D[off]).mean()), max(float(numpy.abs(S).max()), 1e-300)
            # if all samples are equal, the kernel is constant
            self.widths_.append(mean if mean > 1e-10 * size else numpy.inf)
            self.kernels_.append(_gaussian(D, self.widths_[-1]))
        ridge = _RIDGE * numpy.eye(len(sets))
        learned = self._learn_kernels([K.copy() for K in self.kernels_])
        for K, before in zip(learned, self.kernels_, strict=True):
            half = numpy.linalg.solve(before + ridge, K - before)
            self.corrections_.append(numpy.linalg.solve(before + ridge, half.T))

    def _predict(self, sets: list[NDArray[Any]]) -> IntArray:
        return self.codes_[self._distances(self._statistics(sets)).argmin(1)]

    def distances(self, X: Sets) -> NDArray[Any]:
        """Compute the learned squared distances ``(M, N)`` to the training sets."""
        return self._distances(self._statistics(self._validate_fitted(X)))

    def similarity(self, A: Sets, B: Sets) -> NDArray[Any]:
        """Compute the negative learned distances ``(M, N)`` of all pairs."""
        one, other = (self._statistics(self._validate_fitted(X)) for X in (A, B))
        return -numpy.sqrt(numpy.maximum(self._distances(one, other), 0))

    def _distances(
        self, A: list[NDArray[Any]], B: list[NDArray[Any]] | None = None
    ) -> NDArray[Any]:
        """Sum the squared distances of all statistics, by default to the training sets."""
        total = []
        for r, (known, width) in enumerate(zip(self.statistics_, self.widths_, strict=True)):
            M, g = self.corrections_[r], _gaussian(_squares(A[r], known), width)
            h, k = self.kernels_[r], g
            if B is not None:
                h = _gaussian(_squares(B[r], known), width)
                k = _gaussian(_squares(A[r], B[r]), width)
            one, other = ((g @ M) * g).sum(1), ((h @ M) * h).sum(1)
            total.append(2 - 2 * k + one[:, None] + other[None, :] - 2 * g @ M @ h.T)
        return numpy.sum(total, axis=0)

    def _statistics(self, sets: list[NDArray[Any]]) -> list[NDArray[Any]]:
        """Compute mean, logarithms of covariance and embedded Gaussian as vectors ``(N, p)``."""
        means, covariances, gaussians = [], [], []
        for i, values in enumerate(sets):
            if len(values) < 2 or not values.std(0).any():
                raise ValueError(
                    f"HERML: expected sets of vectors that differ, got {len(values)} equal vectors "
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
        pairs, sign = draw_pairs(self.codes_, self.n_pairs, seed_of(self.random_state))

        def squares(i: int, j: int) -> NDArray[Any]:
            return numpy.array([K[i, i] + K[j, j] - 2 * K[i, j] for K in kernels])

        first = numpy.stack([squares(i, j) for i, j in pairs])
        differs = first.max(1) >= _ROUNDING
        pairs, sign, first = pairs[differs], sign[differs], first[differs]
        share = 1 / len(kernels)

        def step(c: int, xi: float, multiplier: float) -> tuple[float, float]:
            i, j = pairs[c]
            p = numpy.maximum(squares(i, j), 0)
            if p.max() < _ROUNDING:
                return xi, multiplier
            a = min(multiplier, sign[c] * solve_step(p, xi, self.slack, share))
            s = sign[c] * a
            for r, K in enumerate(kernels):
                column = K[:, i] - K[:, j]
                K += s / (1 - s * p[r]) * numpy.outer(column, column)
            return 1 / (1 / xi + s / self.slack), multiplier - a

        self.n_iter_ = cyclic_projections(self, step, first.mean(1), sign)
        return kernels


def _squares(A: NDArray[Any], B: NDArray[Any]) -> NDArray[Any]:
    """Compute the squared distances ``(M, N)`` of the rows."""
    return euclidean(torch.from_numpy(A), torch.from_numpy(B)).square().numpy()


def _gaussian(squares: NDArray[Any], width: float) -> NDArray[Any]:
    return numpy.exp(-squares / (2 * width**2))
