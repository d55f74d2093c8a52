"""Progress of a training: a live line on a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.status import Status
from rich.text import Text

from spdnet.cli.signals import stop_on_signals
from spdnet.data.names import printable
from spdnet.runs.pace import time_left
from spdnet.runs.watch import StopRequest, Watch
from spdnet.training import Trainer
from spdnet.training.progress import describe_epoch


class _Metrics(ProgressColumn):
    """Loss, accuracies and speed of the last epoch."""

    def render(self, task: Task) -> Text:
        row = task.fields.get("row")
        if row is None:
            return Text("")
        text = Text.assemble(("loss ", "dim"), f"{row['loss']:.4f}")
        text.append("  train ", "dim").append(f"{100 * row['accuracy']:.1f} %")
        if "val_accuracy" in row:
            text.append("  val ", "dim").append(f"{100 * row['val_accuracy']:.1f} %", "bold")
        return text.append(f"  {task.fields['speed']:,.0f}/s", "dim")


class Speed(ProgressColumn):
    """Samples per second."""

    def render(self, task: Task) -> Text:
        """Show the speed once it is known."""
        return Text("" if task.speed is None else f"{task.speed:,.0f}/s", "dim")


class Display(Watch):
    """Display of a training on a console.

    Parameters
    ----------
    console : Console
        A terminal shows a progress bar; otherwise a line is printed for each epoch.
    quiet : bool
        Show neither of them.
    stop : StopRequest, optional
        See :class:`Watch`.
    """

    def __init__(
        self, console: Console, *, quiet: bool = False, stop: StopRequest | None = None
    ) -> None:
        super().__init__(stop)
        self.console = console
        self.quiet = quiet
        self.live = console.is_terminal
        self._bar: Progress | None = None
        self._reading: Progress | None = None
        self._status: Status | None = None
        self._next_plain_batch = 0.0
        self._next_plain_count = time.monotonic() + 10

    @classmethod
    @contextmanager
    def shown(cls, console: Console) -> Iterator["Display"]:
        """Show the progress of a command that the same command resumes after an interruption."""
        display = cls(console)
        try:
            with stop_on_signals(display.stop):
                yield display
        except KeyboardInterrupt:
            display.close()
            console.print("stopped; run the same command again to resume")
            raise
        finally:
            display.close()

    def say(self, text: str) -> None:
        """Print a message above the bar."""
        self._stop_reading()
        self._stop_working()
        self.console.print(printable(text, keep="\n"), soft_wrap=True)

    def working(self, text: str) -> None:
        """Show a transient line on a terminal."""
        self._stop_working()
        if self.live:
            self._status = self.console.status(printable(text))
            self._status.start()

    def _stop_working(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    def file(self, done: int, total: int) -> None:
        """Show a bar of files on a terminal."""
        self._count("reading", done, total)

    def matrix(self, done: int, total: int) -> None:
        """Show a bar of matrices on a terminal."""
        self._count("checking", done, total)
        if done == total:
            self._stop_reading()

    def _count(self, what: str, done: int, total: int) -> None:
        if not self.live:
            if time.monotonic() > self._next_plain_count:
                self._next_plain_count = time.monotonic() + 10
                self.console.print(f"{what} {done} of {total}", soft_wrap=True)
            return
        if self._reading is None or self._reading.tasks[0].description != what:
            self._stop_reading()
            columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), Speed())
            self._reading = Progress(
                *columns, TimeRemainingColumn(), console=self.console, transient=True
            )
            self._reading.add_task(what, total=total)
            self._reading.start()
        self._reading.update(self._reading.task_ids[0], completed=done)

    def begin(self, trainer: Trainer) -> None:
        """Start the bar."""
        self._next_plain_batch = time.monotonic() + 60
        if not self.live or self.quiet:
            return
        bar = [BarColumn(bar_width=24)] if self.console.width >= 100 else []
        self._bar = Progress(
            TextColumn("epoch"),
            MofNCompleteColumn(),
            *bar,
            _Metrics(),
            TimeRemainingColumn(compact=True),
            console=self.console,
        )
        self._bar.add_task(
            "training", total=trainer.recipe.epochs, completed=trainer.progress.epoch
        )
        self._show_row(trainer)
        self._bar.start()

    def batch(self, trainer: Trainer, done: int, total: int) -> None:
        """Move the bar; without a bar, print a line once a minute."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=trainer.progress.epoch + done / total)
        elif not self.quiet and time.monotonic() > self._next_plain_batch:
            self._next_plain_batch = time.monotonic() + 60
            self.say(f"epoch {trainer.progress.epoch + 1:>4}  batch {done} of {total}")

    def epoch(self, trainer: Trainer) -> None:
        """Show the losses and accuracies of an epoch."""
        self._next_plain_batch = time.monotonic() + 60
        if self.quiet:
            return
        if self._bar is None:
            row = trainer.progress.history[-1]
            left = (trainer.recipe.epochs - trainer.progress.epoch) * row["seconds"]
            pace = f"  {len(trainer.train) / row['seconds']:,.0f}/s{time_left(left)}"
            self.say(describe_epoch(row) + pace)
        else:
            self._bar.update(self._bar.task_ids[0], completed=trainer.progress.epoch)
            self._show_row(trainer)

    def close(self) -> None:
        """Restore the terminal."""
        self._stop_reading()
        self._stop_working()
        self.end()

    def end(self) -> None:
        """Stop the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _show_row(self, trainer: Trainer) -> None:
        if self._bar is not None and trainer.progress.history:
            row = trainer.progress.history[-1]
            speed = len(trainer.train) / row["seconds"]
            self._bar.update(self._bar.task_ids[0], row=row, speed=speed)

    def _stop_reading(self) -> None:
        if self._reading is not None:
            self._reading.stop()
            self._reading = None
