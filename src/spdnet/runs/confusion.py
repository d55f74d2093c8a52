"""Sparse confusion matrix for many classes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy
from numpy.typing import ArrayLike, NDArray

from spdnet.runs.record import Record


@dataclass(frozen=True)
class ClassScore(Record):
    """Scores of one class; None if the class is never predicted or does not occur."""

    label: str = field(metadata={"key": "class"})
    n: int
    precision: float | None
    recall: float | None
    f1: float | None


@dataclass(frozen=True)
class Confusion(Record):
    """Counts of pairs of a true and a predicted class, without zeros.

    ``true`` and ``predicted`` are class indices in lexicographic order, ``count`` is at least 1.
    """

    n_classes: int
    true: tuple[int, ...]
    predicted: tuple[int, ...]
    count: tuple[int, ...]

    def __post_init__(self) -> None:
        if not len(self.true) == len(self.predicted) == len(self.count):
            raise ValueError("expected as many true as predicted classes and counts in confusion")
        classes = (*self.true, *self.predicted)
        if classes and not 0 <= min(classes) <= max(classes) < self.n_classes:
            raise ValueError(f"expected indices of {self.n_classes} classes in confusion")
        if self.count and not 1 <= min(self.count) <= max(self.count) < 2**53:
            raise ValueError("expected counts of at least 1 in confusion")

    @classmethod
    def of(
        cls, true: ArrayLike, predicted: ArrayLike, n_classes: int, count: ArrayLike = 1
    ) -> "Confusion":
        """Count pairs of class indices; ``count`` is the number of times each pair is given."""
        cells = numpy.asarray(true, dtype=numpy.int64) * n_classes + numpy.asarray(predicted)
        pairs, inverse = numpy.unique(cells, return_inverse=True)
        totals = numpy.zeros(len(pairs), dtype=numpy.int64)
        numpy.add.at(totals, inverse, count)
        columns = (pairs // n_classes, pairs % n_classes, totals)
        return cls(n_classes, *(tuple(column.tolist()) for column in columns))

    def __add__(self, other: "Confusion") -> "Confusion":
        return Confusion.of(
            self.true + other.true,
            self.predicted + other.predicted,
            self.n_classes,
            self.count + other.count,
        )

    def dense(self) -> NDArray[numpy.int64]:
        """Return all counts ``(n_classes, n_classes)``, true classes in rows."""
        table = numpy.zeros((self.n_classes, self.n_classes), dtype=numpy.int64)
        table[list(self.true), list(self.predicted)] = self.count
        return table

    def most_confused(self, n: int) -> list[tuple[int, int, int]]:
        """Return the ``n`` most frequent pairs of different classes: true, predicted, count."""
        pairs = zip(self.true, self.predicted, self.count, strict=True)
        return sorted((pair for pair in pairs if pair[0] != pair[1]), key=lambda pair: -pair[2])[:n]

    def per_class(self, classes: Sequence[str]) -> tuple[ClassScore, ...]:
        """Compute number of samples, precision, recall and F1 of each class."""
        total = partial(numpy.bincount, minlength=self.n_classes)
        columns = (self.true, self.predicted, self.count)
        true, predicted, count = (numpy.array(values, dtype=numpy.int64) for values in columns)
        hits = total(true, numpy.where(true == predicted, count, 0))
        actual, predicted_counts = total(true, count), total(predicted, count)
        with numpy.errstate(invalid="ignore"):
            ratios = numpy.stack(
                [hits / predicted_counts, hits / actual, 2 * hits / (predicted_counts + actual)],
                axis=1,
            )
        return tuple(
            ClassScore(label, int(n), *(None if math.isnan(value) else value for value in row))
            for label, n, row in zip(classes, actual, ratios.tolist(), strict=True)
        )
