"""HTML from the templates, which escape every value except figures."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from spdnet.data.names import printable
from spdnet.runs.findings import percent
from spdnet.runs.results import PART_TITLES


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
