r"""Metric learning by projections in the log-determinant divergence.

The divergence is :math:`D(A, B) = \mathrm{tr}(A B^{-1}) - \log\det(A B^{-1}) - n`. The constraints
are that distances within a class are below a bound, and others above one. Bregman's method projects
onto one constraint at a time and corrects for its earlier projections; slack variables allow for
bounds that cannot all be met.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy
from numpy.typing import NDArray
from scipy.optimize import brentq
from sklearn.exceptions import ConvergenceWarning

from spdnet._checks import require_count, require_number
from spdnet.baselines.estimator import IntArray, show_progress

#: relative distance of the root from the ends of its interval
_MARGIN = 1e-12


def require_settings(model: Any, *also: str) -> None:
    """Check the settings shared by LEML and HERML, and other positive numbers."""
    who = type(model).__name__
    for name in ("slack", "spread", "tol", *also):
        require_number(who, name, getattr(model, name), above=0)
    for name in ("max_sweeps", "n_pairs"):
        if getattr(model, name) is not None:
            require_count(who, name, getattr(model, name))


def draw_pairs(codes: IntArray, n_pairs: int | None, seed: int) -> tuple[IntArray, IntArray]:
    """Draw pairs ``(P, 2)`` of indices, half of one class (sign 1), half of two (sign -1).

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
    model: Any,
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
    warnings.warn(
        f"{type(model).__name__}: not converged after {model.max_sweeps} sweeps (change "
        f"{change:.1e}, tol {model.tol:g}); a metric before convergence can be worse than none: "
        "increase max_sweeps, or decrease slack",
        ConvergenceWarning,
        stacklevel=5,
    )
    return model.max_sweeps
