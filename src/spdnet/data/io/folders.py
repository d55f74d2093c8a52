"""Folders of classes, with one matrix or recording per file."""

import io
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from spdnet.data.dataset import SPLITS
from spdnet.data.errors import DataError
from spdnet.data.io.arrays import read_npy
from spdnet.data.io.files import open_files, text
from spdnet.data.io.matlab import load_mat
from spdnet.data.io.tables import LARGEST, parse_table
from spdnet.data.io.tables import SUFFIXES as TABLES

#: suffixes of data files; only the first group that is present is read
KINDS = ((".npy", ".mat"), (".csv", ".tsv"), (".txt",))
#: the same for messages
READABLE = ".npy, .mat, .csv, .tsv or .txt"
_SKELETON = ".asf"  # read together with motions
_SHOWN = 4

Parts = tuple[str, ...]


def read_folder(
    folder: Path, labeled: bool | None, on_file: Callable[[int, int], None] | None
) -> dict[str, Any]:
    """Read the fields of a :class:`Dataset` from a folder: see :func:`spdnet.data.read`."""
    all_files = sorted(open_files(folder).members)
    folders = (p.name for p in folder.iterdir() if p.is_dir())
    present = {name: name.lower() for name in folders if name.lower() in SPLITS}
    if not _are_parts(all_files, present):
        present = {}
    depth = 3 if present else 2  # part, class, file
    inside = [parts for parts in all_files if len(parts) == depth]
    found = data_files(parts for parts in inside if not present or parts[0] in present)
    found.sort(key=lambda parts: SPLITS.index(present[parts[0]]) if present else 0)
    top_level = data_files(parts for parts in all_files if len(parts) == 1)
    if present:
        others = [parts for parts in all_files if len(parts) > 1 and parts[0] not in present]
        kind = data_files([*found, *others])
        if unexpected := list(dict.fromkeys(text(p[0]) for p in kind if p[0] not in present)):
            raise DataError(
                f"read: expected only {', '.join(present)} in {folder}, got "
                f"{', '.join(unexpected[:5])}; the parts of a data set are train, val and test"
            )
    with_classes = bool(found)
    if found:
        notes = unread_notes("read", all_files, found, {parts[:-1] for parts in found})
    elif top_level and not labeled:
        present, found = {}, top_level
        rest = set(all_files) - set(found)
        notes = [f"not read: {count_by_suffix(rest)}"] if rest else []
    else:
        instead = f"{count_by_suffix(top_level)} outside of class folders" if top_level else ""
        raise DataError(
            f"read: expected files {folder}/<class>/*.npy or *.mat, or *.csv, *.tsv or *.txt of "
            f"numbers, also below train, val and test, got {instead or count_by_suffix(all_files)}"
        )
    return {
        "X": _stacked([folder.joinpath(*parts) for parts in found], on_file),
        "y": numpy.array([text(parts[-2]) for parts in found]) if with_classes else None,
        "split": numpy.array([present[parts[0]] for parts in found]) if present else None,
        "names": numpy.array([text("/".join(parts)) for parts in found]),
        "notes": tuple(notes),
    }


def _are_parts(all_files: list[Parts], present: Collection[str]) -> bool:
    """Return whether the folders are parts; a class may be called Test, too."""
    if any(len(parts) == 3 and parts[0] in present for parts in all_files):
        return True
    named = {p[0] for p in data_files(p for p in all_files if len(p) == 2)}
    return not (named & set(present) and named - set(present))


def _stacked(files: list[Path], on_file: Callable[[int, int], None] | None) -> NDArray[Any]:
    matrices: list[NDArray[Any]] = []
    for i, file in enumerate(files, 1):
        with file.open("rb") as handle:
            limit = LARGEST + 1 if file.suffix.lower() in TABLES else -1
            matrices.append(parse_matrix(handle.read(limit), str(file)))
        shape, first = matrices[-1].shape, matrices[0].shape
        if shape != first:
            raise DataError(
                f"read: expected matrices of one shape, {first} as in {files[0]}, got {shape} in "
                f"{file}{_hint_unequal(first, shape)}"
            )
        if on_file is not None:
            on_file(i, len(files))
    return numpy.stack(matrices)


def _hint_unequal(first: tuple[int, ...], shape: tuple[int, ...]) -> str:
    for of, same, axis in (("signals", 0, "channels"), ("sequences", 1, "frames")):
        if first[same] == shape[same]:
            return (
                f"; recordings of unequal length, with {axis} in rows, become matrices of one size "
                f"with: spdnet data build FOLDER FILE.npz --of {of}"
            )
    return ""


def parse_matrix(data: bytes, name: str) -> NDArray[Any]:
    """Return the single matrix of a ``.npy``, ``.mat`` or text file, by the suffix of its name."""
    matrix: Any
    if name.lower().endswith(".npy"):
        matrix = read_npy(io.BytesIO(data), name)
    elif name.lower().endswith(TABLES):
        matrix = parse_table(data, name)
    else:
        named = load_mat(data, name)
        found = [v for v in named.values() if getattr(v, "ndim", 0) == 2 and v.size > 1]
        found = list(named.values()) if len(named) == 1 else found  # one may be 1 by 1
        if len(found) != 1:
            there = ", ".join(named) or "nothing"
            raise DataError(f"read: expected a single matrix in {name}, got {there}")
        matrix = found[0]
    if getattr(matrix, "ndim", 0) != 2:
        what = f"shape {matrix.shape}" if hasattr(matrix, "shape") else type(matrix).__name__
        raise DataError(f"read: expected a matrix in {name}, got {what}")
    if matrix.dtype.kind not in "biufc":
        raise DataError(f"read: expected a matrix of numbers in {name}, got {matrix.dtype}")
    return matrix


def data_files(files: Iterable[Parts]) -> list[Parts]:
    """Return the files of the first kind that is present, sorted.

    Text tables count only if there are no arrays, because text files next to arrays are often
    notes. A table outside of folders counts only if no table is in a folder.
    """
    files = list(files)
    for suffixes in KINDS:
        found = sorted(parts for parts in files if parts[-1].lower().endswith(suffixes))
        in_folders = [parts for parts in found if len(parts) > 1]
        if found:
            return in_folders if in_folders and suffixes[0] in TABLES else found
    return []


def count_by_suffix(files: Iterable[Parts]) -> str:
    """Return counts such as ``20 .xyz files``."""
    count = Counter(sorted(_suffix(parts[-1]) for parts in files))  # ties stay sorted
    order = count.most_common(_SHOWN)
    shown = [f"{n} {suffix or 'unnamed'} file{'s' * (n > 1)}" for suffix, n in order]
    more = ["others"] if len(count) > _SHOWN else []
    return ", ".join(shown + more) or "none"


def unread_notes(
    who: str, files: Iterable[Parts], used: Collection[Parts], classes: Iterable[Parts]
) -> list[str]:
    """Return notes on the files that are not ``used``.

    Raise a DataError for a folder next to the class folders if none of its files is read.
    """
    known, whole = set(classes), set(used)
    taken = {parts[:n] for parts in whole for n in range(1, len(parts) + 1)}
    above = {folder[:-1] for folder in known}  # parents of the class folders
    rest = [
        parts
        for parts in files
        if not {parts, parts[:-1]} & whole and not parts[-1].lower().endswith(_SKELETON)
    ]
    unreadable = defaultdict[Parts, list[Parts]](list)
    for parts in rest:
        for n in range(1, len(parts)):
            if parts[: n - 1] in above and parts[:n] not in taken:
                unreadable[parts[:n]].append(parts)
    if unreadable:
        folder, inside = min(unreadable.items())
        advice = f"save them as {READABLE}, or move the folder away"
        if data_files(inside):
            suffix = min(_suffix(parts[-1]) for parts in whole) or ".npy"
            advice = f"save all files in one format, such as {suffix}, at the same depth"
        raise DataError(
            f"{who}: expected readable files in every class folder, got "
            f"{count_by_suffix(inside)} in {text('/'.join(folder))}; {advice}"
        )
    suffixes = tuple(suffix for kind in KINDS for suffix in kind)
    relevant = [
        parts
        for parts in rest
        if parts[-1].lower().endswith(suffixes)
        or any(parts[:n] in known for n in range(1, len(parts)))
    ]
    if not relevant:
        return []
    return [f"not read: {count_by_suffix(relevant)}, such as {text('/'.join(min(relevant)))}"]


def _suffix(name: str) -> str:
    _, point, end = name.rpartition(".")
    return text(f".{end.lower()}") if point and len(end) <= 8 else ""
