"""Commands and their options, derived from the descriptions of the options."""

import inspect
import sys
from collections.abc import Callable
from functools import wraps
from pkgutil import resolve_name
from typing import Annotated, Any

import typer

from spdnet.cli.errors import errors
from spdnet.options.option import options


def find_in_current_folder(model: str | None) -> None:
    """Let a model ``package.module:Class`` be imported from the current folder, as python -m."""
    if model is not None and ":" in model and "" not in sys.path:
        sys.path.insert(0, "")


def runs(
    target: str, described: Any, *, optional: bool = False
) -> Callable[[Callable[[], None]], Callable[..., None]]:
    """Let a command run the function ``target``, which is imported when it is called.

    The decorated function has the help. The options are those of the dataclass ``described``;
    required ones become arguments, which may be ``optional``. The target gets the values of those
    that were given.
    """
    found = options(described)

    def decorate(command: Callable[[], None]) -> Callable[..., None]:
        @wraps(command)
        def run(**given: Any) -> None:
            with errors():
                who = command.__name__
                resolve_name(target)(
                    **{
                        name: found[name].kind.parse(who, name, value)
                        for name, value in given.items()
                        if value is not None
                    }
                )

        parameters = [_parameter(name, option, optional) for name, option in found.items()]
        run.__signature__ = inspect.Signature(parameters, return_annotation=None)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate


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
