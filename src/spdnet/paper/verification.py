"""Verification: decide for all pairs of matrices whether they belong to the same person."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy
from numpy.typing import NDArray

from spdnet import metrics
from spdnet.data import Dataset
from spdnet.runs.cell import RocCurve, Score


def verify(
    similarity: Callable[[Dataset], NDArray[Any]],
    ready: Dataset,
    tasks: dict[str, NDArray[numpy.bool_]],
) -> Score:
    """Compute verification rates at a false acceptance rate of 0.01, ROCs and equal error rates.

    ``similarity`` maps N matrices, whose classes are people, to scores ``(N, N)``; ``tasks`` holds
    masks of the matrices of each task.
    """
    rates, curves, errors = {}, {}, {}
    for name, chosen in tasks.items():
        part = only(ready, chosen)
        assert part.y is not None  # they have people
        pairs = numpy.triu_indices(len(part.y), 1)  # each pair once, without the diagonal
        scores = similarity(part)[pairs]
        same = (part.y[:, None] == part.y[None, :])[pairs]
        rates[name] = metrics.verification_rate(scores, same, far=0.01)
        errors[name] = metrics.equal_error_rate(scores, same)
        far, rate = metrics.roc(scores, same)
        at = numpy.geomspace(1e-4, 1, 101)
        curves[name] = RocCurve(tuple(at.tolist()), tuple(numpy.interp(at, far, rate).tolist()))
    return Score(rates, curves, errors)


def only(ready: Dataset, chosen: NDArray[numpy.bool_]) -> Dataset:
    """Select matrices, and keep only their classes."""
    part = ready.take(numpy.flatnonzero(chosen))
    assert part.y is not None  # they have classes
    there = set(part.y.tolist())
    return replace(part, classes=[name for name in part.classes if name in there])


def cosines(features: NDArray[Any]) -> NDArray[Any]:
    """Return the cosines ``(N, N)`` of the angles between rows."""
    length = numpy.linalg.norm(features, axis=1, keepdims=True)
    unit = features / numpy.where(length > 0, length, 1)
    return unit @ unit.T
