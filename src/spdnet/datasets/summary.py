"""What a data set holds, in a few lines for people."""

from typing import Any

import numpy
from numpy.typing import NDArray

from spdnet.datasets.examine import Examination
from spdnet.datasets.names import printable
from spdnet.datasets.readers import LabelledArrays

_MANY_CLASSES = 30


def describe(data: LabelledArrays, found: Examination | None) -> list[str]:
    """Lines about counts, sizes, classes, splits, groups, conditions and faults.

    Parameters
    ----------
    data : LabelledArrays
    found : Examination or None
        Of the matrices; None for signals.
    """
    N, rows, cols = data.X.shape
    kind = f"{N} matrices of {rows} x {cols}" if data.are_matrices else f"{N} signals"
    lines = [f"{kind}, {data.X.dtype}, {data.X.nbytes / 2**20:.1f} MiB"]
    if not data.are_matrices:
        lines.append(f"{rows} channels, {cols} samples each: covariances will be {rows} x {rows}")
    lines += ["no labels"] if data.y is None else _classes(data.y)
    if data.split is not None:
        parts = zip(*numpy.unique(data.split, return_counts=True), strict=True)
        lines.append("split: " + ", ".join(f"{count} {name}" for name, count in parts))
    if data.groups is not None:
        lines.append(f"{len(numpy.unique(data.groups))} groups")
    if found is not None:
        finite = found.conditions[numpy.isfinite(found.conditions)]
        if len(finite):
            low, middle, high = numpy.percentile(finite, [0, 50, 100])
            lines.append(f"condition numbers: {low:.3g} to {high:.3g}, median {middle:.3g}")
        if len(found.bad):
            lines.append(f"not SPD: {len(found.bad)} of {N}")
            for fault, indices in found.faults.items():
                if len(indices):
                    shown = ", ".join(map(str, indices[:20]))
                    more = ", ..." if len(indices) > 20 else ""
                    lines.append(f"  {len(indices)} {fault}: {shown}{more}")
        else:
            lines.append("all symmetric positive definite")
    return lines


def _classes(y: NDArray[Any]) -> list[str]:
    classes, counts = numpy.unique(y, return_counts=True)
    lines = [
        f"{len(classes)} classes, {counts.min()} to {counts.max()} each "
        f"(always the largest: {100 * counts.max() / len(y):.1f} %)"
    ]
    order = numpy.argsort(-counts, kind="stable")[:_MANY_CLASSES]
    names = {i: printable(str(classes[i])) for i in order}
    width = max(map(len, names.values()))
    for i, name in names.items():
        bar = "#" * max(1, round(40 * counts[i] / counts.max()))
        lines.append(f"  {name:{width}}  {counts[i]:6}  {bar}")
    if len(classes) > _MANY_CLASSES:
        lines.append(f"  ... and {len(classes) - _MANY_CLASSES} more")
    return lines
