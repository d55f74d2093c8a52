"""``spdnet reproduce``."""

from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from spdnet.cli.display import Display
from spdnet.cli.signals import stop_on_signals
from spdnet.data.names import printable
from spdnet.paper import Reproduction, ReproductionFolder, reproduce, write_reproduction
from spdnet.paper.tables import as_text


def run_reproduction(given: dict[str, Any], out: Path | None) -> None:
    """Reproduce, print the table, and say where it is."""
    console = Console(highlight=False, markup=False, emoji=False)
    if given["standin"] not in (None, "digits", "generated"):
        given["standin"] = str(Path(given["standin"]).resolve())
    wanted = Reproduction(**given)
    if out is None:
        name = f"reproduce-{wanted.experiment}"
        if wanted.standin is not None:
            name += f"-on-{Path(wanted.standin).stem}"
        out = Path("runs") / (name + ("-quick" if wanted.quick else ""))
    folder = ReproductionFolder(out)
    display = Display(console)
    try:
        with stop_on_signals(display.stop):
            found = reproduce(wanted, folder, watch=display, on_finished=write_reproduction)
    except KeyboardInterrupt:
        display.close()
        console.print("stopped; give the same command again to resume")
        raise
    finally:
        display.close()
    console.print()
    for text in (as_text(found), f"folder: {folder.path}", f"report: {folder.report_file}"):
        console.print(printable(text, keep="\n"), soft_wrap=True)
    rows = [row for experiment in found["experiments"] for row in experiment["rows"]]
    if not any(row.get("ours") for row in rows if row["kind"] == "network"):
        raise typer.Exit(1)
