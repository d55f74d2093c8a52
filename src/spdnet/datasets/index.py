"""Data sets of many files with an index in MATLAB's format, as SPDNet's authors publish them."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy
from numpy.typing import NDArray

from spdnet.datasets.readers import DataError, LabelledArrays, load_mat, read_matrix

#: numbers of the index, and the parts they stand for
_SETS = {1: "train", 2: "test"}


@dataclass(frozen=True)
class Index:
    """What an index says of its files.

    Attributes
    ----------
    files : list of tuple of str
        The path of each, folder by folder.
    y : array of int, shape (N,)
        Classes from 1.
    split : array of str, shape (N,)
        ``train`` or ``test``.
    groups : array of str, shape (N,)
        The video that a clip was cut from: its path without the number of the clip.
    """

    files: list[tuple[str, ...]]
    y: NDArray[numpy.int64]
    split: NDArray[Any]
    groups: NDArray[Any]

    def __len__(self) -> int:
        return len(self.files)


def read_index(path: str | Path) -> Index:
    r"""Read an index of the authors' SPD data sets.

    It is a struct with ``spd.name`` (paths such as ``train\1\10_2.mat``), ``spd.label`` and
    ``spd.set`` (1 for training, 2 for testing).

    Parameters
    ----------
    path : path
        A ``.mat`` file.

    Raises
    ------
    DataError
        The file is no such index, or names files outside of its folder.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"read_index: expected a file at {path}, got none")
    structs = load_mat(path, simplify_cells=True).values()
    try:
        table = next(s["spd"] for s in structs if isinstance(s, dict) and "spd" in s)
        names, labels, sets = (numpy.atleast_1d(table[k]) for k in ("name", "label", "set"))
    except (StopIteration, KeyError, TypeError) as error:
        raise DataError(
            f"read_index: expected an index of SPD data in {path}, got something else"
        ) from error
    if not len(names) == len(labels) == len(sets) or len(names) == 0:
        raise DataError(
            f"read_index: expected a name, a label and a set of each file in {path}, got "
            f"{len(names)}, {len(labels)} and {len(sets)}"
        )
    unknown = sorted({int(s) for s in sets} - set(_SETS))
    if unknown:
        raise DataError(f"read_index: expected sets 1 and 2 in {path}, got {unknown[0]}")
    files = [_parts(str(name), path) for name in names]
    return Index(
        files,
        labels.astype(numpy.int64),
        numpy.array([_SETS[int(s)] for s in sets]),
        numpy.array([re.sub(r"_\d+$", "", "/".join(parts)[:-4]) for parts in files]),
    )


def read_indexed(
    index: Index, folder: str | Path, *, on_file: Callable[[int, int], None] | None = None
) -> LabelledArrays:
    """The matrices of an index, wherever below a folder they lie.

    Parameters
    ----------
    index : Index
    folder : path
        The files are found by the end of their paths, at any depth.
    on_file : callable, optional
        Called with how many files are read, and how many there are.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"read_indexed: expected a folder at {folder}, got none")
    depth = max(map(len, index.files))
    there: dict[tuple[str, ...], Path] = {}
    for file in folder.rglob("*"):
        if file.suffix.lower() == ".mat" and file.is_file():
            parts = file.relative_to(folder).parts
            for n in range(1, depth + 1):
                there.setdefault(tuple(p.lower() for p in parts[-n:]), file)
    matrices: list[NDArray[Any]] = []
    for i, parts in enumerate(index.files, 1):
        found = there.get(tuple(p.lower() for p in parts))
        if found is None:
            raise DataError(
                f"read_indexed: expected {'/'.join(parts)} below {folder}, got none; "
                f"{i - 1} of {len(index)} files were there"
            )
        matrices.append(read_matrix(found))
        if matrices[-1].shape != matrices[0].shape:
            raise DataError(
                f"read_indexed: expected matrices of one shape, {matrices[0].shape}, got "
                f"{matrices[-1].shape} in {found}"
            )
        if on_file is not None:
            on_file(i, len(index))
    names = numpy.array(["/".join(parts) for parts in index.files])
    return LabelledArrays(numpy.stack(matrices), index.y, index.split, index.groups, names)


def _parts(name: str, path: Path) -> tuple[str, ...]:
    """The folders and the file of a path, whichever slashes it has."""
    pure = PureWindowsPath(name)  # takes both
    parts = tuple(p for p in pure.parts if p != ".")
    if pure.drive or pure.root or ".." in parts or not parts or pure.suffix.lower() != ".mat":
        raise DataError(
            f"read_index: expected names of .mat files below one folder in {path}, got {name!r}"
        )
    return parts
