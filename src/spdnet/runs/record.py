"""Typed records that are stored as JSON."""

import json
import math
import reprlib
import types
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Literal, Self, Union, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
class Record:
    """Base of dataclasses whose field types describe a JSON object.

    Field types are ``str``, ``int``, ``float`` (finite), ``bool``, ``None``, ``Any``, literals,
    unions, other records, ``tuple[T, ...]`` (a JSON array) and ``dict[str, T]``. The metadata entry
    ``key`` of a field replaces its name in the file.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from spdnet.runs.record import Record
    >>> @dataclass(frozen=True)
    ... class Score(Record):
    ...     n: int
    ...     accuracy: float | None
    >>> Score.from_json({"n": 3, "accuracy": 0.5}).to_json()
    {'n': 3, 'accuracy': 0.5}
    """

    def to_json(self) -> dict[str, Any]:
        """Return plain values for :func:`json.dumps`."""
        return {
            key: _plain(getattr(self, name)) for key, (name, _, _) in _schema(type(self)).items()
        }

    @classmethod
    def from_json(cls, values: Any, where: str = "") -> Self:
        """Build the record from plain values and check their types.

        Raises
        ------
        ValueError
            A field is missing, unknown or of another type; the message names it.
        """
        if not isinstance(values, dict):
            raise ValueError(f"expected named values{_at(where)}, got {reprlib.repr(values)}")
        schema = _schema(cls)
        if unknown := values.keys() - schema.keys():
            raise ValueError(f"expected no field {min(unknown)!r}{_at(where)}")
        found = {}
        for key, (name, kind, required) in schema.items():
            path = f"{where}.{key}" if where else key
            if key in values:
                found[name] = _read(kind, values[key], path)
            elif required:
                raise ValueError(f"expected a field {path}, got none")
        return cls(**found)

    @classmethod
    def load(cls, file: Path, hint: str) -> Self:
        """Read the record from a JSON file; the hint says how to get a missing file."""
        values = read_json(file, hint)
        try:
            return cls.from_json(values)
        except ValueError as error:
            raise ValueError(
                f"run: expected {cls.__name__} written by spdnet in {file}, got something else: "
                f"{error}"
            ) from error

    def to_text(self) -> str:
        """Return the text of a JSON file."""
        return json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n"


def read_json(path: Path, hint: str) -> dict[str, Any]:
    """Read a JSON object from a file; the hint says how to get a missing file."""
    if not path.is_file():
        raise FileNotFoundError(f"run: expected {path}, got none; {hint}")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"run: expected JSON in {path}, but it is damaged: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"run: expected named values in {path}, got {type(found).__name__}")
    return found


_SCHEMAS: dict[type, dict[str, tuple[str, Any, bool]]] = {}


def _schema(kind: type[Record]) -> dict[str, tuple[str, Any, bool]]:
    """Map JSON keys to the name and type of each field, and whether it is required."""
    if kind not in _SCHEMAS:
        hints = get_type_hints(kind)
        _SCHEMAS[kind] = {
            f.metadata.get("key", f.name): (
                f.name,
                hints[f.name],
                f.default is MISSING and f.default_factory is MISSING,
            )
            for f in fields(kind)
        }
    return _SCHEMAS[kind]


def _at(where: str) -> str:
    return f" in {where}" if where else ""


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _read(kind: Any, value: Any, path: str) -> Any:
    """Return a JSON value as a field type; raise a ValueError with its path if it is another."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any or (origin is Literal and value in arguments and isinstance(value, str)):
        return value
    if origin in (types.UnionType, Union):
        if value is None and type(None) in arguments:
            return None
        return _read(next(a for a in arguments if a is not type(None)), value, path)
    if origin is tuple and isinstance(value, list):
        return tuple(_read(arguments[0], item, f"{path}[{i}]") for i, item in enumerate(value))
    if origin is dict and isinstance(value, dict):
        return {
            _read(arguments[0], key, path): _read(arguments[1], item, f"{path}.{key}")
            for key, item in value.items()
        }
    if isinstance(kind, type) and issubclass(kind, Record):
        return kind.from_json(value, path)
    if kind is float and type(value) in (int, float):
        try:
            if math.isfinite(value):
                return float(value)
        except OverflowError:
            pass
    elif isinstance(kind, type) and type(value) is kind:
        return value
    wanted = " or ".join(map(repr, arguments)) if origin is Literal else _NAMES.get(kind, "a list")
    wanted = "named values" if origin is dict else wanted
    raise ValueError(f"expected {wanted} in {path}, got {reprlib.repr(value)}")


_NAMES = {str: "text", int: "an integer", float: "a finite number", bool: "true or false"}
