"""Figures of the report of a reproduction."""

from collections.abc import Sequence
from typing import Any

from matplotlib.ticker import FuncFormatter

from spdnet import plots
from spdnet.paper.results import RowResults
from spdnet.plots import BASELINE, TRAIN
from spdnet.runs.report.figures import Picture, canvas, svg


def beside_the_paper(rows: Sequence[RowResults], measure: str, title: str) -> Picture | None:
    """Draw our score and the paper's for each row; bars are standard deviations."""
    rows = [row for row in rows if row.paper.get(measure) or measure in row.ours]
    if not rows:
        return None
    with canvas(7.2, 1.1 + 0.3 * len(rows)) as axes:
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
        return svg(axes, f"Ours beside the paper: {title}")


def training_curves(rows: Sequence[RowResults], key: str, title: str) -> Picture | None:
    """Draw the training loss, or the test accuracy, of each network over the epochs."""
    rows = [row for row in rows if row.history and key in row.history[0]]
    if not rows:
        return None
    with canvas(4.8, 3.4) as axes:
        measure, part = ("loss", "train") if key == "loss" else ("accuracy", "test")
        for i, row in enumerate(rows):
            style: Any = {"label": row.title, "lw": 1.2, "color": f"C{i}"}
            plots.learning_curves(list(row.history), measure, parts=[part], ax=axes, **style)
        axes.set(ylabel="training loss" if key == "loss" else "test accuracy, %")
        if key != "loss":
            axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g}"))
        axes.set_title(title, fontsize=9, wrap=True)
        axes.legend()
        return svg(axes, f"{key.replace('_', ' ')} over the epochs: {title}")


def verification(rows: Sequence[RowResults], task: str, title: str) -> Picture | None:
    """Draw the verification rate against the false acceptance rate of each row."""
    rows = [row for row in rows if task in row.roc]
    if not rows:
        return None
    with canvas(6.4, 3.4) as axes:
        for i, row in enumerate(rows):
            curve = row.roc[task]
            plots.roc((curve.far, curve.rate), label=row.title, color=f"C{i}", ax=axes)
        axes.set_title(f"{task}: {title}", fontsize=9, wrap=True)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        return svg(axes, f"ROC of {task}: {title}")
