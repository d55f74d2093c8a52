"""The report of a reproduction: the paper's figures beside ours."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spdnet.data.names import printable
from spdnet.paper import ReproductionFolder
from spdnet.paper.tables import (
    epoch_seconds,
    heading,
    measure_name,
    notes,
    our_figure,
    paper_figure,
    paper_seconds,
    shown_measures,
    sizes,
)
from spdnet.runs.report import figures
from spdnet.runs.report.figures import Picture
from spdnet.runs.report.render import Table, environment_table, named, render, results_of
from spdnet.runs.run_folder import write


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
    found, environment = folder.results(), folder.environment()
    name = folder.path.resolve().name
    with results_of(folder.results_file):
        plots = [_plots(found, experiment) for experiment in found["experiments"]]
        page = render(
            "reproduction.html",
            title=f"{name}: {found['title']}",
            heading=found["title"],
            experiments=[
                _experiment(found, *each) for each in zip(found["experiments"], plots, strict=True)
            ],
            settings=named({k: v for k, v in found.items() if k not in ("experiments", "title")}),
            environment=environment_table(environment),
        )
        files = {
            re.sub(r"[^\w-]+", "-", f"{experiment['data']}-{name}"): picture
            for experiment, pictures in zip(found["experiments"], plots, strict=True)
            for name, picture in pictures.items()
        }
    for name, picture in files.items():
        write(folder.path / f"{name}.svg", printable(picture.svg, "\n") + "\n")
    write(folder.report_file, page)
    return folder.report_file


def _plots(found: dict[str, Any], experiment: dict[str, Any]) -> dict[str, Picture]:
    """Draw the figures, by the names of their files."""
    title, rows = heading(found, experiment), experiment["rows"]
    plots = {}
    for measure in shown_measures(experiment):
        plots[measure] = figures.beside_the_paper(rows, measure, title)
        plots[f"roc-{measure}"] = figures.verification(rows, measure, title)
    for key in ("loss", "test_accuracy"):
        plots[f"curves-{key.replace('_', '-')}"] = figures.training_curves(rows, key, title)
    return {name: picture for name, picture in plots.items() if picture is not None}


@dataclass(frozen=True)
class _Experiment:
    """What the page shows of one experiment."""

    title: str
    sizes: str
    warnings: list[str]
    table: Table
    notes: list[str]
    points: list[Picture]
    curves: list[Picture]


def _experiment(
    found: dict[str, Any], experiment: dict[str, Any], plots: dict[str, Picture]
) -> _Experiment:
    measures = shown_measures(experiment)
    head = ["method"]
    for measure in measures:
        head += [f"{measure_name(measure)}, paper", "ours"]
    rows = []
    for row in experiment["rows"]:
        cells = [row["title"]]
        for measure in measures:
            cells += [paper_figure(row, measure), our_figure(row, measure)]
        rows.append((*cells, epoch_seconds(row), paper_seconds(experiment, row)))
    standin = experiment["standin"]
    curves = {name: p for name, p in plots.items() if name.startswith(("curves", "roc"))}
    return _Experiment(
        title=experiment["what"] if standin else experiment["data"],
        sizes=sizes(found, experiment),
        warnings=[heading(found, experiment)] if standin else [],
        table=Table(rows, (*head, "s per epoch", "paper"), "plain numbers"),
        notes=notes(experiment),
        points=[p for name, p in plots.items() if name not in curves],
        curves=list(curves.values()),
    )
