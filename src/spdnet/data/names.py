"""Safe display of the names of classes, files and groups."""

import re
from collections.abc import Sequence

#: control characters, lone surrogates, line ends, and marks of text direction
_INVISIBLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]",
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def printable(text: str, keep: str = "") -> str:
    r"""Escape characters that control a terminal or change the direction of text.

    >>> printable("\x1b[31mred\nlight")
    '\\x1b[31mred\\nlight'
    """
    return _INVISIBLE.sub(
        lambda found: found[0] if found[0] in keep else repr(found[0])[1:-1], text
    )


def shorten(names: Sequence[str]) -> str:
    """List the first eight names, and count the others.

    >>> shorten([str(i) for i in range(10)])
    '0, 1, 2, 3, 4, 5, 6, 7 and 2 more'
    """
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if names[8:] else "")


def spreadsheet_safe(text: str) -> str:
    """Return a cell of a CSV file that spreadsheets do not evaluate as a formula.

    Text that starts with ``=``, ``+``, ``-``, ``@``, a tab or a line end, after any apostrophes,
    gets an apostrophe in front. Numbers such as ``-1`` stay unchanged.

    >>> [spreadsheet_safe(name) for name in ("=A1", "walk", "-1", "'=A1")]
    ["'=A1", 'walk', '-1', "''=A1"]
    """
    number = re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text, re.ASCII)
    return f"'{text}" if number is None and text.lstrip("'").startswith(_FORMULA) else text
