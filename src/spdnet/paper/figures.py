"""Figures of the report of a reproduction."""

from collections.abc import Sequence

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from spdnet import plots
from spdnet.paper.results import RowResults
from spdnet.plots import BASELINE, TRAIN
from spdnet.runs.report.figures import STYLE, Picture, svg


def beside_the_paper(rows: Sequence[RowResults], measure: str, title: str) -> Picture | None:
    """Draw our score and the paper's for each row; bars are standard deviations."""
    rows = [row for row in rows if row.paper.get(measure) or measure in row.ours]
    if not rows:
        return None
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 1.1 + 0.3 * len(rows)))
        axes = figure.subplots()
        for i, row in enumerate(rows):
            paper, ours = row.paper.get(measure), row.ours.get(measure)
            if paper is not None:
                std = row.paper.get("std")
                axes.errorbar(paper, i - 0.12, xerr=std, fmt="s", color=BASELINE, ms=5)
            if ours is not None:
                std = None if ours.std is None else 100 * ours.std
                axes.errorbar(100 * ours.mean, i + 0.12, xerr=std, fmt="D", color=TRAIN)
        axes.plot([], [], "s", color=BASELINE, ms=5, label="paper")
        axes.plot([], [], "D", color=TRAIN, label="ours")
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        axes.set_xlabel("accuracy, %" if measure == "accuracy" else f"{measure}, % at FAR 0.01")
        axes.set_title(title, fontsize=9, wrap=True)
        axes.set_yticks(range(len(rows)), [row.title for row in rows])
        axes.invert_yaxis()
        return svg(figure, f"Ours beside the paper: {title}")


def training_curves(rows: Sequence[RowResults], key: str, title: str) -> Picture | None:
    """Draw the training loss, or the test accuracy, of each network over the epochs."""
    rows = [row for row in rows if row.history and key in row.history[0]]
    if not rows:
        return None
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.8, 3.4))
        axes = figure.subplots()
        measure, part = ("loss", "train") if key == "loss" else ("accuracy", "test")
        for i, row in enumerate(rows):
            plots.learning_curves(
                list(row.history),
                measure,
                parts=[part],
                ax=axes,
                label=row.title,
                lw=1.2,
                color=f"C{i}",
            )
        axes.set(ylabel="training loss" if key == "loss" else "test accuracy, %")
        if key != "loss":
            axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g}"))
        axes.set_title(title, fontsize=9, wrap=True)
        axes.legend()
        return svg(figure, f"{key.replace('_', ' ')} over the epochs: {title}")


def verification(rows: Sequence[RowResults], task: str, title: str) -> Picture | None:
    """Draw the verification rate against the false acceptance rate of each row."""
    rows = [row for row in rows if task in row.roc]
    if not rows:
        return None
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 3.4))
        axes = figure.subplots()
        for i, row in enumerate(rows):
            curve = row.roc[task]
            plots.roc((curve.far, curve.rate), label=row.title, color=f"C{i}", ax=axes)
        axes.set_title(f"{task}: {title}", fontsize=9, wrap=True)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        return svg(figure, f"ROC of {task}: {title}")
