"""Checkpoints: written at one stroke, checked when read, and no code is ever run from them."""

import hashlib
import io
import os
import pickle
import warnings
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

FORMAT = "spdnet checkpoint"
VERSION = 1
#: all that the pickle of a state names, besides the storages of tensors
_NAMES = {
    ("torch._utils", "_rebuild_tensor_v2"),
    ("torch._utils", "_rebuild_tensor_v3"),
    ("torch._utils", "_rebuild_parameter"),
    ("collections", "OrderedDict"),
}
#: a state in memory is at most so many times as large as its file, and then this
_GROWTH, _ROOM = 8, 2**20


class CheckpointError(ValueError):
    """A file that is not a whole checkpoint of this library."""


def save(state: dict[str, Any], path: str | Path) -> None:
    """Write a state to a file; killed at any moment, the file holds the old state or the new one.

    Parameters
    ----------
    state : dict
        Tensors, numbers, strings, None, and lists, tuples and dicts of them.
    path : path
        The folder has to exist.

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
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    payload = {"format": FORMAT, "version": VERSION, "digest": _digest(state), "state": state}
    try:
        with draft.open("wb") as file:
            torch.save(payload, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    _sync_folder(path.parent)


def load(path: str | Path, *, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Read a state that :func:`save` wrote.

    What the file says of itself is compared with what it is before anything is made of it: no name
    in it but those of plain tensors is looked up, and none takes more memory than the file tells.

    Raises
    ------
    CheckpointError
        The file is truncated, damaged, or something else; the message says which.
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
            warnings.simplefilter("ignore")  # torch's own guesses at what a foreign file may be
            _inspect(file)
            file.seek(0)
            payload = torch.load(file, map_location=device, weights_only=True)
    except PermissionError:
        raise
    except (RuntimeError, EOFError, OSError, zipfile.BadZipFile, UnicodeDecodeError) as error:
        raise CheckpointError(
            f"checkpoint: expected a whole checkpoint, but {path} is truncated or damaged; use an "
            "earlier one"
        ) from error
    except MemoryError:
        raise
    except Exception as error:  # what a damaged pickle raises has no end
        raise CheckpointError(
            f"checkpoint: expected a file written by spdnet, but {path} is something else, or "
            "damaged; nothing in it was run"
        ) from error
    if not isinstance(payload, dict) or payload.get("format") != FORMAT:
        raise CheckpointError(
            f"checkpoint: expected a file written by spdnet, but {path} is something else"
        )
    if payload.get("version") != VERSION:
        raise CheckpointError(
            f"checkpoint: expected version {VERSION}, but {path} has version "
            f"{payload.get('version')!r}; use the version of spdnet that wrote it"
        )
    try:
        _measure(payload, [_GROWTH * path.stat().st_size + _ROOM])
        whole = payload.get("digest") == _digest(payload.get("state"))
    except (TypeError, ValueError, RuntimeError):  # something that is never written
        whole = False
    if not whole:
        raise CheckpointError(
            f"checkpoint: expected the contents that were written, but {path} has been damaged "
            "since; use an earlier one"
        )
    return payload["state"]


class CheckpointFolder:
    """The checkpoints of one training: the best, the last, and the one before it.

    Parameters
    ----------
    path : path
        A folder; made when something is saved.

    Examples
    --------
    >>> import tempfile
    >>> from spdnet.training.checkpoint import CheckpointFolder
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpoints = CheckpointFolder(folder)
    ...     checkpoints.save_last({"epoch": 3})
    ...     checkpoints.any()
    True
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.best = self.path / "best.pt"
        self.last = self.path / "last.pt"
        self.previous = self.path / "previous.pt"

    def any(self) -> bool:
        """Whether a training can be gone on with."""
        return self.last.exists() or self.previous.exists()

    def save_last(self, state: dict[str, Any]) -> None:
        """Write the last state; the one that it replaces is kept beside it."""
        self.path.mkdir(parents=True, exist_ok=True)
        coming = self.path / "coming.pt"
        save(state, coming)
        if self.last.exists():
            self.last.replace(self.previous)
        coming.replace(self.last)
        _sync_folder(self.path)

    def save_best(self, state: dict[str, Any]) -> None:
        """Write the best state."""
        self.path.mkdir(parents=True, exist_ok=True)
        save(state, self.best)

    def load_last(
        self, *, device: torch.device | str = "cpu", needs: Iterable[str] = ()
    ) -> tuple[dict[str, Any], list[str]]:
        """The newest whole state with the names it ``needs``, and what was wrong with newer ones.

        Raises
        ------
        CheckpointError
            There are checkpoints, and none is whole.
        FileNotFoundError
            There are none.
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
                if not isinstance(state, dict):
                    raise CheckpointError(
                        f"checkpoint: expected that of a training, but {path} has no names"
                    )
                missing = [name for name in needs if name not in state]
                if missing:
                    raise CheckpointError(
                        f"checkpoint: expected that of a training, but {path} has no {missing[0]!r}"
                    )
                return state, faults
            except CheckpointError as error:
                faults.append(str(error))
        raise CheckpointError("; ".join(faults))

    def set_aside_last(self) -> None:
        """Rename a damaged last state, so that it never takes the place of a whole one."""
        self.last.replace(self.path / "damaged.pt")


class _Inspector(pickle._Unpickler):
    """Goes through a pickle without making anything of it: no name in it is looked up."""

    def __init__(self, file: BinaryIO, sizes: dict[str, int]) -> None:
        super().__init__(file)
        self.sizes = sizes

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _NAMES:
            return _Nothing
        if module in ("torch", "torch.storage") and isinstance(_storage(name), type):
            return name
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return _Nothing
        raise pickle.UnpicklingError(f"the name {module}.{name}")

    def persistent_load(self, told: Any) -> Any:
        _, kind, key, _, count = told
        size = _storage(kind)().element_size() * count
        if self.sizes.get(key) != size:  # torch may believe it, and read what is not its own
            raise RuntimeError(f"{count} numbers of {kind} in {self.sizes.get(key)} bytes")
        return _Nothing()


class _Nothing:
    """Stands for whatever a pickle would make."""

    def __init__(self, *args: Any) -> None:
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


def _storage(name: str) -> Any:
    """The class of a storage, such as ``FloatStorage``."""
    return getattr(torch, name, None) if name.endswith("Storage") else None


def _inspect(file: BinaryIO) -> None:
    """See that a file is a zip archive as torch writes it, which holds what it says, and plain
    tensors at most.
    """
    size = file.seek(0, os.SEEK_END)
    if not zipfile.is_zipfile(file):
        file.seek(0)
        start = file.read(2)
        if start[:2] == b"PK" or not start:
            raise zipfile.BadZipFile("no end of a zip archive")
        raise ValueError("no zip archive")
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        packed = [m for m in members if m.compress_type or m.file_size != m.compress_size]
        if packed or sum(m.file_size for m in members) > size:
            raise ValueError("packed files, or more than there is")
        for member in members:
            folder, _, name = member.filename.rpartition("/")
            if name == "data.pkl":
                inside = f"{folder}/data/"
                sizes = {m.filename.removeprefix(inside): m.file_size for m in members}
                _Inspector(io.BytesIO(archive.read(member)), sizes).load()


def _measure(value: Any, room: list[int]) -> None:
    """Take the size of a state from the room that there is: things may stand in it many times over,
    or in themselves.
    """
    room[0] -= 8
    if isinstance(value, Tensor):
        if value.layout != torch.strided or value.is_meta or value.is_quantized:
            raise TypeError(f"{value.layout}")
        room[0] -= value.numel() * value.element_size()
    elif isinstance(value, str):
        room[0] -= len(value)
    elif isinstance(value, int):
        room[0] -= value.bit_length() // 8
    if room[0] < 0:
        raise ValueError("more than the file tells")
    if isinstance(value, dict):
        for key, item in value.items():
            _measure(key, room)
            _measure(item, room)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _measure(item, room)


def _digest(value: Any) -> str:
    """SHA-256 of a state, of structure and contents."""
    sha = hashlib.sha256()
    _feed(sha, value)
    return sha.hexdigest()


def _feed(sha: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        sha.update(f"tensor {value.dtype} {tuple(value.shape)}".encode())
        if value.numel():
            flat = value.detach().cpu().contiguous().reshape(-1)
            sha.update(flat.view(torch.uint8).numpy().data)
    elif isinstance(value, dict):
        sha.update(f"dict {len(value)}".encode())
        for key, item in value.items():
            _feed(sha, key)
            _feed(sha, item)
    elif isinstance(value, (list, tuple)):
        sha.update(f"{type(value).__name__} {len(value)}".encode())
        for item in value:
            _feed(sha, item)
    elif value is None or isinstance(value, (bool, int, float, str)):
        sha.update(f"{type(value).__name__} {value!r}".encode())
    else:
        raise TypeError(
            f"checkpoint: expected tensors, numbers, strings, None and lists or dicts of them, got "
            f"{type(value).__name__}"
        )


def _sync_folder(folder: Path) -> None:
    """Make a rename durable; a no-op where folders cannot be opened."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
