"""``spdnet reproduce``."""

from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from spdnet.cli.display import Display
from spdnet.paper import Reproduction, ReproductionFolder, reproduce, write_reproduction


def run_reproduction(given: dict[str, Any], out: Path | None) -> None:
    """Reproduce, write the report, and print the table."""
    if given["standin"] not in (None, "digits", "generated"):
        given["standin"] = str(Path(given["standin"]).resolve())
    wanted = Reproduction(**given)
    if out is None:
        name = f"reproduce-{wanted.experiment}"
        if wanted.standin is not None:
            name += f"-on-{Path(wanted.standin).stem}"
        out = Path("runs") / (name + ("-quick" if wanted.quick else ""))
    folder = ReproductionFolder(out)
    with Display.shown(Console(highlight=False, markup=False, emoji=False)) as display:
        found = reproduce(wanted, folder, watch=display)
    write_reproduction(folder)
    display.say("\n" + found.as_text())
    display.say(f"folder: {folder.path}\nreport: {folder.report_file}")
    rows = [row for experiment in found.experiments for row in experiment.rows]
    if not any(row.ours for row in rows if row.kind == "network"):
        raise typer.Exit(1)
