"""Arrays in numpy's files, read without trusting what the files say of themselves."""

import math
import os
import warnings
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy
from numpy.typing import NDArray

from spdnet.data.errors import DataError
from spdnet.data.io.files import PACKED, is_bomb

#: bytes of an array that may be packed as well as can be, as names of groups are
HARMLESS = 2**28
_BLOCK = 2**24  # bytes that are read at a time
_MANY = 100  # arrays whose names and shapes a message looks at
_HEADERS = {
    (1, 0): numpy.lib.format.read_array_header_1_0,
    (2, 0): numpy.lib.format.read_array_header_2_0,
}


def read_npy(file: str | Path | BinaryIO, name: str | None = None) -> NDArray[Any]:
    """The array of a ``.npy`` file.

    Parameters
    ----------
    file : path or binary file
    name : str, optional
        What messages call it.

    Raises
    ------
    DataError
        The file is damaged, declares more than it holds, or holds Python objects: nothing in it is
        run.
    FileNotFoundError, PermissionError, IsADirectoryError
    """
    name = str(file) if name is None else name
    if isinstance(file, str | Path):
        with Path(file).open("rb") as handle:
            return read_npy(handle, name)
    with refusing(name), _naming("it", name):
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        return _read(file, size)


def names_in(path: str | Path) -> list[str]:
    """The arrays of a ``.npz`` file, by name."""
    with _archive(path) as archive:
        found = archive.namelist()
    return [name.removesuffix(".npy") for name in found if name.endswith(".npy")]


def shapes_in(path: str | Path) -> dict[str, tuple[int, ...]]:
    """The first arrays of a ``.npz`` file, with the shapes they declare, if any."""
    shapes: dict[str, tuple[int, ...]] = {}
    with _archive(path) as archive:
        for info in archive.infolist()[:_MANY]:
            name = info.filename.removesuffix(".npy")
            shapes[name] = ()
            if info.compress_type in PACKED:
                with suppress(Exception), archive.open(info) as file:
                    shapes[name] = read_header(file)[0]
    return shapes


def read_npz(path: str | Path, names: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Those of some arrays that a ``.npz`` file holds.

    What it declares is compared with what it is, before there is memory for it: an array takes at
    most 100 times the bytes that it is packed in, once it is large.

    Raises
    ------
    DataError
        See :func:`read_npy`.
    """
    found = {}
    with _archive(path) as archive:
        size = os.stat(path).st_size
        for name in dict.fromkeys(names):
            if f"{name}.npy" not in archive.NameToInfo:
                continue
            info = archive.getinfo(f"{name}.npy")
            if info.compress_type not in PACKED:
                raise ValueError(f"{name} packed in a way of its own")
            if info.compress_size > size or is_bomb(info.file_size, info.compress_size, HARMLESS):
                raise DataError(
                    f"read: expected {name} in {path} to be what it seems, got {info.file_size} "
                    f"bytes packed in {info.compress_size}; save it again with numpy.savez, which "
                    "does not pack"
                )
            with archive.open(info) as file, _naming(name, path):
                found[name] = _read(file, info.file_size)
                if file.read(1):  # the end is where the sum of the bytes is checked
                    raise ValueError(f"more bytes than {name} has")
    return found


def read_header(file: Any) -> tuple[tuple[int, ...], bool, numpy.dtype[Any]]:
    """Shape, whether it is in columns, and type of the array that begins here."""
    version = numpy.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"version {version}, which is for tables")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of headers that Python 2 wrote
        shape, by_column, dtype = _HEADERS[version](file)
    shape = tuple(map(int, shape))
    if min(shape, default=0) < 0:
        raise ValueError(f"shape {shape}")
    if dtype.hasobject:
        raise _ObjectsError("Python objects, which are not loaded")
    if dtype.kind not in "biufcmMUS" or dtype.itemsize == 0:
        raise ValueError(f"values of type {dtype}")
    return shape, by_column, dtype


class _ObjectsError(ValueError):
    """An array of Python objects, as pandas makes of text."""


@contextmanager
def _naming(array: str, file: Any) -> Iterator[None]:
    """The array that holds Python objects, and what to save instead."""
    try:
        yield
    except _ObjectsError as error:
        numbers = array in ("X", "frames", "lengths")
        what = "numbers" if numbers else "numbers or text"
        where = f"{file}" if array == "it" else f"{array} of {file}"
        kind = "float" if numbers else "str"
        raise DataError(
            f"read: expected {what} in {where}, got {error}; save {array}.astype({kind})"
        ) from error


@contextmanager
def refusing(name: Any) -> Iterator[None]:
    """All that zipfile, its unpackers and numpy raise on damaged bytes, as our error."""
    try:
        yield
    except (DataError, MemoryError, FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except Exception as error:
        raise DataError(
            f"read: expected arrays of numbers or text, but {name} is damaged or holds Python "
            f"objects, which are not loaded: {error or type(error).__name__}"
        ) from error


@contextmanager
def _archive(path: str | Path) -> Iterator[zipfile.ZipFile]:
    with refusing(path), Path(path).open("rb") as handle, zipfile.ZipFile(handle) as archive:
        yield archive


def _read(file: Any, size: int) -> NDArray[Any]:
    """The array that begins here, of a file of so many bytes."""
    shape, by_column, dtype = read_header(file)
    count = math.prod(shape)  # without the limits of numpy's integers
    there = size - file.tell()
    if count * dtype.itemsize > there:
        raise ValueError(f"shape {shape} of {dtype}, which are {there} bytes")
    X = numpy.empty(count, dtype)
    room, done = X.view(numpy.uint8) if count else numpy.empty(0, numpy.uint8), 0
    while done < len(room):
        got = file.readinto(room[done : done + _BLOCK].data)
        if not got:
            raise EOFError(f"the end after {done} of {len(room)} bytes")
        done += got
    X = X.reshape(shape, order="F" if by_column else "C")
    return X.astype(dtype.newbyteorder("="), copy=False)
