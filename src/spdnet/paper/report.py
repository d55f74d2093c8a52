"""Report of a reproduction."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from spdnet import plots
from spdnet._files import atomic_write
from spdnet.data.names import printable
from spdnet.paper.results import ExperimentResults, ReproductionFolder, RowResults, axis_title
from spdnet.plots import BASELINE, TRAIN
from spdnet.runs.report.figures import canvas, svg
from spdnet.runs.report.page import page_of, render

_LEGEND_RIGHT: Any = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}


def write_reproduction(folder: ReproductionFolder) -> Path:
    """Write ``report.html`` and its figures as SVG files into the folder, and return its path.

    Examples
    --------
    >>> import tempfile
    >>> from spdnet.paper import Reproduction, ReproductionFolder, reproduce
    >>> from spdnet.paper import write_reproduction
    >>> wanted = Reproduction(experiment="epsilon", standin="digits", quick=True, device="cpu")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = reproduce(wanted, ReproductionFolder(f"{folder}/epsilon"))
    ...     write_reproduction(ReproductionFolder(f"{folder}/epsilon")).name
    'report.html'
    """
    found = folder.results()
    with page_of(folder) as common:
        experiments = [(one, _figures(one, found.heading(one))) for one in found.experiments]
        common |= {"what": found.title, "heading": found.title, "settings": found.settings}
        page = render("reproduction.html", **common, found=found, experiments=experiments)
    for experiment, figures in experiments:
        for name, picture in figures.items():
            file = re.sub(r"[^\w-]+", "-", f"{experiment.data}-{name}")
            atomic_write(folder.path / f"{file}.svg", printable(picture, "\n") + "\n")
    atomic_write(folder.report_file, page)
    return folder.report_file


def _figures(experiment: ExperimentResults, title: str) -> dict[str, Markup]:
    """Draw the figures; return them by file name."""
    rows = experiment.rows
    figures: dict[str, Markup | None] = {}
    for m in experiment.shown_measures:
        scored = [row for row in rows if row.paper.get(m) or m in row.ours]
        size = (7.2, 1.1 + 0.3 * len(scored))
        figures[m] = _figure(_draw_scores, scored, m, size, "Ours and the paper: ", title)
        verified = [row for row in rows if m in row.roc]
        text = f"{m}: {title}"
        figures[f"roc-{m}"] = _figure(_draw_rocs, verified, m, (6.4, 3.4), "ROC of ", text)
    for key in ("loss", "test_accuracy"):
        trained = [row for row in rows if row.history and key in row.history[0]]
        about = f"{key.replace('_', ' ')} over the epochs: "
        name = f"curves-{key.replace('_', '-')}"
        figures[name] = _figure(_draw_curves, trained, key, (4.8, 3.4), about, title)
    return {name: picture for name, picture in figures.items() if picture is not None}


def _figure(
    draw: Callable[[Axes, Sequence[RowResults], str], None],
    rows: Sequence[RowResults],
    key: str,
    size: tuple[float, float],
    about: str,
    title: str,
) -> Markup | None:
    if not rows:
        return None
    with canvas(*size) as axes:
        draw(axes, rows, key)
        axes.set_title(title, fontsize=9, wrap=True)
        return svg(axes, f"{about}{title}")


def _draw_scores(axes: Axes, rows: Sequence[RowResults], measure: str) -> None:
    """Draw our score and the paper's for each row; bars are standard deviations."""
    for i, row in enumerate(rows):
        if measure in row.paper:
            std = row.paper.get("std")
            axes.errorbar(row.paper[measure], i - 0.12, xerr=std, fmt="s", color=BASELINE, ms=5)
        if ours := row.ours.get(measure):
            std = None if ours.std is None else 100 * ours.std
            axes.errorbar(100 * ours.mean, i + 0.12, xerr=std, fmt="D", color=TRAIN)
    axes.plot([], [], "s", color=BASELINE, ms=5, label="paper")
    axes.plot([], [], "D", color=TRAIN, label="ours")
    axes.legend(**_LEGEND_RIGHT)
    axes.set_xlabel(axis_title(measure))
    axes.set_yticks(range(len(rows)), [row.title for row in rows])
    axes.invert_yaxis()


def _draw_rocs(axes: Axes, rows: Sequence[RowResults], task: str) -> None:
    for i, row in enumerate(rows):
        curve = row.roc[task]
        plots.roc((curve.far, curve.rate), label=row.title, color=f"C{i}", ax=axes)
    axes.legend(**_LEGEND_RIGHT)


def _draw_curves(axes: Axes, rows: Sequence[RowResults], key: str) -> None:
    measure, part = ("loss", "train") if key == "loss" else ("accuracy", "test")
    for i, row in enumerate(rows):
        style: Any = {"label": row.title, "lw": 1.2, "color": f"C{i}"}
        plots.learning_curves(row.history, measure, parts=[part], ax=axes, **style)
    axes.set(ylabel="training loss" if key == "loss" else "test accuracy, %")
    if key != "loss":
        axes.yaxis.set_major_formatter(FuncFormatter(lambda fraction, _: f"{100 * fraction:g}"))
    axes.legend()
