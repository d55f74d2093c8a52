"""Options of the command line, derived from their descriptions."""

import inspect
import sys
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from spdnet.options.option import options
from spdnet.options.run import RunOptions

_OPTIONS = options(RunOptions)

DATA = _OPTIONS["data"].text()
Data = Annotated[str, typer.Argument(metavar="DATA", help=DATA, show_default=False)]


def shared(name: str, *flags: str, default: str = "") -> Any:
    """Make an option that ``spdnet train`` has too, with other flags or a default in words."""
    described = _OPTIONS[name]
    text = described.text() + (f" [default: {default}]" if default else "")
    return typer.Option(*(flags or described.flags), help=text)


Labels = Annotated[str | None, shared("labels")]
Groups = Annotated[str | None, shared("groups")]
Signals = Annotated[bool, shared("signals")]
Bad = Annotated[str, shared("bad")]
Seed = Annotated[int, shared("seed")]
Device = Annotated[str, shared("device")]
Dtype = Annotated[str, shared("dtype")]


def parsed(who: str, given: dict[str, Any], described: Any = RunOptions) -> dict[str, Any]:
    """Convert the text of options to values; omit options that were not given."""
    found = options(described)
    return {
        name: found[name].kind.parse(who, name, value) if name in found else value
        for name, value in given.items()
        if value is not None
    }


def find_in_current_folder(model: str | None) -> None:
    """Let a model ``package.module:Class`` be imported from the current folder, as python -m."""
    if model is not None and ":" in model and "" not in sys.path:
        sys.path.insert(0, "")


def takes_options(
    described: Any, *, needs_data: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace the keywords ``**given`` of the decorated command by the options of a dataclass.

    An option that is not given is None. ``data`` becomes an argument, which the command may
    require.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(command).parameters.values())[:-1]
        made = [_parameter(name, found) for name, found in options(described).items()]
        if needs_data:
            made[0] = made[0].replace(default=inspect.Parameter.empty, annotation=Data)

        @wraps(command)
        def run(**given: Any) -> None:
            command(**given)

        parameters = [*made, *own]
        run.__signature__ = inspect.Signature(parameters, return_annotation=None)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate


def _parameter(name: str, described: Any) -> inspect.Parameter:
    info: Any
    if name == "data":
        info = typer.Argument(metavar="DATA", help=DATA)
    else:
        default = f" [default: {described.default_text}]" if described.default_text else ""
        info = typer.Option(
            *described.flags, rich_help_panel=described.panel, help=described.text() + default
        )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[described.kind.type | None, info],
    )
