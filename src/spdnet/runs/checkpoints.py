"""Checkpoints of a run."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from spdnet.runs.run_folder import RunFolder, describe_change
from spdnet.runs.session import Session
from spdnet.training import Trainer
from spdnet.training.checkpoint import CheckpointError

#: seconds to write a checkpoint above which it is written less often, after this multiple of them
_QUICK, _PAUSE = 0.1, 10


@contextmanager
def reading(expected: str, advice: str = "") -> Iterator[None]:
    """Convert errors caused by invalid contents to a :class:`CheckpointError`."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (LookupError, AttributeError, TypeError, RuntimeError, ValueError) as error:
        why = error or type(error).__name__
        raise CheckpointError(f"{expected}: {why}{advice}") from error


@dataclass
class Checkpoints:
    """Checkpoints of one training, written by the first process.

    A checkpoint is written after each epoch, or less often if that would slow down the training.
    """

    folder: RunFolder
    trainer: Trainer
    common: dict[str, Any]  # contents of all checkpoints
    session: Session

    def __post_init__(self) -> None:
        self.files = self.folder.checkpoints()
        self._written = self._seconds = 0.0  # time of the last write, and its duration

    def start(self) -> None:
        """Resume from the last checkpoint, or write the first one."""
        session, files, watch = self.session, self.files, self.session.watch
        if not session.read_before_writing(files.any):
            self._save_last()
            return
        state, faults = files.load_last(needs=(*self.common, "trainer"))
        for fault in faults:
            watch.say(f"warning: {fault}; resuming from the previous one")
        self._resume(state)
        session.barrier()  # all processes read before the damaged file is renamed
        if faults:
            session.first(files.set_aside_last)
        watch.say(f"resuming {self._position}")

    def save_epoch(self, trainer: Trainer) -> None:
        """Write the checkpoints and the table after an epoch."""
        if not self.session.is_first:
            return
        progress = trainer.progress
        # without validation data, the best epoch is the last one
        if progress.best_epoch == progress.epoch and (trainer.val or trainer.finished):
            weights = {"model": trainer.model.state_dict(), "epoch": progress.epoch}
            self.files.save_best({**self.common, **weights})
        waited = time.monotonic() - self._written
        if trainer.finished or self._seconds < _QUICK or waited > _PAUSE * self._seconds:
            self._save_last()
        self.folder.write_metrics(progress.history)
        self.session.watch.epoch(trainer)

    def save_partial(self) -> None:
        """Write the checkpoint of a training that was stopped."""
        self._save_last()
        self.session.watch.say(f"checkpoint written {self._position}")

    def _save_last(self) -> None:
        state = {**self.common, "trainer": self.trainer.state_dict()}
        started = time.monotonic()
        self.session.first(lambda: self.files.save_last(state))
        self._written = time.monotonic()
        self._seconds = self._written - started

    @property
    def _position(self) -> str:
        partial = self.trainer.progress.partial
        batch = "" if partial is None else f", batch {partial.batches}"
        return f"after epoch {self.trainer.progress.epoch}{batch}"

    def _resume(self, state: dict[str, Any]) -> None:
        """Load a checkpoint; raise a ValueError for a valid one of another training."""
        expected = f"train: expected the checkpoint of a training in {self.folder.path}"
        with reading(f"{expected}, but its contents do not match", "; start a new run"):
            if (change := self._find_change(state)) is None:
                self.trainer.load_state_dict(state["trainer"])
        if change is not None:
            raise ValueError(f"train: {change}")

    def _find_change(self, state: dict[str, Any]) -> str | None:
        """Return why a checkpoint does not belong to this training, or None if it does."""
        path, now = self.folder.path, self.common
        for part in ("identity", "network", "recipe", "preprocessing"):
            if change := describe_change(state[part], now[part], path):
                return change
        before, here = state["data"]["parts"], now["data"]["parts"]
        if before.keys() == here.keys() and all(torch.equal(before[k], here[k]) for k in here):
            return None
        return (
            f"expected the training, validation and test parts of the checkpoint in {path}, got "
            "others, so it belongs to another training; start a new run"
        )
