"""The figures of a report, as SVG inside a page."""

import io
import re
import warnings
from dataclasses import dataclass
from html import escape
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from spdnet import plots
from spdnet.plots import BASELINE, INK, TRAIN

_STYLE: Any = {
    **plots.STYLE,
    "svg.fonttype": "none",  # text stays text: small, sharp, to be searched
}


@dataclass(frozen=True)
class Picture:
    """An SVG element in which all names are escaped; templates insert it as it is."""

    svg: str

    def __html__(self) -> str:
        return self.svg


def learning_curves(history: list[dict[str, float]], best_epoch: int) -> list[Picture]:
    """Loss and accuracy over the epochs, a picture each; none without epochs."""
    pictures: list[Picture] = []
    if not history:
        return pictures
    validated = "val_loss" in history[0]
    for measure, title in (("loss", "Loss"), ("accuracy", "Accuracy")):
        with matplotlib.rc_context(_STYLE):
            figure = Figure(figsize=(4.8, 3.2))
            axes = plots.learning_curves(
                history,
                measure,
                parts=["train", "val"] if validated else ["train"],
                best_epoch=best_epoch if validated else None,
                ax=figure.subplots(),
            )
            axes.set(title=title, ylabel="")
            pictures.append(_svg(figure, f"{title} over the epochs"))
    return pictures


def confusion(counts: NDArray[Any], classes: list[str]) -> Picture:
    """True classes in rows, predicted ones in columns; the shade is the share of the row."""
    with matplotlib.rc_context(_STYLE):
        size = plots.confusion_size(len(classes))
        figure = Figure(figsize=(size, size))
        plots.confusion(counts, classes, ax=figure.subplots())
        return _svg(figure, "Confusion matrix", narrowest=0.9)


def spectrum(entry: dict[str, Any]) -> Picture:
    """Eigenvalues in descending order: median, and the band from 5 to 95 percent."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(3.2, 2.5))
        shown = _without_rounding(entry)
        axes = plots.spectra(shown, log=entry["layer"] != "LogEig", ax=figure.subplots())
        n = len(entry["median"])
        axes.set(title=f"{entry['layer']} ({n} x {n})", xlabel="", ylabel="")
        return _svg(figure, f"Eigenvalues after {entry['layer']}")


def _without_rounding(entry: dict[str, Any]) -> dict[str, Any]:
    """The same, or all eigenvalues equal where they differ by rounding: no axis shows that."""
    values = [v for key in ("low", "median", "high") for v in entry[key]]
    if max(values) - min(values) > 1e-9 * max(map(abs, values)):
        return entry
    return {**entry, **{key: [values[0]] * len(entry[key]) for key in ("low", "median", "high")}}


def repeats(
    accuracy: list[float], baseline: list[float] | None, seeds: list[int], network: str
) -> Picture:
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


def comparison(rows: list[dict[str, Any]]) -> Picture | None:
    """Accuracy of each method: a diamond for the mean, a dot for each repeat."""
    rows = [row for row in rows if row["accuracy"]["mean"] is not None]
    if not rows:
        return None
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(7.2, 0.6 + 0.28 * len(rows)))
        axes = figure.subplots()
        places = range(len(rows))
        for place, row in zip(places, rows, strict=True):
            values = [100 * v for v in row["accuracy"]["values"] if v is not None]
            color = TRAIN if row["method"].startswith("spdnet") else INK
            axes.plot(values, [place] * len(values), ".", color=color, ms=4, alpha=0.5)
            axes.plot(100 * row["accuracy"]["mean"], place, "D", color=color, ms=5)
        axes.set(xlabel="accuracy, %")
        axes.set_yticks(places, [row["title"] for row in rows])
        axes.invert_yaxis()
        return _svg(figure, "Accuracy of each method")


def beside_the_paper(rows: list[dict[str, Any]], measure: str, title: str) -> Picture | None:
    """Our figure and the paper's for each row; the bar is the deviation over the repeats."""
    rows = [row for row in rows if row["paper"].get(measure) or row.get("ours", {}).get(measure)]
    if not rows:
        return None
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


def training_curves(rows: list[dict[str, Any]], key: str, title: str) -> Picture | None:
    """Loss of the training, or accuracy on the test part, of each network over the epochs."""
    rows = [row for row in rows if key in (row.get("history") or [{}])[0]]
    if not rows:
        return None
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(4.8, 3.4))
        axes = figure.subplots()
        measure, part = ("loss", "train") if key == "loss" else ("accuracy", "test")
        for i, row in enumerate(rows):
            plots.learning_curves(
                row["history"],
                measure,
                parts=[part],
                ax=axes,
                label=row["title"],
                lw=1.2,
                color=f"C{i}",
            )
        axes.set(ylabel="training loss" if key == "loss" else "test accuracy, %")
        if key != "loss":
            axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g}"))
        axes.set_title(title, fontsize=9, wrap=True)
        axes.legend()
        return _svg(figure, f"{key.replace('_', ' ')} over the epochs: {title}")


def verification(rows: list[dict[str, Any]], task: str, title: str) -> Picture | None:
    """Verification rate against false acceptance rate, a line for each row."""
    rows = [row for row in rows if task in row.get("roc", {})]
    if not rows:
        return None
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(6.4, 3.4))
        axes = figure.subplots()
        for i, row in enumerate(rows):
            curve = row["roc"][task]
            rates = curve["far"], curve["rate"]
            plots.roc(rates, label=row["title"], color=f"C{i}", ax=axes)
        axes.set_title(f"{task}: {title}", fontsize=9, wrap=True)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        return _svg(figure, f"ROC of {task}: {title}")


def _svg(figure: Figure, title: str, narrowest: float = 0.0) -> Picture:
    """The figure without the XML header, scaling with the page, with ids of its own.

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
    label = f'<svg role="img" aria-label="{escape(title)}" style="{style}"'
    return Picture(svg.replace("<svg", label, 1))


class _Ids:
    """Counts pictures, so that the ids in one page differ."""

    count = 0
