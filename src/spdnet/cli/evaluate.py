"""``spdnet evaluate``, ``spdnet predict`` and ``spdnet report``."""

import csv
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import numpy
import typer
from rich.table import Table
from rich.text import Text

from spdnet._files import atomic_writer
from spdnet.cli.display import Display, make_console, read_shown
from spdnet.cli.options import add_current_folder
from spdnet.data import Dataset
from spdnet.data.dataset import SPLITS
from spdnet.data.names import printable, spreadsheet_safe
from spdnet.options.commands import EvaluateCommand, PredictCommand
from spdnet.options.option import options
from spdnet.runs import TrainedModel
from spdnet.runs.confusion import Confusion
from spdnet.runs.report import write_report
from spdnet.runs.results import PART_TITLES
from spdnet.runs.run_folder import RunFolder
from spdnet.runs.scores import score


def run_evaluation(**given: Any) -> None:
    """Run ``spdnet evaluate``: print the scores."""
    command = EvaluateCommand(**given)
    options(command)["part"].check("evaluate", "part", command.part)
    trained, matrices = _open("evaluate", command, command.labels)
    assert matrices.y is not None  # read with labels
    codes = trained.codes(matrices.y)
    chosen, what = _part(trained, matrices, command.part)
    with _shown() as callbacks:
        logits, codes = trained.logits(matrices, **callbacks)[chosen], codes[chosen]
    found = score(logits, codes)
    console = make_console()
    console.print(what)
    console.print(f"accuracy {100 * found.accuracy:.2f} %, loss {found.loss:.4f}", style="bold")
    table = Table("class", box=None, pad_edge=False)
    for title in ("matrices", "precision", "recall", "F1"):
        table.add_column(title, justify="right")
    confusion = Confusion.of(codes, logits.argmax(-1).numpy(), len(trained.classes))
    for row in confusion.per_class(trained.classes):
        numbers = (row.precision, row.recall, row.f1)
        shown = ("-" if v is None else f"{100 * v:.1f} %" for v in numbers)
        table.add_row(Text(printable(row.label)), str(row.n), *shown)
    console.print(table)


def run_prediction(**given: Any) -> None:
    """Write predictions as CSV to a file or to standard output.

    Names that a spreadsheet would read as formulas get an apostrophe: see
    :func:`spdnet.data.names.spreadsheet_safe`.
    """
    command = PredictCommand(**given)
    out, to_stdout = command.out, _is_stdout(command.out)
    is_stream = to_stdout or out.is_fifo() or out.is_char_device()
    target = Path(os.path.realpath(out))  # follow symbolic links
    if not is_stream:
        _require_new(out, target, command.force)
    trained, matrices = _open("predict", command)
    # an unnamed file, which vanishes if the process is killed
    with tempfile.TemporaryFile(dir=None if is_stream else target.parent) as draft:
        text = io.TextIOWrapper(draft, encoding="utf-8", errors="replace", newline="")
        with _shown() as callbacks:
            _write_rows(text, trained, matrices, callbacks)
        text.flush()
        draft.seek(0)
        opened: AbstractContextManager[BinaryIO] = atomic_writer(target)
        if to_stdout:
            opened = nullcontext(typer.get_binary_stream("stdout"))
        elif is_stream:
            opened = out.open("wb")
        with opened as file:
            shutil.copyfileobj(draft, file)
            file.flush()
    place = "" if to_stdout else f": {printable(str(out))}"
    typer.echo(f"{len(matrices)} predictions{place}", err=to_stdout)


def _write_rows(
    text: TextIO, trained: TrainedModel, matrices: Dataset, callbacks: dict[str, Any]
) -> None:
    """Write the rows of the table as they are predicted."""
    index = matrices.index.tolist()
    columns: dict[str, Iterable[Any]] = {"index": index}
    if matrices.names is not None:
        columns["file"] = (spreadsheet_safe(str(name)) for name in matrices.names)
    if _is_training_data(trained, matrices):
        part_of = {i: part for part, own in trained.data["parts"].items() for i in own.tolist()}
        columns["part"] = (part_of.get(i, "") for i in index)
    labels = [spreadsheet_safe(name) for name in trained.classes]
    # quote all text, since names may contain line breaks
    table = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    table.writerow([*columns, "label", *(f"p({name})" for name in trained.classes)])
    rows = zip(*columns.values(), strict=True)
    for logits in trained.predict_in_parts(matrices, **callbacks):
        for p, row in zip(logits.double().softmax(-1).numpy(), rows):
            table.writerow([*row, labels[p.argmax()], *(float(f"{value:.6g}") for value in p)])


@contextmanager
def _shown() -> Iterator[dict[str, Callable[..., None]]]:
    """Show the progress of a prediction, then its warnings."""
    messages: list[str] = []
    with closing(Display(make_console(stderr=True))) as display:
        yield {"on_matrix": partial(display.count, "predicting"), "on_warning": messages.append}
    for text in messages:
        typer.echo(printable(f"warning: {text}"), err=True)


def _is_stdout(out: Path) -> bool:
    """Return whether a path is standard output: ``-``, ``/dev/stdout``, or its target."""
    if str(out) == "-":
        return True
    try:
        return os.path.samestat(os.stat(out), os.fstat(1))
    except OSError:  # there is no such file, or standard output is closed
        return False


def _require_new(out: Path, target: Path, force: bool) -> None:
    """Raise an error early if ``out``, whose real path is ``target``, cannot be written."""
    if out.is_file() and not force:
        raise FileExistsError(
            f"predict: expected a new file, but {out} exists; use --force to replace it"
        )
    if out.exists() and not out.is_file():
        what = "folder" if out.is_dir() else "block device or a socket"
        raise ValueError(f"predict: expected a file to write, but {out} is a {what}")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"predict: expected a folder {target.parent}, got none")


def run_report(run: Path) -> None:
    """Write the report of a run again."""
    folder = RunFolder(run)
    folder.settings()  # raises an error if it is not a run
    typer.echo(f"report: {printable(str(write_report(folder)))}")


def _open(
    who: str, command: EvaluateCommand | PredictCommand, labels: str | None = None
) -> tuple[TrainedModel, Dataset]:
    """Load a run, and prepare data as in its training; print warnings."""
    run, data = command.run, command.data
    if not _is_run(run) and _is_run(Path(data)):
        raise ValueError(
            f"{who}: expected a run, then data, got {run} and then the run {data}; are they "
            "swapped?"
        )
    add_current_folder(command.model)
    trained = TrainedModel.load(run, device=command.device, model=command.model)
    messages = [f"warning: {warning}; using an earlier one" for warning in trained.warnings]
    arrays = read_shown(data, labels, command.groups, labeled=who == "evaluate")
    with closing(Display(make_console(stderr=True))) as display:
        matrices = trained.prepare(arrays, command.bad or trained.bad, display.matrix)
    if matrices.note:
        messages.append(f"note: {matrices.note}")
    if trained.uses_groups and matrices.groups is None:
        messages.append(f"note: no groups in {data}: all its samples are treated as one new group")
    for text in messages:
        typer.echo(printable(text), err=True)
    return trained, matrices


def _is_run(path: Path) -> bool:
    return RunFolder(path).exists or (path.suffix == ".pt" and path.is_file())


def _is_training_data(trained: TrainedModel, matrices: Dataset) -> bool:
    """Return whether the matrices are the training data, with any labels and groups."""
    return bool(trained.data["digest_of_inputs"] == matrices.inputs_digest)


def _part(trained: TrainedModel, matrices: Dataset, part: str | None) -> tuple[Any, str]:
    """Return a mask of the matrices to use, and a description."""
    parts, own = {}, _is_training_data(trained, matrices)
    if own:
        parts = {k: numpy.isin(matrices.index, v.cpu()) for k, v in trained.data["parts"].items()}
    elif matrices.split is not None:
        parts = {name: matrices.split == name for name in SPLITS}
    parts = {name: mask for name, mask in parts.items() if mask.any()}
    if part is None:
        part = next((name for name in ("test", "val") if name in parts), "all")
    if part == "all":
        n = len(matrices.index)
        return numpy.ones(n, dtype=bool), f"all {n} matrices"
    if part not in parts:
        raise ValueError(f"evaluate: expected data with a part {part!r}, got none; use --part all")
    held_out = ", which was held out from training" if own and part != "train" else ""
    count = int(parts[part].sum())
    return parts[part], f"{count} matrices of the {PART_TITLES[part]} set{held_out}"
