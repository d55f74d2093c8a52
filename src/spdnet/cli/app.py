"""The commands. Each command imports the libraries that it needs."""

import io
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from spdnet.cli.data_app import data_app
from spdnet.cli.errors import errors as _errors
from spdnet.cli.options import Data, Device, Dtype, Groups, Labels, Seed, shared, takes_options
from spdnet.options.option import RUN
from spdnet.options.run import CompareOptions, RunOptions

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
Run = Annotated[
    Path, typer.Argument(metavar="RUN", help="Run folder of `spdnet train`.", show_default=False)
]
BadAgain = Annotated[str | None, shared("bad", default="as in training")]
OwnModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="MODULE:CLASS",
        help="Class of the network, for a run that was trained with one of your own.",
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
@takes_options(RunOptions)
@_errors()
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
    **given: Any,
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
    from spdnet.cli.train import run_training

    run_training(given, settings, out, resume, devices, quiet)


@app.command()
@takes_options(CompareOptions, needs_data=True)
@_errors()
def compare(
    *,
    methods: Annotated[
        str,
        typer.Option(
            help="Methods, such as cdl,rsr,spdnet-2, or all: nn-log-euclidean, "
            "nn-affine-invariant, nn-stein, mdm, logistic, lda, ridge, svm, svm-stein, cdl, "
            "cdl-pls, leml, spdml-aim, spdml-stein, rsr, rsr-spdml, spdnet-0 to spdnet-3, auto "
            "(the default network); herml and expressionlets for signals, deepo2p for the images "
            "of the digits."
        ),
    ] = "all",
    protocol: Annotated[
        str | None,
        typer.Option(
            help="Split: file (the split of the data), groups or random-halves. [default: the "
            "first of these that the data allow]"
        ),
    ] = None,
    tune: Annotated[
        bool,
        typer.Option("--tune", help="Search the parameters of each method on the training parts."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the comparison. [default: runs/compare-NAME]")
    ] = None,
    **given: Any,
) -> None:
    """Compare SPDNet with every method of its paper, on the same splits of your data.

    Finished parts are not repeated: after an interruption, or with more methods or repeats, run the
    same command again.

    Example: spdnet compare digits --repeats 3
    """
    from spdnet.cli.compare import run_comparison

    run_comparison({**given, "methods": methods, "protocol": protocol, "tune": tune}, out)


@app.command("reproduce")
@_errors()
def reproduce_(
    experiment: Annotated[
        str,
        typer.Argument(
            metavar="EXPERIMENT",
            help="afew, hdm05 or pasc: rows of Table 1. no-logeig: the network without LogEig. "
            "epsilon and convergence: Figure 2.",
            show_default=False,
        ),
    ],
    *,
    standin: Annotated[
        str | None,
        typer.Option(
            help="Data used instead of the paper's: digits, generated, or a file of sequences or "
            "matrices."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Two epochs on a few sequences, as a test.")
    ] = False,
    baselines: Annotated[
        bool, typer.Option("--baselines", help="Also run the other methods of the table.")
    ] = False,
    recipe: Annotated[str, shared("recipe")] = "paper",
    repeats: Annotated[
        int | None,
        shared("repeat", "--repeats", "--repeat", default="as in the paper, 10 for hdm05, else 1"),
    ] = None,
    epochs: Annotated[
        int | None, shared("epochs", default="as in the paper, 100 for pasc, else 500")
    ] = None,
    classes: Annotated[
        int | None,
        typer.Option(
            help="Number of classes, those with the most sequences; 117 is usual for HDM05."
        ),
    ] = None,
    root: Annotated[
        int | None,
        typer.Option(help="Joint that positions are relative to. [default: absolute positions]"),
    ] = None,
    clips: Annotated[bool, typer.Option(help="Training sequences cut into clips.")] = True,
    score: Annotated[
        str, typer.Option(help="Input of verification: features (of LogEig) or logits.")
    ] = "features",
    seed: Seed = 0,
    device: Device = "auto",
    dtype: Dtype = "float64",
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the reproduction. [default: runs/reproduce-EXPERIMENT]"),
    ] = None,
) -> None:
    """Reproduce an experiment of the paper, and show the published results beside the new ones.

    Finished parts are not repeated: after an interruption, or with more repeats, run the same
    command again.

    Example: spdnet reproduce hdm05 --standin cmu27_joints.npz --repeats 3

    As a quick test: spdnet reproduce afew --standin digits --quick
    """
    given = {name: value for name, value in locals().items() if name != "out"}
    from spdnet.cli.reproduce import run_reproduction

    run_reproduction(given, out)


@app.command()
@_errors()
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
    """Evaluate a run on labeled data: loss, accuracy and a table of classes.

    On the training data, the part that was held out is used.

    Example: spdnet evaluate runs/digits-small digits-small
    """
    from spdnet.cli.evaluate import run_evaluation

    run_evaluation(run, data, labels, groups, bad, part, device, model)


@app.command()
@_errors()
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
    """Predict labels and probabilities, as a CSV file; the data need no labels.

    For the training data, a column gives the part of each sample: train, val or test.

    Example: spdnet predict runs/digits-small new.npz --out predictions.csv
    """
    from spdnet.cli.evaluate import run_prediction

    run_prediction(run, data, out, groups, bad, device, model, force)


@app.command()
@_errors()
def report(run: Run) -> None:
    """Write the report of a run again.

    Example: spdnet report runs/digits-small
    """
    from spdnet.cli.evaluate import run_report

    run_report(run)
