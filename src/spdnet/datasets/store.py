"""Many matrices in one file: read where they are needed, written so that an interruption costs
little.

The file is a ``.npz`` that numpy reads. ``X`` is stored first, uncompressed and aligned, so that
its rows can be read, or mapped into memory, where they lie.
"""

import fcntl
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import ArrayLike, DTypeLike, NDArray

from spdnet.datasets.errors import DataError

_HEADER = 128  # bytes of the header of X
_FIRST_ROW = 64 + _HEADER
_BLOCK = 2**24  # bytes that are checked, or written, at a time


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
    >>> from spdnet.datasets import open_stored
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

    def fill(self, buffer: NDArray[numpy.uint8], offset: int) -> None:
        """Read as many bytes as there is room for."""
        done = 0
        while done < len(buffer):
            got = os.preadv(self._descriptor, [buffer[done:].data], offset + done)
            if got == 0:
                raise DataError(f"read: expected {self.path} as it was, but it has become shorter")
            done += got

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

    Raises
    ------
    DataError
        The file says more about itself than it holds.
    """
    path = Path(path)
    with path.open("rb") as handle, zipfile.ZipFile(handle) as archive:
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
            version = numpy.lib.format.read_magic(handle)
            reader = {(1, 0): "read_array_header_1_0", (2, 0): "read_array_header_2_0"}[version]
            shape, by_column, dtype = getattr(numpy.lib.format, reader)(handle)
        except (ValueError, KeyError) as error:
            raise DataError(f"read: expected an array {name} in {path}, got none") from error
        offset = handle.tell()
        size = os.fstat(handle.fileno()).st_size
    if dtype.hasobject or by_column or len(shape) == 0:
        return None
    count = 1
    for n in shape:
        count *= n  # without the limits of numpy's integers
    if offset - begin + count * dtype.itemsize != info.file_size or begin + info.file_size > size:
        raise DataError(
            f"read: expected the {count * dtype.itemsize} bytes of {name} {shape} in {path}, got "
            f"{info.file_size}"
        )
    return StoredArray(path, offset, shape, dtype)


class StoreWriter:
    """Writes matrices and what is known of them to one file, a few at a time.

    What is written so far lies beside it, in ``NAME.part`` and ``NAME.part.json``; a writer for the
    same file and plan goes on from there. The file itself appears when it is complete.

    Parameters
    ----------
    path : path
        Of the ``.npz`` file.
    plan : mapping
        All that decides what is written, as plain values.

    Attributes
    ----------
    done : list of str
        The sources that are written.
    """

    def __init__(self, path: str | Path, plan: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self._part = self.path.with_name(self.path.name + ".part")
        self._journal = self.path.with_name(self.path.name + ".part.json")
        self._shape: tuple[int, int] | None = None
        self._dtype: numpy.dtype[Any] | None = None
        self._columns: list[dict[str, Any]] = []
        self._waiting: list[NDArray[Any]] = []
        self._lines: list[str] = []
        self.done: list[str] = []
        plan = dict(json.loads(json.dumps(plan)))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self._part.exists():
            self._journal.unlink(missing_ok=True)  # of a build that was complete
        self._handle = self._part.open("ab")
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._handle.close()
            raise FileExistsError(
                f"build: expected to be the only one that writes {self.path}, but another process "
                "does"
            ) from None
        if self._journal.exists():
            self._go_on(plan)
        else:
            self._handle.truncate(0)
            with self._journal.open("w", encoding="utf-8") as journal:
                journal.write(json.dumps({"plan": plan}) + "\n")

    @property
    def empty(self) -> list[str]:
        """The sources that had no matrix."""
        return [line["source"] for line in self._columns if line["count"] == 0]

    def __enter__(self) -> "StoreWriter":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def add(self, source: str, X: NDArray[Any], **columns: Any) -> None:
        """Write the matrices ``(k, n, n)`` of a source.

        Parameters
        ----------
        source : str
            By which a build that goes on knows it.
        X : array, shape (k, n, n)
            Of the same n and dtype as all before.
        **columns
            One plain value each, such as ``y``, ``split``, ``groups``; for all k matrices.
        """
        if self._shape is None:
            self._shape, self._dtype = (X.shape[1], X.shape[2]), X.dtype
        if X.shape[1:] != self._shape or X.dtype != self._dtype:
            raise DataError(
                f"build: expected matrices of one size, {self._shape[0]} x {self._shape[1]}, got "
                f"{X.shape[1]} x {X.shape[2]} from {source}"
            )
        line = {
            "source": source,
            "count": len(X),
            "shape": self._shape,
            "dtype": X.dtype.str,
            **columns,
        }
        self._waiting.append(numpy.ascontiguousarray(X))
        self._lines.append(json.dumps(line) + "\n")
        self._note(line)
        if sum(x.nbytes for x in self._waiting) >= _BLOCK:
            self.flush()

    def flush(self) -> None:
        """Bring to the disk what was added: first the matrices, then the note that they are."""
        if not self._lines:
            return
        if self._handle.tell() == 0:
            self._handle.write(bytes(_FIRST_ROW))
        for X in self._waiting:
            self._handle.write(X.data)
        self._handle.flush()
        os.fsync(self._handle.fileno())
        with self._journal.open("a", encoding="utf-8") as journal:
            journal.writelines(self._lines)
            journal.flush()
            os.fsync(journal.fileno())
        self._waiting, self._lines = [], []

    def finish(self, provenance: Mapping[str, Any]) -> Path:
        """Close the file and give it its name.

        Parameters
        ----------
        provenance : mapping
            Where the matrices come from, as plain values; kept as JSON in the file.
        """
        self.flush()
        count = sum(c["count"] for c in self._columns)
        if count == 0 or self._shape is None or self._dtype is None:
            raise DataError(f"build: expected matrices for {self.path}, got none")
        head = _npy_header((count, *self._shape), self._dtype)
        with self._part.open("r+b") as file:
            info = zipfile.ZipInfo("X.npy")
            info.extra = struct.pack("<HH5x", 0xD935, 5)  # to 64 bytes: an empty field of no use
            info.CRC, info.header_offset = zlib.crc32(head), 0
            file.seek(_FIRST_ROW)
            while block := file.read(_BLOCK):
                info.CRC = zlib.crc32(block, info.CRC)
            info.file_size = info.compress_size = file.tell() - 64
            file.seek(0)
            file.write(info.FileHeader(zip64=True) + head)
            file.seek(0, os.SEEK_END)
            with zipfile.ZipFile(file, "w") as archive:
                archive.filelist.append(info)
                archive.NameToInfo[info.filename] = info
                for name, values in self._values(provenance).items():
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                        numpy.lib.format.write_array(member, values, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self._part, self.path)
        self._journal.unlink()
        self._handle.close()
        return self.path

    def close(self) -> None:
        """Let go of the file; what was flushed stays, and where nothing was, nothing stays."""
        if not self._handle.closed:
            if self._handle.tell() == 0:
                self._part.unlink(missing_ok=True)
                self._journal.unlink(missing_ok=True)
            self._handle.close()

    def _values(self, provenance: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """The columns of the file: those that every source has, one value for each matrix."""
        counts = [c["count"] for c in self._columns]
        names = [k for k in self._columns[0] if k not in ("count", "shape", "dtype")]
        values = {
            {"source": "names"}.get(name, name): numpy.repeat(
                numpy.array([c[name] for c in self._columns]), counts
            )
            for name in names
            if all(c.get(name) is not None for c in self._columns)
        }
        return {**values, "provenance": numpy.array(json.dumps(dict(provenance)))}

    def _note(self, line: dict[str, Any]) -> None:
        self._columns.append(line)
        self.done.append(line["source"])

    def _go_on(self, plan: dict[str, Any]) -> None:
        """Take up what is there, as far as it is whole."""
        lines = self._journal.read_text(encoding="utf-8").splitlines(keepends=True)
        try:
            whole = [json.loads(line) for line in lines if line.endswith("\n")]
            before = whole[0]["plan"]
            bytes_ = _FIRST_ROW if whole[1:] else 0
            for line in whole[1:]:
                self._shape, self._dtype = tuple(line["shape"]), numpy.dtype(line["dtype"])
                bytes_ += line["count"] * self._shape[0] * self._shape[1] * self._dtype.itemsize
                self._note(line)
        except (ValueError, LookupError, TypeError) as error:
            self._refuse("is damaged", error)
        if before != plan:
            differs = [k for k in {**before, **plan} if before.get(k) != plan.get(k)]
            self._refuse(f"began with other {', '.join(differs)}", None)
        if self._part.stat().st_size < bytes_:
            self._refuse("is damaged", None)
        self._handle.truncate(bytes_)
        self._handle.seek(0, os.SEEK_END)
        if len(whole) < len(lines):  # the last line was not written to its end
            with self._journal.open("r+", encoding="utf-8") as journal:
                journal.truncate(sum(len(line.encode()) for line in lines[: len(whole)]))

    def _refuse(self, why: str, error: Exception | None) -> None:
        self._handle.close()
        raise DataError(
            f"build: expected to go on with {self._part}, but it {why}; delete it and "
            f"{self._journal.name} to begin again"
        ) from error


def _npy_header(shape: tuple[int, ...], dtype: numpy.dtype[Any]) -> bytes:
    """The header of an array in numpy's format, of a fixed length."""
    described = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    magic = b"\x93NUMPY\x01\x00" + struct.pack("<H", _HEADER - 10)
    return magic + repr(described).encode().ljust(_HEADER - 11) + b"\n"
