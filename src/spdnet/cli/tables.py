"""``spdnet compare`` and ``spdnet reproduce``."""

from pathlib import Path
from typing import Any

import typer

from spdnet.cli.display import Display, make_console
from spdnet.paper import Reproduction, ReproductionFolder, reproduce, write_reproduction
from spdnet.runs import Comparison, ComparisonFolder, compare
from spdnet.runs.report import write_report


def run_comparison(*, out: Path | None = None, **given: Any) -> None:
    """Compare, write the report, and print the table."""
    settings = Comparison(**given)
    name = Path(settings.data).resolve().stem or "data"
    folder = ComparisonFolder(Path("runs") / f"compare-{name}" if out is None else out)
    with Display.shown(make_console()) as display:
        found = compare(settings, folder, watch=display)
    write_report(folder)
    _finish(display, found.as_text(), folder, any(row.repeats for row in found.rows))


def run_reproduction(*, out: Path | None = None, **given: Any) -> None:
    """Reproduce, write the report, and print the table."""
    if given.get("standin") not in (None, "digits", "generated"):
        given["standin"] = str(Path(given["standin"]).resolve())
    wanted = Reproduction(**given)
    if out is None:
        name = f"reproduce-{wanted.experiment}"
        if wanted.standin is not None:
            name += f"-on-{Path(wanted.standin).stem}"
        out = Path("runs") / (name + ("-quick" if wanted.quick else ""))
    folder = ReproductionFolder(out)
    with Display.shown(make_console()) as display:
        found = reproduce(wanted, folder, watch=display)
    write_reproduction(folder)
    rows = [row for experiment in found.experiments for row in experiment.rows]
    is_done = any(row.ours for row in rows if row.kind == "network")
    _finish(display, "\n" + found.as_text(), folder, is_done)


def _finish(
    display: Display, table: str, folder: ComparisonFolder | ReproductionFolder, is_done: bool
) -> None:
    display.say(f"{table}\nfolder: {folder.path}\nreport: {folder.report_file}")
    if not is_done:
        raise typer.Exit(1)
