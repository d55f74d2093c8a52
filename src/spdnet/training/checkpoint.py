"""Checkpoints: written atomically, and validated when read, without executing code from them."""

import hashlib
import io
import math
import os
import pickle
import warnings
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from spdnet._files import atomic_writer

FORMAT = "spdnet checkpoint"
VERSION = 1
#: allowed names in the pickle of a state, in addition to tensor storages
_NAMES = {
    ("torch._utils", "_rebuild_tensor_v2"),
    ("torch._utils", "_rebuild_tensor_v3"),
    ("torch._utils", "_rebuild_parameter"),
    ("collections", "OrderedDict"),
}
#: memory limit of a state: a multiple of the file size, plus a constant
_GROWTH, _CONSTANT = 8, 2**20


class CheckpointError(ValueError):
    """Error raised for a file that is not a complete checkpoint of this library."""


def save(state: dict[str, Any], path: str | Path) -> None:
    """Write a state to a file atomically.

    Parameters
    ----------
    state : dict
        Tensors, numbers, strings, None, and lists, tuples and dicts of them.
    path : path
        File in an existing folder.

    Examples
    --------
    >>> import tempfile
    >>> from spdnet.training import checkpoint
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpoint.save({"epoch": 3}, f"{folder}/last.pt")
    ...     checkpoint.load(f"{folder}/last.pt")
    {'epoch': 3}
    """
    path = Path(path)
    payload = {"format": FORMAT, "version": VERSION, "digest": _digest(state), "state": state}
    archive = io.BytesIO()  # to disk, torch would replace an OSError by its own error
    torch.save(payload, archive)
    with atomic_writer(path) as file:
        file.write(archive.getbuffer())
    _sync_folder(path.parent)


def load(path: str | Path, *, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Read a state that :func:`save` wrote.

    The file is inspected before it is loaded: it may only refer to plain tensors, whose sizes have
    to match the size of the file.

    Raises
    ------
    CheckpointError
        The file is truncated, damaged, or not a checkpoint.
    FileNotFoundError, PermissionError

    Examples
    --------
    >>> import tempfile
    >>> from spdnet.training import checkpoint
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpoint.save({"epoch": 3}, f"{folder}/last.pt")
    ...     checkpoint.load(f"{folder}/last.pt")
    {'epoch': 3}
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"checkpoint: expected a file at {path}, got none")
    try:
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # from torch, about the format of other files
            _inspect(file)
            file.seek(0)
            payload = torch.load(file, map_location=device, weights_only=True)
    except (PermissionError, MemoryError):
        raise
    except (RuntimeError, EOFError, OSError, zipfile.BadZipFile, UnicodeDecodeError) as error:
        what = "is truncated or damaged; use an earlier one"
        raise _error("a complete checkpoint", path, what) from error
    except Exception as error:  # a damaged pickle may raise anything
        what = "is something else, or damaged; no code in it was executed"
        raise _error("a file written by spdnet", path, what) from error
    if not isinstance(payload, dict) or payload.get("format") != FORMAT:
        raise _error("a file written by spdnet", path, "is something else")
    if payload.get("version") != VERSION:
        what = f"has version {payload.get('version')!r}; use the version of spdnet that wrote it"
        raise _error(f"version {VERSION}", path, what)
    try:
        limit = _GROWTH * path.stat().st_size + _CONSTANT
        is_whole = payload.get("digest") == _digest(payload.get("state"), limit)
    except (TypeError, ValueError, RuntimeError):  # types that save() never writes
        is_whole = False
    if not is_whole:
        what = "was damaged later; use an earlier one"
        raise _error("the contents that were written", path, what)
    return payload["state"]


def _error(expected: str, path: Path, what: str) -> CheckpointError:
    return CheckpointError(f"checkpoint: expected {expected}, but {path} {what}")


class CheckpointFolder:
    """Checkpoints of one training: the best, the last, and the one before it.

    Examples
    --------
    >>> from spdnet.training.checkpoint import CheckpointFolder
    >>> CheckpointFolder("run/checkpoints").any()
    False
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.best = self.path / "best.pt"
        self.last = self.path / "last.pt"
        self.previous = self.path / "previous.pt"

    def any(self) -> bool:
        """Return whether there is a checkpoint to resume from."""
        return self.last.exists() or self.previous.exists()

    def save_last(self, state: dict[str, Any]) -> None:
        """Write the last state, and keep the previous one."""
        self.path.mkdir(parents=True, exist_ok=True)
        temporary = self.path / "coming.pt"
        save(state, temporary)
        if self.last.exists():
            self.last.replace(self.previous)
        temporary.replace(self.last)
        _sync_folder(self.path)

    def save_best(self, state: dict[str, Any]) -> None:
        """Write the best state."""
        self.path.mkdir(parents=True, exist_ok=True)
        save(state, self.best)

    def load_last(
        self, *, device: torch.device | str = "cpu", needs: Iterable[str] = ()
    ) -> tuple[dict[str, Any], list[str]]:
        """Load the newest complete state that contains the names in ``needs``.

        Return the state, and the errors in newer files. If no checkpoint is complete, raise a
        :class:`CheckpointError`; if there is none, a FileNotFoundError.
        """
        found = [p for p in (self.last, self.previous) if p.exists()]
        if not found:
            raise FileNotFoundError(
                f"checkpoint: expected a checkpoint in {self.path}, got none; start a new training"
            )
        faults: list[str] = []
        for path in found:
            try:
                state = load(path, device=device)
                missing = ["names"]
                if isinstance(state, dict):
                    missing = [repr(name) for name in needs if name not in state]
                if missing:
                    raise _error("that of a training", path, f"has no {missing[0]}")
                return state, faults
            except CheckpointError as error:
                faults.append(str(error))
        raise CheckpointError("; ".join(faults))

    def set_aside_last(self) -> None:
        """Rename a damaged last state, so that it does not replace a complete one."""
        self.last.replace(self.path / "damaged.pt")


class _Inspector(pickle._Unpickler):
    """Unpickler that creates no objects and imports no names."""

    def __init__(self, file: BinaryIO, sizes: dict[str, int]) -> None:
        super().__init__(file)
        self.sizes = sizes

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _NAMES:
            return _Placeholder
        if module in ("torch", "torch.storage") and isinstance(_storage(name), type):
            return name
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return _Placeholder
        raise pickle.UnpicklingError(f"the name {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        _, kind, key, _, count = pid
        size = _storage(kind)().element_size() * count
        if self.sizes.get(key) != size:  # torch may read beyond the end of the file
            raise RuntimeError(f"{count} numbers of {kind} in {self.sizes.get(key)} bytes")
        return _Placeholder()


class _Placeholder:
    """Placeholder for the objects of a pickle."""

    def __init__(self, *args: Any) -> None:
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


def _storage(name: str) -> Any:
    """Return the class of a storage, such as ``FloatStorage``."""
    return getattr(torch, name, None) if name.endswith("Storage") else None


def _inspect(file: BinaryIO) -> None:
    """Raise an error unless a file is a zip archive written by torch, with plain tensors only."""
    size = file.seek(0, os.SEEK_END)
    if not zipfile.is_zipfile(file):
        file.seek(0)
        start = file.read(2)
        if start[:2] == b"PK" or not start:
            raise zipfile.BadZipFile("the zip archive has no end")
        raise ValueError("not a zip archive")
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        packed = [m for m in members if m.compress_type or m.file_size != m.compress_size]
        if packed or sum(m.file_size for m in members) > size:
            raise ValueError("compressed files, or more data than the file contains")
        for member in members:
            folder, _, name = member.filename.rpartition("/")
            if name == "data.pkl":
                inside = f"{folder}/data/"
                sizes = {m.filename.removeprefix(inside): m.file_size for m in members}
                _Inspector(io.BytesIO(archive.read(member)), sizes).load()


def _digest(state: Any, limit: float = math.inf) -> str:
    """Compute the SHA-256 of a state; raise a ValueError if it is larger than ``limit`` bytes.

    A small file may contain a large state, in which objects are repeated or contain themselves.
    """
    sha, left = hashlib.sha256(), limit

    def feed(value: Any) -> None:
        nonlocal left
        items: list[Any] = []
        if isinstance(value, Tensor):
            head, size = f"tensor {value.dtype} {tuple(value.shape)}", value.nbytes
        elif isinstance(value, dict):
            head, size = f"dict {len(value)}", 0
            items = [part for pair in value.items() for part in pair]
        elif isinstance(value, list | tuple):
            head, size, items = f"{type(value).__name__} {len(value)}", 0, list(value)
        elif value is None or isinstance(value, bool | int | float | str):
            head = f"{type(value).__name__} {value!r}"
            size = len(value) if isinstance(value, str) else 0
        else:
            raise TypeError(
                "checkpoint: expected tensors, numbers, strings, None and lists or dicts of them, "
                f"got {type(value).__name__}"
            )
        left -= 8 + size
        if left < 0:
            raise ValueError("checkpoint: expected a state as large as its file")
        sha.update(head.encode())
        if isinstance(value, Tensor) and value.numel():
            flat = value.detach().cpu().contiguous().reshape(-1)
            sha.update(flat.view(torch.uint8).numpy().data)
        for item in items:
            feed(item)

    feed(state)
    return sha.hexdigest()


def _sync_folder(folder: Path) -> None:
    """Make a rename durable, on systems where folders can be opened."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
