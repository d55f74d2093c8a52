"""The page of a comparison: the table, a picture of it, what failed, settings, environment."""

from html import escape
from pathlib import Path
from typing import Any

from spdnet.experiments import ComparisonFolder
from spdnet.experiments.comparison_tables import (
    accuracy,
    best,
    chance,
    remark,
    seconds,
    sizes_of,
)
from spdnet.experiments.run_folder import write
from spdnet.report import figures
from spdnet.report.page import document, plain, section, table


def write_comparison(folder: ComparisonFolder) -> Path:
    """Write ``report.html`` into the folder of a comparison that has its results; its path.

    Examples
    --------
    >>> import tempfile
    >>> from spdnet.experiments import Comparison, ComparisonFolder, compare
    >>> from spdnet.report import write_comparison
    >>> settings = Comparison(data="digits", methods=("logistic",), repeats=1, device="cpu")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = compare(settings, ComparisonFolder(folder))
    ...     write_comparison(ComparisonFolder(folder)).name
    'report.html'
    """
    write(folder.report_file, make_comparison(folder))
    return folder.report_file


def make_comparison(folder: ComparisonFolder) -> str:
    """The report of a comparison as one HTML page without links to anywhere.

    Examples
    --------
    >>> import tempfile
    >>> from spdnet.experiments import Comparison, ComparisonFolder, compare
    >>> from spdnet.report import make_comparison
    >>> settings = Comparison(data="digits", methods=("logistic",), repeats=1, device="cpu")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = compare(settings, ComparisonFolder(folder))
    ...     make_comparison(ComparisonFolder(folder))[:15]
    '<!doctype html>'
    """
    found = folder.results()
    name = folder.path.resolve().name
    n_test = found["n"] - found["n_train"][0]
    body = [
        f"<h1>{escape(name)}</h1>",
        f'<p class="soft">{found["n"]} matrices of {found["size"]} x {found["size"]}, '
        f"{len(found['classes'])} classes; {escape(found['protocol'])}, {found['repeats']} repeats "
        f"of {found['n_train'][0]} to train on and {n_test} held out, the same for all methods; ± "
        f"is the standard deviation over the repeats"
        f"{'; parameters tuned on the training parts' if found['tune'] else ''}</p>",
        section(
            "Accuracy",
            " ".join(["Diamonds are means, dots the repeats. ★: best.", *_chance(found)]),
            figures.comparison(found["rows"]) + table(*_rows(found), "plain numbers"),
        ),
        _remarks("Failed", "errors", found),
        _remarks("Warnings", "warnings", found),
        _parameters(found),
        section("Settings", "", plain({k: v for k, v in found.items() if _is_setting(k)})),
        section("Environment", "", plain(_environment(folder))),
    ]
    return document(f"{name}: comparison", "\n".join(filter(None, body)))


def _chance(found: dict[str, Any]) -> list[str]:
    return [f"{text[:1].upper()}{text[1:]}." for text in chance(found)]


def _rows(found: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    winners = best(found)
    rows: list[tuple[Any, ...]] = [
        (
            row["title"] + (f" ({sizes_of(row)})" if sizes_of(row) else "") + remark(row),
            accuracy(row) + (" ★" if row["method"] in winners else ""),
            seconds(row["fit_seconds"]["mean"]),
            seconds(row["predict_seconds"]["mean"]),
        )
        for row in found["rows"]
    ]
    return ("method", "accuracy, %", "fit, s", "predict, s"), rows


def _remarks(title: str, key: str, found: dict[str, Any]) -> str:
    rows = [(row["title"], text) for row in found["rows"] for text in row[key]]
    return section(title, "", table(("", ""), rows, "plain")) if rows else ""


def _parameters(found: dict[str, Any]) -> str:
    rows = [
        (row["title"], "; ".join(_settings(p) for p in row["parameters"]))
        for row in found["rows"]
        if any(row["parameters"])
    ]
    text = "What the search chose, repeat by repeat."
    return section("Parameters", text, table(("", ""), rows, "plain")) if rows else ""


def _settings(parameters: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in parameters.items())


def _is_setting(name: str) -> bool:
    return name not in ("rows", "classes", "n_train", "n", "size", "digest", "methods", "chance")


def _environment(folder: ComparisonFolder) -> dict[str, Any]:
    environment = dict(folder.environment())
    return environment | environment.pop("libraries")
