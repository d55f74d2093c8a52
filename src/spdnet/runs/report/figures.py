"""Figures of the reports, as SVG."""

import io
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from numpy.typing import NDArray

from spdnet import plots
from spdnet.plots import BASELINE, INK, TRAIN
from spdnet.runs.comparison import MethodRow
from spdnet.runs.results import LayerSpectrum, RepeatResults

STYLE: Any = {
    **plots.STYLE,
    "svg.fonttype": "none",  # text stays text that can be searched
}


@dataclass(frozen=True)
class Picture:
    """An SVG element in which all text is escaped; templates insert it unchanged."""

    svg: str

    def __html__(self) -> str:
        return self.svg


def learning_curves(history: list[dict[str, float]], best_epoch: int) -> list[Picture]:
    """Draw loss and accuracy over the epochs; no picture without epochs."""
    pictures: list[Picture] = []
    if not history:
        return pictures
    validated = "val_loss" in history[0]
    for measure, title in (("loss", "Loss"), ("accuracy", "Accuracy")):
        with matplotlib.rc_context(STYLE):
            figure = Figure(figsize=(4.8, 3.2))
            axes = plots.learning_curves(
                history,
                measure,
                parts=["train", "val"] if validated else ["train"],
                best_epoch=best_epoch if validated else None,
                ax=figure.subplots(),
            )
            axes.set(title=title, ylabel="")
            pictures.append(svg(figure, f"{title} over the epochs"))
    return pictures


def confusion(counts: NDArray[Any], classes: Sequence[str]) -> Picture:
    """Draw true classes in rows, predicted classes in columns; shades are fractions of the row."""
    with matplotlib.rc_context(STYLE):
        size = plots.side_of(len(classes))
        figure = Figure(figsize=(size, size))
        plots.confusion(counts, list(classes), ax=figure.subplots())
        return svg(figure, "Confusion matrix", narrowest=0.9)


def spectrum(entry: LayerSpectrum) -> Picture:
    """Draw eigenvalues in descending order: the median, and the 5th to 95th percentile."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(3.2, 2.5))
        bands = {"low": entry.low, "median": entry.median, "high": entry.high}
        values = [v for band in bands.values() for v in band]
        if max(values) - min(values) <= 1e-9 * max(map(abs, values)):
            # equal up to rounding, which no axis shows
            bands = {name: (values[0],) * len(band) for name, band in bands.items()}
        axes = plots.spectra(bands, log=entry.layer != "LogEig", ax=figure.subplots())
        n = len(entry.median)
        axes.set(title=f"{entry.layer} ({n} x {n})", xlabel="", ylabel="")
        return svg(figure, f"Eigenvalues after {entry.layer}")


def repeats(found: RepeatResults) -> Picture:
    """Draw the accuracy of the network and of the baseline in each repeat."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.8, 3.0))
        axes = figure.subplots()
        names = [str(seed) for seed in found.seeds]
        ours = [100 * a for a in found.accuracy.known]
        axes.plot(names, ours, "o", color=TRAIN, label=found.network)
        if found.baseline is not None:
            values = [100 * a for a in found.baseline.accuracy.known]
            axes.plot(names, values, "D", color=BASELINE, label="log-Euclidean linear", ms=5)
        axes.set(xlabel="seed", ylabel="accuracy, %")
        axes.legend()
        return svg(figure, "Accuracy of each repeat")


def comparison(rows: Sequence[MethodRow]) -> Picture | None:
    """Draw the accuracy of each method: a diamond for the mean, a dot for each repeat."""
    scores = [(row, row.accuracy) for row in rows if row.accuracy is not None]
    if not scores:
        return None
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 0.6 + 0.28 * len(scores)))
        axes = figure.subplots()
        for i, (row, accuracy) in enumerate(scores):
            values = [100 * v for v in accuracy.known]
            color = TRAIN if row.method.startswith("spdnet") else INK
            axes.plot(values, [i] * len(values), ".", color=color, ms=4, alpha=0.5)
            axes.plot(100 * accuracy.mean, i, "D", color=color, ms=5)
        axes.set(xlabel="accuracy, %")
        axes.set_yticks(range(len(scores)), [row.title for row, _ in scores])
        axes.invert_yaxis()
        return svg(figure, "Accuracy of each method")


def svg(figure: Figure, title: str, narrowest: float = 0.0) -> Picture:
    """Return the figure as SVG that scales with the page and has unique ids.

    It never gets narrower than the fraction ``narrowest`` of its width.
    """
    buffer = io.StringIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the browser has the missing glyphs
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
    """Number of pictures, so that the ids in one page differ."""

    count = 0
