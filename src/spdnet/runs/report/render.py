"""HTML from the templates, which escape every value but the figures."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from spdnet.data.names import printable


@dataclass(frozen=True)
class Table:
    """Rows of a table.

    Parameters
    ----------
    rows : sequence of sequences
    head : sequence of str
        Titles of the columns; none when empty.
    kind : str
        Classes of the style sheet: ``plain`` for text, ``plain numbers`` for numbers after the
        first column.
    """

    rows: Sequence[Sequence[Any]]
    head: Sequence[str] = ()
    kind: str = ""


def named(values: Mapping[str, Any]) -> Table:
    """Make a table of names and values, without those that are None."""
    rows = [
        (key, ", ".join(map(str, v)) if isinstance(v, (list, tuple)) else v)
        for key, v in values.items()
        if v is not None
    ]
    return Table(rows, kind="plain")


def environment_table(environment: Mapping[str, Any]) -> Table:
    """Make a table of versions, machine and command."""
    others = {name: value for name, value in environment.items() if name != "libraries"}
    return named({**others, **environment["libraries"]})


def render(template: str, **values: Any) -> str:
    """Fill a template; control characters, which no page may hold, are written as escapes."""
    return printable(_templates().get_template(template).render(values), keep="\n")


@contextmanager
def results_of(file: Path) -> Iterator[None]:
    """Turn what unexpected contents of a results file raise into one clear error."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise ValueError(
            f"report: expected results written by spdnet in {file}, got something else: {error!r}"
        ) from error


@cache
def _templates() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("spdnet.runs.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
