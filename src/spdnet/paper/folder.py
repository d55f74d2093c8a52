"""Folder of a reproduction."""

import re
from pathlib import Path

from spdnet._files import atomic_write
from spdnet.paper.reproduction import Row
from spdnet.paper.results import ReproductionResults
from spdnet.runs import RunFolder
from spdnet.runs.folder import SharedFolder


class ReproductionFolder(SharedFolder):
    """A reproduction on disk.

    ======================  ==================================================
    ``reproduction.json``   settings
    ``environment.json``    versions, machine, command
    ``DATA/NETWORK/*``      a run folder for each repeat
    ``DATA/methods/*``      one file for each other method and repeat
    ``DATA/data-*.txt``     digest of the data of each repeat
    ``results.json``        the results
    ``table.txt .csv``      the table as text and as CSV
    ``report.html``         the report
    ======================  ==================================================

    Examples
    --------
    >>> from spdnet.paper import ReproductionFolder
    >>> ReproductionFolder("runs/reproduce-afew").report_file.name
    'report.html'
    """

    command = "spdnet reproduce"
    settings_name = "reproduction.json"
    may_change = ("repeats", "baselines", "device")

    def run_of(self, data: str, row: Row, repeat: int) -> RunFolder:
        """Return the folder of a network in one repeat."""
        name = re.sub(r"[^a-z0-9]+", "-", row.title.lower()).strip("-")
        return RunFolder(self.path / data / name / f"repeat-{repeat + 1}")

    def cell_file(self, data: str, method: str, repeat: int) -> Path:
        """Return the file of another method in one repeat."""
        return self.path / data / "methods" / f"{method}-{repeat + 1}.json"

    def matrices_file(self, data: str, repeat: int) -> Path:
        """Return the temporary file of the matrices of one repeat."""
        return self.path / data / f"matrices-{repeat + 1}.npz"

    def require_digest(self, data: str, repeat: int, digest: str) -> None:
        """Raise an error if the data of a repeat have changed since it began."""
        file = self.path / data / f"data-{repeat + 1}.txt"
        if not file.is_file():
            file.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(file, digest + "\n")
        elif file.read_bytes().strip() != digest.encode():
            raise ValueError(
                f"reproduce: expected the data that repeat {repeat + 1} in {self.path} began with, "
                "got others; name another folder, or restore the data"
            )

    def results(self) -> ReproductionResults:
        """Read the results."""
        return ReproductionResults.load(self.results_file, "spdnet reproduce writes it")
