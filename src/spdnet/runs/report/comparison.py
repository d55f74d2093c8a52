"""The report of a comparison."""

from pathlib import Path
from typing import Any

from spdnet.runs import ComparisonFolder
from spdnet.runs.comparison_tables import (
    accuracy,
    best,
    chance,
    remark,
    seconds,
    sizes_of,
)
from spdnet.runs.run_folder import write
from spdnet.runs.report import figures
from spdnet.runs.report.render import Table, environment_table, named, render, results_of

#: results, and settings that ``what`` tells as they were used
_NOT_SETTINGS = {"rows", "classes", "n_train", "n", "size", "digest", "methods", "chance", "what"}
_NOT_SETTINGS |= {"signals", "estimator", "reg"}


def write_comparison(folder: ComparisonFolder) -> Path:
    """Write ``report.html`` into the folder of a finished comparison, and return its path.

    Examples
    --------
    >>> import tempfile
    >>> from spdnet.runs import Comparison, ComparisonFolder, compare
    >>> from spdnet.runs.report import write_comparison
    >>> settings = Comparison(data="digits", methods=("logistic",), repeats=1, device="cpu")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = compare(settings, ComparisonFolder(folder))
    ...     write_comparison(ComparisonFolder(folder)).name
    'report.html'
    """
    write(folder.report_file, make_comparison(folder))
    return folder.report_file


def make_comparison(folder: ComparisonFolder) -> str:
    """Make the report of a comparison: one HTML page that loads nothing else.

    Examples
    --------
    >>> import tempfile
    >>> from spdnet.runs import Comparison, ComparisonFolder, compare
    >>> from spdnet.runs.report import make_comparison
    >>> settings = Comparison(data="digits", methods=("logistic",), repeats=1, device="cpu")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = compare(settings, ComparisonFolder(folder))
    ...     make_comparison(ComparisonFolder(folder))[:15]
    '<!doctype html>'
    """
    found, environment = folder.results(), folder.environment()
    name = folder.path.resolve().name
    with results_of(folder.results_file):
        rows = found["rows"]
        return render(
            "comparison.html",
            title=f"{name}: comparison",
            heading=name,
            what=found.get("what") or f"{found['n']} matrices of {found['size']} x {found['size']}",
            n_classes=len(found["classes"]),
            protocol=found["protocol"],
            repeats=found["repeats"],
            n_train=found["n_train"][0],
            n_test=found["n"] - found["n_train"][0],
            tune=found["tune"],
            chance=[f"{text[:1].upper()}{text[1:]}" for text in chance(found)],
            picture=figures.comparison(rows) or "",
            accuracy=_accuracy(found),
            errors=_texts("errors", rows),
            warnings=_texts("warnings", rows),
            parameters=_parameters(rows),
            settings=named({k: v for k, v in found.items() if k not in _NOT_SETTINGS}),
            environment=environment_table(environment),
        )


def _accuracy(found: dict[str, Any]) -> Table:
    winners = best(found)
    rows = [
        (
            row["title"] + (f" ({sizes_of(row)})" if sizes_of(row) else "") + remark(row),
            accuracy(row) + (" ★" if row["method"] in winners else ""),
            seconds(row["fit_seconds"]["mean"]),
            seconds(row["predict_seconds"]["mean"]),
        )
        for row in found["rows"]
    ]
    return Table(rows, ("method", "accuracy, %", "fit, s", "predict, s"), "plain numbers")


def _texts(key: str, rows: list[dict[str, Any]]) -> Table:
    return Table([(row["title"], text) for row in rows for text in row[key]], kind="plain")


def _parameters(rows: list[dict[str, Any]]) -> Table:
    shown = [
        (
            row["title"],
            "; ".join(
                ", ".join(f"{name} {value}" for name, value in parameters.items())
                for parameters in row["parameters"]
            ),
        )
        for row in rows
        if any(row["parameters"])
    ]
    return Table(shown, kind="plain")
