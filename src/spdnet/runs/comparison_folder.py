"""Folder of a comparison."""

from pathlib import Path

from spdnet.runs.comparison import ComparisonResults
from spdnet.runs.folder import SharedFolder


class ComparisonFolder(SharedFolder):
    """A comparison on disk.

    =======================  ===============================================
    ``comparison.json``      settings, and a digest of the data
    ``environment.json``     versions, machine, command
    ``cells/``               one file for each method and repeat
    ``results.json``         the results
    ``table.txt .csv .tex``  the table as text, as CSV and for LaTeX
    ``report.html``          the report
    =======================  ===============================================

    Examples
    --------
    >>> from spdnet.runs import ComparisonFolder
    >>> ComparisonFolder("runs/compare-digits").report_file.name
    'report.html'
    """

    command = "spdnet compare"
    settings_name = "comparison.json"
    may_change = ("methods", "repeats")

    def cell_file(self, method: str, repeat: int) -> Path:
        """Return the file of a method in a repeat."""
        return self.path / "cells" / f"{method}-{repeat}.json"

    def results(self) -> ComparisonResults:
        """Read the results."""
        return ComparisonResults.load(self.results_file, "spdnet compare writes it")
