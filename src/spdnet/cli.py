"""The command line. Heavy libraries are loaded by the command that needs them."""

from pathlib import Path
from typing import Annotated, NoReturn

import typer

app = typer.Typer(
    name="spdnet",
    help="Deep learning on symmetric positive definite (SPD) matrices.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
data = typer.Typer(help="Look at data before training on them.", no_args_is_help=True)
app.add_typer(data, name="data")


def _version(wanted: bool) -> None:
    if wanted:
        import spdnet

        typer.echo(f"spdnet {spdnet.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Deep learning on symmetric positive definite (SPD) matrices."""


@data.command()
def info(
    path: Annotated[Path, typer.Argument(help="A .npz or .npy file, or a folder of classes.")],
    labels: Annotated[
        Path | None, typer.Option(help="Labels of a .npy file: .npy, or text, one a line.")
    ] = None,
) -> None:
    """Counts, sizes, classes, condition numbers, and what is wrong, by index.

    Example: spdnet data info recordings.npz
    """
    from rich.console import Console
    from rich.progress import Progress

    from spdnet.datasets import examine, read
    from spdnet.datasets.summary import describe

    console = Console()
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("reading", total=None)
        try:
            found = read(
                path,
                labels,
                on_file=lambda done, total: progress.update(task, completed=done, total=total),
            )
        except (ValueError, OSError) as error:
            _fail(error)
    for line in describe(found, examine(found.X) if found.are_matrices else None):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _fail(error: Exception) -> NoReturn:
    """Say what is wrong and leave with the exit code of bad input."""
    typer.echo(f"error: {error}", err=True)
    raise typer.Exit(2) from error
