"""The folder of a run: what is in it, and how it is written."""

import csv
import io
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy
import torch

from spdnet._lock import LOCK, locked
from spdnet.runs.settings import Settings, from_mapping, read_toml
from spdnet.training.checkpoint import CheckpointFolder

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
    ``.lock``             locked while a process writes
    ====================  ==================================================

    Parameters
    ----------
    path : path
    numbered : bool
        Whether :meth:`create` may add a number to the name if there is such a folder.

    Examples
    --------
    >>> from spdnet.runs import RunFolder
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
        """Whether the folder is missing, or holds only a lock and drafts of killed processes."""
        return not self.path.exists() or is_empty(self.path)

    def require_free(self) -> None:
        """Raise an error if the folder holds something.

        Raises
        ------
        FileExistsError
        """
        if not self.is_free:
            raise FileExistsError(
                f"train: expected a new folder, but {self.path} is not empty; name another, or "
                "resume the run in it with --resume"
            )

    def create(self, settings: Settings, digest: str) -> None:
        """Write settings and environment; existing files are kept.

        Parameters
        ----------
        settings : Settings
        digest : str
            Of the contents of the data.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        if not self.exists:
            write(self.settings_file, settings.to_toml())  # from now on it is a run
        if not self.environment_file.exists():
            self._write_environment(settings, digest)

    def _write_environment(self, settings: Settings, digest: str) -> None:
        found = {**environment(settings.seed), "identity": settings.identity(digest)}
        write(self.environment_file, json.dumps(found, indent=2) + "\n")

    def require_same(self, settings: Settings, digest: str) -> None:
        """Raise an error if settings or data are not those that the run began with.

        Raises
        ------
        ValueError
        """
        if not self.environment_file.exists():  # killed before it was written
            return
        before = self._environment().get("identity")
        if not isinstance(before, dict):
            raise ValueError(
                f"run: expected the settings of the run in {self.environment_file}, got none; "
                "start a new run"
            )
        if (difference := first_difference(before, settings.identity(digest))) is not None:
            raise ValueError(f"train: {changed(*difference, self.path)}")

    def replace_settings(self, settings: Settings, digest: str) -> None:
        """Replace the settings of the run by others with more epochs, or with other paths.

        With more epochs the results are removed, since the run is no longer finished. The
        checkpoint is rewritten first, so that the call can be repeated after an interruption.
        """
        epochs = settings.make_recipe().epochs
        if epochs != self.settings().make_recipe().epochs:
            files = self.checkpoints()
            self.results_file.unlink(missing_ok=True)
            self.report_file.unlink(missing_ok=True)
            if files.any():
                state, _ = files.load_last(needs=("identity", "recipe", "trainer"))
                for part in ("identity", "recipe"):
                    state[part]["epochs"] = epochs
                files.save_last(state)
        write(self.settings_file, settings.to_toml())
        self._write_environment(settings, digest)

    def claim(self) -> None:
        """Make the folder. Of two processes that want a numbered one, each gets its own."""
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
        """Lock the folder against other processes and remove drafts of killed ones."""
        busy = (
            f"run: expected no other process in {self.path}, but another is writing there; wait "
            "for it, or name another folder"
        )
        with locked(self.path, busy):
            for draft in filter(is_draft, self.path.rglob("*")):
                draft.unlink(missing_ok=True)
            yield

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
        """Return versions, machine and command."""
        return {k: v for k, v in self._environment().items() if k != "identity"}

    def _environment(self) -> dict[str, Any]:
        return read_environment(self.environment_file, "it was written at the start of the run")


def is_draft(path: Path) -> bool:
    """Whether a process was killed while it wrote this file."""
    return path.name.startswith(".") and path.name.endswith(".part")


def is_empty(folder: Path) -> bool:
    """Whether a folder holds nothing but a lock file and drafts."""
    return all(path.name == LOCK or is_draft(path) for path in folder.iterdir())


def first_difference(
    before: Mapping[str, Any], now: Mapping[str, Any]
) -> tuple[str, Any, Any] | None:
    """Return the first name whose values differ, with both values; None if there is none."""
    for name in {**before, **now}:
        if before.get(name) != now.get(name):
            return name, before.get(name), now.get(name)
    return None


def changed(name: str, before: Any, now: Any, folder: Path) -> str:
    """Describe a setting that is not the one that a run began with."""
    if name == "data":
        return (
            f"expected the data that the run in {folder} began with, got others; start a new run, "
            "or bring the data back"
        )
    return (
        f"expected {name} = {before!r}, with which the run in {folder} began, got {now!r}; undo "
        "the change in settings.toml or on the command line, or start a new run"
    )


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
