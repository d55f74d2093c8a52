"""Result folders: settings, environment, results, report and a lock."""

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
from typing import Any, ClassVar

import numpy
import torch

from spdnet._files import atomic_write, is_draft
from spdnet._lock import LOCK, locked
from spdnet.runs.record import Record, read_json

_LIBRARIES = ("spdnet", "torch", "numpy", "scipy", "scikit-learn", "lightning-fabric")


class Folder:
    """Base class of the folders of runs, comparisons and reproductions."""

    #: command that writes the folder, for messages
    command: ClassVar[str]
    #: file of the settings, which marks a folder of this kind
    settings_name: ClassVar[str]

    def __init__(self, path: str | Path) -> None:
        self._move(Path(path))

    def _move(self, path: Path) -> None:
        self.path = path
        self.settings_file = path / self.settings_name
        self.environment_file = path / "environment.json"
        self.results_file = path / "results.json"
        self.report_file = path / "report.html"

    @property
    def exists(self) -> bool:
        """Whether the folder has settings."""
        return self.settings_file.is_file()

    @property
    def finished(self) -> bool:
        """Whether the folder has results."""
        return self.results_file.is_file()

    @property
    def is_free(self) -> bool:
        """Whether the folder is missing, or contains only a lock and temporary files."""
        return not self.path.exists() or all(
            path.name == LOCK or is_draft(path) for path in self.path.iterdir()
        )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Create and lock the folder, and remove temporary files of killed processes."""
        self.path.mkdir(parents=True, exist_ok=True)
        busy = (
            f"run: expected no other process in {self.path}, but another is writing there; wait "
            "for it, or choose another folder"
        )
        with locked(self.path, busy):
            for draft in filter(is_draft, self.path.rglob("*")):
                draft.unlink(missing_ok=True)
            yield

    def write_results(self, results: Record, **tables: str) -> None:
        """Write ``results.json``, and tables such as ``table.txt``, by their suffixes."""
        results.write(self.results_file)
        for suffix, text in tables.items():
            atomic_write(self.path / f"table.{suffix}", text)

    def write_environment(self, seed: int, **more: Any) -> None:
        """Write the environment, on which results may depend: versions, machine, command."""
        found = {
            "started": time.strftime("%Y-%m-%d %H:%M:%S %z"),
            "command": shlex.join(["spdnet", *sys.argv[1:]]),
            "seed": seed,
            "python": platform.python_version(),
            "platform": platform.platform(),
            "processor": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
            "libraries": {name: _version(name) for name in _LIBRARIES},
            "blas": numpy.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"],
            **more,
        }
        atomic_write(self.environment_file, json.dumps(found, indent=2) + "\n")

    def environment(self) -> dict[str, Any]:
        """Return versions, machine and command at the start."""
        found = read_json(self.environment_file, f"{self.command} writes it")
        if not isinstance(found.get("libraries"), dict):
            raise ValueError(
                f"run: expected versions of libraries in {self.environment_file}, got none; "
                f"{self.command} writes them"
            )
        return found


class SharedFolder(Folder):
    """Base class of folders that a later call may extend, for example with more repeats."""

    #: settings that may differ from those of the first call
    may_change: ClassVar[tuple[str, ...]]

    def require_same(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return the settings of the first call; raise an error if the new ones differ."""
        who, what = self.command.split()[1], self.settings_file.stem
        if not self.exists:
            if not self.is_free:
                raise FileExistsError(
                    f"{who}: expected a new folder or one of a {what}, but {self.path} contains "
                    "something else; choose another"
                )
            return {}
        before = read_json(self.settings_file, f"{self.command} writes it")
        for name, value in settings.items():
            if before.get(name) != value and name not in self.may_change:
                raise ValueError(
                    f"{who}: expected the settings of the {what} in {self.path}, {name} = "
                    f"{before.get(name)!r}, got {value!r}; choose another folder (--out)"
                )
        return before

    def begin(self, settings: dict[str, Any]) -> None:
        """Write the settings and, on the first call, the environment."""
        atomic_write(self.settings_file, json.dumps(settings, indent=1) + "\n")
        if not self.environment_file.is_file():
            self.write_environment(settings["seed"])


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:  # installed under another name, or not at all
        return "unknown"
