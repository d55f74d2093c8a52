"""Commands and their options, derived from the descriptions of the options."""

import inspect
import sys
from collections.abc import Callable
from functools import wraps
from pkgutil import resolve_name
from typing import Annotated, Any

import typer

from spdnet.cli.errors import errors
from spdnet.options.option import Option, options
from spdnet.options.run import RunOptions

_OPTIONS = options(RunOptions)


def shared(name: str, default: str = "") -> Any:
    """Make an option that ``spdnet train`` has too, perhaps with a default in words."""
    return _option(name, _OPTIONS[name], default)


def _option(name: str, described: Option, default: str, **more: Any) -> Any:
    flags = described.flags or ((f"--{name}",) if described.default is False else ())
    text = described.text() + (f" [default: {default}]" if default else "")
    return typer.Option(*flags, help=text, **more)


def argument(metavar: str, text: str) -> Any:
    """Make an argument without a default in the help."""
    return typer.Argument(metavar=metavar, help=text, show_default=False)


Data = Annotated[str, argument("DATA", _OPTIONS["data"].text())]
Labels = Annotated[str | None, shared("labels")]
Groups = Annotated[str | None, shared("groups")]
Signals = Annotated[bool, shared("signals")]
Device = Annotated[str, shared("device")]


def find_in_current_folder(model: str | None) -> None:
    """Let a model ``package.module:Class`` be imported from the current folder, as python -m."""
    if model is not None and ":" in model and "" not in sys.path:
        sys.path.insert(0, "")


def runs(
    target: str, described: Any = None, *, optional: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command run the function ``target``, which is imported when it is called.

    The decorated function declares options and has the help. Those of the dataclass ``described``
    are added to them; required ones become arguments, which may be ``optional``. The target gets
    the values of those that were given.
    """
    found = {} if described is None else options(described)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**given: Any) -> None:
            with errors():
                for name, option in found.items():
                    if (value := given.pop(name)) is not None:
                        given[name] = option.kind.parse(command.__name__, name, value)
                resolve_name(target)(**given)

        made = [_parameter(name, option, optional) for name, option in found.items()]
        parameters = [*made, *inspect.signature(command).parameters.values()]
        run.__signature__ = inspect.Signature(parameters, return_annotation=None)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate


def _parameter(name: str, described: Any, optional: bool) -> inspect.Parameter:
    if described.default is ...:
        info = argument(name.upper(), described.text())
        default = None if optional else inspect.Parameter.empty
    else:
        info = _option(name, described, described.default_text, rich_help_panel=described.panel)
        default = None
    annotation = Annotated[described.kind.type | None, info]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )
