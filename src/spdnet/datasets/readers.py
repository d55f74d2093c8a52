"""Labelled matrices and signals from files: ``.npz``, ``.npy`` with labels, folders of classes."""

import io
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from spdnet._checks import did_you_mean
from spdnet.datasets.arrays import are_whole, names_in, read_npy, read_npz
from spdnet.datasets.errors import DataError
from spdnet.datasets.files import text
from spdnet.datasets.matlab import load_mat
from spdnet.datasets.store import StoredArray, open_stored

SPLITS = ("train", "val", "test")
SUFFIXES = (".mat", ".npy")
#: matrices of more bytes than this stay in their file, where they can
IN_MEMORY = 2**28
_BESIDE = 1000  # files that are looked at for a name like a mistyped one


@dataclass(frozen=True)
class LabelledArrays:
    """What a file holds.

    Attributes
    ----------
    X : array or StoredArray, shape (N, n, n) or (N, channels, time)
        SPD matrices, or signals from which they are to be computed.
    y : array, shape (N,), optional
        Classes: numbers or text.
    split : array of str, shape (N,), optional
        ``"train"``, ``"val"`` or ``"test"`` of each.
    groups : array, shape (N,), optional
        What must not be divided by a random split, such as subjects.
    names : array of str, shape (N,), optional
        The files they came from, below the folder that was read.
    """

    X: NDArray[Any] | StoredArray
    y: NDArray[Any] | None = None
    split: NDArray[Any] | None = None
    groups: NDArray[Any] | None = None
    names: NDArray[Any] | None = None

    @property
    def are_matrices(self) -> bool:
        """Whether ``X`` holds square matrices rather than signals."""
        return self.X.shape[-1] == self.X.shape[-2]

    def __len__(self) -> int:
        return len(self.X)


def read(
    path: str | Path,
    labels: str | Path | None = None,
    *,
    labelled: bool | None = True,
    on_file: Callable[[int, int], None] | None = None,
) -> LabelledArrays:
    """Read labelled matrices or signals.

    ====================================  ==================================================
    ``file.npz``                          arrays ``X (N, n, n)`` or ``(N, channels, time)``,
                                          ``y (N,)``, and optionally ``split``, ``groups``,
                                          ``names``
    ``file.npy`` with ``labels``          ``X``; the labels are a ``.npy`` file, or text with
                                          one label on a line
    ``folder/<class>/*.npy`` or ``.mat``  one matrix a file, also below ``train``, ``val`` and
                                          ``test``; a ``.mat`` file holds a single matrix
    ====================================  ==================================================

    With ``labelled=None`` the labels may be missing: ``y`` in a ``.npz`` file, the file of labels,
    the folders of the classes. With ``labelled=False`` they are not looked at.

    Matrices of more than 256 MiB in a ``.npz`` file that is not compressed stay on disk, as
    :class:`StoredArray`.

    Nothing in the files is run: arrays of Python objects are refused. So is what declares more than
    it holds, or is packed to less than a hundredth: see ``spdnet.datasets.arrays``.

    Parameters
    ----------
    path : path
    labels : path, optional
        For a ``.npy`` file.
    labelled : bool or None
        Whether labels are needed; None if they are taken where they are.
    on_file : callable, optional
        Called with the number of files read and their total, for folders.

    Returns
    -------
    LabelledArrays

    Raises
    ------
    DataError, FileNotFoundError
    """
    path = Path(path)
    if not path.exists():
        known = path.parent.is_dir() and os.access(path.parent, os.R_OK)
        beside = islice(path.parent.iterdir(), _BESIDE) if known else ()
        hint = did_you_mean(path.name, [text(p.name) for p in beside])
        raise FileNotFoundError(f"read: expected a file or folder at {path}, got none{hint}")
    if labels is not None and path.suffix.lower() != ".npy":
        raise DataError(
            f"read: expected a .npy file to go with the labels in {labels}, got {path}, which has "
            "its own"
        )
    if path.is_dir():
        data = _read_folder(path, labelled, on_file)
    elif path.suffix.lower() == ".npz":
        data = _read_npz(path, labelled)
    elif path.suffix.lower() == ".npy":
        data = _read_npy(path, labels, labelled)
    else:
        raise DataError(
            f"read: expected a folder, a .npz or a .npy file, got {path.name}; save X and y with "
            "numpy.savez"
        )
    return _checked(path, data if labelled is not False else replace(data, y=None))


def _read_npz(path: Path, labelled: bool | None) -> LabelledArrays:
    there = names_in(path)
    needed = ("X", "y") if labelled else ("X",)
    if any(name not in there for name in needed):
        names = ", ".join(there) or "none"
        raise DataError(f"read: expected arrays {' and '.join(needed)} in {path}, got {names}")
    X = _large(path)
    optional = read_npz(path, ("y", "split", "groups", "names"))
    return LabelledArrays(read_npz(path, ["X"])["X"] if X is None else X, **optional)


def _large(path: Path) -> StoredArray | None:
    """Matrices that are better left where they are."""
    X = open_stored(path)
    if X is None or X.nbytes <= IN_MEMORY or X.ndim != 3 or X.shape[1] != X.shape[2]:
        return None
    return X


def _read_npy(path: Path, labels: str | Path | None, labelled: bool | None) -> LabelledArrays:
    if labels is None:
        if not labelled:
            return LabelledArrays(read_npy(path))
        raise DataError(
            f"read: expected labels beside {path.name}, got none; name a .npy or text file with "
            "one label for each matrix"
        )
    labels = Path(labels)
    if not labels.exists():
        raise FileNotFoundError(f"read: expected labels at {labels}, got none")
    if labels.suffix == ".npy":
        return LabelledArrays(read_npy(path), read_npy(labels))
    return LabelledArrays(read_npy(path), numpy.array(_lines(labels)))


def _lines(path: Path) -> list[str]:
    """One label on a line; blank lines at the end do not count, others would shift all labels."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"read: expected text in UTF-8, but {path}: {error}") from error
    lines = [line.strip() for line in text.rstrip().splitlines()]
    for number, line in enumerate(lines, 1):
        if not line:
            raise DataError(
                f"read: expected a label on every line of {path}, got none on line {number}"
            )
    return lines


def _read_folder(
    folder: Path, labelled: bool | None, on_file: Callable[[int, int], None] | None
) -> LabelledArrays:
    found: list[tuple[str, str, Path]] = []  # split, class, file
    present = [name for name in SPLITS if (folder / name).is_dir()]
    beside = [
        path.name
        for path in sorted(folder.iterdir())
        if path.is_dir() and path.name not in SPLITS and any(map(_is_data, path.rglob("*")))
    ]
    if present and beside:
        raise DataError(
            f"read: expected nothing beside {', '.join(present)} in {folder}, got "
            f"{', '.join(beside[:5])}; the parts of a data set are called train, val and test"
        )
    for split in present or [""]:
        for file in sorted(filter(_is_data, (folder / split).glob("*/*"))):
            found.append((split, text(file.parent.name), file))
    with_classes = bool(found)
    if not found and not labelled:
        found = [("", "", file) for file in sorted(filter(_is_data, folder.glob("*")))]
    if not found:
        raise DataError(
            f"read: expected files {folder}/<class>/*.npy or *.mat, also below train, val and "
            "test, got none"
        )
    matrices = []
    for i, (_, _, file) in enumerate(found, 1):
        matrices.append(read_matrix(file))
        if matrices[-1].shape != matrices[0].shape:
            raise DataError(
                f"read: expected matrices of one shape, {matrices[0].shape} as in {found[0][2]}, "
                f"got {matrices[-1].shape} in {file}"
            )
        if on_file is not None:
            on_file(i, len(found))
    return LabelledArrays(
        numpy.stack(matrices),
        numpy.array([c for _, c, _ in found]) if with_classes else None,
        numpy.array([split for split, _, _ in found]) if present else None,
        names=numpy.array([text(str(file.relative_to(folder))) for _, _, file in found]),
    )


def _is_data(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and path.is_file()


def read_matrix(file: Path) -> NDArray[Any]:
    """The single matrix of a file."""
    return matrix_of(file.read_bytes(), str(file))


def matrix_of(data: bytes, name: str) -> NDArray[Any]:
    """The single matrix of a ``.npy`` or ``.mat`` file that has been read.

    Parameters
    ----------
    data : bytes
    name : str
        Of the file: its suffix tells the format.
    """
    if name.lower().endswith(".npy"):
        matrix = read_npy(io.BytesIO(data), name)
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


def _checked(path: Path, data: LabelledArrays) -> LabelledArrays:
    """The same with bytes as text, after looking at shapes and types."""
    X = data.X
    if X.ndim != 3 or X.dtype.kind not in "biuf" or 0 in X.shape[1:]:
        raise DataError(
            f"read: expected X of real numbers with shape (N, n, n) or (N, channels, time) in "
            f"{path}, got {X.dtype} with shape {X.shape}"
        )
    if X.dtype.kind == "f" and X.dtype.itemsize > 8:
        with numpy.errstate(all="ignore"):  # too large for it is not finite, and found as such
            data = replace(data, X=X.astype(numpy.float64))  # torch knows no larger ones
    data = replace(
        data,
        y=_column(path, X, "y", data.y),
        split=_column(path, X, "split", data.split),
        groups=_column(path, X, "groups", data.groups),
        names=_column(path, X, "names", data.names),
    )
    if data.split is not None:
        unknown = sorted({str(s) for s in data.split} - set(SPLITS))
        if unknown:
            raise DataError(
                f"read: expected split to hold 'train', 'val' and 'test' in {path}, got "
                f"{', '.join(map(repr, unknown[:3]))}"
            )
    for name, what in (("y", "classes"), ("groups", "names or whole numbers")):
        values = getattr(data, name)
        if values is not None and values.dtype.kind == "f":
            whole = are_whole(values)
            if not whole.all():
                raise DataError(
                    f"read: expected {what} in {name} of {path}, got real numbers such as "
                    f"{values[~whole][0]}"
                )
            if name == "groups":
                data = replace(data, groups=values.astype(numpy.int64))  # 1.0 is group 1
    return data


def _column(
    path: Path, X: NDArray[Any] | StoredArray, name: str, values: NDArray[Any] | None
) -> NDArray[Any] | None:
    """One value for each matrix: numbers, or text."""
    if values is None:
        return None
    if values.shape != X.shape[:1]:
        raise DataError(
            f"read: expected {name} of shape {X.shape[:1]}, one for each of X, in {path}, got "
            f"{values.shape}"
        )
    values = as_text(values)
    if values.dtype.kind not in "biufU":
        raise DataError(f"read: expected numbers or text in {name} of {path}, got {values.dtype}")
    return values


def as_text(values: NDArray[Any]) -> NDArray[Any]:
    """Text with a mark in place of what no file takes for a letter; numbers as they are."""
    if values.dtype.kind == "S":
        return numpy.char.decode(values, "utf-8", "replace")
    if values.dtype.kind != "U" or not values.size:
        return values
    codes = numpy.ascontiguousarray(values).view(numpy.uint32)
    bad = (codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))  # no letters, or half of one
    return numpy.where(bad, numpy.uint32(0xFFFD), codes).view(values.dtype) if bad.any() else values
