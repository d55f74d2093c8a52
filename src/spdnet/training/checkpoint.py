"""Checkpoints: written at one stroke, checked when read, and no code is ever run from them."""

import hashlib
import os
import warnings
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

FORMAT = "spdnet checkpoint"
VERSION = 1


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

    Raises
    ------
    CheckpointError
        The file is truncated, damaged, or something else; the message says which.
    FileNotFoundError
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"checkpoint: expected a file at {path}, got none")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own guesses at what a foreign file may be
            payload = torch.load(path, map_location=device, weights_only=True)
    except (RuntimeError, EOFError, OSError, zipfile.BadZipFile, UnicodeDecodeError) as error:
        raise CheckpointError(
            f"checkpoint: expected a whole checkpoint, but {path} is truncated or damaged; use an "
            "earlier one"
        ) from error
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
        whole = payload.get("digest") == _digest(payload.get("state"))
    except TypeError:  # something that is never written
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
