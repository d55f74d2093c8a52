"""The commands. Heavy libraries are loaded by the command that needs them."""

import errno
import os
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
data_app = typer.Typer(
    help="Look at data, build files of matrices, get the data sets of the paper.",
    no_args_is_help=True,
)
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
    log: Annotated[
        bool | None,
        typer.Option(
            rich_help_panel=NETWORK, help="Whether SPDNet ends with LogEig. [default: yes]"
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
    devices: Annotated[
        int,
        typer.Option(
            rich_help_panel=RUN,
            help="Processes that divide each batch among them, each with a GPU or with the CPU.",
        ),
    ] = 1,
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
        if name not in ("settings", "out", "resume", "devices") and value is not None
    }
    with _errors():
        from spdnet.cli.training import run_training

        run_training(given, settings, out, resume, devices)


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
        int | None, typer.Option(help="Instead of the paper's: 10 for hdm05, 1 for others.")
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
        from spdnet.cli.using import run_report

        run_report(run)


@data_app.command()
def info(data: Data, labels: Labels = None) -> None:
    """Counts, sizes, classes, condition numbers, and what is wrong, by index.

    Example: spdnet data info recordings.npz
    """
    with _errors():
        from spdnet.cli.using import run_info

        run_info(data, labels)


@data_app.command("build")
def build_(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE", help="A folder, a zip archive, or a .npz file.", show_default=False
        ),
    ],
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="The .npz file to write.", show_default=False)
    ],
    *,
    of: Annotated[
        str,
        typer.Option(
            help="matrices: one .mat or .npy file each. sequences: motions (.amc, .c3d), videos, "
            "images, features of frames, or a .npz file with frames and lengths."
        ),
    ] = "matrices",
    kind: Annotated[
        str, typer.Option(help="Of sequences: covariance, or gaussian, with the mean.")
    ] = "covariance",
    reg: Annotated[float, typer.Option(help="Added to the covariance, times its mode.")] = 1e-3,
    mode: Annotated[
        str, typer.Option(help="trace, mean (eigenvalue), absolute, shrinkage or none.")
    ] = "trace",
    root: Annotated[
        int | None, typer.Option(help="Joint that the positions of others are relative to.")
    ] = None,
    pca: Annotated[
        int | None, typer.Option(help="Dimensions to keep, found in the training part.")
    ] = None,
    clip_length: Annotated[
        float | None,
        typer.Option(help="Cut training sequences into clips: frames, or a share such as 0.5."),
    ] = None,
    clip_stride: Annotated[
        int | None, typer.Option(help="Frames from clip to clip. [default: half a clip]")
    ] = None,
    clips: Annotated[
        int | None, typer.Option(help="Instead of a stride: clips of each sequence.")
    ] = None,
    size: Annotated[int, typer.Option(help="Videos: height and width of the grey frames.")] = 20,
    every: Annotated[int, typer.Option(help="Take every so-many-th frame.")] = 1,
    index: Annotated[
        Path | None, typer.Option(help="The authors' index (.mat) of a folder of matrices.")
    ] = None,
    test: Annotated[
        float | None,
        typer.Option(help="Random part to test on, where folders do not name it. [default: none]"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of that part.")] = 0,
    dtype: Annotated[str, typer.Option(help="float64 or float32, in the file.")] = "float64",
    bad: Bad = "refuse",
) -> None:
    """Write one file of matrices, with classes, parts and groups, that trains from disk.

    Interrupted, the same command goes on. What folders are called train, val and test are the parts
    of the data; the folders of the files are their classes.

    Example: spdnet data build recordings/ recordings.npz

    Or: spdnet data build motions/ motions.npz --of sequences --test 0.5 --clip-length 0.5
    """
    given = {k: v for k, v in locals().items() if k not in ("source", "out")}
    with _errors():
        from spdnet.cli.data import run_build

        run_build(source, out, given)


Published = Annotated[
    str, typer.Argument(metavar="NAME", help="afew, hdm05 or pasc.", show_default=False)
]


@data_app.command("fetch")
def fetch_(name: Published) -> None:
    """Download the SPD matrices that the paper's authors publish; interrupted, it goes on.

    They are kept in $SPDNET_DATA, or in the user's cache.

    Example: spdnet data fetch afew
    """
    with _errors():
        from spdnet.cli.data import run_fetch

        run_fetch(name)


@data_app.command("import")
def import_(
    name: Published,
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="The authors' archive, packed or not, or the data it was made of.",
            show_default=False,
        ),
    ],
    index: Annotated[
        Path | None, typer.Option(help="The authors' index (.mat), if it lies elsewhere.")
    ] = None,
) -> None:
    """Bring in a data set of the paper that you have got by hand.

    Example: spdnet data import afew AFEW_SPD_data.zip --index spddb_afew.mat
    """
    with _errors():
        from spdnet.cli.data import run_import

        run_import(name, path, index)


_ROOM = (
    "; free some, then give the command again, with --resume and --out for a training: what was "
    "written before is whole"
)
_ADVICE = {
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EROFS: "; name a place that can be written to",
}


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
        if "gloo" in str(error).lower() or "nccl" in str(error).lower():
            _fail(_LostProcessError(), 1)
        if not any(text in str(error) for text in ("out of memory", "can't allocate memory")):
            raise
        _fail(error, 1)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


class _LostProcessError(Exception):
    """Another process of a distributed training does not answer."""

    def __str__(self) -> str:
        return (
            "train: expected the other processes of this training to answer, but one has ended or "
            "cannot be reached; its own message may say why. The last checkpoint is whole: go on "
            "with --resume and --out"
        )


def _fail(error: Exception, code: int) -> NoReturn:
    """Say what is wrong and leave; of several processes that were given the same bad input, the
    first one says it.
    """
    from spdnet.datasets.names import printable

    rank = os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))
    text = printable(_text(error), keep="\n")
    if rank == "0":
        typer.echo(f"error: {text}", err=True)
    elif code != 2:
        typer.echo(f"error in process {rank}: {text}", err=True)
    raise typer.Exit(code) from error


def _text(error: Any) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f": {error.filename}" if error.filename else ""
        return f"{error.strerror}{where}{_ADVICE.get(error.errno or 0, '')}"
    return str(error) or type(error).__name__
