"""Readers of data sets: ``.npz`` files, ``.npy`` files with labels, and class folders."""

import difflib
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from spdnet._checks import bands_hint, did_you_mean
from spdnet.data.dataset import SPLITS, Dataset, as_integers, require_channel_names
from spdnet.data.digits import load_digits_spd
from spdnet.data.errors import DataError
from spdnet.data.io.arrays import names_in, read_npy, read_npz, shapes_in
from spdnet.data.io.files import distinct_text, text
from spdnet.data.io.folders import read_folder
from spdnet.data.io.tables import text_lines
from spdnet.data.store import StoredArray, open_stored
from spdnet.options.run import EMBEDDED

#: larger arrays of matrices, in bytes, stay on disk if possible
IN_MEMORY = 2**28
_MAX_COMPARED = 1000  # number of files that are compared with a mistyped name
_COLUMNS = ("y", "split", "groups", "names")
#: alternative names of the arrays of a file
_SYNONYMS = {
    "y": ("label", "labels", "target", "targets", "class", "classes"),
    "split": ("splits", "set", "sets", "part", "parts", "fold", "folds", "partition"),
    "groups": (
        *("group", "subject", "subjects", "subject_id", "subject_ids", "session", "sessions"),
        *("person", "people", "participant", "participants", "patient", "patients", "domain"),
        *("domains", "meta_subject"),
    ),
    "names": ("name", "file", "files", "filename", "filenames"),
    "channels": ("channel", "ch_names", "channel_names", "channel_name", "ch_name", "electrodes"),
}


def read(
    path: str | Path,
    labels: str | Path | None = None,
    *,
    groups: str | Path | None = None,
    labeled: bool | None = True,
    on_file: Callable[[int, int], None] | None = None,
) -> Dataset:
    """Read labeled matrices or signals.

    ====================================  ==================================================
    ``file.npz``                          arrays ``X (N, n, n)`` or ``(N, channels, time)``,
                                          ``y (N,)``, and optionally ``split``, ``groups``,
                                          ``names`` and ``channels``, the names of the channels
    ``file.npy`` with ``labels``          ``X``; the labels are a ``.npy`` file, or text with
                                          one label per line
    ``folder/<class>/*.npy`` or ``.mat``  one matrix or recording ``(channels, time)`` per file,
                                          also below ``train``, ``val`` and ``test``; a ``.mat``
                                          file holds a single matrix
    ``folder/<class>/*.csv``              the same as text, also ``.tsv`` and ``.txt``; ignored
                                          if there are ``.npy`` or ``.mat`` files
    ====================================  ==================================================

    Matrices of more than 256 MiB in an uncompressed ``.npz`` file stay on disk, as
    :class:`StoredArray`. Nothing in the files is executed: arrays of Python objects are refused,
    and so are files that declare more data than they have or are compressed beyond 1:100.

    Parameters
    ----------
    path : path
    labels : path, optional
        Labels of a ``.npy`` file.
    groups : path, optional
        Group of each sample: a ``.npy`` file, or text with one group per line. The samples of a
        folder are ordered by part (train, val, test), class and file name.
    labeled : bool or None
        True if labels are required, None if they are optional, False to ignore them.
    on_file : callable, optional
        Called with the number of files read and their total, for folders.

    Raises
    ------
    DataError, FileNotFoundError

    Examples
    --------
    >>> import numpy, tempfile
    >>> from spdnet.data import read
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     numpy.savez(f"{folder}/two.npz", X=[numpy.eye(3), 2 * numpy.eye(3)], y=["a", "b"])
    ...     data = read(f"{folder}/two.npz")
    >>> data.X.shape, data.y.tolist()
    ((2, 3, 3), ['a', 'b'])
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(
            f"read: expected a file or folder at {path}, got none{_suggest_file(path)}"
        )
    if labels is not None and path.suffix.lower() != ".npy":
        raise DataError(
            f"read: expected a .npy file with the labels in {labels}, got {path}, which contains "
            "its own labels"
        )
    if path.is_dir():
        arrays = read_folder(path, labeled, on_file)
    elif path.suffix.lower() == ".npz":
        arrays = _read_npz(path, labeled)
    elif path.suffix.lower() == ".npy":
        if labels is None and labeled:
            raise DataError(
                f"read: expected labels for {path.name}, got none; give a .npy or text file with "
                "one label per sample (--labels), or save X and y in a .npz file"
            )
        arrays = {"X": read_npy(path)}
        if labels is not None:
            arrays["y"] = column(Path(labels), arrays["X"], "labels", read_column(labels))
    else:
        raise DataError(
            f"read: expected a folder, a .npz or a .npy file, got {path.name}; save X and y with "
            "numpy.savez, or put one file per recording into folders named after the classes"
        )
    if labeled is False:
        arrays.pop("y", None)
    data = _checked(path, **arrays)
    return data if groups is None else _with_groups(data, groups)


def load_dataset(
    data: str,
    labels: str | None = None,
    groups: str | None = None,
    *,
    labeled: bool | None = True,
    on_file: Callable[[int, int], None] | None = None,
) -> Dataset:
    """Load ``digits`` or ``digits-small``, or read a file or folder: see :func:`read`.

    See Also
    --------
    load_digits_spd : The data sets with a name.

    Examples
    --------
    >>> from spdnet.data import load_dataset
    >>> load_dataset("digits-small").X.shape
    (1797, 8, 8)
    """
    if data in EMBEDDED and labels is None:
        found = Dataset(*load_digits_spd(n_features=EMBEDDED[data]))
        return found if groups is None else _with_groups(found, groups)
    is_name = Path(data).name == data and not Path(data).suffix
    if is_name and not Path(data).exists() and (hint := did_you_mean(data, EMBEDDED)):
        raise FileNotFoundError(f"read: expected a file or folder at {data}, got none{hint}")
    return read(data, labels, groups=groups, labeled=labeled, on_file=on_file)


def _with_groups(data: Dataset, file: str | Path) -> Dataset:
    if data.groups is not None:
        raise DataError(
            f"read: expected data without groups, because {file} defines them, got data with groups"
        )
    groups = column(Path(file), data.X, "groups", read_column(file, "groups"))
    return replace(data, groups=groups)


def read_column(file: str | Path, what: str = "labels") -> NDArray[Any]:
    """Read one value per sample from a ``.npy`` file or from the lines of a text file."""
    file = Path(file)
    if not file.exists():
        raise FileNotFoundError(f"read: expected {what} at {file}, got none{_suggest_file(file)}")
    if file.suffix.lower() == ".npy":
        values = read_npy(file)
    else:
        lines = text_lines(file.read_bytes(), str(file), what)
        values = numpy.array([line.strip() for line in lines])
    return _group_names(values, file) if what == "groups" else values


def _group_names(values: NDArray[Any], path: Path) -> NDArray[Any]:
    return as_integers(values, f"read: expected names or integers in groups of {path}")


def _suggest_file(path: Path) -> str:
    """Suggest a file with a similar name."""
    if path.is_symlink():
        return "; it is a broken symbolic link"
    if not (path.parent.is_dir() and os.access(path.parent, os.R_OK)):
        return ""
    beside = [Path(text(p.name)) for p in islice(path.parent.iterdir(), _MAX_COMPARED)]
    order = {".npz": 1, ".npy": 2, path.suffix.lower(): 0}
    beside.sort(key=lambda p: (order.get(p.suffix.lower(), 3), p.name), reverse=True)
    by_stem = {p.stem.lower(): p.name for p in beside}  # the last one has the best suffix
    near = difflib.get_close_matches(path.stem.lower(), by_stem, n=1, cutoff=0.75)
    return f"; did you mean {by_stem[near[0]]!r}?" if near else ""


def _read_npz(path: Path, labeled: bool | None) -> dict[str, Any]:
    there = names_in(path)
    needed = ("X", "y") if labeled else ("X",)
    if any(name not in there for name in needed):
        names = ", ".join(there) or "none"
        what = "arrays X and y" if labeled else "an array X"
        raise DataError(
            f"read: expected {what} in {path}, got {names}; save them with these names: "
            f"np.savez({text(path.name)!r}, {_suggested_names(shapes_in(path))})"
        )
    X: Any = open_stored(path)
    if X is None or X.nbytes <= IN_MEMORY or X.ndim != 3 or X.shape[1] != X.shape[2]:
        X = read_npz(path, ["X"])["X"]
    columns = (*_COLUMNS, "channels")
    notes = tuple(unused_notes(there, ("X", *columns, "provenance")))
    return {"X": X, **read_npz(path, columns), "notes": notes}


def _suggested_names(there: dict[str, tuple[int, ...]]) -> str:
    """Return arguments of savez that give the arrays the required names, guessed from shapes."""
    X = "X" if "X" in there else next((k for k, shape in there.items() if len(shape) == 3), "...")
    count = there.get(X, ())[:1]
    columns = [k for k, shape in there.items() if len(shape) == 1 and shape == count]
    y = next((k for k in columns if k.lower() in ("y", *_SYNONYMS["y"])), None)
    free = [
        k for k in columns if not any(k.lower() in (name, *_SYNONYMS[name]) for name in _SYNONYMS)
    ]
    y = y or (free[0] if len(free) == 1 else "...")
    return text(f"X={X}, y={y}")


def unused_notes(there: Iterable[str], known: Iterable[str]) -> Iterable[str]:
    """Yield notes on arrays of a file that are not used."""
    there, known = list(there), list(known)
    for name in there:
        if name not in known:
            meant = [
                k for k in known if k not in there and name.lower() in (k, *_SYNONYMS.get(k, ()))
            ]
            hint = f" (did you mean {meant[0]}?)" if meant else ""
            yield f"not used: array {text(name)!r}{hint}"


def _checked(
    path: Path,
    X: NDArray[Any] | StoredArray,
    notes: tuple[str, ...] = (),
    channels: NDArray[Any] | None = None,
    **columns: Any,
) -> Dataset:
    """Check shapes and types, and convert bytes to text."""
    if X.ndim != 3 or X.dtype.kind not in "biufc" or 0 in X.shape[1:]:
        hint = "" if isinstance(X, StoredArray) else bands_hint(X)
        raise DataError(
            f"read: expected X of numbers with shape (N, n, n) or (N, channels, time) in "
            f"{path}, got {X.dtype} with shape {X.shape}{hint}"
        )
    if X.dtype.char in "gG":  # longer than any type of torch
        with numpy.errstate(all="ignore"):  # values too large become infinite and are reported
            X = X.astype(X.dtype.char.translate({ord("g"): "d", ord("G"): "D"}))
    columns = {k: column(path, X, k, v) for k, v in columns.items() if v is not None}
    if "split" in columns:
        columns["split"] = as_parts(columns["split"], f"read: expected split of {path}")
    if "groups" in columns:
        columns["groups"] = _group_names(columns["groups"], path)
    if "y" in columns:
        as_integers(columns["y"], f"read: expected classes in y of {path}")
    rows, cols = X.shape[1:]
    names = None
    if channels is not None:
        text = as_text(channels, f"channels of {path}")
        names = require_channel_names("read", text, rows, f" of {path}")
    if cols < rows:
        notes += (
            f"{cols} samples of {rows} channels: are the axes swapped? signals are (channels, "
            "time): transpose them, or use spdnet data build --of sequences for time in rows",
        )
    return Dataset(X, **columns, notes=notes, channels=names)


def column(path: Path, X: Any, name: str, values: NDArray[Any], *, of: str = "X") -> NDArray[Any]:
    """Return the column ``name`` of a file, numbers or valid text, one for each of ``X``."""
    if values.shape != X.shape[:1]:
        has_header = values.ndim == 1 and X.shape[:1] == (len(values) - 1,)
        hint = f"; is the first value, {text(str(values[0]))!r}, a header?" if has_header else ""
        raise DataError(
            f"read: expected {name} of shape {X.shape[:1]}, one for each of {of}, in {path}, got "
            f"{values.shape}{hint}"
        )
    values = as_text(values, f"{name} of {path}")
    if values.dtype.kind not in "biufU":
        raise DataError(f"read: expected numbers or text in {name} of {path}, got {values.dtype}")
    return values


def as_parts(values: NDArray[Any], expected: str) -> NDArray[numpy.str_]:
    """Return the names of parts in lowercase; raise an error for others."""
    split = numpy.array([str(s).strip().lower() for s in values], dtype=str)
    if unknown := sorted({str(s) for s in values[~numpy.isin(split, SPLITS)]}):
        shown = ", ".join(map(repr, unknown[:3]))
        raise DataError(f"{expected} to contain 'train', 'val' and 'test', got {shown}")
    return split


def as_text(values: NDArray[Any], where: str) -> NDArray[Any]:
    r"""Convert bytes and text to valid text, with escapes such as ``\xe9``; keep numbers.

    Raise an error if different values become the same text; ``where`` names them in the message.
    """
    if values.dtype.kind not in "SU":
        return values
    codec = "utf-8" if values.dtype.kind == "S" else "utf-32-le"
    data, size = values.astype(values.dtype.newbyteorder("<")).tobytes(), values.dtype.itemsize
    with suppress(UnicodeDecodeError):
        if values.dtype.kind == "S":
            return numpy.char.decode(values, codec)
        data.decode(codec)
        return values
    raws = (data[start : start + size] for start in range(0, len(data), size))
    return numpy.array(distinct_text(raws, codec, where))
