"""Report of a comparison."""

from pathlib import Path

from spdnet._files import atomic_write
from spdnet.runs.comparison_folder import ComparisonFolder
from spdnet.runs.report import figures
from spdnet.runs.report.render import render, results_of


def write_comparison(folder: ComparisonFolder) -> Path:
    """Write ``report.html`` into the folder of a finished comparison, and return its path.

    Examples
    --------
    >>> import tempfile
    >>> from spdnet.runs import Comparison, ComparisonFolder, compare
    >>> from spdnet.runs.report import write_comparison
    >>> settings = Comparison(data="digits", methods=("logistic",), repeats=1, device="cpu")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = compare(settings, ComparisonFolder(folder))
    ...     write_comparison(ComparisonFolder(folder)).name
    'report.html'
    """
    atomic_write(folder.report_file, make_comparison(folder))
    return folder.report_file


def make_comparison(folder: ComparisonFolder) -> str:
    """Return the report of a comparison: one HTML page without external resources."""
    found, environment = folder.results(), folder.environment()
    name = folder.path.resolve().name
    with results_of(folder.results_file):
        return render(
            "comparison.html",
            title=f"{name}: comparison",
            heading=name,
            found=found,
            picture=figures.comparison(found.rows) or "",
            settings=found.settings,
            environment=environment,
        )
