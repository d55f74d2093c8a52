"""Checks of signals: which channels are not finite, constant or equal."""

from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import NDArray

from spdnet import covariance
from spdnet.data.examination import Examination, examine
from spdnet.data.store import StoredArray

_PIECE = 2**24  # bytes per chunk

Where = dict[Any, NDArray[numpy.int64]]


@dataclass(frozen=True)
class SignalExamination:
    """Indices of signals by faulty channel or pair of channels, and the faults of covariances."""

    not_finite: Where
    constant: Where
    equal: Where
    covariances: Examination


def examine_signals(
    X: NDArray[Any] | StoredArray, estimator: str = "sample", *, reg: float = 1e-3
) -> SignalExamination:
    """Find the channels of ``X (N, channels, time)`` that are not finite, constant or equal."""
    N, channels, time = X.shape
    places: tuple[dict[Any, list[int]], ...] = ({}, {}, {})
    parts: list[Examination] = []
    size = max(1, _PIECE // (8 * channels * max(channels, time) + 1))
    for start in range(0, N, size):
        signals = numpy.asarray(X[start : start + size], dtype=numpy.float64)
        finite = numpy.isfinite(signals).all(-1)
        constant = finite & (signals == signals[..., :1]).all(-1)
        for found, bad in zip(places, (~finite, constant), strict=False):
            for i, channel in numpy.argwhere(bad).tolist():
                found.setdefault(channel, []).append(start + i)
        for i, a, b in _equal_channels(signals, finite & ~constant):
            places[2].setdefault((a, b), []).append(start + i)
        parts.append(examine(covariances_of(signals, estimator, reg)))
    not_finite, constants, equal = (
        {key: numpy.array(found[key]) for key in sorted(found)} for found in places
    )
    return SignalExamination(not_finite, constants, equal, _together(parts, size))


def _equal_channels(
    signals: NDArray[numpy.float64], usable: NDArray[numpy.bool_]
) -> list[tuple[int, int, int]]:
    """Return the index of a signal and two equal channels, the first paired with each other one."""
    with numpy.errstate(all="ignore"):
        sums = numpy.where(usable, signals.sum(-1), numpy.nan)  # equal for equal channels
    ordered = numpy.sort(sums, axis=1)
    found = []
    for i in numpy.nonzero((ordered[:, 1:] == ordered[:, :-1]).any(1))[0].tolist():
        first: dict[bytes, int] = {}
        for channel in numpy.nonzero(usable[i])[0].tolist():
            a = first.setdefault(signals[i, channel].tobytes(), channel)
            if a != channel:
                found.append((i, a, channel))
    return found


def covariances_of(
    signals: NDArray[numpy.float64], estimator: str, reg: float
) -> NDArray[numpy.float64]:
    """Return covariances ``(N, n, n)``, NaN for signals that are not finite."""
    finite: NDArray[numpy.bool_] = numpy.asarray(numpy.isfinite(signals).all((-2, -1)))
    C = numpy.full((*signals.shape[:2], signals.shape[1]), numpy.nan)
    if signals.shape[-1] > 1 and finite.any():
        with numpy.errstate(all="ignore"):  # overflow is reported as not finite
            plain = covariance.ESTIMATORS[estimator](signals[finite])
            held = numpy.isfinite(plain).all((-2, -1))
            finite[finite] = held
            C[finite] = covariance.regularize(plain[held], reg, "mean")
    return C


def _together(parts: list[Examination], size: int) -> Examination:
    """Concatenate the results of consecutive chunks."""
    if not parts:
        return examine(numpy.empty((0, 1, 1)))
    faults = {
        name: numpy.concatenate([part.faults[name] + k * size for k, part in enumerate(parts)])
        for name in parts[0].faults
    }
    return Examination(faults, numpy.concatenate([part.conditions for part in parts]))
