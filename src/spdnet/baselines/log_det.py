r"""Projections onto one constraint at a time, nearest in the log-determinant divergence.

Metric learning with :math:`D(A, B) = \mathrm{tr}(A B^{-1}) - \log\det(A B^{-1}) - n` asks that the
distances of pairs of one class become smaller than a bound, and those of others larger. Each
constraint is met exactly in turn, with a correction for what it did before (Bregman's method), and
slack for bounds that cannot all be met.
"""

import warnings
from collections.abc import Callable

import numpy
from numpy.typing import NDArray
from scipy.optimize import brentq
from sklearn.exceptions import ConvergenceWarning

#: how near to the ends of its interval a root is looked for
_END = 1e-12


def choose_pairs(
    codes: NDArray[numpy.int64], n_pairs: int | None, seed: int
) -> tuple[NDArray[numpy.int64], NDArray[numpy.int64]]:
    """Pairs ``(P, 2)`` of places, and 1 for those of one class, -1 for others.

    Half of them are of one class, drawn from all such pairs without a list of them. When not given,
    ``40 C (C - 1)`` for ``C`` classes, at most 2000.
    """
    n_classes = int(codes.max()) + 1
    wanted = min(40 * n_classes * (n_classes - 1), 2000) if n_pairs is None else n_pairs
    rng = numpy.random.default_rng(seed)
    order = numpy.argsort(codes, kind="stable")  # class by class
    place, end = numpy.arange(len(codes)), numpy.cumsum(numpy.bincount(codes))[codes[order]]
    chosen = []
    # the partners of each: those after it of its class, and all of later classes
    for first, last in ((place + 1, end), (end, numpy.full_like(end, len(codes)))):
        before = numpy.cumsum(last - first)
        drawn = rng.choice(before[-1], min(max(1, wanted // 2), before[-1]), replace=False)
        one = numpy.searchsorted(before, drawn, side="right")
        other = last[one] - (before[one] - drawn)
        chosen.append(numpy.stack([order[one], order[other]], 1))
    pairs = rng.permutation(numpy.concatenate(chosen))
    return pairs, numpy.where(codes[pairs[:, 0]] == codes[pairs[:, 1]], 1, -1)


def bounds(
    distances: NDArray[numpy.float64], sign: NDArray[numpy.int64], spread: float
) -> NDArray[numpy.float64]:
    """The mean squared distance of the pairs, less or more ``spread`` times their deviation."""
    middle = distances.mean()
    return numpy.maximum(middle - sign * spread * distances.std(), 1e-3 * middle)


def root(m: NDArray[numpy.float64], bound: float, slack: float, share: float = 1.0) -> float:
    r"""The step :math:`s` of a projection: where a constraint holds with its bound after the slack.

    Solves :math:`c \sum_k \frac{m_k}{1 - s m_k} \, (1/\xi + s/\eta) = 1`, which grows with ``s``,
    for eigenvalues ``m``, bound :math:`\xi`, slack :math:`\eta` and share ``c``.
    """
    low, high = -slack / bound, 1 / m.max()

    def excess(s: float) -> float:
        return float(share * (m / (1 - s * m)).sum() * (1 / bound + s / slack) - 1)

    width = high - low
    return float(brentq(excess, low + _END * width, high - _END * width, xtol=1e-15 * width))


def project_in_turn(
    who: str,
    step: Callable[[int, float, float], tuple[float, float]],
    xi: NDArray[numpy.float64],
    sign: NDArray[numpy.int64],
    *,
    tol: float,
    max_sweeps: int,
    progress: Callable[[int, int], None],
) -> int:
    """Sweeps over all constraints until their multipliers settle; how many there were.

    Parameters
    ----------
    who : str
        Warns if they do not settle.
    step : callable
        Of a constraint, its bound and its multiplier: projects, and gives both anew.
    xi : array, shape (P,)
        Bounds; changed in place.
    sign : array, shape (P,)
    tol : float
        Of the relative change of all multipliers in a sweep.
    max_sweeps : int
    progress : callable
    """
    multipliers = numpy.zeros(len(sign))
    change = numpy.inf
    for sweep in range(1, max_sweeps + 1):
        before = multipliers.copy()
        for c in range(len(sign)):
            xi[c], multipliers[c] = step(c, xi[c], multipliers[c])
        size = numpy.abs(multipliers).sum() + numpy.abs(before).sum()
        change = numpy.abs(multipliers - before).sum() / size if size > 0 else 0.0
        progress(sweep, max_sweeps)
        if change < tol:
            return sweep
    warnings.warn(
        f"{who}: not converged after {max_sweeps} sweeps (change {change:.1e}, tol {tol:g}); a "
        "metric before convergence can be worse than none: raise max_sweeps, or lower slack",
        ConvergenceWarning,
        stacklevel=5,
    )
    return max_sweeps
