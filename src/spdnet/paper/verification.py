"""Verification: whether two matrices are of one person, all against all."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy
from numpy.typing import NDArray

from spdnet import metrics
from spdnet.data import Dataset


def verify(
    similarity: Callable[[Dataset], NDArray[Any]],
    ready: Dataset,
    tasks: dict[str, NDArray[numpy.bool_]],
) -> dict[str, Any]:
    """Verification rates at a false acceptance rate of 0.01, by task; ROCs and equal error rates.

    Parameters
    ----------
    similarity : callable
        From N matrices to scores ``(N, N)``.
    ready : Dataset
        With the people as classes.
    tasks : dict
        Which of the matrices each one is about.
    """
    found: dict[str, Any] = {"roc": {}, "equal_error": {}}
    for name, chosen in tasks.items():
        part = only(ready, chosen)
        assert part.y is not None  # they have people
        places = numpy.triu_indices(len(part.y), 1)  # each pair once, none with itself
        scores = similarity(part)[places]
        same = (part.y[:, None] == part.y[None, :])[places]
        found[name] = metrics.verification_rate(scores, same, far=0.01)
        found["equal_error"][name] = metrics.equal_error_rate(scores, same)
        curve = metrics.roc(scores, same)
        at = numpy.geomspace(1e-4, 1, 101)
        rates = numpy.interp(at, curve.far, curve.rate)
        found["roc"][name] = {"far": at.tolist(), "rate": rates.tolist()}
    return found


def only(ready: Dataset, chosen: NDArray[numpy.bool_]) -> Dataset:
    """Some matrices, and no classes but theirs."""
    part = ready.take(numpy.flatnonzero(chosen))
    assert part.y is not None  # they have classes
    there = set(part.y.tolist())
    return replace(part, classes=[name for name in part.classes if name in there])


def cosines(features: NDArray[Any]) -> NDArray[Any]:
    """Cosines ``(N, N)`` of the angles between rows."""
    length = numpy.linalg.norm(features, axis=1, keepdims=True)
    unit = features / numpy.where(length > 0, length, 1)
    return unit @ unit.T
