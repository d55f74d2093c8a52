"""Typed records that are stored as JSON, and tables as text and as CSV."""

import csv
import io
import json
import reprlib
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints

from spdnet._files import atomic_write

_KINDS = {str: "text", int: "an integer", float: "a finite number", bool: "true or false"}


@dataclass(frozen=True)
class Record:
    """Base class of dataclasses whose field types describe a JSON object.

    Field types are ``str``, ``int``, ``float`` (finite), ``bool``, ``Any``, literals, other
    records, ``tuple[T, ...]`` (a JSON array), ``dict[str, T]`` and ``T | None``. The metadata entry
    ``key`` of a field replaces its name in the file.
    """

    def to_json(self) -> dict[str, Any]:
        """Return plain values for :func:`json.dumps`."""
        return {
            f.metadata.get("key", f.name): _to_json(getattr(self, f.name)) for f in fields(self)
        }

    def write(self, file: Path) -> None:
        """Write the record to a JSON file."""
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(file, json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n")

    @classmethod
    def from_json(cls, values: Any, where: str = "results") -> Self:
        """Build the record from plain values.

        Raises
        ------
        ValueError
            A field is missing, unknown or of another type; the message names it.
        """
        if not isinstance(values, dict):
            raise ValueError(f"expected named values in {where}, got {reprlib.repr(values)}")
        hints, found, left = _hints(cls), {}, dict(values)
        for f in fields(cls):
            key = f.metadata.get("key", f.name)
            if key in left:
                found[f.name] = _from_json(hints[f.name], left.pop(key), f"{where}.{key}")
            elif f.default is MISSING and f.default_factory is MISSING:
                raise ValueError(f"expected a field {key!r} in {where}, got none")
        if left:
            raise ValueError(f"expected no field {min(left)!r} in {where}")
        return cls(**found)

    @classmethod
    def load(cls, file: Path, hint: str) -> Self:
        """Read the record from a JSON file; the hint explains how to get a missing file."""
        values = read_json(file, hint)
        try:
            return cls.from_json(values)
        except ValueError as error:
            raise ValueError(f"run: expected results of spdnet in {file}: {error}") from error


def read_json(path: Path, hint: str) -> dict[str, Any]:
    """Read a JSON object from a file; the hint explains how to get a missing file."""
    if not path.is_file():
        raise FileNotFoundError(f"run: expected {path}, got none; {hint}")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"run: expected JSON in {path}, but it is damaged: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"run: expected named values in {path}, got {type(found).__name__}")
    return found


def text_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table; the first column is left-aligned, the others right-aligned."""
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


_hints: Callable[[Any], dict[str, Any]] = cache(get_type_hints)  # slow to compute


def _to_json(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, dict):
        return {key: _to_json(item) for key, item in value.items()}
    return [_to_json(item) for item in value] if isinstance(value, tuple) else value


def _from_json(kind: Any, value: Any, path: str) -> Any:
    """Convert a JSON value to a field type, or raise a ValueError that names its path."""
    origin, arguments = get_origin(kind), get_args(kind)
    if type(None) in arguments:
        return None if value is None else _from_json(arguments[0], value, path)
    if origin is tuple and isinstance(value, list):
        return tuple(_from_json(arguments[0], item, f"{path}[{i}]") for i, item in enumerate(value))
    if origin is dict and isinstance(value, dict):
        return {
            _from_json(arguments[0], key, path): _from_json(arguments[1], item, f"{path}.{key}")
            for key, item in value.items()
        }
    if isinstance(kind, type) and issubclass(kind, Record):
        return kind.from_json(value, path)
    if kind is float and type(value) in (int, float) and abs(value) <= sys.float_info.max:
        return float(value)
    if kind is Any or (type(value) is kind and kind is not float):
        return value
    if origin is Literal and value in list(arguments):
        return value
    wanted = f"one of {arguments}" if origin is Literal else _KINDS.get(kind, "a list or an object")
    raise ValueError(f"expected {wanted} in {path}, got {reprlib.repr(value)}")
