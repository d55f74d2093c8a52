"""Summary of a data set as text."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy
from numpy.typing import NDArray

from spdnet.data.dataset import Dataset
from spdnet.data.examination import (
    Examination,
    SignalExamination,
    Where,
    definable,
    list_indices,
    remedies,
)
from spdnet.data.names import printable

_MANY_CLASSES = 30
_MANY = 20  # indices per line


def describe(data: Dataset, found: Examination | SignalExamination | None = None) -> list[str]:
    """Describe counts, sizes, classes, splits, groups, condition numbers and faults, as lines."""
    N, rows, cols = data.X.shape
    signals = isinstance(found, SignalExamination) or not data.is_matrices
    kind = counted(N, "signal") if signals else f"{counted(N, 'matrix')} of {rows} x {cols}"
    lines = [f"{kind}, {data.X.dtype}, {data.X.nbytes / 2**20:.1f} MiB"]
    if signals:
        sizes = f"{counted(rows, 'channel')}, {counted(cols, 'sample')} each"
        lines.append(f"{sizes}: covariances will be {rows} x {rows}")
    if data.channels is not None:
        lines.append(f"channels: {', '.join(map(printable, data.channels))}")
    lines += ["no labels"] if data.y is None else _classes(data.y)
    if data.split is not None:
        parts = zip(*numpy.unique(data.split, return_counts=True), strict=True)
        lines.append("split: " + ", ".join(f"{count} {name}" for name, count in parts))
    if data.groups is not None:
        lines.append(counted(len(numpy.unique(data.groups)), "group"))
    if isinstance(found, SignalExamination):
        lines += _channels(data, found)
    elif found is not None:
        lines += _matrices(data, found)
    return lines + [f"note: {note}" for note in data.notes]


def counted(count: int, what: str) -> str:
    """Return a count such as ``1 class`` or ``2 classes``."""
    plural = {"class": "classes", "matrix": "matrices"}.get(what, f"{what}s")
    return f"{count} {what if count == 1 else plural}"


def _matrices(data: Dataset, found: Examination) -> list[str]:
    lines = [*_missing(data, found.missing, "matrices"), *_conditions(found, "condition numbers")]
    if len(found.bad) == 0:
        return [*lines, "all symmetric positive definite"]
    if len(singular := definable(data, found)):
        lines.append(f"singular: {len(singular)} of {len(data)}: {_shown(singular, data)}")
        lines.append("  training makes them positive definite (--rank, --shrinkage)")
        found = replace(found, faults={**found.faults, "singular": singular[:0]})
    if len(found.bad) == 0:
        return lines
    lines.append(f"not SPD: {len(found.bad)} of {len(data)}")
    for fault, indices in found.faults.items():
        if len(indices):
            lines.append(f"  {len(indices)} {fault}: {_shown(indices, data)}")
    return [*lines, *(f"  {advice}" for advice in remedies(found, data.X))]


def _channels(data: Dataset, found: SignalExamination) -> list[str]:
    N, rows, cols = data.X.shape
    lines = []
    if found.not_finite:
        bad = _union(found.not_finite.values())
        lines.append(f"not finite: {counted(len(bad), 'signal')} of {N}: {_shown(bad, data)}")
        lines += _where(found.not_finite, data)
        drop = "drop these signals (--bad drop), or " if len(bad) < N else ""
        lines.append(f"  {drop}correct them in the file; 'repair' does not fix these")
    lines += _missing(data, found.missing, "signals")
    if found.equal:
        lines += ["identical channels:", *_where(found.equal, data)]
        lines.append("  keep one channel of each pair")
    if cols <= rows:
        singular = "not more time points than channels: the sample covariance is singular"
        lines.append(f"{singular}; use --estimator oas, or a larger --reg")
    lines += _conditions(found.covariances, "condition numbers of the covariances")
    known = _union(found.not_finite.values())
    large = numpy.setdiff1d(found.covariances.faults["not finite"], known)
    if len(large) and cols > 1:
        lines.append(f"too large for a covariance: {_shown(large, data)}; rescale all signals")
    zero = found.covariances.faults["zero"]
    if len(zero):
        lines.append(f"zero: {counted(len(zero), 'signal')} of {N}: {_shown(zero, data)}")
    faulty = [
        f"covariances that are {fault}: {len(indices)} of {N}: {_shown(indices, data)}"
        for fault in ("indefinite", "singular")
        if len(indices := found.covariances.faults[fault])
    ]
    return lines + (faulty and [*faulty, "  use a larger --reg, or --estimator oas"])


def _missing(data: Dataset, where: Where, what: str) -> list[str]:
    """Describe missing channels; those missing in all samples are removed in training."""
    if not where:
        return []
    N, some = len(data), _union(where.values())
    count = f"{counted(len(where), 'channel')} of {data.X.shape[1]}"
    lines = [f"missing channels (NaN, flat): {count}, in {len(some)} of {N} {what}"]
    lines += _where(where, data)
    if any(len(indices) < N for indices in where.values()):
        lines.append("  they are estimated from the others in training")
    if any(len(indices) == N for indices in where.values()):
        lines.append("  those that are missing in all are removed in training")
    return lines


def _union(arrays: Iterable[NDArray[numpy.int64]]) -> NDArray[numpy.int64]:
    return numpy.unique(numpy.concatenate([numpy.empty(0, numpy.int64), *arrays]))


def _where(where: Where, data: Dataset) -> list[str]:
    lines = []
    for key, indices in where.items():
        name = " and ".join(_name(i, data) for i in (key if isinstance(key, tuple) else [key]))
        name = f"channel{'s' if isinstance(key, tuple) else ''} {name}"
        everywhere = len(indices) == len(data)
        which = "all" if everywhere else f"{len(indices)}: {_shown(indices, data)}"
        lines.append(f"  {name} in {which}")
    more = len(lines) - _MANY
    return lines[:_MANY] + [f"  ... and {more} more"] * (more > 0)


def _name(channel: int, data: Dataset) -> str:
    return str(channel) if data.channels is None else printable(data.channels[channel])


def _conditions(found: Examination, title: str) -> list[str]:
    finite = found.conditions[numpy.isfinite(found.conditions)]
    if len(finite) == 0:
        return []
    low, middle, high = numpy.percentile(finite, [0, 50, 100])
    return [f"{title}: {low:.3g} to {high:.3g}, median {middle:.3g}"]


def _shown(indices: NDArray[Any], data: Dataset) -> str:
    return list_indices(indices, data.names, most=_MANY)


def _classes(y: NDArray[Any]) -> list[str]:
    classes, counts = numpy.unique(y, return_counts=True)
    least, most = counts.min(), counts.max()
    each = f"{most} each" if least == most else f"{least} to {most} each"
    lines = [
        f"{counted(len(classes), 'class')}, {each} (most frequent: {100 * most / len(y):.1f} %)"
    ]
    order = numpy.argsort(-counts, kind="stable")[:_MANY_CLASSES]
    names = {i: printable(str(classes[i])) for i in order}
    width = max(map(len, names.values()))
    for i, name in names.items():
        bar = "#" * max(1, round(40 * counts[i] / most))
        lines.append(f"  {name:{width}}  {counts[i]:6}  {bar}")
    more = len(classes) - _MANY_CLASSES
    return lines + [f"  ... and {more} more"] * (more > 0)
