"""Conditioning of the matrices of a data set: missing channels, rank, shrinkage and domains."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from spdnet.adaptation import Conditioner
from spdnet.data import Dataset, Split, StoredArray
from spdnet.options.run import DataOptions

_MAX_BYTES = 2**32  # bytes of matrices on disk that are read at once


def accepts_singular(data: Dataset, settings: DataOptions) -> bool:
    """Return whether singular matrices are accepted and made positive definite."""
    fitting = Conditioner(settings.rank, settings.shrinkage).accepts_singular
    is_usual = data.X.dtype.kind != "c" and not _is_too_large(data)
    return fitting and settings.bad != "repair" and is_usual


def fit_conditioner(who: str, data: Dataset, split: Split, settings: DataOptions) -> Conditioner:
    """Fit the conditioner to the training part of a run."""
    conditioner = Conditioner(settings.rank, settings.shrinkage, settings.adapt)
    if data.signals is not None:
        if settings.adapt != "none":
            raise ValueError(
                f"{who}: expected adapt = 'none' with a model of signals, got "
                f"{settings.adapt!r}; omit --adapt"
            )
        return conditioner  # an unfitted conditioner changes nothing
    if settings.adapt != "none" and data.groups is None:
        raise ValueError(
            f"{who}: expected data with groups, such as subjects or sessions, for adapt = "
            f"{settings.adapt!r}, got none; set --groups, or omit --adapt"
        )
    train = split.parts["train"]
    if isinstance(data.X, StoredArray) and not conditioner.needs_fit(singular=data.is_singular):
        return conditioner  # the matrices stay on disk
    if _is_too_large(data):
        raise ValueError(
            f"{who}: expected at most {_MAX_BYTES / 2**30:g} GiB of matrices with rank, shrinkage "
            f"or adapt, got {data.X.nbytes / 2**30:.1f} GiB on disk; omit --rank, --shrinkage and "
            "--adapt"
        )
    groups = None if data.groups is None else _domains(data)[train]
    rest = numpy.setdiff1d(numpy.arange(len(data) if data.is_singular else 0), train)
    return conditioner.fit(
        torch.from_numpy(numpy.asarray(data.X[train])),
        numpy.asarray(data.classes)[split.codes[train]],  # class names, for messages
        None if settings.adapt == "none" else groups,
        groups=groups,
        singular=data.is_singular,
        channels=data.channels,
        others=torch.from_numpy(numpy.asarray(data.X[rest])) if len(rest) else None,
    )


def is_incomplete(data: Dataset, conditioner: Conditioner) -> NDArray[numpy.bool_]:
    """Return which matrices lack channels that the conditioner keeps."""
    if isinstance(data.X, StoredArray):
        return numpy.zeros(len(data), dtype=bool)
    missing = numpy.isnan(numpy.diagonal(data.X, axis1=1, axis2=2))
    return missing[:, conditioner.channels].any(-1)


@dataclass(frozen=True, eq=False)
class ConditionedArray:
    """Matrices on disk that are transformed whenever they are read."""

    read: Callable[[NDArray[numpy.int64]], Tensor]
    rows: NDArray[numpy.int64]  #: rows of the matrices on disk
    size: int
    dtype: numpy.dtype[Any]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of the transformed matrices."""
        return len(self.rows), self.size, self.size

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> NDArray[Any]:
        """Read and transform rows by a slice, an array of integers or a mask."""
        rows = self.rows[index]
        return (
            self.read(rows).numpy() if len(rows) else numpy.empty((0, *self.shape[1:]), self.dtype)
        )

    def take(self, index: NDArray[numpy.int64], axis: int = 0) -> "ConditionedArray":
        """Select rows without reading them."""
        return replace(self, rows=self.rows.take(index))


def _read_group(X: StoredArray, rows: NDArray[numpy.int64]) -> Tensor:
    """Read the matrices of one new group."""
    if (size := X.nbytes // len(X) * len(rows)) > _MAX_BYTES:
        raise ValueError(
            f"predict: expected at most {_MAX_BYTES / 2**30:g} GiB of matrices in one new group, "
            f"which has to fit in memory, got {size / 2**30:.1f} GiB; split the group"
        )
    return torch.from_numpy(X[rows])


def transform(
    conditioner: Conditioner, data: Dataset, *, stream: bool = False
) -> tuple[Dataset, list[str]]:
    """Transform the matrices, and return notes about new groups.

    ``data`` must contain all matrices of a new group. With ``stream``, matrices on disk are
    transformed whenever they are read, and only those of one new group are in memory at once.
    """
    if not conditioner.changes(stored=isinstance(data.X, StoredArray)):
        return data, []
    domains = _domains(data) if conditioner.uses_domains else None
    X: Any = data.X
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if stream and isinstance(X, StoredArray):
            read = conditioner.in_parts(partial(_read_group, X), len(X), domains)
            size = conditioner.size(X.shape[1])
            X = ConditionedArray(read, numpy.arange(len(X)), size, X.dtype)
        else:
            X = conditioner.transform(torch.from_numpy(numpy.asarray(X[:])), domains).numpy()
    notes = [str(warning.message).partition(": ")[2] for warning in caught]
    return replace(data, X=X, is_singular=False, channels=None), notes


def _is_too_large(data: Dataset) -> bool:
    return isinstance(data.X, StoredArray) and data.X.nbytes > _MAX_BYTES


def _domains(data: Dataset) -> NDArray[numpy.str_]:
    """Return the groups as text; without groups, all matrices belong to one unknown group."""
    if data.groups is None:
        return numpy.full(len(data), "unknown group")
    return numpy.array([str(group) for group in data.groups.tolist()])
