"""The page of a reproduction: the paper's figures beside ours, curves, settings, environment."""

from html import escape
from pathlib import Path
from typing import Any

from spdnet.datasets.names import printable
from spdnet.experiments import ReproductionFolder
from spdnet.experiments.reproduction_tables import (
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
from spdnet.experiments.run_folder import write
from spdnet.report import figures
from spdnet.report.page import document, plain, section, table


def write_reproduction(folder: ReproductionFolder) -> Path:
    """Write ``report.html``, and each of its plots by itself, into the folder; the page's path.

    Examples
    --------
    >>> import tempfile
    >>> from spdnet.experiments import Reproduction, ReproductionFolder, reproduce
    >>> from spdnet.report import write_reproduction
    >>> wanted = Reproduction(experiment="epsilon", standin="digits", quick=True, device="cpu")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = reproduce(wanted, ReproductionFolder(f"{folder}/epsilon"))
    ...     write_reproduction(ReproductionFolder(f"{folder}/epsilon")).name
    'report.html'
    """
    found = folder.results()
    parts = []
    for experiment in found["experiments"]:
        plots = _plots(found, experiment)
        for name, svg in plots.items():
            write(folder.path / f"{experiment['data']}-{name}.svg", printable(svg, "\n") + "\n")
        parts.append(_experiment(found, experiment, plots))
    name = folder.path.resolve().name
    environment = dict(folder.environment())
    environment |= environment.pop("libraries")
    settings = {k: v for k, v in found.items() if k not in ("experiments", "title")}
    body = [
        f"<h1>{escape(found['title'])}</h1>",
        *parts,
        section("Settings", "", plain(settings)),
        section("Environment", "", plain(environment)),
    ]
    write(folder.report_file, document(f"{name}: {found['title']}", "\n".join(body)))
    return folder.report_file


def _plots(found: dict[str, Any], experiment: dict[str, Any]) -> dict[str, str]:
    """By the names of their files."""
    title, rows = heading(found, experiment), experiment["rows"]
    plots = {}
    for measure in shown_measures(experiment):
        plots[measure] = figures.beside_the_paper(rows, measure, title)
        plots[f"roc-{measure}"] = figures.verification(rows, measure, title)
    for key in ("loss", "test_accuracy"):
        plots[f"curves-{key.replace('_', '-')}"] = figures.training_curves(rows, key, title)
    return {name: svg for name, svg in plots.items() if svg}


def _experiment(found: dict[str, Any], experiment: dict[str, Any], plots: dict[str, str]) -> str:
    measures = shown_measures(experiment)
    head = ["method"]
    for measure in measures:
        head += [f"{measure_name(measure)}, paper", "ours"]
    head += ["s per epoch", "paper"]
    rows = []
    for row in experiment["rows"]:
        cells = [row["title"]]
        for measure in measures:
            cells += [paper_figure(row, measure), our_figure(row, measure)]
        rows.append((*cells, epoch_seconds(row), paper_seconds(experiment, row)))
    title = heading(found, experiment)
    warning = f'<p class="note">{escape(title)}</p>' if experiment["standin"] else ""
    curves = "".join(svg for name, svg in plots.items() if name.startswith(("curves", "roc")))
    points = "".join(svg for name, svg in plots.items() if not name.startswith(("curves", "roc")))
    return section(
        experiment["what"] if experiment["standin"] else experiment["data"],
        f"{sizes(found, experiment)}; ± is the standard deviation over the repeats; curves are of "
        "the first repeat.",
        warning
        + table(tuple(head), rows, "plain numbers")
        + "".join(f'<p class="note">{escape(note)}</p>' for note in notes(experiment))
        + points
        + f'<div class="pictures wide">{curves}</div>',
    )
