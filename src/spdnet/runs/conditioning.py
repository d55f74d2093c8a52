"""Conditioning of the matrices of a data set: missing channels, rank, shrinkage and domains."""

import warnings
from dataclasses import replace

import numpy
import torch
from numpy.typing import NDArray

from spdnet.adaptation import Conditioner
from spdnet.data import Dataset, Split, StoredArray
from spdnet.options.run import DataOptions

_LARGEST = 2**32  # bytes of matrices on disk that are read at once


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
        return Conditioner("full", "none", "none")
    if settings.adapt != "none" and data.groups is None:
        raise ValueError(
            f"{who}: expected data with groups, such as subjects or sessions, for adapt = "
            f"{settings.adapt!r}, got none; give --groups, or leave out --adapt"
        )
    train = split.parts["train"]
    if isinstance(data.X, StoredArray) and not conditioner.needs_fit(singular=data.is_singular):
        return conditioner  # the matrices stay on disk
    if _is_too_large(data):
        raise ValueError(
            f"{who}: expected at most {_LARGEST / 2**30:g} GiB of matrices with rank, shrinkage or "
            f"adapt, got {data.X.nbytes / 2**30:.1f} GiB on disk; omit --rank, "
            "--shrinkage and --adapt"
        )
    groups = None if data.groups is None else _domains(data)[train]
    return conditioner.fit(
        torch.from_numpy(numpy.asarray(data.X[train])),
        split.codes[train],
        None if settings.adapt == "none" else groups,
        groups=groups,
        singular=data.is_singular,
        channels=data.channels,
    )


def is_incomplete(data: Dataset, conditioner: Conditioner) -> NDArray[numpy.bool_]:
    """Return which matrices lack channels that the conditioner keeps."""
    if isinstance(data.X, StoredArray):
        return numpy.zeros(len(data), dtype=bool)
    missing = numpy.isnan(numpy.diagonal(data.X, axis1=1, axis2=2))
    return missing[:, conditioner.channels].any(-1)


def transform(conditioner: Conditioner, data: Dataset) -> tuple[Dataset, list[str]]:
    """Transform the matrices, and return notes about new groups.

    ``data`` must contain all matrices of a new group.
    """
    if not conditioner.changes(stored=isinstance(data.X, StoredArray)):
        return data, []
    domains = _domains(data) if conditioner.uses_domains else None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        X = conditioner.transform(torch.from_numpy(numpy.asarray(data.X[:])), domains)
    notes = [str(warning.message).partition(": ")[2] for warning in caught]
    return replace(data, X=X.numpy(), is_singular=False, channels=None), notes


def _is_too_large(data: Dataset) -> bool:
    return isinstance(data.X, StoredArray) and data.X.nbytes > _LARGEST


def _domains(data: Dataset) -> NDArray[numpy.str_]:
    """Return the groups as text; without groups, all matrices are of one unknown group."""
    if data.groups is None:
        return numpy.full(len(data), "unknown group")
    return numpy.array([str(group) for group in data.groups.tolist()])
