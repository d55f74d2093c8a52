"""Reports of runs and comparisons: HTML pages whose templates escape all values except figures."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from spdnet._files import atomic_write
from spdnet.data.names import printable
from spdnet.plots.style import MAX_LABELED_CLASSES
from spdnet.runs.comparison import ComparisonFolder
from spdnet.runs.findings import percent
from spdnet.runs.folder import Folder
from spdnet.runs.report import figures
from spdnet.runs.results import PART_TITLES, RepeatResults
from spdnet.runs.run_folder import RunFolder

#: maximum number of classes in a confusion figure, in which a class is at least two pixels wide
_MAX_DRAWN = 400
_PAIRS = 20


def write_report(folder: RunFolder | ComparisonFolder) -> Path:
    """Write ``report.html`` into the folder of a finished run or comparison; return its path.

    Examples
    --------
    >>> import tempfile
    >>> from spdnet.runs import RunFolder, Settings, train
    >>> from spdnet.runs.report import write_report
    >>> settings = Settings(data="digits", epochs=1, dims=(17, 8), device="cpu", baseline=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = train(settings, RunFolder(f"{folder}/run"))
    ...     write_report(RunFolder(f"{folder}/run")).name
    'report.html'
    """
    atomic_write(folder.report_file, make_page(folder))
    return folder.report_file


def make_page(folder: RunFolder | ComparisonFolder) -> str:
    """Return the report of a run or comparison: one HTML page without external resources."""
    return _comparison(folder) if isinstance(folder, ComparisonFolder) else _run(folder)


def _run(folder: RunFolder) -> str:
    found, history = folder.results(), folder.metrics()
    unused = set() if found.signals else {"estimator", "reg"}  # only for covariances of signals
    settings = {k: v for k, v in folder.settings().as_dict().items() if k not in unused}
    settings["signals"] = "yes" if found.signals else "no"
    n, confusion = len(found.classes), found.confusion
    with page_of(folder) as common:
        common |= {
            "what": found.network,
            "found": found,
            "part": PART_TITLES[found.scored],
            "confusion": None,
            "pairs": confusion.most_confused(_PAIRS) if n > MAX_LABELED_CLASSES else [],
            "settings": settings,
        }
        if n <= _MAX_DRAWN:
            common["confusion"] = figures.confusion(confusion.dense(), found.classes)
        if isinstance(found, RepeatResults):
            return render("repeats.html", **common, picture=figures.repeats(found))
        return render(
            "run.html",
            **common,
            curves=figures.learning_curves(history, found.best_epoch),
            spectra=[figures.spectrum(layer) for layer in found.spectra],
        )


def _comparison(folder: ComparisonFolder) -> str:
    found = folder.results()
    with page_of(folder) as common:
        picture = figures.comparison(found.rows) or ""
        common |= {"what": "comparison", "found": found, "settings": found.settings}
        return render("comparison.html", **common, picture=picture)


def render(template: str, **values: Any) -> str:
    """Fill a template; control characters, which HTML does not allow, are escaped."""
    return printable(_templates().get_template(template).render(values), keep="\n")


@contextmanager
def page_of(folder: Folder) -> Iterator[dict[str, Any]]:
    """Yield values for the base template; convert errors from invalid results to a ValueError."""
    values = {"name": folder.path.resolve().name, "environment": folder.environment()}
    try:
        yield values
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise ValueError(
            f"report: expected results written by spdnet in {folder.results_file}, got something "
            f"else: {error!r}"
        ) from error


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def _fixed(value: float | None, digits: int = 2) -> str:
    """Format a fraction in percent with a fixed number of digits."""
    return "-" if value is None else f"{100 * value:.{digits}f} %"


@cache
def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("spdnet.runs.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"duration": _duration, "fixed": _fixed, "percent": percent}
    environment.globals |= {"part_titles": PART_TITLES}
    return environment
