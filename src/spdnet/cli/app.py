"""The command line; each command imports its libraries when it runs."""

import io
import sys
from typing import Annotated

import typer

from spdnet.cli.options import add_command
from spdnet.options import commands

app = typer.Typer(
    name="spdnet",
    help="Deep learning on symmetric positive definite (SPD) matrices.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
data_app = typer.Typer(
    help="Inspect data, convert files, and obtain the data sets of the paper.",
    no_args_is_help=True,
)
app.add_typer(data_app, name="data")


def main() -> None:
    """Run the command line; characters that the terminal cannot show are escaped."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # not None, and not that of a notebook
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="spdnet")


def _version(wanted: bool) -> None:
    if wanted:
        import spdnet

        typer.echo(f"spdnet {spdnet.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Deep learning on symmetric positive definite (SPD) matrices.

    Start with: spdnet train digits-small
    """


add_command(app, "train", "spdnet.cli.train:run_training", commands.TrainCommand, optional=True)
add_command(app, "compare", "spdnet.cli.tables:run_comparison", commands.CompareCommand)
add_command(app, "reproduce", "spdnet.cli.tables:run_reproduction", commands.ReproduceCommand)
add_command(app, "evaluate", "spdnet.cli.evaluate:run_evaluation", commands.EvaluateCommand)
add_command(app, "predict", "spdnet.cli.evaluate:run_prediction", commands.PredictCommand)
add_command(app, "report", "spdnet.cli.evaluate:run_report", commands.ReportCommand)
add_command(data_app, "info", "spdnet.cli.data:run_info", commands.InfoCommand)
add_command(data_app, "build", "spdnet.cli.data:run_build", commands.BuildCommand)
add_command(data_app, "fetch", "spdnet.cli.data:run_fetch", commands.FetchCommand)
add_command(data_app, "import", "spdnet.cli.data:run_import", commands.ImportCommand)
