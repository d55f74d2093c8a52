"""Kinds of values: how text is parsed, which values are allowed, how the documentation names them.

The checks come from ``spdnet._checks``, which is imported when a value is checked: it needs torch.
"""

import math
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

_LARGEST_INT = 2**31 - 1


@dataclass(frozen=True)
class Kind:
    """Base of all kinds: any value."""

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
        """The type as a docstring gives it."""
        return self.doc

    def parse(self, who: str, name: str, text: Any) -> Any:
        """Convert an argument of the command line; it is checked later."""
        return text

    def check(self, who: str, name: str, value: Any) -> Any:
        """Return the value, or raise an error that says what was expected."""
        return value


class Text(Kind):
    """Text."""

    def check(self, who: str, name: str, value: Any) -> Any:
        """Require a str."""
        if not isinstance(value, str):
            raise TypeError(f"{who}: expected {name} to be text, got {value!r}")
        return value


class FilePath(Text):
    """Path of a file or folder that a settings file can hold."""

    def check(self, who: str, name: str, value: Any) -> Any:
        """Require a str that UTF-8 can encode."""
        super().check(who, name, value)
        try:
            value.encode()
        except UnicodeEncodeError:
            valid = False
        else:
            valid = "\0" not in value
        if not valid:
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
        """Require a bool."""
        if not isinstance(value, bool):
            raise TypeError(f"{who}: expected {name} to be true or false, got {value!r}")
        return value


@dataclass(frozen=True)
class Choice(Kind):
    """One of several names; with ``none`` also ``"none"``, for which Python code may use None.

    ``verb`` names a method of metrics: those that have it are accepted, too, also if they were
    registered later.
    """

    choices: tuple[str, ...]
    none: bool = False
    verb: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The allowed names."""
        return (*self.choices, "none") if self.none else self.choices

    @property
    def doc_type(self) -> str:
        """The names in braces."""
        return "{" + ", ".join(f'"{name}"' for name in self.names) + "}"

    def parse(self, who: str, name: str, text: Any) -> Any:
        """Ignore the case."""
        return text.lower()

    def check(self, who: str, name: str, value: Any) -> Any:
        """Require one of the names."""
        from spdnet._checks import require_choice

        names = self.names
        if self.verb:
            from spdnet.manifolds import MetricNames

            names = (*names, *(metric for metric in MetricNames(self.verb) if metric not in names))
        if not (self.none and value is None):
            require_choice(who, name, value, names)
        return value


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
        """Require a number within the bounds."""
        from spdnet._checks import require_number

        require_number(who, name, value, **asdict(self))
        return value


class Count(Kind):
    """A whole number of at least 1."""

    type = int
    doc = "int"

    def check(self, who: str, name: str, value: Any) -> Any:
        """Require a whole number from 1 to 2147483647."""
        from spdnet._checks import require_count

        require_count(who, name, value)
        if value > _LARGEST_INT:
            raise ValueError(f"{who}: expected {name} of at most {_LARGEST_INT}, got {value}")
        return value


class Seed(Kind):
    """A seed of the random number generators."""

    type = int
    doc = "int"

    def check(self, who: str, name: str, value: Any) -> Any:
        """Require a whole number from 0 to 2147483647."""
        if type(value) is not int or not 0 <= value <= _LARGEST_INT:
            raise ValueError(
                f"{who}: expected {name} to be a whole number from 0 to {_LARGEST_INT}, got "
                f"{value!r}"
            )
        return value


class Threshold(Kind):
    """A number of at least 0, or a percentage such as ``"10%"``."""

    doc = "float or str"

    def parse(self, who: str, name: str, text: Any) -> Any:
        """Convert a number; a percentage stays text, and so does what the check refuses."""
        with suppress(ValueError):
            return float(text)
        return text

    def check(self, who: str, name: str, value: Any) -> Any:
        """Require a threshold."""
        from spdnet._checks import require_threshold

        require_threshold(who, value)
        return value


class Sizes(Kind):
    """Sizes of matrices that never grow."""

    doc = "sequence of int"

    def parse(self, who: str, name: str, text: Any) -> Any:
        """Convert numbers with commas between them."""
        try:
            return tuple(int(part) for part in text.split(","))
        except ValueError:
            raise ValueError(f"{who}: expected {name} such as 93,70,50,30, got {text!r}") from None

    def check(self, who: str, name: str, value: Any) -> Any:
        """Require sizes that never grow; they become a tuple."""
        from spdnet._checks import require_shrinking

        return require_shrinking(who, value)
