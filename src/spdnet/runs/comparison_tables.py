"""The table of a comparison: to read, to compute with, to print."""

import csv
import io
from collections.abc import Iterable
from typing import Any


def best(results: dict[str, Any]) -> set[str]:
    """The methods with the highest accuracy over all repeats, as a table shows it."""
    shown = {r["method"]: r["accuracy"]["mean"] for r in results["rows"] if r["complete"]}
    shown = {name: round(100 * mean, 2) for name, mean in shown.items()}
    return {name for name, mean in shown.items() if mean == max(shown.values())}


def seconds(value: float | None) -> str:
    """Two digits, or whole seconds."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def accuracy(row: dict[str, Any], sign: str = "±") -> str:
    """In percent, with the deviation where there are several repeats."""
    mean, deviation = row["accuracy"]["mean"], row["accuracy"]["deviation"]
    if mean is None:
        return "failed"
    return f"{100 * mean:.2f}" + ("" if deviation is None else f" {sign} {100 * deviation:.2f}")


def remark(row: dict[str, Any]) -> str:
    """How many repeats a row stands for, where some are missing."""
    total = len(row["accuracy"]["values"])
    return "" if row["complete"] else f" ({row['repeats']} of {total})"


def chance(results: dict[str, Any]) -> list[str]:
    """The accuracy of always predicting the most frequent class; earlier versions lack it."""
    if "chance" not in results:
        return []
    return [f"most frequent class: {100 * results['chance']:.2f} %"]


def sizes_of(row: dict[str, Any]) -> str:
    """The sizes of a network, such as 93,77,64; empty for other methods."""
    return ",".join(map(str, row.get("dims") or ()))


def _notes(results: dict[str, Any]) -> Iterable[str]:
    for row in results["rows"]:
        for error in row["errors"]:
            yield f"{row['title']}: {error}"


def as_text(results: dict[str, Any]) -> str:
    """The table for a terminal; a star marks the best."""
    width = max(len(row["title"] + remark(row)) for row in results["rows"]) + 2
    lines = [f"{'':{width}}{'accuracy, %':>16}  {'fit, s':>10}{'predict, s':>12}"]
    winners = best(results)
    for row in results["rows"]:
        star = " *" if row["method"] in winners else "  "
        fit, predict = (seconds(row[k]["mean"]) for k in ("fit_seconds", "predict_seconds"))
        title = row["title"] + remark(row)
        lines.append(f"{title:{width}}{accuracy(row):>16}{star}{fit:>10}{predict:>12}")
    lines += ["* best"] * bool(winners) + chance(results)
    sizes = [f"{row['title']} {sizes_of(row)}" for row in results["rows"] if sizes_of(row)]
    lines += [f"dims: {'; '.join(sizes)}"] * bool(sizes)
    return "\n".join([*lines, *(f"failed: {note}" for note in _notes(results))]) + "\n"


def as_csv(results: dict[str, Any]) -> str:
    """The table for machines: one row for each method and repeat that was done."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["method", "repeat", "accuracy", "fit_seconds", "predict_seconds"])
    for row in results["rows"]:
        columns = (row[k]["values"] for k in ("accuracy", "fit_seconds", "predict_seconds"))
        for i, values in enumerate(zip(*columns, strict=True), 1):
            if values[0] is not None:
                table.writerow([row["method"], i, *values])
    return text.getvalue()


def as_latex(results: dict[str, Any]) -> str:
    """The table for a paper, with the booktabs package."""
    lines = [r"\begin{tabular}{lrrr}", r"\toprule"]
    lines += [r"Method & Accuracy, \% & Fit, s & Predict, s \\", r"\midrule"]
    for row in results["rows"]:
        shown = accuracy(row, r"\pm")
        shown = f"${shown}$" if row["accuracy"]["mean"] is not None else shown
        if row["method"] in best(results):
            shown = rf"\boldmath{shown}"
        fit, predict = (seconds(row[k]["mean"]) for k in ("fit_seconds", "predict_seconds"))
        title = row["title"] + remark(row)
        lines.append(rf"{title} & {shown} & {fit} & {predict} \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"
