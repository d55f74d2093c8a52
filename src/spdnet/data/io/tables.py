"""Tables of numbers in text files: ``.csv``, ``.tsv`` and ``.txt``."""

import re

import numpy
from numpy.typing import NDArray

from spdnet.data.errors import DataError

SUFFIXES = (".csv", ".tsv", ".txt")
#: largest table in bytes; its numbers take at most four times this size in memory
LARGEST = 2**28
_SEPARATORS = {"\t": "tabs", ";": "semicolons", ",": "commas"}
_NUMBER = re.compile(
    r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf|infinity)", re.ASCII | re.IGNORECASE
)
_MISSING = re.compile(r"na|#?n/a|null|none|missing|-+|\?+|-?nan\(.*\)", re.IGNORECASE)
_COUNTER = re.compile(
    r"|unnamed: 0|index|no|nr|id|n|ms|s"
    r"|(t|(time|timestamp|sec|second|sample|frame)s?)([^a-z\d]\D*)?",
    re.ASCII | re.IGNORECASE,
)
_PANDAS = "save a pandas table with to_csv(file, header=False, index=False)"


def parse_table(data: bytes, name: str) -> NDArray[numpy.float64]:
    r"""Parse a table of numbers in UTF-8.

    Numbers have a decimal point and are separated by commas, semicolons, tabs or blanks; ``nan`` is
    a missing value. Comment lines that start with ``#`` and one line of column names may precede
    them. Anything else raises an error that names the line: nothing is skipped or guessed.

    >>> parse_table(b"Fz, Cz\n1.5, 2\n3, 4e-1\n", "a.csv")
    array([[1.5, 2. ],
           [3. , 0.4]])
    """
    lines = text_lines(data, name, "numbers")
    first = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    if first == len(lines):
        raise DataError(f"read: expected a table of numbers in {name}, got no lines of numbers")
    names = _column_names(lines, first, name)
    begin = first if names is None else first + 1
    if begin == len(lines):
        raise DataError(
            f"read: expected numbers below line {begin} of {name}, {_short(lines[first])}, got none"
        )
    separator = _separator(lines[begin])
    body = lines[begin:]
    if separator is not None:
        stripped = [line.rstrip(" ") for line in body]
        if all(line.endswith(separator) for line in stripped):
            body = [line[:-1] for line in stripped]
    try:
        table = numpy.loadtxt(body, delimiter=separator, comments=None, ndmin=2)
    except ValueError:
        table = None
    if table is None or len(table) != len(body):
        raise _line_error(body, begin + 1, separator, name)
    if names is not None:
        named = len(names) - (not names[-1])  # the line may end with a separator
        if table.shape[1] not in (named, len(names)):
            raise DataError(
                f"read: expected as many numbers as names, {named}, in line {begin + 1} of {name}, "
                f"got {table.shape[1]}; write decimals with a point, and use one separator"
            )
    fields = _fields(body[0], separator)
    rows, columns = table.shape
    counts = [[str(i) for i in range(start, start + columns)] for start in (0, 1)]
    if columns > 2 and rows > 1 and fields in counts and "." in body[1]:
        raise DataError(
            f"read: expected numbers in line {begin + 1} of {name}, got column numbers; remove "
            f"them: {_PANDAS}"
        )
    if count := _count_counters(table, names, fields):
        what = "what looks like times or an index" if names is None else _short(names[0])
        header = ", header=None" if names is None else ""
        turn, how = "", ""
        if rows > columns:
            turn, how = " and transpose, since rows are channels", ".T"
        raise DataError(
            f"read: expected only channels in {name}, got {what} in the first column; remove it"
            f"{turn}: pandas.read_csv(file{header}).iloc[:, {count}:]{how}.to_csv(file, "
            "header=False, index=False)"
        )
    return table


def text_lines(data: bytes, name: str, what: str) -> list[str]:
    """Return the lines of a UTF-8 text, in which only trailing lines may be blank."""
    if len(data) > LARGEST:
        raise DataError(
            f"read: expected at most {LARGEST} bytes of text in {name}, got {len(data)}; save it "
            "with numpy.save as .npy"
        )
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"read: expected text in UTF-8, but {name} is in UTF-16; save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"read: expected text in UTF-8, but line {number} of {name} is not: {error.reason}"
        ) from error
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            raise DataError(
                f"read: expected {what} on every line of {name}, got none on line {number}"
            )
    return lines


def _column_names(lines: list[str], first: int, name: str) -> list[str] | None:
    """Return the column names in the first line, None if it has numbers."""
    fields = _fields(lines[first], _separator(lines[first]))
    numbers = [bool(_NUMBER.fullmatch(field)) for field in fields]
    if not fields[-1]:  # the line ends with a separator
        numbers = numbers[:-1]
    if all(numbers):
        return None
    if all(_MISSING.fullmatch(field.strip("\"'")) for field in fields if field):
        raise DataError(
            f"read: expected names or numbers in line {first + 1} of {name}, got "
            f"{_short(fields[0])}; write nan for what is missing"
        )
    if any(numbers) or all(re.match(r"[+-]?\.?\d", field) for field in fields if field):
        wrong = fields[numbers.index(False)]
        raise DataError(
            f"read: expected either names or numbers in line {first + 1} of {name}, got "
            f"{_short(wrong)}{_decimal(wrong)}; {_PANDAS}"
        )
    return fields


def _separator(line: str) -> str | None:
    """Return the separator of a line, None for blanks."""
    return next((s for s in _SEPARATORS if s in line.strip(" ")), None)


def _fields(line: str, separator: str | None) -> list[str]:
    return [field.strip() for field in line.strip(" ").split(separator)] or [""]


def _line_error(lines: list[str], begin: int, separator: str | None, name: str) -> DataError:
    """Return the error for the first line that is not a row of the table."""
    columns = len(_fields(lines[0], separator))
    for number, line in enumerate(lines, begin):
        fields = _fields(line, separator)
        for column, field in enumerate(fields, 1):
            if not _NUMBER.fullmatch(field):
                advice = "; write nan for what is missing" if not field else _decimal(field)
                return DataError(
                    f"read: expected a number in line {number}, column {column} of {name}, got "
                    f"{_short(field)}{advice}"
                )
        if len(fields) != columns:
            between = _SEPARATORS.get(separator or "", "blanks")
            return DataError(
                f"read: expected {columns} numbers between {between} on every line of {name}, as "
                f"on line {begin}, got {len(fields)} on line {number}"
            )
    return DataError(f"read: expected a table of numbers in {name}, got something else")


def _count_counters(
    table: NDArray[numpy.float64], names: list[str] | None, fields: list[str]
) -> int:
    """Return how many of the first columns are an index or times rather than channels.

    Without names, this needs more rows than columns, or integers before numbers with a point.
    """
    rows, columns = table.shape
    if rows < 3:
        return 0
    if names is not None:
        found = [
            bool(_COUNTER.fullmatch(title.strip("\"'"))) and _rises_evenly(column, 0.5)
            for title, column in zip(names[:2], table.T)
        ]
        return [*found, False].index(False)
    first = table[:, 0]
    is_index = first[0] in (0, 1) and numpy.array_equal(first, first[0] + numpy.arange(rows))
    is_index = is_index and "." not in fields[0] and any("." in field for field in fields[1:])
    if rows == columns or not (is_index or (rows >= 10 and rows > columns)):
        return 0
    found = [_rises_evenly(column, 1e-3) for column in table.T[:3]]
    return 0 if all(found) else found.index(False)  # columns that all rise are data


def _rises_evenly(column: NDArray[numpy.float64], tolerance: float) -> bool:
    if not numpy.isfinite(column).all():
        return False
    with numpy.errstate(all="ignore"):  # overflow
        step = (column[-1] - column[0]) / (len(column) - 1)
        line = column[0] + step * numpy.arange(len(column))
        return bool(step > 0 and (numpy.abs(column - line) <= tolerance * step).all())


def _decimal(field: str) -> str:
    return "; write decimals with a point" if re.fullmatch(r"[+-]?\d+,\d+.*", field) else ""


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}...")
