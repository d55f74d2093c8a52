"""Kinds of values: parsing, validation and documentation."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from spdnet.models.members import MEMBERS
from spdnet.models.registry import MODELS

_LARGEST_INT = 2**31 - 1
_NO_NAMES = ("auto", "none")  # instead of names of members


def _checks() -> Any:
    """Return the module of checks, which imports torch and is therefore loaded on first use."""
    from spdnet import _checks

    return _checks


class Kind:
    """Base class of the kinds, which accepts any value."""

    #: type of the option on the command line
    type: type = str
    #: type in docstrings
    doc = "str"
    #: the allowed names, for a choice
    names: tuple[str, ...] = ()

    def convert(self, text: Any) -> Any:
        """Convert an argument of the command line, or raise a ValueError."""
        return text

    def parse(self, text: Any) -> Any:
        """Convert an argument of the command line; leave an invalid one to the check."""
        with suppress(ValueError):
            return self.convert(text)
        return text

    def check(self, who: str, name: str, value: Any) -> Any:
        """Return the valid value, or raise an error that states what was expected."""
        return value


class AnyOf(Kind):
    """Value of one of several types, which are checked elsewhere."""

    def __init__(self, doc: str) -> None:
        self.doc = doc


class Text(Kind):
    """Text."""

    def check(self, who: str, name: str, value: Any) -> Any:
        if not isinstance(value, str):
            raise TypeError(f"{who}: expected {name} to be text, got {value!r}")
        return value


class FilePath(Text):
    """Path of a file or folder that UTF-8 can encode, as a settings file requires."""

    def check(self, who: str, name: str, value: Any) -> Any:
        super().check(who, name, value)
        if "\0" in value or value.encode(errors="ignore").decode() != value:
            raise ValueError(
                f"{who}: expected {name} to be a path in UTF-8, as in a settings file, got "
                f"{value!r}; rename it"
            )
        return value


class Location(Kind):
    """Path of a file or folder, in any encoding."""

    type = Path


class Flag(Kind):
    """True or false."""

    type = bool
    doc = "bool"

    def check(self, who: str, name: str, value: Any) -> Any:
        if not isinstance(value, bool):
            raise TypeError(f"{who}: expected {name} to be true or false, got {value!r}")
        return value


class Choice(Kind):
    """One of several names.

    With ``none``, ``"none"`` is also accepted, or None in Python. With ``verb``, the name of a
    method of metrics, all registered metrics that have it are also accepted.
    """

    def __init__(self, *choices: str, none: bool = False, verb: str = "") -> None:
        self.choices, self.none, self.verb = choices, none, verb
        self.names = (*choices, "none") if none else choices
        self.doc = "{" + ", ".join(f'"{name}"' for name in self.names) + "}"

    def convert(self, text: Any) -> Any:
        return text.lower()

    def check(self, who: str, name: str, value: Any) -> Any:
        names = self.names
        if self.verb:
            from spdnet.manifolds import MetricNames

            names = tuple(dict.fromkeys((*names, *MetricNames(self.verb))))
        if not (self.none and value is None):
            _checks().require_choice(who, name, value, names)
        return value


class NameOr(Kind):
    """One of several names, or a value of another kind."""

    def __init__(self, other: Kind, *names: str) -> None:
        self.other, self.allowed = other, names
        self.doc = "{" + ", ".join(f'"{name}"' for name in names) + f"}} or {other.doc}"

    def convert(self, text: Any) -> Any:
        return text.lower() if text.lower() in self.allowed else self.other.type(text)

    def check(self, who: str, name: str, value: Any) -> Any:
        if isinstance(value, str):
            if value not in self.allowed:
                names = ", ".join(map(repr, self.allowed))
                raise ValueError(f"{who}: expected {name} to be {names} or a number, got {value!r}")
            return value
        return self.other.check(who, name, value)


class ModelName(Kind):
    """Name of a registered model, or ``package.module:Class``; nothing is imported."""

    names = (*MODELS, "package.module:Class")

    def convert(self, text: Any) -> Any:
        return text if ":" in text else text.lower()

    def check(self, who: str, name: str, value: Any) -> Any:
        module, colon, cls = value.partition(":") if isinstance(value, str) else ("", "", "")
        words = [*module.split("."), *cls.split(".")]
        if not (colon and all(word.isidentifier() or word == "<locals>" for word in words)):
            _checks().require_choice(who, name, value, self.names)
        return value


class Names(Kind):
    """Names of methods, which the comparison validates; None for ``all``."""

    doc = "sequence of str"

    def convert(self, text: Any) -> Any:
        names = [part.strip() for part in text.lower().split(",")]
        return None if names == ["all"] else tuple(filter(None, names))


class Members(Kind):
    """Names of members of a portfolio, ``"auto"`` or ``"none"``; the check returns a tuple."""

    doc = 'sequence of str, or "auto"'
    names = ("auto", *MEMBERS)

    def convert(self, text: Any) -> Any:
        return text.lower() if text.lower() in _NO_NAMES else tuple(text.lower().split(","))

    def check(self, who: str, name: str, value: Any) -> Any:
        if value in _NO_NAMES:
            return value
        if isinstance(value, str) or not value:
            raise ValueError(f"{who}: expected {name} such as log,all or auto, got {value!r}")
        for member in value:
            _checks().require_choice(who, name, member, MEMBERS)
        return tuple(value)


class Number(Kind):
    """A finite number within bounds: see :func:`spdnet._checks.require_number`."""

    type = float
    doc = "float"

    def __init__(self, **bounds: float) -> None:
        self.bounds = bounds

    def check(self, who: str, name: str, value: Any) -> Any:
        _checks().require_number(who, name, value, **self.bounds)
        return value


class Count(Kind):
    """An integer from 1 to 2147483647."""

    type = int
    doc = "int"

    def check(self, who: str, name: str, value: Any) -> Any:
        _checks().require_count(who, name, value)
        if value > _LARGEST_INT:
            raise ValueError(f"{who}: expected {name} of at most {_LARGEST_INT}, got {value}")
        return value


class Natural(Kind):
    """An integer from 0 to 2147483647."""

    type = int
    doc = "int"

    def check(self, who: str, name: str, value: Any) -> Any:
        if type(value) is not int or not 0 <= value <= _LARGEST_INT:
            raise ValueError(
                f"{who}: expected {name} to be an integer from 0 to {_LARGEST_INT}, got {value!r}"
            )
        return value


class Threshold(Kind):
    """A number of at least 0, or a percentage such as ``"10%"``."""

    doc = "float or str"

    def convert(self, text: Any) -> Any:
        return float(text)

    def check(self, who: str, name: str, value: Any) -> Any:
        _checks().require_threshold(who, value)
        return value


class Sizes(Kind):
    """Sizes of matrices that do not increase; the check returns a tuple."""

    doc = "sequence of int"

    def convert(self, text: Any) -> Any:
        return tuple(int(part) for part in text.split(","))

    def check(self, who: str, name: str, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError(f"{who}: expected {name} such as 93,70,50,30, got {value!r}")
        return _checks().require_shrinking(who, value)
