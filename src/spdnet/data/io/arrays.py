"""Reading of ``.npy`` and ``.npz`` files with checks of all declared sizes and types."""

import math
import os
import warnings
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy
from numpy.typing import NDArray

from spdnet.data.errors import DataError, converting
from spdnet.data.io.files import PACKED, is_bomb

#: size up to which any compression ratio is accepted, since repeated names compress well
SMALL_ARRAY = 2**28
_NUMBERS = ("X", "frames", "lengths")
_MAX_LISTED = 100  # number of arrays considered in error messages
_HEADERS = {
    (1, 0): numpy.lib.format.read_array_header_1_0,
    (2, 0): numpy.lib.format.read_array_header_2_0,
}


def read_npy(file: str | Path | BinaryIO, name: str | None = None) -> NDArray[Any]:
    """Read a ``.npy`` file; ``name`` is used in messages.

    Raise a DataError for damaged files, Python objects, and files shorter than they declare.
    """
    name = str(file) if name is None else name
    if isinstance(file, str | Path):
        with Path(file).open("rb") as handle:
            return read_npy(handle, name)
    with converting_errors(name):
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        return _read(file, size, "array", name)


def names_in(path: str | Path) -> list[str]:
    """Return the names of the arrays in a ``.npz`` file."""
    with _archive(path) as archive:
        found = archive.namelist()
    return [name.removesuffix(".npy") for name in found if name.endswith(".npy")]


def shapes_in(path: str | Path) -> dict[str, tuple[int, ...]]:
    """Return the declared shapes of the first arrays of a ``.npz`` file."""
    shapes: dict[str, tuple[int, ...]] = {}
    with _archive(path) as archive:
        for info in archive.infolist()[:_MAX_LISTED]:
            name = info.filename.removesuffix(".npy")
            shapes[name] = ()
            if info.compress_type in PACKED:
                with suppress(Exception), archive.open(info) as file:
                    shapes[name] = read_header(file, name, path)[0]
    return shapes


def read_npz(path: str | Path, names: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Read those of the named arrays that a ``.npz`` file has.

    Sizes are checked before memory is allocated: a large array may be compressed at most a hundred
    times. Errors are those of :func:`read_npy`.
    """
    found = {}
    with _archive(path) as archive:
        for name in dict.fromkeys(names):
            if f"{name}.npy" not in archive.NameToInfo:
                continue
            info = archive.getinfo(f"{name}.npy")
            size, packed = info.file_size, info.compress_size
            if info.compress_type not in PACKED:
                raise ValueError(f"{name} has an unsupported compression method")
            if packed > os.stat(path).st_size or is_bomb(size, packed, SMALL_ARRAY):
                raise DataError(
                    f"read: expected {name} in {path} with a plausible size, got {size} bytes "
                    f"compressed to {packed}; save it again with numpy.savez, without compression"
                )
            with archive.open(info) as file:
                found[name] = _read(file, size, name, path)
                if file.read(1):  # zipfile checks the CRC at the end
                    raise ValueError(f"{name} has more bytes than its header declares")
    return found


def read_header(file: Any, name: str, path: Any) -> tuple[tuple[int, ...], bool, numpy.dtype[Any]]:
    """Read the header of the array ``name`` of a file: shape, column-major order, dtype."""
    version = numpy.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"format version {version} is not supported")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about headers that Python 2 wrote
        shape, by_column, dtype = _HEADERS[version](file)
    shape = tuple(map(int, shape))
    if min(shape, default=0) < 0:
        raise ValueError(f"shape {shape}")
    if dtype.hasobject:
        what, kind = ("numbers", "float") if name in _NUMBERS else ("numbers or text", "str")
        raise DataError(
            f"read: expected {what} in {name} of {path}, got Python objects, which are not loaded; "
            f"save {name}.astype({kind})"
        )
    if dtype.kind not in "biufcmMUS" or dtype.itemsize == 0:
        raise ValueError(f"values of type {dtype}")
    return shape, by_column, dtype


def converting_errors(name: Any) -> AbstractContextManager[None]:
    """Convert everything that zipfile and numpy raise on damaged files to DataError."""
    return converting(
        f"read: expected arrays of numbers or text, but {name} is damaged or has Python objects, "
        "which are not loaded"
    )


@contextmanager
def _archive(path: str | Path) -> Iterator[zipfile.ZipFile]:
    with converting_errors(path), Path(path).open("rb") as file, zipfile.ZipFile(file) as archive:
        yield archive


def _read(file: Any, size: int, name: str, path: Any) -> NDArray[Any]:
    """Read the array in a file of ``size`` bytes; ``name`` and ``path`` are used in messages."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about headers that Python 2 wrote
        shape, _, dtype = read_header(file, name, path)
        available = size - file.tell()
        if math.prod(shape) * dtype.itemsize > available:  # Python integers do not overflow
            raise ValueError(f"shape {shape} of {dtype} does not fit in {available} bytes")
        file.seek(0)
        X: NDArray[Any] = numpy.lib.format.read_array(file, allow_pickle=False)
    return X.astype(dtype.newbyteorder("="), copy=False)
