"""Description of an option, as metadata of a dataclass field."""

import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, TypeVar

from spdnet.options.kinds import Kind

#: names of the recipes
RECIPE_NAMES = ("auto", "fast", "paper")
#: panels of ``spdnet train --help``
DATA, NETWORK, TRAINING, RUN = "Data", "Network", "Training", "Run"

_Class = TypeVar("_Class", bound=type)


@dataclass(frozen=True, kw_only=True)
class Option:
    """Description of an option."""

    kind: Kind
    help: str  # noun phrase that begins with a capital, optionally followed by sentences
    panel: str | None  # of the help; None for a hyperparameter that only recipes set
    recipes: Mapping[str, Any] = field(default_factory=dict)  # values of a hyperparameter
    default: Any = None  # ... for a required option
    unset: str = ""  # the default in words
    flags: tuple[str, ...] = ()  # on the command line, if they do not follow from the name
    in_estimator: bool = True  # whether the scikit-learn classifier has the hyperparameter
    neutral: Any = ...  # value that models without the hyperparameter accept

    def text(self, *, choices: bool = True) -> str:
        """Return the help, with the allowed names after its first phrase."""
        phrase, stop, details = self.help.partition(". ")
        if choices and self.kind.names:
            *first, last = self.kind.names
            phrase += f": {', '.join(first)} or {last}" if first else f": {last}"
        text = phrase + stop + details
        return text if text.endswith(".") else f"{text}."

    @property
    def default_text(self) -> str:
        """Default in words, for each recipe if they differ; empty if there is none."""
        if self.unset:
            return self.unset
        if not self.recipes:
            has_one = all(self.default is not nothing for nothing in (None, ..., False))
            return show(self.default) if has_one else ""
        first, *others = ((name, show(self.recipes[name])) for name in RECIPE_NAMES)
        return first[1] + "".join(f", {name} {v}" for name, v in others if v != first[1])

    def check(self, who: str, name: str, value: Any) -> Any:
        """Check a value and return it in standard form; None is allowed if it is the default."""
        return None if value is None is self.default else self.kind.check(who, name, value)


def option(kind: Kind, help: str, **description: Any) -> Any:  # noqa: A002
    """Declare a dataclass field that is described by an :class:`Option`."""
    return _field(Option(kind=kind, help=help, **description))


def hyperparameter(
    kind: Kind,
    help: str,  # noqa: A002
    *,
    default: Any,
    recipes: Mapping[str, Any] | None = None,
    **description: Any,
) -> Any:
    """Declare a dataclass field for a hyperparameter; ``recipes`` has the values that differ."""
    values = {**dict.fromkeys(RECIPE_NAMES, default), **(recipes or {})}
    return option(kind, help, default=default, recipes=values, **description)


def options(described: Any) -> dict[str, Option]:
    """Return the options of a dataclass or an instance by name."""
    return {f.name: f.metadata["option"] for f in fields(described) if "option" in f.metadata}


def same(source: Any, name: str, **changes: Any) -> Any:
    """Declare a field with the description of an option of another dataclass, with changes."""
    return _field(replace(options(source)[name], **changes))


def check_options(who: str, instance: Any) -> None:
    """Check all options of a dataclass instance, and store the values in standard form."""
    for name, described in options(instance).items():
        value = described.check(who, name, getattr(instance, name))
        object.__setattr__(instance, name, value)


def document(cls: _Class) -> _Class:
    """Replace ``{options}`` in the docstring of a dataclass by a description of its options."""
    if cls.__doc__ is not None:  # None with python -OO
        entries = "\n".join(_entry(name, found) for name, found in options(cls).items())
        cls.__doc__ = inspect.cleandoc(cls.__doc__).replace("{options}", entries)
    return cls


def show(value: Any) -> str:
    """Format a value as on the command line."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def _entry(name: str, described: Option) -> str:
    """Format an option as in numpydoc."""
    optional = ", optional" if described.default is None else ""
    default = f" Default: {described.default_text}." if described.default_text else ""
    text = textwrap.fill(described.text(choices=False) + default, width=92)
    return f"{name} : {described.kind.doc}{optional}\n{textwrap.indent(text, '    ')}"


def _field(described: Option) -> Any:
    default = MISSING if described.default is ... else described.default
    return field(default=default, metadata={"option": described})
