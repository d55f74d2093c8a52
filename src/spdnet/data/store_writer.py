"""Many matrices written to one file, so that an interruption costs little.

The file is a ``.npz`` that numpy reads. ``X`` is stored first, uncompressed and aligned: see
:func:`spdnet.data.open_stored`.
"""

import json
import os
import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from spdnet._lock import acquire
from spdnet.data.errors import DataError

_HEADER = 128  # bytes of the header of X
_FIRST_ROW = 64 + _HEADER
_BLOCK = 2**24  # bytes that are checked, or written, at a time
_LINES = 1000  # sources that are written at a time
_DTYPES = tuple(order + kind for order in "<>" for kind in ("f8", "f4"))


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

    Examples
    --------
    >>> import numpy, tempfile
    >>> from spdnet.data import StoreWriter, read
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with StoreWriter(f"{folder}/all.npz", plan={}) as writer:
    ...         for name, kind in (("walk-1", "walk"), ("run-1", "run")):
    ...             writer.add(name, numpy.eye(3)[None], y=kind, split=None, groups=None)
    ...         path = writer.finish({})
    ...     print(read(path).X.shape)
    (2, 3, 3)
    """

    def __init__(self, path: str | Path, plan: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self._part = self.path.with_name(self.path.name + ".part")
        self._journal = self.path.with_name(self.path.name + ".part.json")
        self._shape: tuple[int, int] | None = None
        self._dtype: numpy.dtype[Any] | None = None
        self._columns: list[dict[str, Any]] = []
        self._waiting = _Waiting()
        self.done: list[str] = []
        plan = dict(json.loads(json.dumps(plan)))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = acquire(
            self.path.with_name(self.path.name + ".part.lock"),
            f"build: expected no other writer of {self.path}, but another process writes it",
        )
        if self.path.exists():
            self._release()
            raise FileExistsError(f"build: expected a new file, but {self.path} exists by now")
        if not self._part.exists():
            self._journal.unlink(missing_ok=True)  # of a build that was complete
        self._handle = self._part.open("ab", buffering=0)
        if self._journal.exists() and self._journal.stat().st_size:
            self._go_on(plan)
        else:
            first = (json.dumps({"plan": plan}) + "\n").encode()
            try:
                self._handle.truncate(0)
                self._journal.write_bytes(first)
                self._waiting = _Waiting(noted=len(first))
            except BaseException:
                self.close()  # there is nothing to go on with
                raise

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
        self._waiting.matrices.append(numpy.ascontiguousarray(X))
        self._waiting.lines.append((json.dumps(line) + "\n").encode())
        self._note(line)
        bytes_ = sum(part.nbytes for part in self._waiting.matrices)
        if bytes_ >= _BLOCK or len(self._waiting.lines) >= _LINES:
            self.flush()

    def flush(self) -> None:
        """Bring to the disk what was added: first the matrices, then the note that they are.

        It can be done again after it was broken off, by a full disk or by Ctrl-C: everything has
        its place.
        """
        waiting = self._waiting
        if not waiting.lines:
            return
        end = _write(self._handle, waiting.matrices, waiting.end or _FIRST_ROW)
        with self._journal.open("r+b", buffering=0) as journal:
            noted = _write(journal, waiting.lines, waiting.noted)
        self._waiting = _Waiting(end=end, noted=noted)  # at one stroke

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
        self._handle.truncate(self._waiting.end)  # of what an attempt before has added
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
        self._handle.close()
        os.replace(self._part, self.path)
        self._journal.unlink()
        self._release()
        return self.path

    def close(self) -> None:
        """Let go of the file; what was flushed stays, and where nothing was, nothing stays."""
        if self._handle.closed:
            self._release()
            return
        try:
            self.flush()
        finally:
            self._handle.close()
            if self._waiting.end == 0:
                self._part.unlink(missing_ok=True)
                self._journal.unlink(missing_ok=True)
            self._release()

    def _release(self) -> None:
        """Release the lock and remove its file; Windows removes it by itself."""
        if self._lock.is_locked and os.name != "nt":
            Path(self._lock.lock_file).unlink(missing_ok=True)
        self._lock.release()

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
        try:
            lines = self._journal.read_text(encoding="utf-8").splitlines(keepends=True)
            whole = [json.loads(line) for line in lines if line.endswith("\n")]
            before = dict(whole[0]["plan"])
            bytes_ = _FIRST_ROW if whole[1:] else 0
            for line in whole[1:]:
                self._shape, self._dtype = _described(line, self._shape, self._dtype)
                bytes_ += line["count"] * self._shape[0] * self._shape[1] * self._dtype.itemsize
                self._note(line)
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            self._refuse("is damaged", error)
        if before != plan:
            differs = [k for k in {**before, **plan} if before.get(k) != plan.get(k)]
            self._refuse(f"began with other {', '.join(differs)}", None)
        if self._part.stat().st_size < bytes_:
            self._refuse("is damaged", None)
        noted = sum(len(line.encode()) for line in lines[: len(whole)])
        self._waiting = _Waiting(end=bytes_, noted=noted)  # anything after that is written over

    def _refuse(self, why: str, error: Exception | None) -> None:
        self._handle.close()
        self._release()
        raise DataError(
            f"build: expected to go on with {self._part}, but it {why}; delete it and "
            f"{self._journal.name} to begin again"
        ) from error


@dataclass(frozen=True)
class _Waiting:
    """What is still to be written, and where: after what is known to be on the disk."""

    matrices: list[NDArray[Any]] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    end: int = 0  # of the matrices in the file
    noted: int = 0  # end of the journal


def _write(file: Any, parts: Iterable[Any], place: int) -> int:
    """Write from a place on, to the end of the file, and to the disk; the new end."""
    file.truncate(place)
    file.seek(place)
    for part in filter(len, parts):
        left = memoryview(part).cast("B")
        while len(left):
            left = left[file.write(left) :]
    os.fsync(file.fileno())
    return file.tell()


def _described(
    line: dict[str, Any], shape: tuple[int, int] | None, dtype: numpy.dtype[Any] | None
) -> tuple[tuple[int, int], numpy.dtype[Any]]:
    """The shape and type that a line of the journal tells, which are those of the lines before."""
    n, m = line["shape"]
    found = numpy.dtype(line["dtype"]) if line["dtype"] in _DTYPES else None
    sizes = (n, m, line["count"])
    if found is None or any(type(size) is not int for size in sizes):
        raise ValueError(f"{line['dtype']} of {sizes}")
    if min(n, m) < 1 or line["count"] < 0 or (shape, dtype) not in ((None, None), ((n, m), found)):
        raise ValueError(f"{found} of {sizes}")
    for name, value in line.items():
        is_column = name not in ("source", "count", "shape", "dtype")
        plain = value is None or type(value) in (str, int, float)
        if is_column and not (plain and name.isidentifier() and name not in ("X", "provenance")):
            raise ValueError(f"{name} {value!r}")
    if type(line["source"]) is not str:
        raise ValueError(f"the source {line['source']!r}")
    return (n, m), found


def _npy_header(shape: tuple[int, ...], dtype: numpy.dtype[Any]) -> bytes:
    """The header of an array in numpy's format, of a fixed length."""
    described = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    magic = b"\x93NUMPY\x01\x00" + struct.pack("<H", _HEADER - 10)
    return magic + repr(described).encode().ljust(_HEADER - 11) + b"\n"
