"""The pictures of a report, as SVG that stands inside a page."""

import io
import re
import warnings
from html import escape
from typing import Any

import matplotlib
import numpy
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

TRAIN, VAL, BASELINE = "#2563eb", "#db2777", "#d97706"
_INK, _GRID = "#334155", "#e2e8f0"
_STYLE: Any = {
    "svg.fonttype": "none",  # text stays text: small, sharp, to be searched
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": "#94a3b8",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": _GRID,
    "axes.axisbelow": True,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "text.parse_math": False,  # a class may be called $1$
}
_MANY_CLASSES = 25
_LONG = 16


def learning_curves(history: list[dict[str, float]], best_epoch: int) -> list[str]:
    """Loss and accuracy over the epochs, a picture each; none without epochs."""
    pictures: list[str] = []
    if not history:
        return pictures
    for key, title in (("loss", "Loss"), ("accuracy", "Accuracy")):
        with matplotlib.rc_context(_STYLE):
            figure = Figure(figsize=(4.8, 3.2))
            axes = figure.subplots()
            epochs = [row["epoch"] for row in history]
            marker = "o" if len(history) == 1 else None
            axes.plot(epochs, [r[key] for r in history], marker=marker, color=TRAIN, label="train")
            if f"val_{key}" in history[0]:
                values = [row[f"val_{key}"] for row in history]
                axes.plot(epochs, values, marker=marker, color=VAL, label="validation")
                axes.axvline(best_epoch, color=_INK, lw=0.8, ls=":", label="best epoch")
            if key == "loss":
                _logarithmic(axes)
            axes.set(title=title, xlabel="epoch")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.legend()
            pictures.append(_svg(figure, f"{title} over the epochs"))
    return pictures


def confusion(counts: list[list[int]], classes: list[str]) -> str:
    """True classes in rows, predicted ones in columns; the shade is the share of the row."""
    table = numpy.array(counts, dtype=float)
    share = table / numpy.maximum(table.sum(1, keepdims=True), 1)
    few = len(classes) <= _MANY_CLASSES
    with matplotlib.rc_context({**_STYLE, "axes.grid": False}):
        size = min(max(3.2, 0.42 * len(classes) + 1.2), 9.0)
        figure = Figure(figsize=(size, size))
        axes = figure.subplots()
        axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
        axes.set(xlabel="predicted", ylabel="true")
        if few:
            names = [_short(name) for name in classes]
            axes.set_xticks(
                range(len(names)), names, rotation=60, ha="right", rotation_mode="anchor"
            )
            axes.set_yticks(range(len(names)), names)
            for (i, j), count in numpy.ndenumerate(table):
                if count:
                    color = "white" if share[i, j] > 0.5 else _INK
                    axes.text(
                        j, i, f"{count:.0f}", ha="center", va="center", color=color, fontsize=8
                    )
        return _svg(figure, "Confusion matrix", narrowest=0.9)


def spectrum(entry: dict[str, Any]) -> str:
    """Eigenvalues in descending order: median, and the band from 5 to 95 percent."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(3.2, 2.5))
        axes = figure.subplots()
        places = numpy.arange(1, len(entry["median"]) + 1)
        axes.fill_between(places, entry["low"], entry["high"], color=TRAIN, alpha=0.2, lw=0)
        marker = "o" if len(places) == 1 else None
        axes.plot(places, entry["median"], marker=marker, color=TRAIN)
        if entry["layer"] != "LogEig":
            _logarithmic(axes)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        axes.set(title=f"{entry['layer']} ({len(places)} x {len(places)})")
        return _svg(figure, f"Eigenvalues after {entry['layer']}")


def repeats(
    accuracy: list[float], baseline: list[float] | None, seeds: list[int], network: str
) -> str:
    """Accuracy of each repeat, the network beside the baseline."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(4.8, 3.0))
        axes = figure.subplots()
        names = [str(seed) for seed in seeds]
        axes.plot(names, [100 * a for a in accuracy], "o", color=TRAIN, label=network)
        if baseline is not None:
            values = [100 * a for a in baseline]
            axes.plot(names, values, "D", color=BASELINE, label="log-Euclidean linear", ms=5)
        axes.set(xlabel="seed", ylabel="accuracy, %")
        axes.legend()
        return _svg(figure, "Accuracy of each repeat")


def comparison(rows: list[dict[str, Any]]) -> str:
    """Accuracy of each method: a diamond for the mean, a dot for each repeat."""
    rows = [row for row in rows if row["accuracy"]["mean"] is not None]
    if not rows:
        return ""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(7.2, 0.6 + 0.28 * len(rows)))
        axes = figure.subplots()
        places = range(len(rows))
        for place, row in zip(places, rows, strict=True):
            values = [100 * v for v in row["accuracy"]["values"] if v is not None]
            color = TRAIN if row["method"].startswith("spdnet") else _INK
            axes.plot(values, [place] * len(values), ".", color=color, ms=4, alpha=0.5)
            axes.plot(100 * row["accuracy"]["mean"], place, "D", color=color, ms=5)
        axes.set(xlabel="accuracy, %")
        axes.set_yticks(places, [row["title"] for row in rows])
        axes.invert_yaxis()
        return _svg(figure, "Accuracy of each method")


def beside_the_paper(rows: list[dict[str, Any]], measure: str, title: str) -> str:
    """Our figure and the paper's for each row; the bar is the deviation over the repeats."""
    rows = [row for row in rows if row["paper"].get(measure) or row.get("ours", {}).get(measure)]
    if not rows:
        return ""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(7.2, 1.1 + 0.3 * len(rows)))
        axes = figure.subplots()
        for place, row in enumerate(rows):
            paper, ours = row["paper"].get(measure), row.get("ours", {}).get(measure)
            if paper is not None:
                spread = row["paper"].get("deviation")
                axes.errorbar(paper, place - 0.12, xerr=spread, fmt="s", color=BASELINE, ms=5)
            if ours is not None:
                spread = None if ours["deviation"] is None else 100 * ours["deviation"]
                axes.errorbar(100 * ours["mean"], place + 0.12, xerr=spread, fmt="D", color=TRAIN)
        axes.plot([], [], "s", color=BASELINE, ms=5, label="paper")
        axes.plot([], [], "D", color=TRAIN, label="ours")
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        axes.set_xlabel("accuracy, %" if measure == "accuracy" else f"{measure}, % at FAR 0.01")
        axes.set_title(title, fontsize=9, wrap=True)
        axes.set_yticks(range(len(rows)), [row["title"] for row in rows])
        axes.invert_yaxis()
        return _svg(figure, f"Ours beside the paper: {title}")


def training_curves(rows: list[dict[str, Any]], key: str, title: str) -> str:
    """Loss of the training, or accuracy on the test part, of each network over the epochs."""
    rows = [row for row in rows if key in (row.get("history") or [{}])[0]]
    if not rows:
        return ""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(4.8, 3.4))
        axes = figure.subplots()
        for i, row in enumerate(rows):
            scale = 100 if key == "test_accuracy" else 1
            values = [scale * epoch[key] for epoch in row["history"]]
            epochs = [epoch["epoch"] for epoch in row["history"]]
            axes.plot(epochs, values, lw=1.2, color=f"C{i}", label=row["title"])
        if key == "loss":
            _logarithmic(axes)
        axes.set(xlabel="epoch", ylabel="training loss" if key == "loss" else "test accuracy, %")
        axes.set_title(title, fontsize=9, wrap=True)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend()
        return _svg(figure, f"{key.replace('_', ' ')} over the epochs: {title}")


def verification(rows: list[dict[str, Any]], task: str, title: str) -> str:
    """Verification rate against false acceptance rate, a line for each row."""
    rows = [row for row in rows if task in row.get("roc", {})]
    if not rows:
        return ""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(6.4, 3.4))
        axes = figure.subplots()
        for i, row in enumerate(rows):
            curve = row["roc"][task]
            axes.plot(curve["far"], curve["rate"], lw=1.2, color=f"C{i}", label=row["title"])
        axes.axvline(0.01, color=_INK, lw=0.8, ls=":")
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set(xlabel="false acceptance rate", ylabel="verification rate", ylim=(0, 1.02))
        axes.set_title(f"{task}: {title}", fontsize=9, wrap=True)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        return _svg(figure, f"ROC of {task}: {title}")


def _logarithmic(axes: Any) -> None:
    """A logarithmic axis whose numbers are plain text."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    subs = (1.0, 2.0, 5.0) if high < 100 * low else (1.0,)
    axes.yaxis.set_major_locator(LogLocator(subs=subs, numticks=8))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _short(name: str) -> str:
    return name if len(name) <= _LONG else name[: _LONG - 1] + "…"


def _svg(figure: Figure, title: str, narrowest: float = 0.0) -> str:
    """The picture without the XML header, scaling with the page, its ids its own.

    It never gets narrower than a share of its width; the page lets the reader scroll.
    """
    buffer = io.StringIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the browser has the letters that are missing
        figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    width = float(re.search(r'width="([\d.]+)pt"', svg)[1])  # type: ignore[index]
    svg = re.sub(r' (width|height)="[\d.]+pt"', "", svg, count=2)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    _Ids.count += 1
    svg = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>f{_Ids.count}-", svg)
    full = width * 4 / 3
    style = f"max-width:{full:.0f}px;min-width:{narrowest * full:.0f}px"
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(title)}" style="{style}"', 1)


class _Ids:
    """Counts pictures, so that the ids in one page differ."""

    count = 0
