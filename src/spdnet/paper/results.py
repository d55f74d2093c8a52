"""Results of a reproduction: the schema of its ``results.json``, and its tables."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy

from spdnet.data.names import spreadsheet_safe
from spdnet.runs.cell import Cell, RocCurve
from spdnet.runs.findings import NOTHING_RAISED
from spdnet.runs.record import Record
from spdnet.runs.results import Spread
from spdnet.runs.tables import csv_table, text_table


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
    epoch, which the paper reports if ``timed``. A ``cited`` method is not run; ``why`` says why.
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
    def from_cells(
        cls,
        title: str,
        kind: Literal["network", "method"],
        paper: dict[str, float],
        cells: Sequence[Cell],
        *,
        timed: bool = False,
    ) -> "RowResults":
        """Summarize the repeats that did not fail."""
        good = [(cell, cell.score) for cell in cells if cell.score is not None]
        measures = dict.fromkeys(name for _, score in good for name in score.values)
        networks = [cell for cell, _ in good if isinstance(cell, NetworkCell)]
        seconds = [cell.epoch_seconds for cell in networks if cell.epoch_seconds is not None]
        return cls(
            title=title,
            kind=kind,
            paper=paper,
            ours={m: Spread.of([s.values[m] for _, s in good if m in s.values]) for m in measures},
            repeats=len(good),
            of=len(cells),
            errors=tuple(dict.fromkeys(cell.error for cell in cells if cell.error is not None)),
            notes=tuple(dict.fromkeys(note for cell, _ in good for note in cell.notes)),
            dims=networks[0].dims if networks else None,
            device=good[0][0].device if good else None,
            history=networks[0].history if networks else (),
            roc=good[0][1].roc if good else {},
            equal_error=good[0][1].equal_error if good else {},
            clipped=networks[0].clipped if networks else None,
            seconds=float(numpy.mean(seconds)) if seconds else None,
            timed=timed,
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
        """The head and the rows of the table."""
        measures = self.shown_measures
        head = ["method"]
        for measure in measures:
            name = "accuracy, %" if measure == "accuracy" else f"{measure}, % at FAR 0.01"
            head += [f"{name}, paper", "ours"]
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
        """Name the data, with a warning if they are not those of the paper."""
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
                for measure in experiment.shown_measures:
                    about = [experiment.data, what, self.quick, row.title, measure]
                    about += [row.paper.get(measure, "")]
                    if measure not in row.ours:
                        rows.append([*about, "", "", ""])
                        continue
                    for i, value in enumerate(row.ours[measure].known, 1):
                        seconds = "" if row.seconds is None else row.seconds
                        rows.append([*about, i, 100 * value, seconds])
        return csv_table([*head, "s_per_epoch"], rows)
