"""The commands, apart from ``spdnet data``; each loads the libraries that it needs."""

import io
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from spdnet.cli.data_app import data_app
from spdnet.cli.options import Data, Device, Groups, Labels, argument, runs, shared
from spdnet.options.option import RUN
from spdnet.options.run import CompareOptions, ReproduceOptions, RunOptions

app = typer.Typer(
    name="spdnet",
    help="Deep learning on symmetric positive definite (SPD) matrices.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.add_typer(data_app, name="data")

_run_option = partial(typer.Option, rich_help_panel=RUN)
Run = Annotated[Path, argument("RUN", "Run folder of `spdnet train`.")]
BadAgain = Annotated[str | None, shared("bad", "as in training")]
OwnModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="MODULE:CLASS",
        help="Class of the network, if it is not part of spdnet.",
    ),
]


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
@runs("spdnet.cli.train:run_training", RunOptions, optional=True)
def train(
    *,
    settings: Annotated[
        Path | None,
        _run_option(help="TOML file of settings, one key per option."),
    ] = None,
    out: Annotated[
        Path | None,
        _run_option(help="Run folder. [default: runs/NAME; for a second run runs/NAME-2]"),
    ] = None,
    resume: Annotated[
        bool, _run_option("--resume", help="Resume the run in --out. A larger --epochs extends it.")
    ] = False,
    devices: Annotated[
        int,
        _run_option(
            help="Number of processes that share each batch, each with a GPU or on the CPU."
        ),
    ] = 1,
    quiet: Annotated[
        bool, _run_option("--quiet", help="No progress bar and no line per epoch.")
    ] = False,
) -> None:
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
@runs("spdnet.cli.tables:run_comparison", CompareOptions)
def compare(
    *,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the comparison. [default: runs/compare-NAME]")
    ] = None,
) -> None:
    """Compare SPDNet with the methods of its paper and other baselines on the same splits.

    Completed fits are not repeated: after an interruption, or with more methods or repeats, run the
    same command again.

    Example: spdnet compare digits --repeats 3
    """


@app.command()
@runs("spdnet.cli.tables:run_reproduction", ReproduceOptions)
def reproduce(
    *,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the reproduction. [default: runs/reproduce-EXPERIMENT]"),
    ] = None,
) -> None:
    """Reproduce an experiment of the paper, and show the published results beside the new ones.

    Completed parts are not repeated: after an interruption, or with more repeats, run the same
    command again.

    Example: spdnet reproduce hdm05 --standin cmu27_joints.npz --repeats 3

    As a quick test: spdnet reproduce afew --standin digits --quick
    """


@app.command()
@runs("spdnet.cli.evaluate:run_evaluation")
def evaluate(
    run: Run,
    data: Data,
    labels: Labels = None,
    groups: Groups = None,
    bad: BadAgain = None,
    part: Annotated[
        str | None,
        typer.Option(help="Part of the data: train, val, test or all. [default: test, if any]"),
    ] = None,
    device: Device = "auto",
    model: OwnModel = None,
) -> None:
    """Evaluate a run on labeled data: accuracy, loss, and precision and recall of each class.

    If the data are those of the run, its test set is used: see --part.

    Example: spdnet evaluate runs/digits-small digits-small
    """


@app.command()
@runs("spdnet.cli.evaluate:run_prediction")
def predict(
    run: Run,
    data: Data,
    out: Annotated[Path, typer.Option(help="Output file, or - for standard output.")] = Path(
        "predictions.csv"
    ),
    groups: Groups = None,
    bad: BadAgain = None,
    device: Device = "auto",
    model: OwnModel = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Predict labels and probabilities, and write them to a CSV file. Labels are not needed.

    If the data are those of the run, the column part is train, val or test for each sample.

    Example: spdnet predict runs/digits-small new.npz --out predictions.csv
    """


@app.command()
@runs("spdnet.cli.evaluate:run_report")
def report(run: Run) -> None:
    """Regenerate the report of a run.

    Example: spdnet report runs/digits-small
    """
