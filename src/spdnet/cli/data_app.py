"""The ``spdnet data`` commands; each loads the libraries that it needs."""

from pathlib import Path
from typing import Annotated

import typer

from spdnet.cli.options import Data, Groups, Labels, Signals, argument, runs
from spdnet.options.run import BuildOptions

data_app = typer.Typer(
    help="Inspect data, build files of matrices, get the data sets of the paper.",
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
    """Show counts, sizes, classes, condition numbers, and faulty matrices by index.

    For signals, show channels that are not finite, constant or equal, and the condition numbers of
    the covariances.

    Example: spdnet data info recordings.npz
    """


@data_app.command()
@runs("spdnet.cli.data:run_build", BuildOptions)
def build() -> None:
    """Write one file of matrices, with classes, parts and groups.

    After an interruption, the same command resumes. Folders called train, val and test are the
    parts of the data; the folder of a file is its class.

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
    """Import a data set of the paper that you have obtained by hand.

    Example: spdnet data import afew AFEW_SPD_data.zip --index spddb_afew.mat
    """
