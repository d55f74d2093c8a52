"""Names and colours of classes."""

from collections.abc import Iterator, Sequence
from typing import Any

import matplotlib
import numpy
from numpy.typing import NDArray

from spdnet.plots.style import COLORS, TRAIN

#: with more than these, a legend is of no use
MANY_CLASSES = 25
_LONG = 16


def by_class(who: str, y: Any, n: int) -> Iterator[tuple[str | None, NDArray[Any], Any]]:
    """Of each class its name, where it is and its colour; without classes, of all of them."""
    if y is None:
        yield None, numpy.ones(n, dtype=bool), TRAIN
        return
    labels = label_list(who, "y", y)
    if len(labels) != n:
        raise ValueError(f"{who}: expected a class for each of {n} points, got {len(labels)}")
    classes = ordered(labels)
    many = matplotlib.colormaps["viridis"](numpy.linspace(0, 0.95, len(classes)))
    for i, name in enumerate(classes):
        color = COLORS[i] if len(classes) <= len(COLORS) else many[i]
        yield short(str(name)), numpy.array([label == name for label in labels]), color


def label_list(who: str, name: str, y: Any) -> list[Any]:
    """Labels as plain values."""
    labels = y.tolist() if hasattr(y, "tolist") else list(y)
    if not isinstance(labels, list) or any(isinstance(label, list) for label in labels):
        raise ValueError(
            f"{who}: expected {name} to be a row of labels, got shape {numpy.shape(y)}"
        )
    return labels


def ordered(labels: Sequence[Any]) -> list[Any]:
    """Each once, sorted where they can be."""
    found = list(dict.fromkeys(labels))
    try:
        return sorted(found)
    except TypeError:
        return found


def short(name: str) -> str:
    """A name that fits a picture: of a long one the beginning, and the end, which differs most."""
    if len(name) > _LONG:
        name = f"{name[: _LONG - 7]}…{name[-6:]}"
    return f" {name}" if name.startswith("_") else name  # which matplotlib leaves out of legends
