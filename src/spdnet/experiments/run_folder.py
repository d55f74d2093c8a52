"""The folder of a run: what is in it, and how it is written."""

import csv
import io
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy
import torch

from spdnet.experiments.settings import Settings, from_mapping, read_toml
from spdnet.training.checkpoint import CheckpointFolder

if os.name == "posix":
    import fcntl

_LIBRARIES = ("spdnet", "torch", "numpy", "scipy", "scikit-learn", "lightning-fabric")


class RunFolder:
    """One run on disk.

    ====================  ==================================================
    ``settings.toml``     every setting; ``spdnet train --settings`` takes it
    ``environment.json``  versions, machine, command, seed
    ``metrics.csv``       one row for each epoch
    ``checkpoints/``      ``best.pt``, ``last.pt``, ``previous.pt``
    ``results.json``      scores, confusion, spectra: written at the end
    ``report.html``       the same for people
    ``seed-*/``           with ``--repeat``: a folder like this for each seed
    ====================  ==================================================

    Parameters
    ----------
    path : path
    numbered : bool
        Whether :meth:`create` may add a number to the name if there is such a folder.

    Examples
    --------
    >>> from spdnet.experiments import RunFolder
    >>> run = RunFolder("runs/of-last-year")
    >>> run.exists, run.report_file.name
    (False, 'report.html')
    """

    def __init__(self, path: str | Path, *, numbered: bool = False) -> None:
        self.path = Path(path)
        self.numbered = numbered

    @property
    def settings_file(self) -> Path:
        """Every setting."""
        return self.path / "settings.toml"

    @property
    def environment_file(self) -> Path:
        """Versions, machine, command, seed."""
        return self.path / "environment.json"

    @property
    def metrics_file(self) -> Path:
        """One row for each epoch."""
        return self.path / "metrics.csv"

    @property
    def results_file(self) -> Path:
        """Scores, confusion, spectra."""
        return self.path / "results.json"

    @property
    def report_file(self) -> Path:
        """The report."""
        return self.path / "report.html"

    @property
    def exists(self) -> bool:
        """Whether there is a run here."""
        return self.settings_file.is_file()

    @property
    def finished(self) -> bool:
        """Whether the run has its results."""
        return self.results_file.is_file()

    @property
    def is_free(self) -> bool:
        """Whether there is nothing here but drafts of a process that was killed."""
        return not self.path.exists() or all(map(is_draft, self.path.iterdir()))

    def create(self, settings: Settings) -> None:
        """Make the folder, with settings and environment; what is there is left as it is."""
        self._claim()
        if not self.exists:
            write(self.settings_file, settings.to_toml())  # from now on it is a run
        if not self.environment_file.exists():
            write(self.environment_file, json.dumps(environment(settings.seed), indent=2) + "\n")

    def _claim(self) -> None:
        """Make the folder ours: of two processes that want it, one gets it."""
        base, number = self.path, 2
        while self.numbered:
            try:
                self.path.mkdir(parents=True)
                self.numbered = False
            except FileExistsError:
                self.path, number = base.with_name(f"{base.name}-{number}"), number + 1
        self.path.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out while this one writes; the lock ends with the process."""
        if os.name != "posix":  # where folders cannot be locked
            yield
            return
        folder = os.open(self.path, os.O_RDONLY)
        try:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(
                    f"run: expected {self.path} for this process alone, but another is writing "
                    "there; wait for it, or name another folder"
                ) from None
            for draft in filter(is_draft, self.path.rglob("*")):  # of a process that was killed
                draft.unlink(missing_ok=True)
            yield
        finally:
            os.close(folder)

    def settings(self) -> Settings:
        """The settings of the run."""
        if not self.exists:
            raise FileNotFoundError(f"run: expected a run folder at {self.path}, got none")
        return from_mapping(read_toml(self.settings_file), str(self.settings_file))

    def checkpoints(self) -> CheckpointFolder:
        """Its checkpoints."""
        return CheckpointFolder(self.path / "checkpoints")

    def of_seed(self, seed: int) -> "RunFolder":
        """The folder of one of several repeats."""
        return RunFolder(self.path / f"seed-{seed}")

    def seeds(self) -> list["RunFolder"]:
        """The folders of the repeats, in order."""
        found = [RunFolder(p) for p in self.path.glob("seed-*") if p.name[5:].isdecimal()]
        return sorted((r for r in found if r.exists), key=lambda r: int(r.path.name[5:]))

    def write_metrics(self, history: list[dict[str, float]]) -> None:
        """The table of epochs."""
        if history:
            text = io.StringIO()
            table = csv.DictWriter(text, history[0], lineterminator="\n")
            table.writeheader()
            table.writerows(history)
            write(self.metrics_file, text.getvalue())

    def metrics(self) -> list[dict[str, float]]:
        """The table of epochs."""
        if not self.metrics_file.exists():
            return []
        try:
            with self.metrics_file.open(newline="", encoding="utf-8") as file:
                return [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]
        except (ValueError, TypeError, csv.Error) as error:
            raise ValueError(
                f"run: expected a table of numbers in {self.metrics_file}, but it is damaged: "
                f"{error}"
            ) from error

    def write_results(self, results: dict[str, Any]) -> None:
        """Scores and everything else the report shows."""
        write(self.results_file, json.dumps(results, indent=1, allow_nan=False) + "\n")

    def results(self) -> dict[str, Any]:
        """What :meth:`write_results` wrote."""
        return read_json(self.results_file, "spdnet train --resume goes on where it stopped")

    def environment(self) -> dict[str, Any]:
        """Versions, machine and command."""
        return read_environment(self.environment_file, "it was written at the start of the run")


def is_draft(path: Path) -> bool:
    """Whether a process was killed while it wrote this file."""
    return path.name.startswith(".") and path.name.endswith(".part")


def write(path: Path, text: str) -> None:
    """Write a text file at one stroke; halves of letters, as in odd paths, become marks."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with draft.open("w", encoding="utf-8", errors="replace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def environment(seed: int) -> dict[str, Any]:
    """What a result may depend on besides the settings."""
    cuda = torch.cuda.is_available()
    return {
        "started": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "command": shlex.join(["spdnet", *sys.argv[1:]]),
        "seed": seed,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if cuda else None,
        "libraries": {name: _version(name) for name in _LIBRARIES},
        "blas": numpy.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"],
    }


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:  # installed under another name, or not at all
        return "unknown"


def read_json(path: Path, hint: str) -> dict[str, Any]:
    """What a file of a run holds; the hint is for those who miss it."""
    if not path.is_file():
        raise FileNotFoundError(f"run: expected {path}, got none; {hint}")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"run: expected JSON in {path}, but it is damaged: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"run: expected named values in {path}, got {type(found).__name__}")
    return found


def read_environment(path: Path, hint: str) -> dict[str, Any]:
    """What :func:`environment` gave at the start."""
    found = read_json(path, hint)
    if not isinstance(found.get("libraries"), dict):
        raise ValueError(f"run: expected versions of libraries in {path}, got none; {hint}")
    return found
