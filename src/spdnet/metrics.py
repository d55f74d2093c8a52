"""Verification scores, and statistics of repeated runs."""

from typing import NamedTuple

import numpy
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import roc_curve

from spdnet._checks import require_number


class Roc(NamedTuple):
    """Receiver operating characteristic: nondecreasing false acceptance and verification rates."""

    far: NDArray[numpy.float64]
    rate: NDArray[numpy.float64]


class Spread(NamedTuple):
    r"""Mean :math:`\bar x` and standard deviation :math:`\sqrt{\sum_i (x_i - \bar x)^2 / (n - 1)}`.

    The standard deviation of a single value is NaN.
    """

    mean: float
    deviation: float


def roc(scores: ArrayLike, same: ArrayLike) -> Roc:
    r"""Compute the verification rate against the false acceptance rate.

    At a threshold :math:`\tau` these are the fractions of genuine and of impostor pairs with a
    score of at least :math:`\tau`.

    Parameters
    ----------
    scores : array, any shape
        Similarity of each pair.
    same : array of bool, the same shape
        True for genuine pairs, which belong to one person.

    Examples
    --------
    >>> from spdnet.metrics import roc
    >>> far, rate = roc([0.9, 0.8, 0.7, 0.1], [True, False, True, False])
    >>> far.tolist(), rate.tolist()
    ([0.0, 0.0, 0.5, 0.5, 1.0], [0.0, 0.5, 0.5, 1.0, 1.0])
    """
    scores, same = numpy.asarray(scores, dtype=numpy.float64), numpy.asarray(same)
    if scores.shape != same.shape or same.dtype != bool:
        raise ValueError(
            f"roc: expected scores and booleans same of one shape, got {scores.shape} and "
            f"{same.dtype} {same.shape}"
        )
    if not numpy.isfinite(scores).all():
        raise ValueError("roc: expected finite scores, got NaN or infinity")
    if not same.any() or same.all():
        kind = "different people" if same.any() else "one person"
        raise ValueError(f"roc: expected pairs of both kinds, got none of {kind}")
    far, rate, _ = roc_curve(same.ravel(), scores.ravel(), drop_intermediate=False)
    return Roc(far, rate)


def verification_rate(scores: ArrayLike, same: ArrayLike, far: float = 0.01) -> float:
    """Compute the verification rate at a false acceptance rate.

    The rate is interpolated between the points of the ROC. For ``scores`` and ``same`` see
    :func:`roc`.

    Examples
    --------
    >>> from spdnet.metrics import verification_rate
    >>> verification_rate([0.9, 0.8, 0.7, 0.1], [True, False, True, False], far=0.5)
    1.0
    """
    require_number("verification_rate", "far", far, at_least=0, at_most=1)
    x, y = roc(scores, same)
    i = int(numpy.searchsorted(x, far, side="right")) - 1  # the last point at or before far
    if x[i] == far:
        return float(y[i])
    t = (far - x[i]) / (x[i + 1] - x[i])
    return float(y[i] + t * (y[i + 1] - y[i]))


def equal_error_rate(scores: ArrayLike, same: ArrayLike) -> float:
    """Compute the error rate at which false acceptances and false rejections are equally frequent.

    For ``scores`` and ``same`` see :func:`roc`.

    Examples
    --------
    >>> from spdnet.metrics import equal_error_rate
    >>> equal_error_rate([0.9, 0.2, 0.7, 0.1], [True, False, True, False])
    0.0
    """
    far, rate = roc(scores, same)
    gap = far - (1 - rate)  # rises from -1 to 1
    i = int(numpy.argmax(gap >= 0))
    t = -gap[i - 1] / (gap[i] - gap[i - 1])
    return float(far[i - 1] + t * (far[i] - far[i - 1]))


def spread(values: ArrayLike) -> Spread:
    """Compute the mean and standard deviation of the scores of repeated runs.

    Examples
    --------
    >>> from spdnet.metrics import spread
    >>> spread([1.0, 2.0, 3.0])
    Spread(mean=2.0, deviation=1.0)
    """
    values = numpy.asarray(values, dtype=numpy.float64)
    if values.ndim != 1 or len(values) == 0:
        raise ValueError(f"spread: expected a one-dimensional array, got shape {values.shape}")
    deviation = values.std(ddof=1) if len(values) > 1 else numpy.nan
    return Spread(float(values.mean()), float(deviation))
