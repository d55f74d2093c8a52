"""The commands, apart from ``spdnet data``; each loads the libraries that it needs."""

import io
import sys
from typing import Annotated

import typer

from spdnet.cli.data_app import data_app
from spdnet.cli.options import runs
from spdnet.options.commands import (
    CompareCommand,
    EvaluateCommand,
    PredictCommand,
    ReportCommand,
    ReproduceCommand,
    TrainCommand,
)

app = typer.Typer(
    name="spdnet",
    help="Deep learning on symmetric positive definite (SPD) matrices.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
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


@app.command()
@runs("spdnet.cli.train:run_training", TrainCommand, optional=True)
def train() -> None:
    """Train and evaluate a network, and write everything to a run folder.

    For example: spdnet train digits-small

    Or: spdnet train recordings.npz --dims 93,70,50,30 --repeat 10

    Or: spdnet train digits --norm log_cholesky --head log_euclidean

    Or, for signals with groups: spdnet train eeg.npz --model tsmnet

    Or, with a torch module of your own: spdnet train digits --model package.module:Class

    Or, after an interruption: spdnet train --resume --out runs/digits-small

    Or, on two machines: torchrun --nnodes 2 --nproc-per-node 8 -m spdnet train big.npz --out big
    """


@app.command()
@runs("spdnet.cli.tables:run_comparison", CompareCommand)
def compare() -> None:
    """Compare SPDNet with every method of its paper, on the same splits of your data.

    Finished parts are not repeated: after an interruption, or with more methods or repeats, run the
    same command again.

    Example: spdnet compare digits --repeats 3
    """


@app.command()
@runs("spdnet.cli.tables:run_reproduction", ReproduceCommand)
def reproduce() -> None:
    """Reproduce an experiment of the paper, and show the published results beside the new ones.

    Finished parts are not repeated: after an interruption, or with more repeats, run the same
    command again.

    Example: spdnet reproduce hdm05 --standin cmu27_joints.npz --repeats 3

    As a quick test: spdnet reproduce afew --standin digits --quick
    """


@app.command()
@runs("spdnet.cli.evaluate:run_evaluation", EvaluateCommand)
def evaluate() -> None:
    """Evaluate a run on labeled data: loss, accuracy and a table of classes.

    On the training data, the part that was held out is used.

    Example: spdnet evaluate runs/digits-small digits-small
    """


@app.command()
@runs("spdnet.cli.evaluate:run_prediction", PredictCommand)
def predict() -> None:
    """Predict labels and probabilities, as a CSV file; the data need no labels.

    For the training data, a column gives the part of each sample: train, val or test.

    Example: spdnet predict runs/digits-small new.npz --out predictions.csv
    """


@app.command()
@runs("spdnet.cli.evaluate:run_report", ReportCommand)
def report() -> None:
    """Write the report of a run again.

    Example: spdnet report runs/digits-small
    """
