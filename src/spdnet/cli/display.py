"""Training progress: a progress bar on a terminal, plain lines elsewhere."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

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

from spdnet.data import Dataset, load_dataset
from spdnet.data.names import printable
from spdnet.runs.pace import time_left
from spdnet.runs.watch import StopRequest, Watch
from spdnet.training import Trainer
from spdnet.training.progress import describe_epoch

#: sent by schedulers before they kill a process; Windows has only the first
_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGUSR1") if hasattr(signal, name)]


def make_console(*, stderr: bool = False) -> Console:
    """Return a console that prints text verbatim."""
    return Console(highlight=False, markup=False, emoji=False, stderr=stderr)


def read_shown(
    data: str, labels: str | None, groups: str | None, *, labeled: bool | None
) -> Dataset:
    """Read an embedded data set, a file or a folder, and show the progress."""
    with closing(Display(make_console(stderr=True))) as display:
        return load_dataset(data, labels, groups, labeled=labeled, on_file=display.file)


@contextmanager
def _stop_on_signals(stop: StopRequest) -> Iterator[None]:
    """Turn SIGTERM and SIGUSR1 into a request to stop.

    Ignored signals stay ignored. Only the main thread can handle signals.
    """
    is_main = threading.current_thread() is threading.main_thread()
    before = {s: signal.getsignal(s) for s in _SIGNALS} if is_main else {}
    for s, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(s, lambda *_: stop())
    try:
        yield
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)


class _Speed(ProgressColumn):
    """Samples per second."""

    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:,.0f}/s", "dim")


class Display(Watch):
    """Training progress on a console: a progress bar on a terminal, otherwise lines.

    With ``quiet``, only messages are shown.
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
    def shown(
        cls,
        console: Console,
        *,
        quiet: bool = False,
        advice: Callable[[], str] = lambda: "run the same command again to resume",
    ) -> Iterator["Display"]:
        """Show the progress of a command; after an interruption, print how to resume it."""
        display = cls(console, quiet=quiet)
        try:
            with _stop_on_signals(display.stop):
                yield display
        except KeyboardInterrupt:
            if text := advice():
                display.close()
                display.say(f"stopped; {text}")
            raise
        finally:
            display.close()

    def say(self, text: str) -> None:
        self._show()
        self.console.print(printable(text, keep="\n"), soft_wrap=True)

    def working(self, text: str) -> None:
        self._show(self.console.status(printable(text)) if self.live else None)

    def _show(self, transient: Progress | Status | None = None) -> None:
        """Replace or remove the transient line."""
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
            columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), _Speed())
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
        metrics = TextColumn("{task.description}")
        columns = (TextColumn("epoch"), MofNCompleteColumn(), *bar, metrics)
        self._bar = Progress(*columns, TimeRemainingColumn(compact=True), console=self.console)
        self._bar.add_task("", total=trainer.recipe.epochs)
        self._update_bar(trainer)
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
            self._update_bar(trainer)
        elif not self.quiet:
            row = trainer.progress.history[-1]
            left = (trainer.recipe.epochs - trainer.progress.epoch) * row["seconds"]
            pace = f"  {len(trainer.train) / row['seconds']:,.0f}/s{time_left(left)}"
            self.say(describe_epoch(row) + pace)

    def _update_bar(self, trainer: Trainer) -> None:
        """Show the loss, the accuracies and the speed of the last epoch on the bar."""
        assert self._bar is not None
        text = ""
        for row in trainer.progress.history[-1:]:
            text = f"[dim]loss[/] {row['loss']:.4f}  [dim]train[/] {100 * row['accuracy']:.1f} %"
            if "val_accuracy" in row:
                text += f"  [dim]val[/] [bold]{100 * row['val_accuracy']:.1f} %[/]"
            text += f"  [dim]{len(trainer.train) / row['seconds']:,.0f}/s[/]"
        completed = trainer.progress.epoch
        self._bar.update(self._bar.task_ids[0], completed=completed, description=text)

    def end(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def close(self) -> None:
        """Restore the terminal."""
        self._show()
        self.end()
