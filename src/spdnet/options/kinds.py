"""Kinds of values: parsing, validation and documentation.

``spdnet._checks`` is imported when a value is checked, since it needs torch.
"""

import math
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from spdnet.models.members import MEMBERS
from spdnet.models.registry import MODELS

_LARGEST_INT = 2**31 - 1
_NO_NAMES = ("auto", "none")  # instead of names of members


@dataclass(frozen=True)
class Kind:
    """Base class; accepts any value."""

    #: type of the option on the command line
    type: ClassVar[type] = str
    #: type in docstrings
    doc: ClassVar[str] = "str"

    @property
    def names(self) -> tuple[str, ...]:
        """The allowed names, for a choice."""
        return ()

    @property
    def doc_type(self) -> str:
        """Type in docstrings."""
        return self.doc

    def parse(self, who: str, name: str, text: Any) -> Any:
        """Convert an argument of the command line, without checking it."""
        return text

    def check(self, who: str, name: str, value: Any) -> Any:
        """Return the value, or raise an error that says what was expected."""
        return value


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
                f"{who}: expected {name} to be a path in UTF-8, which settings can hold, got "
                f"{value!r}; rename it"
            )
        return value


class Flag(Kind):
    """True or false."""

    type = bool
    doc = "bool"

    def check(self, who: str, name: str, value: Any) -> Any:
        if not isinstance(value, bool):
            raise TypeError(f"{who}: expected {name} to be true or false, got {value!r}")
        return value


@dataclass(frozen=True)
class Choice(Kind):
    """One of several names.

    With ``none``, also ``"none"``, or None in Python. With ``verb``, the name of a method of
    metrics, also all registered metrics that have it.
    """

    choices: tuple[str, ...]
    none: bool = False
    verb: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.choices, "none") if self.none else self.choices

    @property
    def doc_type(self) -> str:
        return "{" + ", ".join(f'"{name}"' for name in self.names) + "}"

    def parse(self, who: str, name: str, text: Any) -> Any:
        return text.lower()

    def check(self, who: str, name: str, value: Any) -> Any:
        from spdnet._checks import require_choice

        names = self.names
        if self.verb:
            from spdnet.manifolds import MetricNames

            names = tuple(dict.fromkeys((*names, *MetricNames(self.verb))))
        if not (self.none and value is None):
            require_choice(who, name, value, names)
        return value


class ModelName(Kind):
    """Name of a registered model, or ``package.module:Class``; nothing is imported."""

    @property
    def names(self) -> tuple[str, ...]:
        return (*MODELS, "package.module:Class")

    def parse(self, who: str, name: str, text: Any) -> Any:
        return text if ":" in text else text.lower()

    def check(self, who: str, name: str, value: Any) -> Any:
        from spdnet._checks import require_choice

        module, colon, cls = value.partition(":") if isinstance(value, str) else ("", "", "")
        words = [*module.split("."), *cls.split(".")]
        if not (colon and all(word.isidentifier() or word == "<locals>" for word in words)):
            require_choice(who, name, value, self.names)
        return value


class Members(Kind):
    """Names of members of a portfolio, ``"auto"`` or ``"none"``; the check returns a tuple."""

    doc = 'sequence of str, or "auto"'

    @property
    def names(self) -> tuple[str, ...]:
        return ("auto", *MEMBERS)

    def parse(self, who: str, name: str, text: Any) -> Any:
        return text.lower() if text.lower() in _NO_NAMES else tuple(text.lower().split(","))

    def check(self, who: str, name: str, value: Any) -> Any:
        from spdnet._checks import require_choice

        if value in _NO_NAMES:
            return value
        if isinstance(value, str) or not value:
            raise ValueError(f"{who}: expected {name} such as log,all or auto, got {value!r}")
        for member in value:
            require_choice(who, name, member, tuple(MEMBERS))
        return tuple(value)


@dataclass(frozen=True)
class Number(Kind):
    """A finite number within bounds."""

    type = float
    doc = "float"
    above: float = -math.inf
    at_least: float = -math.inf
    at_most: float = math.inf
    below: float = math.inf

    def check(self, who: str, name: str, value: Any) -> Any:
        from spdnet._checks import require_number

        require_number(who, name, value, **asdict(self))
        return value


class Count(Kind):
    """An integer from 1 to 2147483647."""

    type = int
    doc = "int"

    def check(self, who: str, name: str, value: Any) -> Any:
        from spdnet._checks import require_count

        require_count(who, name, value)
        if value > _LARGEST_INT:
            raise ValueError(f"{who}: expected {name} of at most {_LARGEST_INT}, got {value}")
        return value


class Seed(Kind):
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

    def parse(self, who: str, name: str, text: Any) -> Any:
        with suppress(ValueError):
            return float(text)
        return text  # left to the check

    def check(self, who: str, name: str, value: Any) -> Any:
        from spdnet._checks import require_threshold

        require_threshold(who, value)
        return value


class Sizes(Kind):
    """Sizes of matrices that do not increase; the check returns a tuple."""

    doc = "sequence of int"

    def parse(self, who: str, name: str, text: Any) -> Any:
        try:
            return tuple(int(part) for part in text.split(","))
        except ValueError:
            raise ValueError(f"{who}: expected {name} such as 93,70,50,30, got {text!r}") from None

    def check(self, who: str, name: str, value: Any) -> Any:
        from spdnet._checks import require_shrinking

        return require_shrinking(who, value)
