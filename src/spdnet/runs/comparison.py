"""Results of a comparison: the schema of its ``results.json``, its tables and its folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spdnet.runs.cell import Cell
from spdnet.runs.folder import SharedFolder
from spdnet.runs.methods import Method
from spdnet.runs.record import Record, csv_table, text_table
from spdnet.runs.results import Spread


@dataclass(frozen=True)
class MethodRow(Record):
    """Scores of one method over the repeats, None if all failed.

    ``repeats`` of ``of`` repeats succeeded. ``dims`` are the sizes of a network, ``parameters`` the
    values selected by the search in each repeat.
    """

    method: str
    title: str
    dims: tuple[int, ...] | None
    repeats: int
    of: int
    accuracy: Spread | None
    fit_seconds: Spread | None
    predict_seconds: Spread | None
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    parameters: tuple[dict[str, Any], ...]
    devices: tuple[str, ...]

    @classmethod
    def from_cells(
        cls, name: str, method: Method, n: int, cells: Sequence[Cell | None]
    ) -> "MethodRow":
        """Summarize repeats on matrices of size ``n``; None is a repeat that was not run."""
        done = [cell if cell and cell.score else None for cell in cells]
        good = [cell for cell in done if cell]
        spreads = {
            what: Spread.of([getattr(cell, what, None) for cell in done]) if good else None
            for what in ("accuracy", "fit_seconds", "predict_seconds")
        }
        return cls(
            name,
            method.title,
            method.dims(n),
            len(good),
            len(cells),
            **spreads,
            errors=tuple(dict.fromkeys(cell.error for cell in cells if cell and cell.error)),
            warnings=tuple(dict.fromkeys(text for cell in good for text in cell.warnings)),
            parameters=tuple(cell.parameters for cell in good),
            devices=tuple(sorted({cell.device for cell in good})),
        )

    @property
    def is_complete(self) -> bool:
        """Whether all repeats succeeded."""
        return self.repeats == self.of

    @property
    def label(self) -> str:
        """The title, with the number of repeats if some are missing."""
        return self.title if self.is_complete else f"{self.title} ({self.repeats} of {self.of})"

    def columns(self, sign: str = "±") -> tuple[str, str, str]:
        """Return accuracy in percent, and seconds of fitting and predicting."""
        if self.accuracy is None:
            return "failed", "-", "-"
        return self.accuracy.percent(sign), _mean(self.fit_seconds), _mean(self.predict_seconds)


@dataclass(frozen=True, kw_only=True)
class ComparisonResults(Record):
    """Results of a comparison.

    ``data`` describes the samples, ``settings`` contains the settings without a field here, and
    ``chance`` is the accuracy of always predicting the most frequent class.
    """

    settings: dict[str, Any]
    protocol: str
    repeats: int
    tune: bool
    data: str
    n: int
    size: int
    classes: tuple[str, ...]
    n_train: tuple[int, ...]
    chance: float
    rows: tuple[MethodRow, ...]

    def __post_init__(self) -> None:
        if not self.n_train or not self.rows:
            raise ValueError("expected values in n_train and rows")

    @property
    def best(self) -> set[str]:
        """The methods with the highest accuracy over all repeats, rounded as in the table."""
        means = {
            row.method: round(100 * row.accuracy.mean, 2)
            for row in self.rows
            if row.is_complete and row.accuracy is not None
        }
        return {name for name, mean in means.items() if mean == max(means.values())}

    @property
    def most_frequent(self) -> str:
        """Accuracy of the most frequent class, as a line of text."""
        return f"most frequent class: {100 * self.chance:.2f} %"

    def as_text(self) -> str:
        """Return the table for a terminal; a star marks the best methods."""
        rows = []
        for row in self.rows:
            accuracy, fit, predict = row.columns()
            star = " *" if row.method in self.best else "  "
            rows.append((row.label, accuracy + star, fit, predict))
        lines = text_table(("", "accuracy, %  ", "fit, s", "predict, s"), rows)
        lines += [*(["* best"] if self.best else []), self.most_frequent]
        dims = [f"{row.title} {','.join(map(str, row.dims))}" for row in self.rows if row.dims]
        lines += [f"dims: {'; '.join(dims)}"] if dims else []
        lines += [f"failed: {row.title}: {error}" for row in self.rows for error in row.errors]
        return "\n".join(lines) + "\n"

    def as_csv(self) -> str:
        """Return the table as CSV: one row for each method and repeat."""
        rows = []
        for row in self.rows:
            spreads = [row.accuracy, row.fit_seconds, row.predict_seconds]
            columns = [spread.values for spread in spreads if spread is not None]
            for i, values in enumerate(zip(*columns, strict=True), 1):
                if values[0] is not None:
                    rows.append((row.method, i, *values))
        return csv_table(("method", "repeat", "accuracy", "fit_seconds", "predict_seconds"), rows)

    def as_latex(self) -> str:
        """Return the table for LaTeX with the booktabs package."""
        lines = [r"\begin{tabular}{lrrr}", r"\toprule"]
        lines += [r"Method & Accuracy, \% & Fit, s & Predict, s \\", r"\midrule"]
        for row in self.rows:
            accuracy, fit, predict = row.columns(r"\pm")
            accuracy = accuracy if row.accuracy is None else f"${accuracy}$"
            bold = r"\boldmath" if row.method in self.best else ""
            lines.append(rf"{row.label} & {bold}{accuracy} & {fit} & {predict} \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _mean(seconds: Spread | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds.mean:.0f}" if seconds.mean >= 10 else f"{seconds.mean:.2g}"


class ComparisonFolder(SharedFolder):
    """A comparison on disk.

    =======================  ===============================================
    ``comparison.json``      settings, and a digest of the data
    ``environment.json``     versions, machine, command
    ``cells/``               one file for each method and repeat
    ``results.json``         the results
    ``table.txt .csv .tex``  the table as text, as CSV and for LaTeX
    ``report.html``          the report
    =======================  ===============================================

    Examples
    --------
    >>> from spdnet.runs import ComparisonFolder
    >>> ComparisonFolder("runs/compare-digits").report_file.name
    'report.html'
    """

    command = "spdnet compare"
    settings_name = "comparison.json"
    may_change = ("methods", "repeats")

    def cell_file(self, method: str, repeat: int) -> Path:
        """Return the file of a method in a repeat."""
        return self.path / "cells" / f"{method}-{repeat}.json"

    def results(self) -> ComparisonResults:
        """Read the results."""
        return ComparisonResults.load(self.results_file, "spdnet compare writes it")
