"""The commands. Heavy libraries are loaded by the command that needs them."""

import io
import sys
from pathlib import Path
from typing import Annotated

import typer

from spdnet.cli import train_options as options
from spdnet.cli.data_app import data_app
from spdnet.cli.errors import errors as _errors
from spdnet.cli.options import Bad, Data, Groups, Labels

app = typer.Typer(
    name="spdnet",
    help="Deep learning on symmetric positive definite (SPD) matrices.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.add_typer(data_app, name="data")

Run = Annotated[
    Path, typer.Argument(metavar="RUN", help="A folder made by `spdnet train`.", show_default=False)
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1.")]
BadAgain = Annotated[
    str | None,
    typer.Option(
        help="Matrices that are not SPD: refuse, drop or repair them. [default: as in training]"
    ),
]


def main() -> None:
    """Run the command line, with escapes in place of characters that the terminal cannot show."""
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
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Deep learning on symmetric positive definite (SPD) matrices.

    Start with: spdnet train digits
    """


@app.command()
def train(
    data: options.Input = None,
    *,
    settings: options.SettingsFile = None,
    recipe: options.Recipe = None,
    dims: options.Dims = None,
    model: options.Model = None,
    norm: options.Norm = None,
    head: options.Head = None,
    log: options.Log = None,
    epochs: options.Epochs = None,
    batch_size: options.BatchSize = None,
    lr: options.Lr = None,
    eps: options.Eps = None,
    optimizer: options.Optimizer = None,
    schedule: options.Schedule = None,
    momentum: options.Momentum = None,
    weight_decay: options.WeightDecay = None,
    label_smoothing: options.LabelSmoothing = None,
    class_weight: options.ClassWeight = None,
    center: options.Center = None,
    seed: options.Seed = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    test: options.Test = None,
    val: options.Val = None,
    patience: options.Patience = None,
    repeat: options.Repeat = None,
    bad: options.Bad = None,
    labels: options.Labels = None,
    groups: options.Groups = None,
    signals: options.Signals = None,
    estimator: options.Estimator = None,
    reg: options.Reg = None,
    baseline: options.Baseline = None,
    out: options.Out = None,
    resume: options.Resume = False,
    devices: options.Devices = 1,
    quiet: options.Quiet = False,
) -> None:
    """Train and evaluate a network; everything ends up in a run folder.

    For example: spdnet train digits

    Or: spdnet train recordings.npz --dims 93,70,50,30 --repeat 10

    Or: spdnet train digits --norm log_cholesky --head log_euclidean

    Or, with signals and groups in it: spdnet train eeg.npz --model tsmnet

    Or, after an interruption: spdnet train --resume --out runs/digits

    Or, on many machines: torchrun --nnodes 2 --nproc-per-node 8 -m spdnet train big.npz --out big
    """
    given = {
        name: value
        for name, value in locals().items()
        if name not in ("settings", "out", "resume", "devices", "quiet") and value is not None
    }
    with _errors():
        from spdnet.cli.training import run_training

        run_training(given, settings, out, resume, devices, quiet)


@app.command()
def compare(
    data: Data,
    *,
    methods: Annotated[
        str,
        typer.Option(
            help="Names such as cdl,rsr,spdnet-2, or all: nn-log-euclidean, nn-affine-invariant, "
            "nn-stein, mdm, logistic, lda, ridge, svm, svm-stein, cdl, cdl-pls, leml, spdml-aim, "
            "spdml-stein, rsr, rsr-spdml, spdnet-0 to spdnet-3; of signals herml and "
            "expressionlets, of the digits' images deepo2p."
        ),
    ] = "all",
    repeats: Annotated[
        int | None,
        typer.Option(
            "--repeats",
            "--repeat",
            help="Random parts, each with the next seed. [default: 10, or 1 for those of a file]",
        ),
    ] = None,
    test_size: Annotated[
        float, typer.Option("--test-size", "--test", help="Part that is held out.")
    ] = 0.5,
    protocol: Annotated[
        str | None,
        typer.Option(
            help="file (its split), groups or random-halves. [default: the first that there is]"
        ),
    ] = None,
    tune: Annotated[
        bool,
        typer.Option("--tune", help="Search each method's few parameters on the training parts."),
    ] = False,
    epochs: Annotated[
        int | None, typer.Option(help="Of the SPDNets. [default: that of the recipe, 60]")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of parts and weights.")] = 0,
    device: Device = "auto",
    labels: Labels = None,
    groups: Groups = None,
    signals: Annotated[
        bool, typer.Option("--signals", help="X are signals even if they are square.")
    ] = False,
    estimator: Annotated[
        str, typer.Option(help="Covariance of signals: sample, ledoit_wolf or oas.")
    ] = "sample",
    reg: Annotated[float, typer.Option(help="Added to it, times the mean eigenvalue.")] = 1e-3,
    bad: Bad = "refuse",
    out: Annotated[
        Path | None, typer.Option(help="Folder of the comparison. [default: runs/compare-NAME]")
    ] = None,
) -> None:
    """Compare SPDNet with every method of its paper, on the same parts of your data.

    What the folder holds already is not done again: after an interruption, or with more methods or
    repeats, give the same command.

    Example: spdnet compare digits --repeats 3
    """
    given = {k: v for k, v in locals().items() if k != "out"}
    with _errors():
        from spdnet.cli.comparing import run_comparison

        run_comparison(given, out)


@app.command("reproduce")
def reproduce_(
    experiment: Annotated[
        str,
        typer.Argument(
            metavar="EXPERIMENT",
            help="afew, hdm05 or pasc: the rows of Table 1. no-logeig: the network without LogEig. "
            "epsilon and convergence: Figure 2.",
            show_default=False,
        ),
    ],
    *,
    standin: Annotated[
        str | None,
        typer.Option(
            help="Other data in place of the paper's: digits, generated, or a file of sequences or "
            "matrices."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Two epochs on a few sequences, to see that it runs.")
    ] = False,
    baselines: Annotated[
        bool, typer.Option("--baselines", help="Run the other methods of the table, too.")
    ] = False,
    recipe: Annotated[
        str, typer.Option(help="Training: paper, or default, that of `spdnet train`.")
    ] = "paper",
    repeats: Annotated[
        int | None,
        typer.Option(
            "--repeats", "--repeat", help="Instead of the paper's: 10 for hdm05, 1 for others."
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Instead of the paper's: 100 for pasc, 500 for others.")
    ] = None,
    classes: Annotated[
        int | None,
        typer.Option(help="The classes with the most sequences only; 117 is usual for HDM05."),
    ] = None,
    root: Annotated[
        int | None,
        typer.Option(help="Joint that positions are relative to. [default: absolute positions]"),
    ] = None,
    clips: Annotated[bool, typer.Option(help="Cut training sequences into clips.")] = True,
    score: Annotated[
        str, typer.Option(help="What verification compares: features (of LogEig) or logits.")
    ] = "features",
    seed: Annotated[int, typer.Option(help="Of parts and weights.")] = 0,
    device: Device = "auto",
    dtype: Annotated[str, typer.Option(help="float64 or float32.")] = "float64",
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the reproduction. [default: runs/reproduce-EXPERIMENT]"),
    ] = None,
) -> None:
    """Reproduce an experiment of the paper: its figures beside those found here.

    What the folder holds already is not done again: after an interruption, or with more repeats,
    give the same command.

    Example: spdnet reproduce hdm05 --standin cmu27_joints.npz --repeats 3

    To see it run: spdnet reproduce afew --standin digits --quick
    """
    given = {k: v for k, v in locals().items() if k != "out"}
    with _errors():
        from spdnet.cli.reproducing import run_reproduction

        run_reproduction(given, out)


@app.command()
def evaluate(
    run: Run,
    data: Data,
    labels: Labels = None,
    groups: Groups = None,
    bad: BadAgain = None,
    part: Annotated[
        str | None, typer.Option(help="train, val, test or all. [default: test where there is one]")
    ] = None,
    device: Device = "auto",
) -> None:
    """Loss, accuracy and a table of classes for labelled data.

    On the data of the training itself, the part that was held out is used.

    Example: spdnet evaluate runs/digits digits
    """
    with _errors():
        from spdnet.cli.using import run_evaluation

        run_evaluation(run, data, labels, groups, bad, part, device)


@app.command()
def predict(
    run: Run,
    data: Data,
    out: Annotated[Path, typer.Option(help="The file to write, or - for standard output.")] = Path(
        "predictions.csv"
    ),
    groups: Groups = None,
    bad: BadAgain = None,
    device: Device = "auto",
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Labels and probabilities as a CSV file; the data need no labels.

    For the data of the training itself, a column tells the part of each: train, val or test.

    Example: spdnet predict runs/digits new.npz --out predictions.csv
    """
    with _errors():
        from spdnet.cli.using import run_prediction

        run_prediction(run, data, out, groups, bad, device, force)


@app.command()
def report(run: Run) -> None:
    """Write report.html of a run again.

    Example: spdnet report runs/digits
    """
    with _errors():
        from spdnet.cli.using import run_report

        run_report(run)
