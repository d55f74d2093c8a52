"""Progress messages of a run, and requests to stop it."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

from spdnet.training import Trainer


class Terminated(KeyboardInterrupt):
    """Request by a signal to stop; like Ctrl-C, with another exit code."""

    exit_code = 143  # 128 + SIGTERM, as shells report it


class StopRequest:
    """Request to stop, made by a signal handler and read by training loops.

    A request raises :class:`Terminated`, except that within :meth:`deferred` the first one only
    sets ``is_made``.
    """

    def __init__(self) -> None:
        self.is_made = False
        self._deferred = False

    def __call__(self) -> None:
        """Request to stop."""
        if self.is_made or not self._deferred:
            raise Terminated
        self.is_made = True

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Record requests instead of raising."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False


class Watch:
    """Receiver of the progress of a run; this base class ignores it."""

    @cached_property
    def stop(self) -> StopRequest:
        """The request to stop, checked between batches."""
        return StopRequest()

    def say(self, text: str) -> None:
        """Show a message."""

    def working(self, text: str) -> None:
        """Show the current task until the next message."""

    def count(self, what: str, done: int, total: int) -> None:
        """Count steps of work such as ``reading``."""

    def file(self, done: int, total: int) -> None:
        """Count files read."""
        self.count("reading", done, total)

    def matrix(self, done: int, total: int) -> None:
        """Count matrices checked."""
        self.count("checking", done, total)

    def begin(self, trainer: Trainer) -> None:
        """Handle the start of a training, or its resumption."""

    def batch(self, trainer: Trainer, done: int, total: int) -> None:
        """Count batches of an epoch."""

    def epoch(self, trainer: Trainer) -> None:
        """Show a completed and saved epoch."""

    def end(self) -> None:
        """Handle the end of the training, or its interruption."""
