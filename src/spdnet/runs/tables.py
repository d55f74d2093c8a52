"""Tables as text and as CSV."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any


def text_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table with aligned columns, the first to the left.

    Examples
    --------
    >>> from spdnet.runs.tables import text_table
    >>> text_table(["", "s"], [["CDL", "1.5"], ["RSR", "12"]])
    ['       s', 'CDL  1.5', 'RSR   12']
    """
    table = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
        for row in table
    ]


def csv_table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return the text of a CSV file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    return text.getvalue()
