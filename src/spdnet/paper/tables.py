"""The table of a reproduction: the paper's figures beside ours."""

import csv
import io
from typing import Any

from spdnet.data.names import spreadsheet_safe
from spdnet.runs.findings import NOTHING_RAISED


def heading(results: dict[str, Any], experiment: dict[str, Any]) -> str:
    """What was run on what; other data than the paper's are called so."""
    what = f"{experiment['what']}"
    if experiment["standin"]:
        what = f"STAND-IN for {experiment['data']}, not the paper's data: {what}"
    if results["quick"]:
        what = f"QUICK form, the figures mean nothing; {what}"
    return what


def measure_name(measure: str) -> str:
    """A measure with its unit."""
    return "accuracy, %" if measure == "accuracy" else f"{measure}, % at FAR 0.01"


def paper_figure(row: dict[str, Any], measure: str) -> str:
    """What the paper reports."""
    value = row["paper"].get(measure)
    if value is None:
        return "-"
    deviation = row["paper"].get("deviation")
    return f"{value:.2f}" + ("" if deviation is None else f" ± {deviation:.2f}")


def our_figure(row: dict[str, Any], measure: str) -> str:
    """What was found here."""
    if row["kind"] == "cited":
        return "not run"
    ours = row["ours"].get(measure)
    if ours is None:
        return "failed" if row["errors"] else "-"
    text = f"{100 * ours['mean']:.2f}"
    if ours["deviation"] is not None:
        text += f" ± {100 * ours['deviation']:.2f}"
    return text + ("" if row["repeats"] == row["of"] else f" ({row['repeats']} of {row['of']})")


def epoch_seconds(row: dict[str, Any]) -> str:
    """Of one epoch here."""
    seconds = row.get("seconds")
    return "-" if seconds is None else f"{seconds:.3g}"


def paper_seconds(experiment: dict[str, Any], row: dict[str, Any]) -> str:
    """Of one epoch in the paper, where it tells it."""
    return f"{60 * experiment['minutes']:g}" if row.get("timed") else "-"


def shown_measures(experiment: dict[str, Any]) -> list[str]:
    """Those that there are figures for."""
    found = {name for row in experiment["rows"] for name in row.get("ours", {})}
    known = [name for name in experiment["measures"] if name in found]
    return known or (["all"] if "all" in found else experiment["measures"])


def notes(experiment: dict[str, Any]) -> list[str]:
    """What a reader should know besides the figures."""
    rows = experiment["rows"]
    found = [f"failed: {row['title']}: {error}" for row in rows for error in row.get("errors", [])]
    found += [f"not run: {row['title']}: {row['why']}" for row in rows if "why" in row]
    found += [f"{row['title']}: {note}" for row in rows for note in row.get("notes", [])]
    clipped = [row["clipped"] for row in rows if "clipped" in row]
    if clipped and max(clipped) == 0:
        found.append(
            f"{NOTHING_RAISED}: on these matrices its threshold plays no part, and BiMaps in a row "
            "act as one"
        )
    return found


def as_text(results: dict[str, Any]) -> str:
    """The tables for a terminal."""
    lines = [results["title"], ""]
    for experiment in results["experiments"]:
        lines += [heading(results, experiment), sizes(results, experiment), ""]
        measures = shown_measures(experiment)
        width = max(len(row["title"]) for row in experiment["rows"]) + 2
        head = f"{'':{width}}"
        for measure in measures:
            head += f"{'paper':>16}{'ours':>20}"
            if len(measures) > 1:
                head += f"  {measure}"
        lines.append(head + f"{'s/epoch':>12}{'paper':>10}")
        for row in experiment["rows"]:
            line = f"{row['title']:{width}}"
            for measure in measures:
                line += f"{paper_figure(row, measure):>16}{our_figure(row, measure):>20}"
                if len(measures) > 1:
                    line += " " * (2 + len(measure))
            theirs = paper_seconds(experiment, row)
            lines.append(line + f"{epoch_seconds(row):>12}{theirs:>10}")
        lines += notes(experiment)
        unit = (
            measure_name(measures[0]) if len(measures) == 1 else "verification rate, % at FAR 0.01"
        )
        lines += ["", f"{unit}; ± is the standard deviation over the repeats", ""]
    return "\n".join(lines)


def sizes(results: dict[str, Any], experiment: dict[str, Any]) -> str:
    """How much of what, and how it was divided."""
    size = experiment["size"]
    return (
        f"matrices of {size} x {size}, {experiment['classes']} classes, {experiment['n_train']} to "
        f"train on, {experiment['n_test']} to test on; {experiment['protocol']}, "
        f"{experiment['repeats']} repeat{'' if experiment['repeats'] == 1 else 's'}, "
        f"{experiment['epochs']} epochs of recipe "
        f"{results['recipe']}"
    )


def as_csv(results: dict[str, Any]) -> str:
    """One row for each figure, in percent."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(
        ["data", "standin", "quick", "method", "measure", "paper", "repeat", "value", "s_per_epoch"]
    )
    for experiment in results["experiments"]:
        what = spreadsheet_safe(experiment["what"]) if experiment["standin"] else ""
        for row in experiment["rows"]:
            for measure in shown_measures(experiment):
                about = [experiment["data"], what, results["quick"], row["title"], measure]
                about += [row["paper"].get(measure, "")]
                values = row.get("ours", {}).get(measure, {}).get("values", [])
                for i, value in enumerate(values, 1):
                    table.writerow([*about, i, 100 * value, row.get("seconds", "")])
                if not values:
                    table.writerow([*about, "", "", ""])
    return text.getvalue()
