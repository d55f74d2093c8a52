"""The folder of a comparison: what is in it, and how it is written."""

import json
import math
from pathlib import Path
from typing import Any

from spdnet.runs.methods import METHODS
from spdnet.runs.run_folder import (
    environment,
    is_empty,
    read_environment,
    read_json,
    write,
)

#: what the file of a cell holds
_CELL = {
    "accuracy": float,
    "fit_seconds": float,
    "predict_seconds": float,
    "parameters": dict,
    "warnings": list,
    "device": str,
}


class ComparisonFolder:
    """A comparison on disk.

    =======================  ===============================================
    ``comparison.json``      settings, and a digest of the data
    ``environment.json``     versions, machine, command
    ``cells/``               one file for each method and repeat
    ``results.json``         the table with all that is known
    ``table.txt .csv .tex``  the table to read, to compute with, to print
    ``report.html``          the same for people
    =======================  ===============================================

    Parameters
    ----------
    path : path

    Examples
    --------
    >>> from spdnet.runs import ComparisonFolder
    >>> ComparisonFolder("runs/compare-digits").report_file.name
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

    def require_same(self, settings: dict[str, Any]) -> list[str]:
        """See that nothing is here, or this comparison; the methods that it has had so far."""
        if not self._file_of("comparison").is_file():
            if self.path.exists() and not is_empty(self.path):
                raise FileExistsError(
                    f"compare: expected a new folder or one of a comparison, but {self.path} holds "
                    "something else; name another"
                )
            return []
        before = self._read("comparison")
        for name, value in settings.items():
            if before.get(name) != value and name not in ("methods", "repeats"):
                raise ValueError(
                    f"compare: expected the comparison that {self.path} holds, with {name} = "
                    f"{before.get(name)!r}, got {value!r}; name another folder"
                )
        earlier = before.get("methods", [])
        return [name for name in METHODS if isinstance(earlier, list) and name in earlier]

    def begin(self, settings: dict[str, Any]) -> None:
        """Write what is compared; the folder is locked."""
        write(self._file_of("comparison"), json.dumps(settings, indent=1) + "\n")
        (self.path / "cells").mkdir(exist_ok=True)
        if not self._file_of("environment").is_file():
            text = json.dumps(environment(settings["seed"]), indent=2)
            write(self._file_of("environment"), text + "\n")

    def environment(self) -> dict[str, Any]:
        """Versions, machine and command."""
        return read_environment(self._file_of("environment"), "spdnet compare writes it")

    def cell(self, method: str, repeat: int) -> dict[str, Any] | None:
        """What was found, if it was; a failure or a damaged file counts as nothing."""
        file = self._cell_file(method, repeat)
        if not file.is_file():
            return None
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
        except (ValueError, RecursionError):
            return None
        whole = isinstance(found, dict) and found.get("error", "") is None
        whole = whole and all(_is(kind, found.get(name)) for name, kind in _CELL.items())
        return found if whole else None

    def keep(self, method: str, repeat: int, found: dict[str, Any]) -> None:
        """Write what was found."""
        write(self._cell_file(method, repeat), json.dumps(found, indent=1) + "\n")

    def results(self) -> dict[str, Any]:
        """What :func:`compare` wrote."""
        return self._read("results")

    def _file_of(self, what: str) -> Path:
        return self.path / f"{what}.json"

    def _read(self, what: str) -> dict[str, Any]:
        return read_json(self._file_of(what), "spdnet compare writes it")

    def _cell_file(self, method: str, repeat: int) -> Path:
        return self.path / "cells" / f"{method}-{repeat}.json"


def _is(kind: type, value: Any) -> bool:
    """Whether a value is of a kind; a number is finite, what a list holds is text."""
    if kind is float:
        return type(value) in (int, float) and math.isfinite(value)
    if kind is list and isinstance(value, list):
        return all(isinstance(text, str) for text in value)
    return isinstance(value, kind)
