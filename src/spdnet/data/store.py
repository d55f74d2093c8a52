"""Many matrices in one file, read where they are needed.

The file is a ``.npz`` that is not compressed, so that rows of its arrays can be read, or mapped
into memory, where they lie.
"""

import math
import os
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import ArrayLike, DTypeLike, NDArray

from spdnet.data.errors import DataError
from spdnet.data.io.arrays import read_header, refusing

_BLOCK = 2**24  # bytes that are read at a time


class StoredArray:
    """An array in a file, of which rows are read when they are asked for.

    Rows are read by their place in the file instead of through a mapping: what is mapped counts as
    resident memory, and a file that shrinks would end the process. The system's cache of the file
    is shared by all processes either way.

    Parameters
    ----------
    path : path
    offset : int
        Of the first row in the file.
    shape : tuple of int
    stored : dtype
        In the file.
    rows : array of int, optional
        Those that this array consists of; all when not given.
    dtype : dtype, optional
        In memory; ``stored`` when not given.

    Examples
    --------
    >>> import numpy, tempfile
    >>> from spdnet.data import open_stored
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     numpy.savez(f"{folder}/three.npz", X=numpy.arange(12.0).reshape(3, 2, 2))
    ...     X = open_stored(f"{folder}/three.npz")
    ...     X.shape, X[[2, 0]][:, 0, 0]
    ((3, 2, 2), array([8., 0.]))
    """

    def __init__(
        self,
        path: "str | Path | _File",
        offset: int,
        shape: tuple[int, ...],
        stored: DTypeLike,
        rows: NDArray[numpy.int64] | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        self._file = path if isinstance(path, _File) else _File(Path(path))
        self.offset = offset
        self.stored = numpy.dtype(stored)
        self.dtype = self.stored if dtype is None else numpy.dtype(dtype)
        self._shape = tuple(shape)
        self._rows = rows

    @property
    def path(self) -> Path:
        """Of the file."""
        return self._file.path

    @property
    def shape(self) -> tuple[int, ...]:
        """As that of an array in memory."""
        return (len(self), *self._shape[1:])

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self._shape)

    @property
    def nbytes(self) -> int:
        """Of the array, were it in memory."""
        return len(self) * int(numpy.prod(self._shape[1:])) * self.dtype.itemsize

    def __len__(self) -> int:
        return self._shape[0] if self._rows is None else len(self._rows)

    def __getitem__(self, index: Any) -> NDArray[Any]:
        """Some rows, in memory: by a number, a slice, numbers or a mask."""
        if isinstance(index, tuple):
            raise TypeError(f"StoredArray: expected an index of rows, got {index}")
        places = numpy.arange(len(self))[index]
        return self._read(numpy.atleast_1d(places)).reshape(*places.shape, *self._shape[1:])

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """All of it in memory."""
        if copy is False:
            raise ValueError("StoredArray: expected to copy what is in a file")
        return self[:].astype(self.dtype if dtype is None else dtype, copy=False)

    def take(self, index: ArrayLike, axis: int = 0) -> "StoredArray":
        """Some rows, still in the file."""
        if axis != 0:
            raise ValueError(f"StoredArray: expected axis 0, got {axis}")
        wanted = numpy.asarray(index)
        if wanted.size and wanted.dtype.kind not in "iu":
            raise TypeError(f"StoredArray.take: expected numbers of rows, got {wanted.dtype}")
        places = numpy.arange(len(self))[wanted.astype(numpy.int64)]
        rows = places if self._rows is None else self._rows[places]
        return StoredArray(self._file, self.offset, self._shape, self.stored, rows, self.dtype)

    def astype(self, dtype: DTypeLike) -> "StoredArray":
        """The same, of another type once it is in memory."""
        place = (self._file, self.offset, self._shape, self.stored, self._rows)
        return StoredArray(*place, dtype)

    def blocks(self, size: int | None = None) -> Iterator[NDArray[Any]]:
        """All rows in their order, ``size`` at a time."""
        one = max(1, self.nbytes // max(1, len(self)))
        size = max(1, _BLOCK // one) if size is None else size
        for start in range(0, len(self), size):
            yield self[start : start + size]

    def mapped(self) -> NDArray[Any]:
        """The whole array of the file as a :class:`numpy.memmap`."""
        return numpy.memmap(self.path, self.stored, "r", self.offset, self._shape)

    def _read(self, places: NDArray[numpy.int64]) -> NDArray[Any]:
        rows = places if self._rows is None else self._rows[places]
        found = numpy.empty((len(rows), *self._shape[1:]), self.stored)
        one = found.nbytes // max(1, len(rows))
        if one == 0:
            return found.astype(self.dtype, copy=False)
        bytes_ = found.reshape(-1).view(numpy.uint8)
        # rows that follow each other are read at once
        starts = numpy.flatnonzero(numpy.diff(rows, prepend=-2) != 1)
        for a, b in zip(starts, [*starts[1:], len(rows)], strict=True):
            self._file.fill(bytes_[a * one : b * one], self.offset + int(rows[a]) * one)
        return found.astype(self.dtype, copy=False)

    def __repr__(self) -> str:
        return f"StoredArray({str(self.path)!r}, shape={self.shape}, dtype={self.dtype})"


class _File:
    """A file that is read at places, by all threads and by the processes that inherit it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY)
        self._state = self._now()

    def fill(self, buffer: NDArray[numpy.uint8], offset: int) -> None:
        """Read as many bytes as there is room for."""
        if self._now() != self._state:
            raise DataError(
                f"read: expected {self.path} as it was when it was opened, but it has been "
                "written to"
            )
        done = 0
        while done < len(buffer):
            got = os.preadv(self._descriptor, [buffer[done:].data], offset + done)
            if got == 0:
                raise DataError(f"read: expected {self.path} as it was, but it has become shorter")
            done += got

    def _now(self) -> tuple[int, int]:
        about = os.fstat(self._descriptor)
        return about.st_size, about.st_mtime_ns

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)

    def __reduce__(self) -> tuple[type["_File"], tuple[Path]]:
        return _File, (self.path,)


def open_stored(path: str | Path, name: str = "X") -> StoredArray | None:
    """An array of a ``.npz`` file, to be read in parts; None if it is compressed or in columns.

    Parameters
    ----------
    path : path
    name : str

    Returns
    -------
    StoredArray or None

    Raises
    ------
    DataError
        The file says more about itself than it holds.

    Examples
    --------
    >>> import numpy, tempfile
    >>> from spdnet.data import open_stored
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     numpy.savez(f"{folder}/three.npz", X=numpy.zeros((3, 2, 2)))
    ...     open_stored(f"{folder}/three.npz").shape
    (3, 2, 2)
    """
    path = Path(path)
    with refusing(path), path.open("rb") as handle, zipfile.ZipFile(handle) as archive:
        if f"{name}.npy" not in archive.NameToInfo:
            raise DataError(f"read: expected an array {name} in {path}, got none")
        info = archive.getinfo(f"{name}.npy")
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            return None
        handle.seek(info.header_offset)
        local = handle.read(30)
        if len(local) < 30 or local[:4] != b"PK\x03\x04":
            raise DataError(f"read: expected a .npz file, but {path} is damaged")
        begin = info.header_offset + 30 + sum(struct.unpack("<HH", local[26:]))
        handle.seek(begin)
        try:
            shape, by_column, dtype = read_header(handle)
        except Exception as error:  # numpy's parser has many
            raise DataError(f"read: expected an array {name} in {path}, got {error}") from error
        offset = handle.tell()
        size = os.fstat(handle.fileno()).st_size
    if by_column or len(shape) == 0 or 0 in shape[1:]:
        return None
    count = math.prod(shape)  # without the limits of numpy's integers
    if offset - begin + count * dtype.itemsize != info.file_size or begin + info.file_size > size:
        raise DataError(
            f"read: expected the {count * dtype.itemsize} bytes of {name} {shape} in {path}, got "
            f"{info.file_size}"
        )
    return StoredArray(path, offset, shape, dtype, dtype=dtype.newbyteorder("="))
