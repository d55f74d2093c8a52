"""What is told while a run goes on."""

from spdnet.training import Trainer


class Watch:
    """What is told while a run goes on; this one keeps silent."""

    def say(self, text: str) -> None:
        """Something a person should know."""

    def file(self, done: int, total: int) -> None:
        """Files read."""

    def matrix(self, done: int, total: int) -> None:
        """Matrices looked at."""

    def begin(self, trainer: Trainer) -> None:
        """A training begins, or goes on."""

    def batch(self, trainer: Trainer, done: int, total: int) -> None:
        """A batch is done."""

    def epoch(self, trainer: Trainer) -> None:
        """An epoch is done, and saved."""

    def end(self) -> None:
        """The training is at its end, or was broken off."""
