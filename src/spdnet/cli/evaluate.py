"""``spdnet evaluate``, ``spdnet predict`` and ``spdnet report``."""

import csv
import io
import os
from pathlib import Path
from typing import Any

import numpy
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from spdnet._checks import require_choice
from spdnet._files import atomic_write
from spdnet.cli.options import find_in_current_folder
from spdnet.cli.reading import read_shown
from spdnet.data import Dataset, prepare
from spdnet.data.dataset import SPLITS
from spdnet.data.names import printable, spreadsheet_safe
from spdnet.runs import TrainedModel
from spdnet.runs.confusion import Confusion
from spdnet.runs.report import write_report
from spdnet.runs.run_folder import RunFolder
from spdnet.runs.scores import class_scores, score

PARTS = (*SPLITS, "all")


def run_evaluation(
    run: Path,
    data: str,
    labels: str | None,
    groups: str | None,
    bad: str | None,
    part: str | None,
    device: str,
    model: str | None,
) -> None:
    """Print the scores."""
    if part is not None:
        require_choice("evaluate", "part", part, PARTS)
    _require_order("evaluate", run, data)
    trained = _load(run, device, model)
    matrices = _prepared(trained, read_shown(data, labels, groups, labeled=True), bad, data)
    assert matrices.y is not None  # read with labels
    codes = trained.codes(matrices.y)
    chosen, what = _part(trained, matrices, part)
    logits = trained.logits(matrices)[chosen]
    codes = codes[chosen]
    found = score(logits, codes)
    console = _console()
    console.print(what)
    console.print(f"accuracy {100 * found.accuracy:.2f} %, loss {found.loss:.4f}", style="bold")
    table = Table("class", box=None, pad_edge=False)
    for title in ("matrices", "precision", "recall", "F1"):
        table.add_column(title, justify="right")
    confusion = Confusion.of(codes, logits.argmax(-1).numpy(), len(trained.classes))
    for row in class_scores(confusion, trained.classes):
        numbers = (row.precision, row.recall, row.f1)
        shown = ("-" if v is None else f"{100 * v:.1f} %" for v in numbers)
        table.add_row(Text(printable(row.label)), str(row.n), *shown)
    console.print(table)


def run_prediction(
    run: Path,
    data: str,
    out: Path,
    groups: str | None,
    bad: str | None,
    device: str,
    model: str | None,
    force: bool,
) -> None:
    """Write a CSV file, or to standard output.

    For the training data, a column gives the part of each matrix. Names that a spreadsheet would
    read as formulas get an apostrophe: see :func:`spdnet.data.names.spreadsheet_safe`.
    """
    _require_target(out, force)
    _require_order("predict", run, data)
    trained = _load(run, device, model)
    matrices = _prepared(trained, read_shown(data, None, groups, labeled=False), bad, data)
    probabilities = trained.probabilities(matrices)
    part_of = _parts_of(trained, matrices)
    text = io.StringIO()
    # quote all text, since names may contain line breaks
    table = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    more = ["file"] * (matrices.names is not None) + ["part"] * (part_of is not None)
    table.writerow(["index", *more, "label", *(f"p({name})" for name in trained.classes)])
    for i, row in enumerate(probabilities):
        where: list[Any] = [matrices.index[i]]
        if matrices.names is not None:
            where.append(spreadsheet_safe(str(matrices.names[i])))
        if part_of is not None:
            where.append(spreadsheet_safe(part_of.get(int(matrices.index[i]), "")))
        label = spreadsheet_safe(trained.classes[row.argmax()])
        table.writerow([*where, label, *(float(f"{p:.6g}") for p in row)])
    to_stdout = _is_stdout(out)
    _write_target(out, text.getvalue())
    place = "" if to_stdout else f": {printable(str(out))}"
    typer.echo(f"{len(probabilities)} predictions{place}", err=to_stdout)


def _is_stdout(out: Path) -> bool:
    """Return whether a path is standard output: ``-``, ``/dev/stdout``, or its target."""
    if str(out) == "-":
        return True
    try:
        return os.path.samestat(os.stat(out), os.fstat(1))
    except OSError:  # there is no such file, or standard output is closed
        return False


def _require_target(out: Path, force: bool) -> None:
    """Check before any work that :func:`_write_target` can write there."""
    if _is_stdout(out):
        return
    if out.is_file() and not force:
        raise FileExistsError(
            f"predict: expected a new file, but {out} exists; use --force to replace it"
        )
    if out.exists() and not (out.is_file() or out.is_fifo() or out.is_char_device()):
        what = "folder" if out.is_dir() else "block device or a socket"
        raise ValueError(f"predict: expected a file to write, but {out} is a {what}")
    folder = Path(os.path.realpath(out)).parent
    if not folder.is_dir():
        raise FileNotFoundError(f"predict: expected a folder {folder}, got none")


def _write_target(out: Path, text: str) -> None:
    """Write through pipes and devices; replace files atomically, at the end of symbolic links."""
    if _is_stdout(out):
        stream = typer.get_binary_stream("stdout")
        stream.write(text.encode("utf-8", errors="replace"))  # as in a file, for any terminal
        stream.flush()
    elif out.is_fifo() or out.is_char_device():
        with out.open("w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    else:
        atomic_write(Path(os.path.realpath(out)), text)


def run_report(run: Path) -> None:
    """Write the report of a run again."""
    folder = RunFolder(run)
    folder.settings()  # raises an error if it is not a run
    typer.echo(f"report: {printable(str(write_report(folder)))}")


def _load(run: Path, device: str, model: str | None) -> TrainedModel:
    find_in_current_folder(model)
    trained = TrainedModel.load(run, device=device, model=model)
    for warning in trained.warnings:
        typer.echo(f"warning: {printable(warning)}; using an earlier one", err=True)
    return trained


def _require_order(who: str, run: Path, data: str) -> None:
    """Raise an error if run and data are swapped."""
    if not _is_run(run) and _is_run(Path(data)):
        raise ValueError(
            f"{who}: expected a run, then data, got {run} and then the run {data}; swapped?"
        )


def _is_run(path: Path) -> bool:
    return RunFolder(path).exists or (path.suffix == ".pt" and path.is_file())


def _prepared(trained: TrainedModel, arrays: Dataset, bad: str | None, data: str) -> Dataset:
    """Prepare data as in training, and print warnings."""
    bad = trained.bad if bad is None else bad.lower()
    matrices = prepare(arrays, trained.preprocessing, bad, trained.dtype)
    if matrices.note:
        typer.echo(printable(matrices.note), err=True)
    if (warning := trained.scale_warning(matrices)) is not None:
        typer.echo(f"warning: {warning}", err=True)
    if trained.domains and matrices.groups is None:
        text = f"note: no groups in {data}: all its signals are treated as one new group"
        typer.echo(printable(text), err=True)
    return matrices


def _is_own(trained: TrainedModel, matrices: Dataset) -> bool:
    """Return whether the matrices are the training data, with any labels and groups."""
    return bool(trained.data["digest_of_inputs"] == matrices.inputs_digest)


def _parts_of(trained: TrainedModel, matrices: Dataset) -> dict[int, str] | None:
    """Return the part of each matrix by its index, for the training data."""
    if not _is_own(trained, matrices):
        return None
    parts = trained.data["parts"].items()
    return {int(i): name for name, index in parts for i in index.tolist()}


def _part(trained: TrainedModel, matrices: Dataset, part: str | None) -> tuple[Any, str]:
    """Return a mask of the matrices to use, and a description."""
    everything = numpy.ones(len(matrices.index), dtype=bool)
    if part == "all":
        return everything, f"all {len(everything)} matrices"
    own = _is_own(trained, matrices)
    if own:
        parts = {k: numpy.isin(matrices.index, v.cpu()) for k, v in trained.data["parts"].items()}
    elif matrices.split is not None:
        parts = {name: matrices.split == name for name in SPLITS}
    else:
        parts = {}
    if part is None:
        part = next((p for p in ("test", "val") if p in parts and parts[p].any()), None)
        if part is None:
            return everything, f"all {len(everything)} matrices"
    if part not in parts or not parts[part].any():
        raise ValueError(f"evaluate: expected data with a part {part!r}, got none; use --part all")
    whose = "held out from the training of this run" if own and part != "train" else "of the data"
    return parts[part], f"the {int(parts[part].sum())} matrices of part {part}, {whose}"


def _console() -> Console:
    """Return a console without markup."""
    return Console(highlight=False, markup=False, emoji=False)
