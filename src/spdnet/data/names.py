"""Names that strangers gave to classes, files and groups, where people see them."""

import re

#: control characters, halves of letters, ends of lines, and marks that turn the direction of text
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]",
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def printable(text: str, keep: str = "") -> str:
    r"""Text that does nothing but stand there, in a terminal or on a page.

    What would move the cursor, colour or hide text, or turn its direction is written as Python
    writes it; all letters stay as they are.

    Parameters
    ----------
    text : str
    keep : str
        Characters that may stay, such as the ends of lines.

    Examples
    --------
    >>> from spdnet.data.names import printable
    >>> printable("\x1b[31mred\nlight")
    '\\x1b[31mred\\nlight'
    """
    return _UNSEEN.sub(lambda found: found[0] if found[0] in keep else repr(found[0])[1:-1], text)


def spreadsheet_safe(text: str) -> str:
    """A name as a cell of a CSV file that a spreadsheet does not take for a formula.

    A name that begins with ``=``, ``+``, ``-``, ``@``, a tab or an end of line gets an apostrophe
    before it, which spreadsheets take away or show, and never run; so does one that begins with
    apostrophes and goes on like that, so that different names stay different. Numbers such as
    ``-1`` stay as they are. A program that needs the name itself takes one apostrophe away from
    what begins with apostrophes and goes on so: :func:`from_spreadsheet`.

    Examples
    --------
    >>> from spdnet.data.names import spreadsheet_safe
    >>> [spreadsheet_safe(name) for name in ("=A1", "walk", "-1", "'=A1")]
    ["'=A1", 'walk', '-1', "''=A1"]
    """
    return f"'{text}" if _is_formula(text) else text


def from_spreadsheet(cell: str) -> str:
    """The name that :func:`spreadsheet_safe` made a cell of."""
    return cell[1:] if cell.startswith("'") and _is_formula(cell[1:]) else cell


def _is_formula(text: str) -> bool:
    bare = text.lstrip("'")
    if not bare.startswith(_FORMULA):
        return False
    return re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text, re.ASCII) is None
