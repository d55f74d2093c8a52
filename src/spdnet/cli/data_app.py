"""The ``spdnet data`` commands; each loads the libraries that it needs."""

from pathlib import Path
from typing import Annotated

import typer

from spdnet.cli.options import Bad, Data, Dtype, Groups, Labels, Signals, argument, runs

data_app = typer.Typer(
    help="Inspect data, convert files, and obtain the data sets of the paper.",
    no_args_is_help=True,
)


@data_app.command()
@runs("spdnet.cli.data:run_info")
def info(
    data: Data,
    labels: Labels = None,
    groups: Groups = None,
    signals: Signals = False,
) -> None:
    """Show sizes, classes and condition numbers, and list invalid matrices and outlier trials.

    For signals, also list channels that are not finite, constant or identical. Condition numbers
    are those of the covariances.

    Example: spdnet data info recordings.npz
    """


@data_app.command("build")
@runs("spdnet.cli.data:run_build")
def build_(
    source: Annotated[Path, argument("SOURCE", "A folder, a zip archive, or a .npz file.")],
    out: Annotated[Path, argument("OUT", "The .npz file to write.")],
    *,
    of: Annotated[
        str,
        typer.Option(
            help="Contents of the source. matrices: one .npy, .mat, .csv, .tsv or .txt file per "
            "matrix. sequences: motion capture (.amc, .c3d), videos, images, files as for matrices "
            "with time in rows, or a .npz file with frames and lengths. signals: files as for "
            "matrices with channels in rows."
        ),
    ] = "matrices",
    kind: Annotated[
        str | None,
        typer.Option(
            help="Descriptor of sequences and signals: covariance, or gaussian (with mean). "
            "[default: covariance]"
        ),
    ] = None,
    reg: Annotated[
        float | None,
        typer.Option(help="Regularization of the covariance, in units of --mode. [default: 0.001]"),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            help="Unit of --reg: trace, mean (eigenvalue), absolute, shrinkage or none. [default: "
            "trace; for signals mean, as in training]"
        ),
    ] = None,
    root: Annotated[
        int | None, typer.Option(help="Index of the joint that is the origin of the positions.")
    ] = None,
    pca: Annotated[
        int | None,
        typer.Option(help="Number of principal components, fitted to the training set."),
    ] = None,
    clip_length: Annotated[
        float | None,
        typer.Option(help="Length of training clips: frames, or a fraction such as 0.5."),
    ] = None,
    clip_stride: Annotated[
        int | None, typer.Option(help="Stride of clips in frames. [default: half a clip]")
    ] = None,
    clips: Annotated[
        int | None, typer.Option(help="Number of clips per sequence, instead of a stride.")
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(help="Height and width of the gray frames of videos. [default: 20]"),
    ] = None,
    every: Annotated[
        int | None, typer.Option(help="Step between the frames that are used. [default: 1]")
    ] = None,
    index: Annotated[
        Path | None, typer.Option(help="Index (.mat) of the authors for a folder of matrices.")
    ] = None,
    groups: Groups = None,
    test: Annotated[
        float | None,
        typer.Option(help="Test fraction, if the folders have no split. [default: none]"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed of the split.")] = 0,
    dtype: Dtype = "float64",
    bad: Bad = "refuse",
) -> None:
    """Convert many files to one .npz file of matrices with labels, split and groups.

    The folder that contains a file is its class. Folders named train, val and test define the
    split. After an interruption, the same command resumes.

    Example: spdnet data build recordings/ recordings.npz

    Or: spdnet data build eeg/ eeg.npz --of signals --groups subjects.txt

    Or: spdnet data build motions/ motions.npz --of sequences --test 0.5 --clip-length 0.5
    """


Published = Annotated[str, argument("NAME", "afew, hdm05 or pasc.")]


@data_app.command("fetch")
@runs("spdnet.cli.data:run_fetch")
def fetch_(name: Published) -> None:
    """Download the SPD matrices that the paper's authors publish.

    After an interruption, the same command resumes. The data are stored in $SPDNET_DATA, or in the
    user's cache.

    Example: spdnet data fetch afew
    """


@data_app.command("import")
@runs("spdnet.cli.data:run_import")
def import_(
    name: Published,
    path: Annotated[
        Path, argument("PATH", "The authors' archive, packed or not, or the original data.")
    ],
    index: Annotated[
        Path | None, typer.Option(help="The authors' index (.mat), if it is not in PATH.")
    ] = None,
) -> None:
    """Import a data set of the paper that you obtained yourself.

    Example: spdnet data import afew AFEW_SPD_data.zip --index spddb_afew.mat
    """
