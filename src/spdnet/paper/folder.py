"""The folder of a reproduction: what is in it, and how it is written."""

import json
import re
from pathlib import Path
from typing import Any

from spdnet.paper.reproduction import Row
from spdnet.runs.run_folder import (
    RunFolder,
    environment,
    is_empty,
    read_environment,
    read_json,
    write,
)


class ReproductionFolder:
    """A reproduction on disk.

    ======================  ==================================================
    ``reproduction.json``   what is reproduced
    ``environment.json``    versions, machine, command
    ``DATA/NETWORK/*``      a run folder for each repeat
    ``DATA/methods/*``      one file for each other method and repeat
    ``DATA/data-*.txt``     digest of the data of each repeat
    ``results.json``        the table with all that is known
    ``table.txt .csv``      the table to read and to compute with
    ``report.html``         the same for people, with plots
    ======================  ==================================================

    Parameters
    ----------
    path : path

    Examples
    --------
    >>> from spdnet.paper import ReproductionFolder
    >>> ReproductionFolder("runs/reproduce-afew").report_file.name
    'report.html'
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def results_file(self) -> Path:
        """The table with all that is known."""
        return self.path / "results.json"

    @property
    def report_file(self) -> Path:
        """The report."""
        return self.path / "report.html"

    def require_same(self, wanted: dict[str, Any]) -> None:
        """Raise an error unless the folder is empty or holds this reproduction.

        The number of repeats, the baselines and the device may differ.

        Raises
        ------
        ValueError, FileExistsError
        """
        file = self.path / "reproduction.json"
        may_change = ("repeats", "baselines", "device")
        if file.is_file():
            before = read_json(file, "spdnet reproduce writes it")
            for name, value in wanted.items():
                if before.get(name) != value and name not in may_change:
                    raise ValueError(
                        f"reproduce: expected the reproduction that {self.path} holds, with {name} "
                        f"= {before.get(name)!r}, got {value!r}; name another folder"
                    )
        elif self.path.exists() and not is_empty(self.path):
            raise FileExistsError(
                f"reproduce: expected a new folder or one of a reproduction, but {self.path} holds "
                "something else; name another"
            )

    def begin(self, wanted: dict[str, Any]) -> None:
        """Write what is reproduced; the folder is locked."""
        self.require_same(wanted)
        write(self.path / "reproduction.json", json.dumps(wanted, indent=1) + "\n")
        if not (self.path / "environment.json").is_file():
            text = json.dumps(environment(wanted["seed"]), indent=2)
            write(self.path / "environment.json", text + "\n")

    def run_of(self, data: str, row: Row, repeat: int) -> RunFolder:
        """The folder of a network in one repeat."""
        name = re.sub(r"[^a-z0-9]+", "-", row.title.lower()).strip("-")
        return RunFolder(self.path / data / name / f"repeat-{repeat + 1}")

    def cell_of(self, data: str, method: str, repeat: int) -> Path:
        """The file of another method in one repeat."""
        return self.path / data / "methods" / f"{method}-{repeat + 1}.json"

    def matrices_of(self, data: str, repeat: int) -> Path:
        """The file of the matrices of one repeat, while it is under way."""
        return self.path / data / f"matrices-{repeat + 1}.npz"

    def require_digest(self, data: str, repeat: int, digest: str) -> None:
        """See that the data of a repeat are those that it began with."""
        file = self.path / data / f"data-{repeat + 1}.txt"
        if not file.is_file():
            file.parent.mkdir(parents=True, exist_ok=True)
            write(file, digest + "\n")
        elif file.read_bytes().strip() != digest.encode():
            raise ValueError(
                f"reproduce: expected the data that repeat {repeat + 1} in {self.path} began with, "
                "got others; name another folder, or bring the data back"
            )

    def results(self) -> dict[str, Any]:
        """What :func:`reproduce` wrote."""
        return read_json(self.results_file, "spdnet reproduce writes it")

    def environment(self) -> dict[str, Any]:
        """Versions, machine and command."""
        return read_environment(self.path / "environment.json", "spdnet reproduce writes it")
