"""The files around the package agree with each other."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def commands(target):
    """The commands of a target of the Makefile in a tree without an environment."""
    if not shutil.which("make"):
        pytest.skip("make is not installed")
    dry = ["make", "--no-print-directory", "--dry-run", "VENV=no-such-folder", target]
    return subprocess.run(dry, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_a_training_installs_no_development_tools():
    for target, extra in (("train", False), ("test", True), ("lint", True), ("docs", True)):
        steps = commands(target)
        torch, package = steps.index(" torch\n"), steps.index("--editable .")
        assert torch < package  # its pinned build comes first
        assert all("--constraint constraints.txt" in s for s in steps.splitlines() if "pip" in s)
        assert ('--editable ".[dev]"' in steps) == extra
