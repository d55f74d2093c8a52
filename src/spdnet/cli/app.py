"""The commands. Heavy libraries are loaded by the command that needs them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

app = typer.Typer(
    name="spdnet",
    help="Deep learning on symmetric positive definite (SPD) matrices.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
data_app = typer.Typer(help="Look at data before training on them.", no_args_is_help=True)
app.add_typer(data_app, name="data")

INPUT, NETWORK, TRAINING, RUN = "Data", "Network", "Training", "Run"  # panels of help
DATA = "`digits`, a .npz or .npy file, or a folder of classes."
Data = Annotated[str, typer.Argument(metavar="DATA", help=DATA, show_default=False)]
Run = Annotated[
    Path, typer.Argument(metavar="RUN", help="A folder made by `spdnet train`.", show_default=False)
]
Labels = Annotated[
    str | None, typer.Option(help="Labels of a .npy file: .npy, or text, one a line.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1.")]
Bad = Annotated[str, typer.Option(help="Matrices that are not SPD: refuse, drop or repair them.")]


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
    data: Annotated[str | None, typer.Argument(metavar="DATA", help=DATA)] = None,
    *,
    settings: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=RUN, help="TOML file of settings; the keys are the names of options."
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=NETWORK,
            help="Settings under one name: default or paper. [default: default]",
        ),
    ] = None,
    dims: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=NETWORK, help="Sizes such as 93,70,50,30. [default: from the data]"
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=NETWORK,
            help="spdnet, multibranch, or tsmnet for signals. [default: spdnet]",
        ),
    ] = None,
    norm: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=NETWORK,
            help="Batch normalisation: brooks, log_euclidean, affine_invariant, log_cholesky or "
            "none. [default: none]",
        ),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=NETWORK,
            help="Classifier: linear, or Riemannian in the metric log_euclidean, log_cholesky, "
            "power_euclidean, affine_invariant or bures_wasserstein. [default: linear]",
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=TRAINING, help="Passes over the data. [default: 60, paper 500]"
        ),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(rich_help_panel=TRAINING, help="Matrices in a step. [default: 30]")
    ] = None,
    lr: Annotated[
        float | None,
        typer.Option(rich_help_panel=TRAINING, help="Learning rate at the start. [default: 0.01]"),
    ] = None,
    eps: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=NETWORK, help="Threshold of ReEig: a number, or 10%. [default: 1e-4]"
        ),
    ] = None,
    optimizer: Annotated[
        str | None,
        typer.Option(rich_help_panel=TRAINING, help="adam or sgd. [default: adam, paper sgd]"),
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=TRAINING, help="constant or cosine. [default: cosine, paper constant]"
        ),
    ] = None,
    momentum: Annotated[
        float | None, typer.Option(rich_help_panel=TRAINING, help="Of sgd. [default: 0]")
    ] = None,
    weight_decay: Annotated[
        float | None,
        typer.Option(rich_help_panel=TRAINING, help="Of all weights but BiMaps'. [default: 0]"),
    ] = None,
    label_smoothing: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=TRAINING, help="Of the targets in training. [default: 0.1, paper 0]"
        ),
    ] = None,
    center: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=NETWORK,
            help="log_euclidean, affine_invariant or none. [default: log_euclidean, paper none]",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(rich_help_panel=TRAINING, help="Of splits, weights and batches. [default: 0]"),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(rich_help_panel=TRAINING, help="auto, cpu, cuda, cuda:1. [default: auto]"),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(rich_help_panel=TRAINING, help="float64 or float32. [default: float64]"),
    ] = None,
    test: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=INPUT,
            help="Part held out for the result. [default: 0.2, or as the data say]",
        ),
    ] = None,
    val: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=INPUT,
            help="Part of the rest that chooses the epoch. [default: 0.1, or as the data say]",
        ),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=TRAINING,
            help="Stop after so many epochs without a lower validation loss.",
        ),
    ] = None,
    repeat: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=RUN, help="Train so often, with seeds that follow. [default: 1]"
        ),
    ] = None,
    bad: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=INPUT,
            help="Matrices that are not SPD: refuse, drop or repair. [default: refuse]",
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=INPUT, help="Labels of a .npy file: .npy, or text, one a line."
        ),
    ] = None,
    signals: Annotated[
        bool | None,
        typer.Option(
            "--signals", rich_help_panel=INPUT, help="X are signals even if they are square."
        ),
    ] = None,
    estimator: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=INPUT,
            help="Covariance of signals: sample, ledoit_wolf or oas. [default: sample]",
        ),
    ] = None,
    reg: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=INPUT, help="Added to it, times the mean eigenvalue. [default: 0.001]"
        ),
    ] = None,
    baseline: Annotated[
        bool | None,
        typer.Option(
            rich_help_panel=RUN, help="Fit the log-Euclidean baseline beside it. [default: yes]"
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(rich_help_panel=RUN, help="Folder of the run. [default: runs/NAME]"),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", rich_help_panel=RUN, help="Go on with the run in --out.")
    ] = False,
) -> None:
    """Train and evaluate a network; everything ends up in a run folder.

    For example: spdnet train digits

    Or: spdnet train recordings.npz --dims 93,70,50,30 --repeat 10

    Or: spdnet train digits --norm log_cholesky --head log_euclidean

    Or, with signals and groups in it: spdnet train eeg.npz --model tsmnet

    Or, after an interruption: spdnet train --resume --out runs/digits
    """
    given = {
        name: value
        for name, value in locals().items()
        if name not in ("settings", "out", "resume") and value is not None
    }
    with _errors():
        from spdnet.cli.training import run_training

        run_training(given, settings, out, resume)


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
            help="Random parts, each with the next seed. [default: 10, or 1 for those of a file]"
        ),
    ] = None,
    test_size: Annotated[float, typer.Option(help="Part that is held out.")] = 0.5,
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


@app.command()
def evaluate(
    run: Run,
    data: Data,
    labels: Labels = None,
    bad: Bad = "refuse",
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

        run_evaluation(run, data, labels, bad, part, device)


@app.command()
def predict(
    run: Run,
    data: Data,
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("predictions.csv"),
    bad: Bad = "refuse",
    device: Device = "auto",
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
) -> None:
    """Labels and probabilities as a CSV file; the data need no labels.

    Example: spdnet predict runs/digits new.npz --out predictions.csv
    """
    with _errors():
        from spdnet.cli.using import run_prediction

        run_prediction(run, data, out, bad, device, force)


@app.command()
def report(run: Run) -> None:
    """Write report.html of a run again.

    Example: spdnet report runs/digits
    """
    with _errors():
        from spdnet.experiments import RunFolder
        from spdnet.report import write_report

        folder = RunFolder(run)
        folder.settings()  # says so if it is no run
        typer.echo(f"report: {write_report(folder)}")


@data_app.command()
def info(data: Data, labels: Labels = None) -> None:
    """Counts, sizes, classes, condition numbers, and what is wrong, by index.

    Example: spdnet data info recordings.npz
    """
    with _errors():
        from spdnet.cli.using import run_info

        run_info(data, labels)


@contextmanager
def _errors() -> Iterator[None]:
    """Bad input ends with exit code 2 and one message; trouble on the way, such as divergence or a
    full disk, with 1.
    """
    try:
        yield
    except (ValueError, TypeError, FileNotFoundError, FileExistsError) as error:
        _fail(error, 2)
    except (IsADirectoryError, NotADirectoryError, PermissionError) as error:
        _fail(error, 2)
    except (FloatingPointError, OSError, MemoryError) as error:
        _fail(error, 1)
    except RuntimeError as error:
        if "out of memory" not in str(error):
            raise
        _fail(error, 1)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _fail(error: Exception, code: int) -> NoReturn:
    """Say what is wrong and leave."""
    typer.echo(f"error: {_text(error)}", err=True)
    raise typer.Exit(code) from error


def _text(error: Any) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error) or type(error).__name__
