"""Commands and their options, derived from the descriptions of the options."""

import inspect
import sys
from pkgutil import resolve_name
from typing import Annotated, Any

import typer

from spdnet.cli.errors import errors
from spdnet.options.option import options


def add_current_folder(model: str | None) -> None:
    """Let a model ``package.module:Class`` be imported from the current folder, as in python -m."""
    if model is not None and ":" in model and "" not in sys.path:
        sys.path.insert(0, "")


def add_command(
    app: typer.Typer, name: str, target: str, described: Any, *, optional: bool = False
) -> None:
    """Add a command that runs the function ``target``, which is imported when it is called.

    The dataclass ``described`` has the options, and its docstring is the help. Required options are
    arguments, which may be ``optional``. The target gets the values of those that were given.
    """
    found = options(described)

    def run(**given: Any) -> None:
        with errors():
            values = {k: v for k, v in given.items() if v is not None}
            resolve_name(target)(**{k: found[k].kind.parse(v) for k, v in values.items()})

    parameters = [_parameter(name, option, optional) for name, option in found.items()]
    run.__signature__ = inspect.Signature(parameters, return_annotation=None)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    app.command(name, help=described.__doc__)(run)


def _parameter(name: str, described: Any, optional: bool) -> inspect.Parameter:
    text, default = described.text(), described.default_text
    if described.default is ...:
        info: Any = typer.Argument(metavar=name.upper(), help=text, show_default=False)
    else:
        text += f" [default: {default}]" if default else ""
        flags = described.flags or ((f"--{name}",) if described.default is False else ())
        info = typer.Option(*flags, help=text, rich_help_panel=described.panel)
    is_required = described.default is ... and not optional
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if is_required else None,
        annotation=Annotated[described.kind.type | None, info],
    )
