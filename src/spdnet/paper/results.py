"""Results of a reproduction: the schema of its ``results.json``, its tables and its folder."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy

from spdnet._files import atomic_write
from spdnet.data.names import spreadsheet_safe
from spdnet.paper.reproduction import Row
from spdnet.runs import RunFolder
from spdnet.runs.cell import Cell, RocCurve
from spdnet.runs.findings import NOTHING_RAISED
from spdnet.runs.folder import SharedFolder
from spdnet.runs.record import Record, csv_table, text_table
from spdnet.runs.results import Spread


@dataclass(frozen=True, kw_only=True)
class NetworkCell(Cell):
    """Result of one network in one repeat.

    ``epoch_seconds`` is the median time of an epoch, ``history`` holds the metrics of each epoch,
    ``clipped`` is the largest fraction of the eigenvalues that a ReEig raised.
    """

    dims: tuple[int, ...]
    epoch_seconds: float | None = None
    history: tuple[dict[str, float], ...] = ()
    clipped: float | None = None


@dataclass(frozen=True, kw_only=True)
class RowResults(Record):
    """Scores of one method by measure, ``ours`` and those of the ``paper``, in percent.

    ``repeats`` of ``of`` repeats succeeded. ``dims``, ``device``, ``history``, ``roc``,
    ``equal_error`` and ``clipped`` are those of the first; ``seconds`` is the mean time of an
    epoch, which the paper reports if ``timed``. A ``cited`` method is not run; ``why`` is the
    reason.
    """

    title: str
    kind: Literal["network", "method", "cited"]
    paper: dict[str, float]
    ours: dict[str, Spread] = field(default_factory=dict)
    repeats: int = 0
    of: int = 0
    errors: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    why: str | None = None
    dims: tuple[int, ...] | None = None
    device: str | None = None
    history: tuple[dict[str, float], ...] = ()
    roc: dict[str, RocCurve] = field(default_factory=dict)
    equal_error: dict[str, float] = field(default_factory=dict)
    clipped: float | None = None
    seconds: float | None = None
    timed: bool = False

    @classmethod
    def from_cells(cls, cells: Sequence[Cell], **known: Any) -> "RowResults":
        """Summarize the repeats that did not fail."""
        good = [(cell, cell.score) for cell in cells if cell.score is not None]
        networks = [cell for cell, _ in good if isinstance(cell, NetworkCell)]
        seconds = [cell.epoch_seconds for cell in networks if cell.epoch_seconds is not None]
        for cell, score in good[:1]:
            known |= {"device": cell.device, "roc": score.roc, "equal_error": score.equal_error}
        for cell in networks[:1]:
            known |= {"dims": cell.dims, "history": cell.history, "clipped": cell.clipped}
        measures = dict.fromkeys(name for _, score in good for name in score.values)
        return cls(
            **known,
            ours={m: Spread.of([s.values[m] for _, s in good if m in s.values]) for m in measures},
            repeats=len(good),
            of=len(cells),
            errors=tuple(dict.fromkeys(cell.error for cell in cells if cell.error is not None)),
            notes=tuple(dict.fromkeys(note for cell, _ in good for note in cell.notes)),
            seconds=float(numpy.mean(seconds)) if seconds else None,
        )

    def paper_score(self, measure: str) -> str:
        """Return the score of the paper."""
        value, std = self.paper.get(measure), self.paper.get("std")
        if value is None:
            return "-"
        return f"{value:.2f}" + ("" if std is None else f" ± {std:.2f}")

    def our_score(self, measure: str) -> str:
        """Return our score, with the number of repeats if some failed."""
        if self.kind == "cited":
            return "not run"
        if measure not in self.ours:
            return "failed" if self.errors else "-"
        some = "" if self.repeats == self.of else f" ({self.repeats} of {self.of})"
        return f"{self.ours[measure].percent()}{some}"


def axis_title(measure: str) -> str:
    """Return the name of a measure with its unit."""
    return "accuracy, %" if measure == "accuracy" else f"{measure}, % at FAR 0.01"


@dataclass(frozen=True, kw_only=True)
class ExperimentResults(Record):
    """Results of one experiment: ``data`` of the paper, or ``what`` is used as a ``standin``.

    ``minutes`` is the time of an epoch of SPDNet-3BiRe in the paper, ``tasks`` the number of test
    matrices of each verification task.
    """

    data: str
    what: str
    standin: bool
    protocol: str
    repeats: int
    epochs: int
    minutes: float
    measures: tuple[str, ...]
    size: int
    classes: int
    n_train: int
    n_test: int
    tasks: dict[str, int]
    rows: tuple[RowResults, ...]

    @property
    def shown_measures(self) -> tuple[str, ...]:
        """The measures that have scores."""
        found = {name for row in self.rows for name in row.ours}
        known = tuple(name for name in self.measures if name in found)
        return known or (("all",) if "all" in found else self.measures)

    @property
    def sizes(self) -> str:
        """Number and size of the matrices, and the protocol."""
        return (
            f"matrices of {self.size} x {self.size}, {self.classes} classes, {self.n_train} "
            f"training and {self.n_test} test matrices; {self.protocol}, {self.repeats} "
            f"repeat{'' if self.repeats == 1 else 's'}, {self.epochs} epochs"
        )

    @property
    def notes(self) -> list[str]:
        """Failures, methods that are not run, and other notes."""
        rows = self.rows
        found = [f"failed: {row.title}: {error}" for row in rows for error in row.errors]
        found += [f"not run: {row.title}: {row.why}" for row in rows if row.why is not None]
        found += [f"{row.title}: {note}" for row in rows for note in row.notes]
        clipped = [row.clipped for row in rows if row.clipped is not None]
        if clipped and max(clipped) == 0:
            found.append(
                f"{NOTHING_RAISED}: on these matrices the threshold has no effect, and consecutive "
                "BiMaps act as one"
            )
        return found

    @property
    def table(self) -> list[tuple[str, ...]]:
        """The header and the rows of the table."""
        measures = self.shown_measures
        head = ["method"]
        for measure in measures:
            head += [f"{axis_title(measure)}, paper", "ours"]
        rows = [(*head, "s per epoch", "paper")]
        for row in self.rows:
            scores = [f(m) for m in measures for f in (row.paper_score, row.our_score)]
            seconds = "-" if row.seconds is None else f"{row.seconds:.3g}"
            paper = f"{60 * self.minutes:g}" if row.timed else "-"
            rows.append((row.title, *scores, seconds, paper))
        return rows


@dataclass(frozen=True, kw_only=True)
class ReproductionResults(Record):
    """Results of a reproduction: title, settings by name, and one entry per experiment."""

    title: str
    quick: bool
    recipe: str
    settings: dict[str, Any]
    experiments: tuple[ExperimentResults, ...]

    def heading(self, experiment: ExperimentResults) -> str:
        """Return the name of the data, with a warning if they are not those of the paper."""
        what = experiment.what
        if experiment.standin:
            what = f"STAND-IN for {experiment.data}, not the paper's data: {what}"
        return f"QUICK test, the scores are meaningless; {what}" if self.quick else what

    def as_text(self) -> str:
        """Return the tables for a terminal."""
        lines = [self.title, ""]
        for experiment in self.experiments:
            head, *rows = experiment.table
            lines += [self.heading(experiment), f"{experiment.sizes} of recipe {self.recipe}", ""]
            lines += [*text_table(head, rows), *experiment.notes]
            lines += ["", "± is the standard deviation over the repeats", ""]
        return "\n".join(lines)

    def as_csv(self) -> str:
        """Return the scores in percent as CSV, one row per score."""
        head = ["data", "standin", "quick", "method", "measure", "paper", "repeat", "value"]
        rows: list[Sequence[Any]] = []
        for experiment in self.experiments:
            what = spreadsheet_safe(experiment.what) if experiment.standin else ""
            for row in experiment.rows:
                seconds = "" if row.seconds is None else row.seconds
                for measure in experiment.shown_measures:
                    about = [experiment.data, what, self.quick, row.title, measure]
                    about += [row.paper.get(measure, "")]
                    ours = row.ours[measure].known if measure in row.ours else []
                    values = [[i, 100 * value, seconds] for i, value in enumerate(ours, 1)]
                    rows += [[*about, *more] for more in values or [["", "", ""]]]
        return csv_table([*head, "s_per_epoch"], rows)


class ReproductionFolder(SharedFolder):
    """A reproduction on disk.

    ======================  ==================================================
    ``reproduction.json``   settings
    ``environment.json``    versions, machine, command
    ``DATA/NETWORK/*``      a run folder for each repeat
    ``DATA/methods/*``      one file for each other method and repeat
    ``DATA/data-*.txt``     digest of the data of each repeat
    ``results.json``        the results
    ``table.txt .csv``      the table as text and as CSV
    ``report.html``         the report
    ======================  ==================================================

    Examples
    --------
    >>> from spdnet.paper import ReproductionFolder
    >>> ReproductionFolder("runs/reproduce-afew").report_file.name
    'report.html'
    """

    command = "spdnet reproduce"
    settings_name = "reproduction.json"
    may_change = ("repeats", "baselines", "device")

    def run_of(self, data: str, row: Row, repeat: int) -> RunFolder:
        """Return the folder of a network in one repeat."""
        name = re.sub(r"[^a-z0-9]+", "-", row.title.lower()).strip("-")
        return RunFolder(self.path / data / name / f"repeat-{repeat + 1}")

    def cell_file(self, data: str, method: str, repeat: int) -> Path:
        """Return the file of another method in one repeat."""
        return self.path / data / "methods" / f"{method}-{repeat + 1}.json"

    def matrices_file(self, data: str, repeat: int) -> Path:
        """Return the temporary file of the matrices of one repeat."""
        return self.path / data / f"matrices-{repeat + 1}.npz"

    def require_digest(self, data: str, repeat: int, digest: str) -> None:
        """Raise an error if the data of a repeat have changed since it began."""
        file = self.path / data / f"data-{repeat + 1}.txt"
        if not file.is_file():
            file.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(file, digest + "\n")
        elif file.read_bytes().strip() != digest.encode():
            raise ValueError(
                f"reproduce: expected the data with which repeat {repeat + 1} in {self.path} was "
                "started, got others; choose another folder, or restore the data"
            )

    def results(self) -> ReproductionResults:
        """Read the results."""
        return ReproductionResults.load(self.results_file, "spdnet reproduce writes it")
