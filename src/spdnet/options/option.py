"""Description of an option, as metadata of a dataclass field."""

import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, TypeVar

from spdnet.options.kinds import Kind

#: names of the recipes
RECIPE_NAMES = ("default", "paper")
#: panels of ``spdnet train --help``
DATA, NETWORK, TRAINING, RUN = "Data", "Network", "Training", "Run"

_Class = TypeVar("_Class", bound=type)


@dataclass(frozen=True, kw_only=True)
class Option:
    """Description of an option.

    Parameters
    ----------
    kind : Kind
        Parsing and validation of values.
    help : str
        Noun phrase that begins with a capital and has no full stop.
    detail : str
        Further sentences.
    panel : str or None
        Panel of the help; None for a hyperparameter that only recipes set.
    recipes : mapping
        Value in each recipe, for a hyperparameter; otherwise empty.
    default : object
        Default value; ``...`` for a required option.
    unset : str
        Description of the default in words.
    flags : sequence of str
        Flags on the command line, if they do not follow from the name.
    in_estimator : bool
        Whether the hyperparameter is a parameter of the scikit-learn classifier.
    neutral : object
        Value that a model accepts even if it does not have the hyperparameter; ``...`` for none.
    """

    kind: Kind
    help: str
    detail: str = ""
    panel: str | None
    recipes: Mapping[str, Any] = field(default_factory=dict)
    default: Any = ...
    unset: str = ""
    flags: tuple[str, ...] = ()
    in_estimator: bool = True
    neutral: Any = ...

    def text(self, *, choices: bool = True) -> str:
        """Return the help, the allowed names and the details."""
        names = f": {_either(self.kind.names)}" if choices and self.kind.names else ""
        text = self.help + names
        return f"{text}{'' if text.endswith('.') else '.'} {self.detail}".rstrip()

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
    """Make a dataclass field that is described by an :class:`Option`."""
    return _field(Option(kind=kind, help=help, **description))


def hyperparameter(
    kind: Kind,
    help: str,  # noqa: A002
    *,
    default: Any,
    recipes: Mapping[str, Any] | None = None,
    **description: Any,
) -> Any:
    """Make a dataclass field for a hyperparameter.

    Parameters
    ----------
    kind, help, **description
        As in :class:`Option`.
    default : object
        Value in the recipe ``default``.
    recipes : mapping, optional
        Values in the other recipes, if they differ.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from spdnet.options.kinds import Count
    >>> from spdnet.options.option import TRAINING, hyperparameter, options
    >>> @dataclass(frozen=True, kw_only=True)
    ... class Example:
    ...     epochs: int = hyperparameter(
    ...         Count(), "Number of epochs", default=60, recipes={"paper": 500}, panel=TRAINING
    ...     )
    >>> options(Example)["epochs"].default_text
    '60, paper 500'
    """
    values = {**dict.fromkeys(RECIPE_NAMES, default), **(recipes or {})}
    return option(kind, help, default=default, recipes=values, **description)


def options(described: Any) -> dict[str, Option]:
    """Return the options of a dataclass or an instance by name."""
    return {f.name: f.metadata["option"] for f in fields(described) if "option" in f.metadata}


def same(source: Any, name: str, **changes: Any) -> Any:
    """Make a field with the description of an option of another dataclass, with changes."""
    return _field(replace(options(source)[name], **changes))


def check_options(who: str, instance: Any) -> None:
    """Check all options of a dataclass instance, and store the values in standard form."""
    for name, described in options(instance).items():
        value = described.check(who, name, getattr(instance, name))
        object.__setattr__(instance, name, value)


def document(described: Mapping[str, Option] | None = None) -> Callable[[_Class], _Class]:
    """Replace ``{options}`` in the docstring of the decorated class by a description of options.

    Parameters
    ----------
    described : mapping, optional
        Options by name; those of the dataclass if not given.
    """

    def fill(cls: _Class) -> _Class:
        found = options(cls) if described is None else described
        if cls.__doc__ is not None:  # it is with python -OO
            entries = "\n".join(_entry(name, option) for name, option in found.items())
            cls.__doc__ = inspect.cleandoc(cls.__doc__).replace("{options}", entries)
        return cls

    return fill


def show(value: Any) -> str:
    """Format a value as on the command line."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def _entry(name: str, described: Option) -> str:
    """Format an option as in numpydoc."""
    optional = ", optional" if described.default is None else ""
    default = f" Default: {described.default_text}." if described.default_text else ""
    text = textwrap.fill(
        described.text(choices=False) + default,
        width=96,
        initial_indent="    ",
        subsequent_indent="    ",
    )
    return f"{name} : {described.kind.doc_type}{optional}\n{text}"


def _field(described: Option) -> Any:
    default = MISSING if described.default is ... else described.default
    return field(default=default, metadata={"option": described})


def _either(names: tuple[str, ...]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
