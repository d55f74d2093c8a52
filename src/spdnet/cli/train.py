"""``spdnet train``."""

import os
import shlex
from pathlib import Path
from typing import Any

from rich.console import Console

from spdnet._checks import require_count
from spdnet.cli.display import Display, make_console
from spdnet.cli.options import add_current_folder
from spdnet.data.names import printable
from spdnet.models.registry import is_registered
from spdnet.runs import RunFolder, train
from spdnet.runs.report import write_report
from spdnet.runs.results import PART_TITLES, RepeatResults, RunResults, Spread
from spdnet.runs.settings import FREE, Settings, from_mapping, read_toml
from spdnet.runs.watch import Terminated
from spdnet.training import make_fabric
from spdnet.training.device import leave, under_torchrun


def run_training(
    *,
    settings: Path | None = None,
    out: Path | None = None,
    resume: bool = False,
    devices: int = 1,
    quiet: bool = False,
    **given: Any,
) -> None:
    """Run ``spdnet train`` with given settings, those of a file, or those of a run to resume."""
    console = make_console()
    require_count("train", "devices", devices)
    restarted = under_torchrun() and int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    if restarted and out is not None and RunFolder(out).exists:
        # the same command, after a process has died
        resume, given, settings = True, {k: v for k, v in given.items() if k == "model"}, None
    values = {**({} if settings is None else read_toml(settings)), **given}
    if resume:
        folder, chosen, is_longer = _resumed(values, out)
    else:
        chosen = from_mapping(values, str(settings) if settings else "the command line")
        folder = RunFolder(
            Path("runs") / (Path(chosen.data).resolve().stem or "data") if out is None else out
        )
        folder.numbered, is_longer = out is None, False
    add_current_folder(chosen.model)
    if resume and folder.finished and not is_longer:
        console.print(f"{printable(str(folder.path))} is finished")
        found: RunResults | RepeatResults | None = folder.results()
    else:
        found = _train(chosen, folder, resume, devices, console, quiet)
    if found is None:  # not the first of several processes
        return
    for one in (*folder.seeds(), folder):
        if not one.report_file.exists():  # the process was killed while writing it
            write_report(one)
    _print_results(console, found)
    for text in (f"run folder: {folder.path}", f"report:     {folder.report_file}"):
        console.print(printable(text), soft_wrap=True)


def _train(
    settings: Settings, folder: RunFolder, resume: bool, devices: int, console: Console, quiet: bool
) -> RunResults | RepeatResults | None:
    fabric = make_fabric(settings.device, 0 if under_torchrun() else devices)
    fabric.launch()

    def advice() -> str:
        if not (folder.exists and fabric.is_global_zero):
            return ""
        model = settings.make_recipe().model
        named = [] if is_registered(model) else ["--model", model]
        command = ["spdnet", "train", "--resume", "--out", str(folder.path), *named]
        return f"resume with: {shlex.join(command)}"

    try:
        with Display.shown(console, quiet=quiet, advice=advice) as watch:
            found = train(
                settings,
                folder,
                resume=resume,
                watch=watch,
                on_finished=write_report,
                fabric=fabric,
            )
    except Terminated:  # all processes have stopped together
        leave(fabric)
        raise
    leave(fabric)
    return found


def _resumed(values: dict[str, Any], out: Path | None) -> tuple[RunFolder, Settings, bool]:
    """Return the folder and settings of the run to resume, and whether it gets more epochs.

    The values may be those of the run itself, so that the command that started it can be repeated.
    The paths of the data, the device and a larger number of epochs replace those of the run.
    """
    if out is None:
        raise ValueError("train: expected --out with the folder of the run to resume, got none")
    folder = RunFolder(out)
    settings = folder.settings()
    requested = from_mapping({"data": settings.data, **values}, "the command line")
    requested = requested.with_absolute_paths()
    given = {name.replace("-", "_") for name in values}
    recipe = settings.make_recipe()
    if "model" not in given and not is_registered(recipe.model):
        raise ValueError(
            f"train: expected --model {recipe.model} with --resume: the model is not part of "
            "spdnet, and a run folder does not import code on its own"
        )
    before, now = settings.as_dict(), requested.as_dict()
    is_longer = "epochs" in given and now["epochs"] > before["epochs"]
    free = {"data", *FREE, *(["epochs"] if is_longer else [])}
    for name in sorted(given - free):
        if before.get(name) != now.get(name):
            raise ValueError(
                f"train: expected the settings of the run with --resume, {name} = "
                f"{before.get(name)!r}, got {now.get(name)!r}; leave it out, or start a new run"
            )
    changes = {name: getattr(requested, name) for name in given & free}
    return folder, settings.changed(**changes), is_longer


def _print_results(console: Console, found: RunResults | RepeatResults) -> None:
    rows: list[tuple[str, float | Spread]] = [(found.network, found.accuracy)]
    if found.baseline is not None:
        theirs = found.baseline.accuracy
        rows.append(
            (found.baseline.name, theirs[found.scored] if isinstance(theirs, dict) else theirs)
        )
    rows.append(("most frequent class", found.chance))
    unit = ""
    if isinstance(found, RepeatResults):
        unit = f", mean and standard deviation of {len(found.seeds)} repeats"
    console.print(f"{PART_TITLES[found.scored]} accuracy{unit}:")
    width = max(len(name) for name, _ in rows)
    for i, (name, value) in enumerate(rows):
        text = value.percent() if isinstance(value, Spread) else f"{100 * value:.2f}"
        style = "bold" if i == 0 else None
        console.print(f"  {name:{width}} {text:>6} %", style=style, soft_wrap=True)
    if found.linear and found.structure:
        console.print(f"note: {found.structure}", soft_wrap=True)
