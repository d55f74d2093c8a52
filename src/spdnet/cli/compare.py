"""``spdnet compare``."""

import time
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.status import Status

from spdnet.cli.options import parsed
from spdnet.cli.signals import stop_on_signals
from spdnet.data.names import printable
from spdnet.runs import Comparison, ComparisonFolder, compare
from spdnet.runs.comparison_tables import as_text
from spdnet.runs.report import write_comparison
from spdnet.runs.watch import StopRequest


def run_comparison(given: dict[str, Any], out: Path | None) -> None:
    """Compare, print the table, and say where it is."""
    console = Console(highlight=False, markup=False, emoji=False)
    names = given.pop("methods").lower()
    given["protocol"] = given["protocol"] and given["protocol"].lower()
    methods = None if names == "all" else tuple(filter(None, map(str.strip, names.split(","))))
    settings = Comparison(**parsed("compare", given), methods=methods)
    name = Path(settings.data).resolve().stem or "data"
    folder = ComparisonFolder(Path("runs") / f"compare-{name}" if out is None else out)
    told = _Teller(console)
    try:
        with stop_on_signals(StopRequest()):
            found = compare(
                settings,
                folder,
                say=lambda text: console.print(printable(text, keep="\n"), soft_wrap=True),
                on_cell=told.cell,
                on_finished=write_comparison,
            )
    except KeyboardInterrupt:
        told.close()
        console.print("stopped; give the same command again to resume")
        raise
    finally:
        told.close()
    for text in (as_text(found), f"folder: {folder.path}", f"report: {folder.report_file}"):
        console.print(printable(text, keep="\n"), soft_wrap=True)
    if not any(row["repeats"] for row in found["rows"]):
        raise typer.Exit(1)


class _Teller:
    """A line for each cell that is done; on a terminal also what is being done."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._status: Status | None = None
        self._began = 0.0

    def cell(self, title: str, repeat: int, found: dict[str, Any] | None) -> None:
        """A method begins, or its result is there."""
        if found is None:
            self._began = time.monotonic()
            if self.console.is_terminal:
                self._status = self.console.status(f"repeat {repeat}: {title}")
                self._status.start()
            return
        fresh = self._began > 0
        self.close()
        if not fresh:
            return
        self._began = 0.0
        text = found["error"] or (
            f"{100 * found['accuracy']:6.2f} %   "
            f"{found['fit_seconds'] + found['predict_seconds']:8.2f} s"
        )
        self.console.print(f"repeat {repeat}  {title:36} {printable(text)}", soft_wrap=True)

    def close(self) -> None:
        """Take the line of what is being done away."""
        if self._status is not None:
            self._status.stop()
            self._status = None
