"""Arrays that stay in a file and are read row by row.

The file is an uncompressed ``.npz``, in which the rows of an array lie one after another.
"""

import math
import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import ArrayLike, DTypeLike, NDArray

from spdnet.data.errors import DataError, converting
from spdnet.data.io.arrays import converting_errors, read_header

_BLOCK = 2**24  # bytes per block


@dataclass(eq=False, repr=False)
class StoredArray:
    """Array in a file whose rows are read on access.

    Rows are read with ``seek`` and ``read`` rather than mapped: mapped pages count as resident
    memory, and a mapped file that shrinks kills the process. Every access opens the file, so that
    threads and processes share nothing.

    :func:`open_stored` returns one.

    Examples
    --------
    >>> import numpy, tempfile
    >>> from spdnet.data import open_stored
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     numpy.savez(f"{folder}/three.npz", X=numpy.zeros((3, 2, 2)))
    ...     open_stored(f"{folder}/three.npz").take([0, 2]).astype("float32")[:].shape
    (2, 2, 2)
    """

    path: Path
    offset: int  # of the first row, in bytes
    stored: numpy.dtype[Any]  # type in the file
    dtype: numpy.dtype[Any]  # type in memory
    _shape: tuple[int, ...]  # in the file
    _state: tuple[int, int]  # of the file when it was opened
    _rows: NDArray[numpy.int64] | None = None  # of the file; None for all

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return (len(self), *self._shape[1:])

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self._shape)

    @property
    def nbytes(self) -> int:
        """Size in memory."""
        return len(self) * int(numpy.prod(self._shape[1:])) * self.dtype.itemsize

    def __len__(self) -> int:
        return self._shape[0] if self._rows is None else len(self._rows)

    def __getitem__(self, index: Any) -> NDArray[Any]:
        """Read rows by an integer, a slice, an array of integers or a mask."""
        if isinstance(index, tuple):
            raise TypeError(f"StoredArray: expected an index of rows, got {index}")
        chosen = numpy.arange(len(self))[index]
        rows = numpy.atleast_1d(chosen if self._rows is None else self._rows[chosen])
        found = numpy.empty((len(rows), *self._shape[1:]), self.stored)
        if found.size:
            self._read(rows, found.reshape(-1).view(numpy.uint8))
        found = found.reshape(*chosen.shape, *self._shape[1:])
        return found.astype(self.dtype, copy=False)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError(
                "StoredArray: expected copy=True or None, since data are read from a file"
            )
        return self[:].astype(self.dtype if dtype is None else dtype, copy=False)

    def take(self, index: ArrayLike, axis: int = 0) -> "StoredArray":
        """Select rows without reading them."""
        if axis != 0:
            raise ValueError(f"StoredArray: expected axis 0, got {axis}")
        wanted = numpy.asarray(index)
        if wanted.size and wanted.dtype.kind not in "iu":
            raise TypeError(f"StoredArray.take: expected integer indices, got {wanted.dtype}")
        chosen = numpy.arange(len(self))[wanted.astype(numpy.int64)]
        return replace(self, _rows=chosen if self._rows is None else self._rows[chosen])

    def astype(self, dtype: DTypeLike) -> "StoredArray":
        """Return the array with another type in memory."""
        return replace(self, dtype=numpy.dtype(dtype))

    def blocks(self, size: int | None = None) -> Iterator[NDArray[Any]]:
        """Read all rows in order, ``size`` at a time."""
        one = max(1, self.nbytes // max(1, len(self)))
        size = max(1, _BLOCK // one) if size is None else size
        for start in range(0, len(self), size):
            yield self[start : start + size]

    def mapped(self) -> NDArray[Any]:
        """Return all rows of the file as a :class:`numpy.memmap`."""
        return numpy.memmap(self.path, self.stored, "r", self.offset, self._shape)

    def _read(self, rows: NDArray[numpy.int64], data: NDArray[numpy.uint8]) -> None:
        one = len(data) // len(rows)
        starts = numpy.flatnonzero(numpy.diff(rows, prepend=-2) != 1)  # of consecutive rows
        with self.path.open("rb", buffering=0) as file:
            if _state(os.fstat(file.fileno())) != self._state:
                raise DataError(f"read: expected {self.path} to be unchanged, but it was modified")
            for a, b in zip(starts, [*starts[1:], len(rows)], strict=True):
                file.seek(self.offset + int(rows[a]) * one)
                left = data[a * one : b * one].data
                while len(left):
                    if not (got := file.readinto(left)):
                        raise DataError(
                            f"read: expected {self.path} to be unchanged, but it has become shorter"
                        )
                    left = left[got:]

    def __repr__(self) -> str:
        return f"StoredArray({str(self.path)!r}, shape={self.shape}, dtype={self.dtype})"


def _state(about: os.stat_result) -> tuple[int, int]:
    return about.st_size, about.st_mtime_ns


def open_stored(path: str | Path, name: str = "X") -> StoredArray | None:
    """Open an array of a ``.npz`` file without reading it.

    Return None if the array is compressed or in column-major order.

    Examples
    --------
    >>> import numpy, tempfile
    >>> from spdnet.data import open_stored
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     numpy.savez(f"{folder}/three.npz", X=numpy.arange(12.0).reshape(3, 2, 2))
    ...     open_stored(f"{folder}/three.npz")[[2, 0]][:, 0, 0]
    array([8., 0.])
    """
    path = Path(path)
    with converting_errors(path), path.open("rb") as handle, zipfile.ZipFile(handle) as archive:
        if f"{name}.npy" not in archive.NameToInfo:
            raise DataError(f"read: expected an array {name} in {path}, got none")
        info = archive.getinfo(f"{name}.npy")
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            return None
        with converting(f"read: expected an array {name} in {path}"):
            archive.open(info).close()  # checks the local header and skips it
            begin = handle.tell()
            shape, by_column, dtype = read_header(handle, name, path)
        offset, state = handle.tell(), _state(os.fstat(handle.fileno()))
    if by_column or len(shape) == 0 or 0 in shape[1:]:
        return None
    size = math.prod(shape) * dtype.itemsize  # Python integers do not overflow
    if offset - begin + size != info.file_size or begin + info.file_size > state[0]:
        raise DataError(
            f"read: expected the {size} bytes of {name} {shape} in {path}, got {info.file_size}"
        )
    return StoredArray(path, offset, dtype, dtype.newbyteorder("="), shape, state)
