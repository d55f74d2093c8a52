"""Writing many matrices to one ``.npz`` file, resumable after an interruption.

``X`` is stored first, uncompressed and aligned: see :func:`spdnet.data.open_stored`.
"""

import json
import os
import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy
from numpy.typing import NDArray

from spdnet._lock import acquire
from spdnet.data.errors import DataError

_HEADER = 128  # bytes of the header of X
_FIRST_ROW = 64 + _HEADER
_BLOCK = 2**24  # bytes per write
_LINES = 1000  # lines of the journal per write


class _Pending(NamedTuple):
    """Data to write, and the ends of the data that are known to be on disk."""

    matrices: list[NDArray[Any]]
    lines: list[bytes]
    end: int
    journal_end: int


class StoreWriter:
    """Writer of matrices and their labels to one file.

    Data are collected in ``NAME.part`` and ``NAME.part.json``; a writer for the same file and plan
    resumes from them. The file itself appears when it is complete. The plan contains everything
    that determines the contents, as plain values.

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
        self._part, self._journal, lock = (
            self.path.with_name(self.path.name + end)
            for end in (".part", ".part.json", ".part.lock")
        )
        self._kind: list[Any] | None = None  # rows, columns and dtype of every matrix
        self._lines: list[dict[str, Any]] = []
        plan = dict(json.loads(json.dumps(plan)))
        first = _encode_line({"plan": plan})
        self._pending = _Pending([], [], 0, len(first))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        busy = f"build: expected no other writer of {self.path}, but another process writes it"
        self._lock = acquire(lock, busy)
        if self.path.exists():
            self._release()
            raise FileExistsError(
                f"build: expected a new file, but {self.path} was created meanwhile"
            )
        if not self._part.exists():
            self._journal.unlink(missing_ok=True)  # left over from a complete build
        self._handle = self._part.open("ab", buffering=0)
        if self._journal.exists() and self._journal.stat().st_size:
            self._resume(plan)
            return
        try:
            self._handle.truncate(0)
            self._journal.write_bytes(first)
        except BaseException:
            self.close()
            raise

    @property
    def done(self) -> list[str]:
        """Sources that have been added."""
        return [line["source"] for line in self._lines]

    @property
    def empty(self) -> list[str]:
        """Sources without matrices."""
        return [line["source"] for line in self._lines if line["count"] == 0]

    def __enter__(self) -> "StoreWriter":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def add(self, source: str, X: NDArray[Any], **columns: Any) -> None:
        """Add the matrices ``X (k, n, n)`` of a source.

        All matrices have the same size and dtype. ``columns`` are plain values that apply to all k
        matrices, such as ``y``, ``split`` and ``groups``.
        """
        kind = [*X.shape[1:], X.dtype.str]
        self._kind = self._kind or kind
        if kind != self._kind:
            raise DataError(
                f"build: expected matrices of one size, {self._kind[0]} x {self._kind[1]}, got "
                f"{kind[0]} x {kind[1]} from {source}"
            )
        line = {"source": source, "count": len(X), "kind": kind, **columns}
        matrices, lines, *_ = self._pending
        matrices.append(numpy.ascontiguousarray(X))
        lines.append(_encode_line(line))
        self._lines.append(line)
        if sum(p.nbytes for p in matrices) >= _BLOCK or len(lines) >= _LINES:
            self.flush()

    def flush(self) -> None:
        """Write pending data to disk: the matrices, then their lines in the journal.

        It can be repeated after an error or Ctrl-C, because all positions are known.
        """
        matrices, lines, end, journal_end = self._pending
        if not lines:
            return
        end = _write(self._handle, matrices, end or _FIRST_ROW)
        with self._journal.open("r+b", buffering=0) as journal:
            journal_end = _write(journal, lines, journal_end)
        self._pending = _Pending([], [], end, journal_end)  # atomic

    def finish(self, provenance: Mapping[str, Any]) -> Path:
        """Complete the file; ``provenance`` holds plain values, stored as JSON."""
        self.flush()
        count = sum(line["count"] for line in self._lines)
        if count == 0 or self._kind is None:
            raise DataError(f"build: expected matrices for {self.path}, got none")
        n, m, dtype = self._kind
        about = {"descr": dtype, "fortran_order": False, "shape": (count, n, m)}
        magic = b"\x93NUMPY\x01\x00" + struct.pack("<H", _HEADER - 10)
        header = magic + repr(about).encode().ljust(_HEADER - 11) + b"\n"
        self._handle.truncate(self._pending.end)  # remove the rest of an earlier attempt to finish
        with self._part.open("r+b") as file:
            info = zipfile.ZipInfo("X.npy")
            info.extra = struct.pack("<HH5x", 0xD935, 5)  # padding to 64 bytes
            info.CRC, info.header_offset = zlib.crc32(header), 0
            file.seek(_FIRST_ROW)
            while block := file.read(_BLOCK):
                info.CRC = zlib.crc32(block, info.CRC)
            info.file_size = info.compress_size = file.tell() - 64
            file.seek(0)
            file.write(info.FileHeader(zip64=True) + header)
            file.seek(0, os.SEEK_END)
            with zipfile.ZipFile(file, "w") as archive:
                archive.filelist.append(info)
                archive.NameToInfo[info.filename] = info
                for name, values in self._columns(provenance).items():
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
        """Flush and close; remove the files if nothing was written."""
        is_open = not self._handle.closed
        try:
            if is_open:
                self.flush()
        finally:
            self._handle.close()
            if is_open and self._pending.end == 0:
                self._part.unlink(missing_ok=True)
                self._journal.unlink(missing_ok=True)
            self._release()

    def _release(self) -> None:
        """Release the lock and remove its file, which Windows removes automatically."""
        if self._lock.is_locked and os.name != "nt":
            Path(self._lock.lock_file).unlink(missing_ok=True)
        self._lock.release()

    def _columns(self, provenance: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Return the columns that all sources have, with one value per matrix."""
        counts = [line["count"] for line in self._lines]
        columns = {}
        for name in self._lines[0]:
            values = [line.get(name) for line in self._lines]
            if name not in ("count", "kind") and None not in values:
                key = "names" if name == "source" else name
                columns[key] = numpy.repeat(numpy.array(values), counts)
        return {**columns, "provenance": numpy.array(json.dumps(dict(provenance)))}

    def _resume(self, plan: dict[str, Any]) -> None:
        try:
            *texts, _ = self._journal.read_bytes().split(b"\n")  # the last one is incomplete
            first, *self._lines = map(_decode_line, texts)
            before = first["plan"]
        except ValueError as error:
            self._refuse("is damaged", error)
        if before != plan:
            differs = [k for k in {**before, **plan} if before.get(k) != plan.get(k)]
            self._refuse(f"was started with different {', '.join(differs)}")
        end = 0
        if self._lines:
            self._kind = n, m, dtype = self._lines[0]["kind"]
            count = sum(line["count"] for line in self._lines)
            end = _FIRST_ROW + count * n * m * numpy.dtype(dtype).itemsize
        if self._part.stat().st_size < end:
            self._refuse("is damaged")
        journal_end = sum(len(text) + 1 for text in texts)
        self._pending = _Pending([], [], end, journal_end)  # the rest is overwritten

    def _refuse(self, why: str, error: Exception | None = None) -> NoReturn:
        self._handle.close()
        self._release()
        raise DataError(
            f"build: expected to resume from {self._part}, but it {why}; delete it and "
            f"{self._journal.name} to start again"
        ) from error


def _write(file: Any, parts: Iterable[Any], position: int) -> int:
    """Replace everything from a position on, sync, and return the new end."""
    file.truncate(position)
    file.seek(position)
    for part in filter(len, parts):
        left = memoryview(part).cast("B")
        while len(left):
            left = left[file.write(left) :]
    os.fsync(file.fileno())
    return file.tell()


def _encode_line(line: Mapping[str, Any]) -> bytes:
    """Return a line of the journal, with a checksum."""
    text = json.dumps(line).encode()
    return b"%08x %b\n" % (zlib.crc32(text), text)


def _decode_line(line: bytes) -> Any:
    """Return the contents of a line of the journal; raise a ValueError if it is damaged."""
    checksum, _, text = line.partition(b" ")
    if int(checksum, 16) != zlib.crc32(text):
        raise ValueError(f"the line {line!r}")
    return json.loads(text)
