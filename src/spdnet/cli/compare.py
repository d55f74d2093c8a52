"""``spdnet compare``."""

from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from spdnet.cli.display import Display
from spdnet.cli.options import parsed
from spdnet.runs import Comparison, ComparisonFolder, compare
from spdnet.runs.report import write_report


def run_comparison(given: dict[str, Any], out: Path | None) -> None:
    """Compare, write the report, and print the table."""
    names = given.pop("methods").lower()
    given["protocol"] = given["protocol"] and given["protocol"].lower()
    methods = None if names == "all" else tuple(filter(None, map(str.strip, names.split(","))))
    settings = Comparison(**parsed("compare", given), methods=methods)
    name = Path(settings.data).resolve().stem or "data"
    folder = ComparisonFolder(Path("runs") / f"compare-{name}" if out is None else out)
    with Display.shown(Console(highlight=False, markup=False, emoji=False)) as display:
        found = compare(settings, folder, watch=display)
    write_report(folder)
    display.say(found.as_text())
    display.say(f"folder: {folder.path}\nreport: {folder.report_file}")
    if not any(row.repeats for row in found.rows):
        raise typer.Exit(1)
