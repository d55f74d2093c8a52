r"""Log-Euclidean metric learning, by projections in the log-determinant divergence.

The divergence is :math:`D(A, B) = \mathrm{tr}(A B^{-1}) - \log\det(A B^{-1}) - n`. The constraints
are an upper bound of the distances within classes and a lower bound of the others. Bregman's method
projects onto one constraint at a time and corrects for its earlier projections; slack variables
allow for bounds that cannot all be met.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from sklearn.base import TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from spdnet._inputs import seed_of
from spdnet._warnings import warn_user
from spdnet.baselines.estimator import (
    IntArray,
    SPDClassifier,
    count,
    positive,
    show_progress,
    subsample,
)
from spdnet.baselines.neighbors import vote
from spdnet.linalg import expm, logm
from spdnet.linalg.threads import one_thread
from spdnet.manifolds.pairs import euclidean

#: relative distance of the root from the ends of its interval
_MARGIN = 1e-12


@dataclass(eq=False, repr=False)
class LogDetMixin:
    """Settings of the projections, described in :class:`spdnet.baselines.LEML`."""

    slack: float = positive(0.1)
    spread: float = positive(0.1)
    _: KW_ONLY
    n_pairs: int | None = count(None)
    tol: float = positive(1e-3)
    max_sweeps: int = count(100)
    random_state: Any = 0
    verbose: bool = False


@dataclass(eq=False, repr=False, kw_only=True)
class LEML(TransformerMixin, LogDetMixin, SPDClassifier):  # type: ignore[misc]
    r"""Log-Euclidean metric learning with a nearest-neighbor classifier.

    Learns the positive definite :math:`Q` of
    :math:`d^2(X, Y) = \mathrm{tr}(Q (\log X - \log Y)^2)` that is closest to the identity such that
    pairs of the same class are closer than a bound, and other pairs farther apart. Fitting costs an
    n by n eigendecomposition per pair and sweep.

    Parameters
    ----------
    slack : float
        Weight :math:`\eta` of the bounds against the divergence of Q from the identity. A larger
        value fits the pairs more closely and takes longer.
    spread : float
        The bounds are this many standard deviations below and above the mean squared distance.
    n_pairs : int, optional
        Number of pairs, half of them within a class; by default 40 C (C - 1) for C classes, at most
        2000.
    n_components : int, optional
        Size of the matrices of ``transform``; by default the size of the input.
    tol, max_sweeps : float and int
        Relative change of the multipliers at which to stop, and maximum number of sweeps.
    random_state : int, RandomState or None
        Seed of the pairs.
    max_train, verbose : see :class:`NearestNeighbor`

    Attributes
    ----------
    Q_ : array, shape (n, n)
    n_iter_ : int
        Number of sweeps.

    References
    ----------
    Z. Huang et al., "Log-Euclidean metric learning on symmetric positive definite manifold with
    application to image set classification", ICML 2015.

    Examples
    --------
    >>> from spdnet.baselines import LEML
    >>> from spdnet.data import load_digits_spd
    >>> X, y = load_digits_spd()
    >>> model = LEML(n_pairs=200, n_components=8).fit(X[:300], y[:300])
    >>> model.transform(X[300:400]).shape, bool(model.score(X[300:400], y[300:400]) > 0.85)
    ((100, 8, 8), True)
    """

    n_components: int | None = count(None)
    max_train: int | None = count(None)

    def _fit(self, X: Tensor, codes: IntArray) -> None:
        T = logm(X, check=False).numpy()
        with one_thread():  # each matrix is small
            self._fit_metric(T, codes)
        kept = subsample(codes, self.max_train)
        self.codes_, self.embedded_ = codes[kept], self._embed(T[kept])

    def _fit_metric(self, T: NDArray[Any], codes: IntArray) -> None:
        pairs, sign = draw_pairs(codes, self.n_pairs, seed_of(self.random_state))
        A = T[pairs[:, 0]] - T[pairs[:, 1]]
        distances = numpy.square(A).sum((1, 2))
        differs = distances > 0  # equal matrices do not constrain the metric
        A, sign, distances = A[differs], sign[differs], distances[differs]
        h = numpy.eye(T.shape[-1])  # Q = h h^T

        def step(c: int, xi: float, multiplier: float) -> tuple[float, float]:
            nonlocal h
            B = A[c] @ h
            m, V = numpy.linalg.eigh(B.T @ B)
            m = numpy.maximum(m, 0)
            a = min(multiplier, sign[c] * solve_step(m, xi, self.slack))
            s = sign[c] * a
            h = (h @ V) / numpy.sqrt(1 - s * m)
            return 1 / (1 / xi + s / self.slack), multiplier - a

        self.n_iter_ = cyclic_projections(self, step, distances, sign)
        self.Q_ = h @ h.T
        s, V = numpy.linalg.eigh(self.Q_)
        k = min(self.n_components or len(s), len(s))
        self.root_ = (V * numpy.sqrt(s)) @ V.T
        self.W_ = V[:, ::-1][:, :k] * s[::-1][:k] ** 0.25

    def _embed(self, T: NDArray[Any]) -> NDArray[Any]:
        """Map logarithms to vectors with the learned distances."""
        return (self.root_ @ T).reshape(len(T), -1)

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """Compute the SPD matrices ``exp(W^T log(X) W)`` of size ``n_components``."""
        T = logm(self._validate_fitted(X), check=False).numpy()
        return expm(torch.from_numpy(self.W_.T @ T @ self.W_), check=False).numpy()

    def similarity(self, A: ArrayLike, B: ArrayLike) -> NDArray[Any]:
        """Compute the negative learned distances ``(N, M)`` of all pairs."""
        logs = (logm(self._validate_fitted(X), check=False).numpy() for X in (A, B))
        one, other = (torch.from_numpy(self._embed(T)) for T in logs)
        return -euclidean(one, other).numpy()

    def _predict(self, X: Tensor) -> IntArray:
        Z = self._embed(logm(X, check=False).numpy())
        return vote(euclidean(torch.from_numpy(Z), torch.from_numpy(self.embedded_)), self.codes_)


def draw_pairs(codes: IntArray, n_pairs: int | None, seed: int) -> tuple[IntArray, IntArray]:
    """Draw pairs ``(P, 2)`` of indices, half within a class (sign 1), half between (sign -1).

    Pairs are drawn without listing all of them; see :class:`spdnet.baselines.LEML` for the default.
    """
    n_classes = int(codes.max()) + 1
    wanted = min(40 * n_classes * (n_classes - 1), 2000) if n_pairs is None else n_pairs
    rng = numpy.random.default_rng(seed)
    order = numpy.argsort(codes, kind="stable")
    index, end = numpy.arange(len(codes)), numpy.cumsum(numpy.bincount(codes))[codes[order]]
    chosen = []
    # partners of each sample: the later ones of its class, and all of later classes
    for first, last in ((index + 1, end), (end, numpy.full_like(end, len(codes)))):
        before = numpy.cumsum(last - first)
        drawn = rng.choice(before[-1], min(max(1, wanted // 2), before[-1]), replace=False)
        one = numpy.searchsorted(before, drawn, side="right")
        other = last[one] - (before[one] - drawn)
        chosen.append(numpy.stack([order[one], order[other]], 1))
    pairs = rng.permutation(numpy.concatenate(chosen))
    return pairs, numpy.where(codes[pairs[:, 0]] == codes[pairs[:, 1]], 1, -1)


def solve_step(m: NDArray[numpy.float64], bound: float, slack: float, share: float = 1.0) -> float:
    r"""Compute the step :math:`s` of a projection, at which the constraint holds with equality.

    Solves :math:`c \sum_k \frac{m_k}{1 - s m_k} \, (1/\xi + s/\eta) = 1`, which is increasing in
    ``s``, for eigenvalues ``m``, bound :math:`\xi`, slack :math:`\eta` and share ``c``.
    """
    low, high = -slack / bound, 1 / m.max()

    def excess(s: float) -> float:
        return float(share * (m / (1 - s * m)).sum() * (1 / bound + s / slack) - 1)

    width = high - low
    margin = _MARGIN * width
    return float(brentq(excess, low + margin, high - margin, xtol=1e-15 * width))


def cyclic_projections(
    model: LogDetMixin,
    step: Callable[[int, float, float], tuple[float, float]],
    distances: NDArray[numpy.float64],
    sign: IntArray,
) -> int:
    """Sweep over all constraints until their multipliers converge; return the number of sweeps.

    ``step`` projects onto a constraint: it maps its index, bound and multiplier to the new bound
    and multiplier. The bounds are ``model.spread`` standard deviations below (``sign`` 1, one
    class) or above (``sign`` -1) the mean of the squared ``distances`` of the pairs.
    """
    if len(sign) == 0:
        return 0
    middle = distances.mean()
    xi = numpy.maximum(middle - sign * model.spread * distances.std(), 1e-3 * middle)
    multipliers = numpy.zeros(len(sign))
    change = numpy.inf
    with show_progress(model.verbose, f"{type(model).__name__}, sweep") as progress:
        for sweep in range(1, model.max_sweeps + 1):
            before = multipliers.copy()
            for c in range(len(sign)):
                xi[c], multipliers[c] = step(c, xi[c], multipliers[c])
            size = numpy.abs(multipliers).sum() + numpy.abs(before).sum()
            change = numpy.abs(multipliers - before).sum() / size if size > 0 else 0.0
            progress(sweep, model.max_sweeps)
            if change < model.tol:
                return sweep
    warn_user(
        f"{type(model).__name__}: not converged after {model.max_sweeps} sweeps (change "
        f"{change:.1e}, tol {model.tol:g}); an unconverged metric can be worse than none: increase "
        "max_sweeps, or decrease slack",
        ConvergenceWarning,
    )
    return model.max_sweeps
