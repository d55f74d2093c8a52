"""The commands: the docstring of each is its help, and the fields are its options."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from spdnet.options.kinds import Choice, Count, Flag, Location, Natural, Number, Text
from spdnet.options.option import RUN, option, same
from spdnet.options.run import CompareOptions, DataOptions, ReproduceOptions, RunOptions

_option = partial(option, panel=None)
_run = partial(option, panel=RUN)


@dataclass(frozen=True, kw_only=True)
class TrainCommand(RunOptions):
    """Train and evaluate a network, and write everything to a run folder.

    For example: spdnet train digits-small

    Or: spdnet train recordings.npz --dims 93,70,50,30 --repeat 10

    Or: spdnet train digits --norm log_cholesky --head log_euclidean

    Or, for signals with groups: spdnet train eeg.npz --model tsmnet

    Or, with a torch module of your own: spdnet train digits --model package.module:Class

    Or, after an interruption: spdnet train --resume --out runs/digits-small

    Or, on two machines: torchrun --nnodes 2 --nproc-per-node 8 -m spdnet train big.npz --out big
    """

    settings: Path | None = _run(Location(), "TOML file of settings, one key per option")
    out: Path | None = _run(
        Location(), "Run folder", unset="runs/NAME; for a second run runs/NAME-2"
    )
    resume: bool = _run(
        Flag(), "Resume the run in --out. A larger --epochs extends it", default=False
    )
    devices: int = _run(
        Count(),
        "Number of processes that share each batch, each on its own GPU, or on the CPU",
        default=1,
    )
    quiet: bool = _run(Flag(), "No progress bar and no line per epoch", default=False)


@dataclass(frozen=True, kw_only=True)
class CompareCommand(CompareOptions):
    """Compare SPDNet with the methods of its paper and other baselines on the same splits.

    Completed fits are not repeated: after an interruption, or with more methods or repeats, run the
    same command again.

    Example: spdnet compare digits --repeats 3
    """

    out: Path | None = _option(Location(), "Folder of the comparison", unset="runs/compare-NAME")


@dataclass(frozen=True, kw_only=True)
class ReproduceCommand(ReproduceOptions):
    """Reproduce an experiment of the paper, and compare with the published results.

    Completed parts are not repeated: after an interruption, or with more repeats, run the same
    command again.

    Example: spdnet reproduce hdm05 --standin cmu27_joints.npz --repeats 3

    As a quick test: spdnet reproduce afew --standin digits --quick
    """

    out: Path | None = _option(
        Location(), "Folder of the reproduction", unset="runs/reproduce-EXPERIMENT"
    )


@dataclass(frozen=True, kw_only=True)
class ReportCommand:
    """Regenerate the report of a run.

    Example: spdnet report runs/digits-small
    """

    run: Path = _option(Location(), "Run folder of `spdnet train`", default=...)


@dataclass(frozen=True, kw_only=True)
class _RunOnData(ReportCommand):
    data: str = same(DataOptions, "data")
    groups: str | None = same(DataOptions, "groups", panel=None)
    bad: str | None = same(DataOptions, "bad", default=None, unset="as in training", panel=None)
    device: str = same(RunOptions, "device", panel=None)
    model: str | None = _option(
        Text(),
        "Class of the network, MODULE:CLASS, if it is not part of spdnet",
    )


@dataclass(frozen=True, kw_only=True)
class EvaluateCommand(_RunOnData):
    """Evaluate a run on labeled data: accuracy, loss, and precision and recall of each class.

    If the data are those of the run, its test set is used: see --part.

    Example: spdnet evaluate runs/digits-small digits-small
    """

    labels: str | None = same(DataOptions, "labels", panel=None)
    part: str | None = _option(
        Choice("train", "val", "test", "all"), "Part of the data", unset="test, if any"
    )


@dataclass(frozen=True, kw_only=True)
class PredictCommand(_RunOnData):
    """Predict labels and probabilities, and write them to a CSV file. Labels are not needed.

    If the data are those of the run, the column part is train, val or test for each sample.

    Example: spdnet predict runs/digits-small new.npz --out predictions.csv
    """

    out: Path = _option(
        Location(), "Output file, or - for standard output", default=Path("predictions.csv")
    )
    force: bool = _option(Flag(), "Replace an existing file", default=False)


@dataclass(frozen=True, kw_only=True)
class InfoCommand:
    """Show sizes, classes and condition numbers, and list invalid matrices and outlier trials.

    For signals, also list channels that are not finite, constant or identical. Condition numbers
    are those of the covariances.

    Example: spdnet data info recordings.npz
    """

    data: str = same(DataOptions, "data")
    labels: str | None = same(DataOptions, "labels", panel=None)
    groups: str | None = same(DataOptions, "groups", panel=None)
    signals: bool = same(DataOptions, "signals", panel=None)


@dataclass(frozen=True, kw_only=True)
class FetchCommand:
    """Download the SPD matrices published by the authors of the paper.

    After an interruption, the same command resumes. The data are stored in $SPDNET_DATA, or in the
    user's cache.

    Example: spdnet data fetch afew
    """

    name: str = _option(Text(), "afew, hdm05 or pasc", default=...)


@dataclass(frozen=True, kw_only=True)
class ImportCommand(FetchCommand):
    """Import a data set of the paper that you obtained yourself.

    Example: spdnet data import afew AFEW_SPD_data.zip --index spddb_afew.mat
    """

    path: Path = _option(
        Location(), "The authors' archive (zip file or folder), or the original data", default=...
    )
    index: Path | None = _option(Location(), "The authors' index (.mat), if it is not in PATH")


@dataclass(frozen=True, kw_only=True)
class _BuildFiles:
    source: Path = _option(Location(), "A folder, a zip archive, or a .npz file", default=...)
    out: Path = _option(Location(), "The .npz file to write", default=...)
    of: str = _option(
        Choice("matrices", "sequences", "signals"),
        "Contents of the source. matrices: one .npy, .mat, .csv, .tsv or .txt file per matrix. "
        "sequences: motion capture (.amc, .c3d), videos, images, files as for matrices with time "
        "in rows, or a .npz file with frames and lengths. signals: files as for matrices with "
        "channels in rows.",
        default="matrices",
    )


@dataclass(frozen=True, kw_only=True)
class DescriptorOptions:
    """Options of the conversion of sequences and signals to matrices."""

    kind: str = _option(
        Choice("covariance", "gaussian"),
        "Descriptor of sequences and signals. gaussian contains the mean.",
        default="covariance",
    )
    reg: float = _option(
        Number(), "Regularization of the covariance, in the unit given by mode", default=1e-3
    )
    mode: str = _option(
        Choice("trace", "mean", "absolute", "shrinkage", "none"),
        "Unit of reg. mean is the mean eigenvalue.",
        default="trace",
        unset="trace, or mean with --of signals, as in training",
    )
    root: int | None = _option(
        Natural(), "Joint of frames (T, joints, 3) whose position is subtracted from all others"
    )
    pca: int | None = _option(Count(), "Number of principal components, fitted to the training set")
    clip_length: float | None = _option(
        Number(above=0),
        "Length of clips that are cut from training sequences, in addition to the whole sequence. "
        "A number of frames, or a fraction of the sequence such as 0.5. Validation and test "
        "sequences are never cut.",
    )
    clip_stride: int | None = _option(Count(), "Stride of clips in frames", unset="half a clip")
    clips: int | None = _option(
        Count(),
        "Number of clips spread evenly over a sequence, instead of a stride; fewer if it is short",
    )


@dataclass(frozen=True, kw_only=True)
class BuildCommand(DescriptorOptions, _BuildFiles):
    """Convert many files to one .npz file of matrices with labels, split and groups.

    The folder that contains a file is its class. Folders named train, val and test define the
    split. After an interruption, the same command resumes.

    Example: spdnet data build recordings/ recordings.npz

    Or: spdnet data build eeg/ eeg.npz --of signals --groups subjects.txt

    Or: spdnet data build motions/ motions.npz --of sequences --test 0.5 --clip-length 0.5
    """

    size: int = _option(Count(), "Height and width of the gray frames of videos", default=20)
    every: int = _option(Count(), "Step between the frames that are used", default=1)
    index: Path | None = _option(Location(), "Index (.mat) of the authors for matrices")
    groups: Path | None = same(DataOptions, "groups", kind=Location(), panel=None)
    test: float | None = _option(
        Number(above=0, below=1), "Test fraction, if the folders have no split"
    )
    seed: int = same(RunOptions, "seed", help="Random seed of the split", panel=None)
    dtype: str = same(RunOptions, "dtype", panel=None)
    bad: str = same(DataOptions, "bad", panel=None)
