"""Kinds of values: parsing, validation and documentation.

``spdnet._checks`` is imported when a value is checked, since it needs torch.
"""

import math
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from spdnet.models.registry import MODELS

_LARGEST_INT = 2**31 - 1


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
    """One of several names.

    With ``none``, also ``"none"``, or None in Python. With ``verb``, the name of a method of
    metrics, also all registered metrics that have it.
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


class ModelName(Kind):
    """Name of a registered model, or ``package.module:Class``."""

    @property
    def names(self) -> tuple[str, ...]:
        """The registered names, and the form of others."""
        return (*MODELS, "package.module:Class")

    def parse(self, who: str, name: str, text: Any) -> Any:
        """Ignore the case of registered names."""
        return text if ":" in text else text.lower()

    def check(self, who: str, name: str, value: Any) -> Any:
        """Require a registered name, or a path; nothing is imported."""
        from spdnet._checks import require_choice

        module, colon, cls = value.partition(":") if isinstance(value, str) else ("", "", "")
        words = [*module.split("."), *cls.split(".")]
        if not (colon and all(word.isidentifier() or word == "<locals>" for word in words)):
            require_choice(who, name, value, self.names)
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
    """An integer of at least 1."""

    type = int
    doc = "int"

    def check(self, who: str, name: str, value: Any) -> Any:
        """Require an integer from 1 to 2147483647."""
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
        """Require an integer from 0 to 2147483647."""
        if type(value) is not int or not 0 <= value <= _LARGEST_INT:
            raise ValueError(
                f"{who}: expected {name} to be an integer from 0 to {_LARGEST_INT}, got {value!r}"
            )
        return value


class Threshold(Kind):
    """A number of at least 0, or a percentage such as ``"10%"``."""

    doc = "float or str"

    def parse(self, who: str, name: str, text: Any) -> Any:
        """Convert a number; other text is left to the check."""
        with suppress(ValueError):
            return float(text)
        return text

    def check(self, who: str, name: str, value: Any) -> Any:
        """Require a threshold."""
        from spdnet._checks import require_threshold

        require_threshold(who, value)
        return value


class Sizes(Kind):
    """Sizes of matrices that do not increase."""

    doc = "sequence of int"

    def parse(self, who: str, name: str, text: Any) -> Any:
        """Convert numbers separated by commas."""
        try:
            return tuple(int(part) for part in text.split(","))
        except ValueError:
            raise ValueError(f"{who}: expected {name} such as 93,70,50,30, got {text!r}") from None

    def check(self, who: str, name: str, value: Any) -> Any:
        """Require sizes that do not increase; return a tuple."""
        from spdnet._checks import require_shrinking

        return require_shrinking(who, value)
