"""The ``spdnet data`` commands; each loads the libraries that it needs."""

import typer

from spdnet.cli.options import runs
from spdnet.options.commands import BuildCommand, FetchCommand, ImportCommand, InfoCommand

data_app = typer.Typer(
    help="Inspect data, build files of matrices, get the data sets of the paper.",
    no_args_is_help=True,
)


@data_app.command()
@runs("spdnet.cli.data:run_info", InfoCommand)
def info() -> None:
    """Show counts, sizes, classes, condition numbers, and faulty matrices by index.

    For signals, show channels that are not finite, constant or equal, and the condition numbers of
    the covariances.

    Example: spdnet data info recordings.npz
    """


@data_app.command()
@runs("spdnet.cli.data:run_build", BuildCommand)
def build() -> None:
    """Write one file of matrices, with classes, parts and groups.

    After an interruption, the same command resumes. Folders called train, val and test are the
    parts of the data; the folder of a file is its class.

    Example: spdnet data build recordings/ recordings.npz

    Or: spdnet data build eeg/ eeg.npz --of signals --groups subjects.txt

    Or: spdnet data build motions/ motions.npz --of sequences --test 0.5 --clip-length 0.5
    """


@data_app.command("fetch")
@runs("spdnet.cli.data:run_fetch", FetchCommand)
def fetch_() -> None:
    """Download the SPD matrices that the paper's authors publish.

    After an interruption, the same command resumes. The data are stored in $SPDNET_DATA, or in the
    user's cache.

    Example: spdnet data fetch afew
    """


@data_app.command("import")
@runs("spdnet.cli.data:run_import", ImportCommand)
def import_() -> None:
    """Import a data set of the paper that you have obtained by hand.

    Example: spdnet data import afew AFEW_SPD_data.zip --index spddb_afew.mat
    """
