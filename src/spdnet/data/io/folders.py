"""Folders of classes, with one matrix or recording in each file."""

import io
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from spdnet.data.errors import DataError
from spdnet.data.io.arrays import read_npy
from spdnet.data.io.files import require_distinct, text
from spdnet.data.io.matlab import load_mat
from spdnet.data.io.tables import LARGEST, parse_table
from spdnet.data.io.tables import SUFFIXES as TABLES
from spdnet.data.io.unread import is_hidden, kinds_of, of_one_kind, on_the_rest


def read_folder(
    folder: Path,
    splits: Sequence[str],
    labelled: bool | None,
    on_file: Callable[[int, int], None] | None,
) -> dict[str, Any]:
    """The arrays of a folder, and notes on it, by the names of :class:`Dataset`.

    Parameters
    ----------
    folder : Path
    splits : sequence of str
        Folders that are parts of the data, in small letters, in the order in which they are read.
    labelled : bool or None
        Whether there must be folders of classes.
    on_file : callable, optional
        Called with the number of files read and their total.
    """
    everything = sorted(p.relative_to(folder).parts for p in folder.rglob("*") if p.is_file())
    require_distinct("read", (part for parts in everything for part in parts))
    present = {p.name: p.name.lower() for p in folder.iterdir() if p.is_dir()}
    present = {name: part for name, part in present.items() if part in splits}
    if not _are_parts(everything, present):
        present = {}
    depth = 3 if present else 2  # part, class, file
    inside = [parts for parts in everything if not present or parts[0] in present]
    found = of_one_kind(parts for parts in inside if len(parts) == depth)
    found.sort(key=lambda parts: splits.index(present[parts[0]]) if present else 0)
    if present:
        _require_nothing_beside(folder, everything, found, present)
    with_classes = bool(found)
    if found:
        notes = on_the_rest("read", everything, found, {parts[:-1] for parts in found})
    elif not labelled:
        present = {}
        found = of_one_kind(parts for parts in everything if len(parts) == 1)
        rest = [parts for parts in set(everything) - set(found) if not is_hidden(parts)]
        notes = [f"not read: {kinds_of(rest)}"] if rest else []
    if not found:
        raise DataError(
            f"read: expected files {folder}/<class>/*.npy or *.mat, or *.csv, *.tsv or *.txt of "
            f"numbers, also below train, val and test, got {_instead(everything)}"
        )
    return {
        "X": _stacked([folder.joinpath(*parts) for parts in found], on_file),
        "y": numpy.array([text(parts[-2]) for parts in found]) if with_classes else None,
        "split": numpy.array([present[parts[0]] for parts in found]) if present else None,
        "names": numpy.array([text("/".join(parts)) for parts in found]),
        "notes": tuple(notes),
    }


def _are_parts(everything: list[tuple[str, ...]], present: Collection[str]) -> bool:
    """Whether folders of such names are parts; a class, too, may be called Test."""
    if any(len(parts) == 3 and parts[0] in present for parts in everything):
        return True
    named = {p[0] for p in of_one_kind(p for p in everything if len(p) == 2)}
    return not (named & set(present) and named - set(present))


def _instead(everything: list[tuple[str, ...]]) -> str:
    """What a folder holds that cannot be read."""
    if loose := of_one_kind(parts for parts in everything if len(parts) == 1):
        return f"{kinds_of(loose)} in no folder of a class"
    return kinds_of(everything)


def _require_nothing_beside(
    folder: Path,
    everything: list[tuple[str, ...]],
    found: list[tuple[str, ...]],
    present: dict[str, str],
) -> None:
    """Data beside the parts of a data set would be lost."""
    others = [parts for parts in everything if len(parts) > 1 and parts[0] not in present]
    kind = of_one_kind([*found, *others])
    beside = list(dict.fromkeys(text(p[0]) for p in kind if p[0] not in present))
    if beside:
        raise DataError(
            f"read: expected nothing beside {', '.join(present)} in {folder}, got "
            f"{', '.join(beside[:5])}; the parts of a data set are called train, val and test"
        )


def _stacked(files: list[Path], on_file: Callable[[int, int], None] | None) -> NDArray[Any]:
    """The matrices of files, all of one shape."""
    matrices: list[NDArray[Any]] = []
    for i, file in enumerate(files, 1):
        matrices.append(read_matrix(file))
        shape, first = matrices[-1].shape, matrices[0].shape
        if shape != first:
            raise DataError(
                f"read: expected matrices of one shape, {first} as in {files[0]}, got {shape} in "
                f"{file}{_unequal(first, shape)}"
            )
        if on_file is not None:
            on_file(i, len(files))
    return numpy.stack(matrices)


def _unequal(first: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """What to do with recordings of unequal length."""
    for of, same, axis in (("signals", 0, "channels"), ("sequences", 1, "frames")):
        if first[same] == shape[same]:
            return (
                f"; recordings of unequal length, with {axis} in rows, become matrices of one size "
                f"with: spdnet data build FOLDER FILE.npz --of {of}"
            )
    return ""


def read_matrix(file: Path) -> NDArray[Any]:
    """The single matrix of a file."""
    if file.suffix.lower() in TABLES:
        with file.open("rb") as handle:
            return matrix_of(handle.read(LARGEST + 1), str(file))
    return matrix_of(file.read_bytes(), str(file))


def matrix_of(data: bytes, name: str) -> NDArray[Any]:
    """The single matrix of a ``.npy``, ``.mat`` or text file that has been read.

    Parameters
    ----------
    data : bytes
    name : str
        Of the file: its suffix tells the format.
    """
    if name.lower().endswith(".npy"):
        matrix = read_npy(io.BytesIO(data), name)
    elif name.lower().endswith(TABLES):
        matrix = parse_table(data, name)
    else:
        named = load_mat(data, name)
        matrices = {k: v for k, v in named.items() if getattr(v, "ndim", 0) == 2 and v.size > 1}
        if len(named) == 1:
            matrices = named  # may be 1 by 1
        if len(matrices) != 1:
            raise DataError(
                f"read: expected a single matrix in {name}, got {', '.join(named) or 'nothing'}"
            )
        (matrix,) = matrices.values()
    if not isinstance(matrix, numpy.ndarray) or matrix.ndim != 2:
        is_array = isinstance(matrix, numpy.ndarray)
        what = f"shape {matrix.shape}" if is_array else type(matrix).__name__
        raise DataError(f"read: expected a matrix in {name}, got {what}")
    if matrix.dtype.kind not in "biufc":
        raise DataError(f"read: expected a matrix of numbers in {name}, got {matrix.dtype}")
    return matrix
