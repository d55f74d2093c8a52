"""Report of a reproduction."""

import re
from pathlib import Path

from spdnet._files import atomic_write
from spdnet.data.names import printable
from spdnet.paper import figures
from spdnet.paper.folder import ReproductionFolder
from spdnet.paper.results import ExperimentResults
from spdnet.runs.report.figures import Picture
from spdnet.runs.report.render import render, results_of


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
    with results_of(folder.results_file):
        plots = [_plots(found.heading(each), each) for each in found.experiments]
        page = render(
            "reproduction.html",
            title=f"{folder.path.resolve().name}: {found.title}",
            heading=found.title,
            found=found,
            experiments=list(zip(found.experiments, plots, strict=True)),
            settings=found.settings,
            environment=environment,
        )
    for experiment, pictures in zip(found.experiments, plots, strict=True):
        for name, picture in pictures.items():
            file = re.sub(r"[^\w-]+", "-", f"{experiment.data}-{name}")
            atomic_write(folder.path / f"{file}.svg", printable(picture.svg, "\n") + "\n")
    atomic_write(folder.report_file, page)
    return folder.report_file


def _plots(title: str, experiment: ExperimentResults) -> dict[str, Picture]:
    """Draw the figures, by the names of their files."""
    rows = experiment.rows
    plots: dict[str, Picture | None] = {}
    for measure in experiment.shown_measures:
        plots[measure] = figures.beside_the_paper(rows, measure, title)
        plots[f"roc-{measure}"] = figures.verification(rows, measure, title)
    for key in ("loss", "test_accuracy"):
        plots[f"curves-{key.replace('_', '-')}"] = figures.training_curves(rows, key, title)
    return {name: picture for name, picture in plots.items() if picture is not None}
