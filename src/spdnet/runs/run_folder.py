"""Folder of a training run."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spdnet._files import atomic_write
from spdnet.runs.folder import Folder
from spdnet.runs.record import csv_table, read_json
from spdnet.runs.results import RepeatResults, RunResults
from spdnet.runs.settings import Settings, from_mapping, read_toml
from spdnet.training.checkpoint import CheckpointFolder

_UNFINISHED = "resume the run with spdnet train --resume"


class RunFolder(Folder):
    """A training run on disk.

    ====================  ==================================================
    ``settings.toml``     all settings; accepted by ``spdnet train --settings``
    ``environment.json``  versions, machine, command, seed
    ``choice.json``       members of a portfolio that were compared and chosen
    ``metrics.csv``       one row for each epoch
    ``checkpoints/``      ``best.pt``, ``last.pt``, ``previous.pt``
    ``results.json``      scores, confusion, spectra: written at the end
    ``report.html``       the report
    ``seed-*/``           with ``--repeat``: a folder like this for each seed
    ``.lock``             locked while a process writes
    ====================  ==================================================

    Parameters
    ----------
    path : path
    numbered : bool
        Add a number to the name if the folder exists.

    Examples
    --------
    >>> from spdnet.runs import RunFolder
    >>> run = RunFolder("runs/of-last-year")
    >>> run.exists, run.report_file.name
    (False, 'report.html')
    """

    command = "spdnet train"
    settings_name = "settings.toml"

    def __init__(self, path: str | Path, *, numbered: bool = False) -> None:
        super().__init__(path)
        self.numbered = numbered

    def _move(self, path: Path) -> None:
        super()._move(path)
        self.metrics_file = path / "metrics.csv"
        self.choice_file = path / "choice.json"

    def require_free(self) -> None:
        """Raise an error if the folder is not empty."""
        if not self.is_free:
            raise FileExistsError(
                f"train: expected a new folder, but {self.path} is not empty; choose another "
                "(--out), or resume the run in it with --resume"
            )

    def create(self, settings: Settings, digest: str) -> None:
        """Write settings and environment, with the digest of the data; existing files are kept."""
        self.path.mkdir(parents=True, exist_ok=True)
        if not self.exists:
            atomic_write(self.settings_file, settings.to_toml())
        if not self.environment_file.exists():
            self.write_environment(settings.seed, identity=settings.identity(digest))

    def require_same(self, settings: Settings, digest: str) -> None:
        """Raise an error if settings or data differ from those with which the run was started."""
        if not self.environment_file.exists():  # the process was killed before writing it
            return
        before = self.environment().get("identity")
        if not isinstance(before, dict):
            raise ValueError(
                f"run: expected the settings of the run in {self.environment_file}, got none; "
                "start a new run"
            )
        if (change := describe_change(before, settings.identity(digest), self.path)) is not None:
            raise ValueError(f"train: {change}")

    def replace_settings(self, settings: Settings, digest: str) -> None:
        """Replace the settings of the run, to train for more epochs or to use other paths.

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
        atomic_write(self.settings_file, settings.to_toml())
        self.write_environment(settings.seed, identity=settings.identity(digest))

    def claim(self) -> None:
        """Create the folder; with ``numbered``, concurrent processes get different folders."""
        base, number = self.path, 2
        while self.numbered:
            try:
                self.path.mkdir(parents=True)
                self.numbered = False
            except FileExistsError:
                self._move(base.with_name(f"{base.name}-{number}"))
                number += 1
        self.path.mkdir(parents=True, exist_ok=True)

    def settings(self) -> Settings:
        """Read the settings of the run."""
        if not self.exists:
            raise FileNotFoundError(f"run: expected a run folder at {self.path}, got none")
        return from_mapping(read_toml(self.settings_file), str(self.settings_file))

    def checkpoints(self) -> CheckpointFolder:
        """Return the folder of the checkpoints."""
        return CheckpointFolder(self.path / "checkpoints")

    def of_seed(self, seed: int) -> "RunFolder":
        """Return the folder of the repeat with this seed."""
        return RunFolder(self.path / f"seed-{seed}")

    def seeds(self) -> list["RunFolder"]:
        """Return the folders of the repeats, ordered by seed."""
        found = [RunFolder(p) for p in self.path.glob("seed-*") if p.name[5:].isdecimal()]
        return sorted((r for r in found if r.exists), key=lambda r: int(r.path.name[5:]))

    def write_metrics(self, history: list[dict[str, float]]) -> None:
        """Write ``metrics.csv``."""
        if history:
            text = csv_table(list(history[0]), [list(row.values()) for row in history])
            atomic_write(self.metrics_file, text)

    def metrics(self) -> list[dict[str, float]]:
        """Read ``metrics.csv``: one row per epoch, empty before the first."""
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

    def results(self) -> RunResults | RepeatResults:
        """Read the results; raise an error if the run is unfinished or the file is damaged."""
        repeated = "seeds" in read_json(self.results_file, _UNFINISHED)
        return (RepeatResults if repeated else RunResults).load(self.results_file, _UNFINISHED)

    def run_results(self) -> RunResults:
        """Read the results of a single training; see :meth:`results`."""
        return RunResults.load(self.results_file, _UNFINISHED)


def describe_change(before: Mapping[str, Any], now: Mapping[str, Any], folder: Path) -> str | None:
    """Describe the first setting that differs from the start of a run, or return None."""
    name = next((key for key in {**before, **now} if before.get(key) != now.get(key)), None)
    if name is None:
        return None
    if name == "data":
        return (
            f"expected the data with which the run in {folder} was started, got others; start a "
            "new run, or restore the data"
        )
    return (
        f"expected {name} = {before.get(name)!r}, with which the run in {folder} was started, got "
        f"{now.get(name)!r}; undo the change in settings.toml or on the command line, or start a "
        "new run"
    )
