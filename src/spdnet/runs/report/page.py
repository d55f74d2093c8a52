"""Reports of runs and comparisons: HTML pages whose templates escape every value but figures."""

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
from spdnet.runs.report import figures
from spdnet.runs.results import PART_TITLES, RepeatResults
from spdnet.runs.run_folder import RunFolder

#: no picture of the confusion for more classes: a class would be less than two pixels wide
_MOST_DRAWN = 400
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
    found, history, environment = folder.results(), folder.metrics(), folder.environment()
    unused = set() if found.signals else {"estimator", "reg"}  # of the covariances of signals
    settings = {k: v for k, v in folder.settings().as_dict().items() if k not in unused}
    settings["signals"] = "yes" if found.signals else "no"
    classes, confusion = found.classes, found.confusion
    name = folder.path.resolve().name
    with results_of(folder.results_file):
        common = {
            "title": f"{name}: {found.network}",
            "heading": name,
            "found": found,
            "part": PART_TITLES[found.scored],
            "confusion": figures.confusion(confusion.dense(), classes)
            if len(classes) <= _MOST_DRAWN
            else None,
            "pairs": confusion.most_confused(_PAIRS) if len(classes) > MAX_LABELED_CLASSES else [],
            "settings": settings,
            "environment": environment,
        }
        if isinstance(found, RepeatResults):
            return render("repeats.html", **common, picture=figures.repeats(found))
        return render(
            "run.html",
            **common,
            curves=figures.learning_curves(history, found.best_epoch),
            spectra=[figures.spectrum(layer) for layer in found.spectra],
        )


def _comparison(folder: ComparisonFolder) -> str:
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


def render(template: str, **values: Any) -> str:
    """Fill a template; control characters, which HTML does not allow, are escaped."""
    return printable(_templates().get_template(template).render(values), keep="\n")


@contextmanager
def results_of(file: Path) -> Iterator[None]:
    """Turn errors caused by unusable values in a results file into one clear error."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise ValueError(
            f"report: expected results written by spdnet in {file}, got something else: {error!r}"
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
