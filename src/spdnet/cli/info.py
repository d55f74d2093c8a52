"""``spdnet data info``."""

from rich.console import Console

from spdnet.cli.reading import read_shown
from spdnet.data import examine
from spdnet.data.channels import examine_signals
from spdnet.data.names import printable
from spdnet.data.summary import describe


def run_info(data: str, labels: str | None, groups: str | None, signals: bool) -> None:
    """Print a summary of the data."""
    found = read_shown(data, labels, groups, labeled=None)
    console = Console(highlight=False, markup=False, emoji=False)
    look = examine_signals if signals or not found.is_matrices else examine
    for line in describe(found, look(found.X)):
        console.print(printable(line), soft_wrap=True)
