"""Figures of the reports, as SVG."""

import io
import itertools
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from spdnet import plots
from spdnet.plots import BASELINE, INK, TRAIN
from spdnet.runs.comparison import MethodRow
from spdnet.runs.results import LayerSpectrum, RepeatResults

_NUMBERS = itertools.count(1)  # numbers of the figures, for unique ids in a page


@contextmanager
def canvas(width: float, height: float) -> Iterator[Axes]:
    """Yield the axes of a new figure in the style of the reports, with text as text in the SVG."""
    with matplotlib.rc_context({**plots.STYLE, "svg.fonttype": "none"}):
        yield Figure(figsize=(width, height)).subplots()


def learning_curves(history: list[dict[str, float]], best_epoch: int) -> list[Markup]:
    """Draw loss and accuracy over the epochs; return no figures if there are no epochs."""
    drawn: list[Markup] = []
    if not history:
        return drawn
    validated = "val_loss" in history[0]
    for measure, title in (("loss", "Loss"), ("accuracy", "Accuracy")):
        with canvas(4.8, 3.2) as axes:
            parts = ["train", "val"] if validated else ["train"]
            best = best_epoch if validated else None
            plots.learning_curves(history, measure, parts=parts, best_epoch=best, ax=axes)
            axes.set(title=title, ylabel="")
            drawn.append(svg(axes, f"{title} over the epochs"))
    return drawn


def confusion(counts: NDArray[Any], classes: Sequence[str]) -> Markup:
    """Draw true classes in rows, predicted classes in columns; shades are fractions of the row."""
    size = plots.confusion_size(len(classes))
    with canvas(size, size) as axes:
        plots.confusion(counts, list(classes), ax=axes)
        return svg(axes, "Confusion matrix", narrowest=0.9)


def spectrum(entry: LayerSpectrum) -> Markup:
    """Draw eigenvalues in descending order: the median, and the 5th to 95th percentile."""
    bands = {"low": entry.low, "median": entry.median, "high": entry.high}
    values = [v for band in bands.values() for v in band]
    if max(values) - min(values) <= 1e-9 * max(map(abs, values)):
        # equal up to rounding errors, which an axis cannot show
        bands = {name: (values[0],) * len(band) for name, band in bands.items()}
    with canvas(3.2, 2.5) as axes:
        plots.spectra(bands, log=entry.layer != "LogEig", ax=axes)
        n = len(entry.median)
        axes.set(title=f"{entry.layer} ({n} x {n})", xlabel="", ylabel="")
        return svg(axes, f"Eigenvalues after {entry.layer}")


def repeats(found: RepeatResults) -> Markup:
    """Draw the accuracy of the network and of the baseline in each repeat."""
    with canvas(4.8, 3.0) as axes:
        names = [str(seed) for seed in found.seeds]
        ours = [100 * a for a in found.accuracy.known]
        axes.plot(names, ours, "o", color=TRAIN, label=found.network)
        if found.baseline is not None:
            values = [100 * a for a in found.baseline.accuracy.known]
            axes.plot(names, values, "D", color=BASELINE, label="log-Euclidean linear", ms=5)
        axes.set(xlabel="seed", ylabel="accuracy, %")
        axes.legend()
        return svg(axes, "Accuracy of each repeat")


def comparison(rows: Sequence[MethodRow]) -> Markup | None:
    """Draw the accuracy of each method: a diamond for the mean, a dot for each repeat."""
    scores = [(row, row.accuracy) for row in rows if row.accuracy is not None]
    if not scores:
        return None
    with canvas(7.2, 0.6 + 0.28 * len(scores)) as axes:
        for i, (row, accuracy) in enumerate(scores):
            values = [100 * v for v in accuracy.known]
            color = TRAIN if row.method.startswith("spdnet") else INK
            axes.plot(values, [i] * len(values), ".", color=color, ms=4, alpha=0.5)
            axes.plot(100 * accuracy.mean, i, "D", color=color, ms=5)
        axes.set(xlabel="accuracy, %")
        axes.set_yticks(range(len(scores)), [row.title for row, _ in scores])
        axes.invert_yaxis()
        return svg(axes, "Accuracy of each method")


def svg(axes: Any, title: str, narrowest: float = 0.0) -> Markup:
    """Return the figure of some axes as SVG that scales with the page and has unique ids.

    All text is escaped. The width never falls below the fraction ``narrowest`` of the full width.
    """
    buffer = io.StringIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the browser has the missing glyphs
        axes.figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    width = float(re.search(r'width="([\d.]+)pt"', svg)[1])  # type: ignore[index]
    svg = re.sub(r' (width|height)="[\d.]+pt"', "", svg, count=2)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>f{next(_NUMBERS)}-", svg)
    full = width * 4 / 3
    style = f"max-width:{full:.0f}px;min-width:{narrowest * full:.0f}px"
    label = f'<svg role="img" aria-label="{escape(title)}" style="{style}"'
    return Markup(svg.replace("<svg", label, 1))
