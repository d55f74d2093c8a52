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
from spdnet.runs.watch import Watch
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
        return Text("" if task.speed is None else f"{task.speed:,.0f}/s", "dim")


class Display(Watch):
    """Display of a training on a console: a progress bar on a terminal, otherwise lines.

    With ``quiet``, neither of them is shown, only messages.
    """

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self.console = console
        self.quiet = quiet
        self.live = console.is_terminal
        self._bar: Progress | None = None  # of the training
        self._transient: Progress | Status | None = None  # removed by the next message
        self._next_batch = 0.0
        self._next_count = time.monotonic() + 10

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
        self._show()
        self.console.print(printable(text, keep="\n"), soft_wrap=True)

    def working(self, text: str) -> None:
        self._show(self.console.status(printable(text)) if self.live else None)

    def _show(self, transient: Progress | Status | None = None) -> None:
        """Replace the transient line by another or by nothing."""
        if self._transient is not None:
            self._transient.stop()
        if transient is not None:
            transient.start()
        self._transient = transient

    def count(self, what: str, done: int, total: int) -> None:
        if not self.live:
            if time.monotonic() > self._next_count:
                self._next_count = time.monotonic() + 10
                self.console.print(f"{what} {done} of {total}", soft_wrap=True)
            return
        bar = self._transient
        if not isinstance(bar, Progress) or bar.tasks[0].description != what:
            columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), Speed())
            bar = Progress(*columns, TimeRemainingColumn(), console=self.console, transient=True)
            bar.add_task(what, total=total)
            self._show(bar)
        bar.update(bar.task_ids[0], completed=done)
        if done == total:
            self._show()

    def begin(self, trainer: Trainer) -> None:
        self._next_batch = time.monotonic() + 60
        if not self.live or self.quiet:
            return
        bar = [BarColumn(bar_width=24)] if self.console.width >= 100 else []
        columns = (TextColumn("epoch"), MofNCompleteColumn(), *bar, _Metrics())
        self._bar = Progress(*columns, TimeRemainingColumn(compact=True), console=self.console)
        self._bar.add_task("training", total=trainer.recipe.epochs)
        self._move(trainer)
        self._bar.start()

    def batch(self, trainer: Trainer, done: int, total: int) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=trainer.progress.epoch + done / total)
        elif not self.quiet and time.monotonic() > self._next_batch:
            self._next_batch = time.monotonic() + 60
            self.say(f"epoch {trainer.progress.epoch + 1:>4}  batch {done} of {total}")

    def epoch(self, trainer: Trainer) -> None:
        self._next_batch = time.monotonic() + 60
        if self._bar is not None:
            self._move(trainer)
        elif not self.quiet:
            row = trainer.progress.history[-1]
            left = (trainer.recipe.epochs - trainer.progress.epoch) * row["seconds"]
            pace = f"  {len(trainer.train) / row['seconds']:,.0f}/s{time_left(left)}"
            self.say(describe_epoch(row) + pace)

    def _move(self, trainer: Trainer) -> None:
        """Show the last epoch on the bar."""
        assert self._bar is not None
        row = trainer.progress.history[-1] if trainer.progress.history else None
        speed = None if row is None else len(trainer.train) / row["seconds"]
        completed = trainer.progress.epoch
        self._bar.update(self._bar.task_ids[0], completed=completed, row=row, speed=speed)

    def end(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def close(self) -> None:
        """Restore the terminal."""
        self._show()
        self.end()
