"""Confusion counts of many classes: only the pairs that occur."""

from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import NDArray

_COLUMNS = ("true", "predicted", "count")


@dataclass(frozen=True)
class Confusion:
    """Counts of the pairs of a true and a predicted class, without the zeros.

    Parameters
    ----------
    n_classes : int
    true, predicted : array of int, shape (n_pairs,)
        Class indices of each pair, in lexicographic order.
    count : array of int, shape (n_pairs,)
        Number of samples of each pair, at least 1.

    Examples
    --------
    >>> from spdnet.runs.confusion import Confusion
    >>> counts = Confusion.of([0, 0, 2, 2, 2], [0, 2, 2, 2, 0], n_classes=3)
    >>> counts.dense().tolist()
    [[1, 0, 1], [0, 0, 0], [1, 0, 2]]
    >>> counts.as_dict()
    {'true': [0, 0, 2, 2], 'predicted': [0, 2, 0, 2], 'count': [1, 1, 1, 2]}
    """

    n_classes: int
    true: NDArray[numpy.int64]
    predicted: NDArray[numpy.int64]
    count: NDArray[numpy.int64]

    @classmethod
    def of(cls, true: Any, predicted: Any, n_classes: int, count: Any = None) -> "Confusion":
        """Count pairs of class indices; ``count`` says how often each pair is given."""
        cells = numpy.asarray(true, dtype=numpy.int64) * n_classes + numpy.asarray(predicted)
        pairs, inverse = numpy.unique(cells, return_inverse=True)
        totals = numpy.zeros(len(pairs), dtype=numpy.int64)
        numpy.add.at(totals, inverse, 1 if count is None else numpy.asarray(count))
        return cls(n_classes, pairs // n_classes, pairs % n_classes, totals)

    @classmethod
    def read(cls, stored: Any, n_classes: int) -> "Confusion":
        """Read ``confusion`` of ``results.json``; earlier versions wrote a table of all counts."""
        if isinstance(stored, dict):
            columns = [numpy.asarray(stored[name]) for name in _COLUMNS]
        else:
            table = numpy.asarray(stored)
            if table.shape != (n_classes, n_classes):
                raise ValueError(f"expected {n_classes} x {n_classes} counts, got {table.shape}")
            columns = [*numpy.nonzero(table), table[table != 0]]
        if len({column.shape for column in columns}) > 1 or columns[0].ndim != 1:
            raise ValueError("expected as many true as predicted classes and counts")
        if columns[0].size == 0:
            columns = [column.astype(numpy.int64) for column in columns]
        if any(column.dtype.kind not in "iu" for column in columns):
            raise TypeError("expected whole numbers in the confusion")
        true, predicted, count = columns
        if any(((c < 0) | (c >= n_classes)).any() for c in (true, predicted)) or (count < 1).any():
            raise ValueError(f"expected indices of {n_classes} classes, and counts of at least 1")
        return cls.of(true, predicted, n_classes, count)

    def as_dict(self) -> dict[str, list[int]]:
        """Plain lists for ``results.json``."""
        return {name: getattr(self, name).tolist() for name in _COLUMNS}

    def __add__(self, other: "Confusion") -> "Confusion":
        columns = (
            numpy.concatenate([getattr(self, name), getattr(other, name)]) for name in _COLUMNS
        )
        true, predicted, count = columns
        return Confusion.of(true, predicted, self.n_classes, count)

    def dense(self) -> NDArray[numpy.int64]:
        """All counts ``(n_classes, n_classes)``, true classes in rows."""
        table = numpy.zeros((self.n_classes, self.n_classes), dtype=numpy.int64)
        table[self.true, self.predicted] = self.count
        return table

    def most_confused(self, n: int) -> list[tuple[int, int, int]]:
        """The ``n`` most frequent pairs of different classes: true, predicted, count.

        Examples
        --------
        >>> from spdnet.runs.confusion import Confusion
        >>> Confusion.of([0, 0, 1, 1], [1, 1, 0, 1], n_classes=2).most_confused(1)
        [(0, 1, 2)]
        """
        wrong = numpy.flatnonzero(self.true != self.predicted)
        top = wrong[numpy.argsort(-self.count[wrong], kind="stable")[:n]]
        return [
            (int(t), int(p), int(c))
            for t, p, c in zip(self.true[top], self.predicted[top], self.count[top], strict=True)
        ]

    def per_class(self) -> NDArray[numpy.float64]:
        """Number of samples, precision, recall and F1 of each class ``(n_classes, 4)``.

        A class that is never predicted has no precision, one that does not occur has no recall:
        NaN.
        """

        def total(index: NDArray[numpy.int64], count: NDArray[numpy.int64]) -> Any:
            return numpy.bincount(index, count, minlength=self.n_classes)

        right = self.true == self.predicted
        hits = total(self.true[right], self.count[right])
        actual, named = total(self.true, self.count), total(self.predicted, self.count)
        with numpy.errstate(invalid="ignore"):
            ratios = hits / named, hits / actual, 2 * hits / (named + actual)
        return numpy.stack([actual, *ratios], axis=1)
