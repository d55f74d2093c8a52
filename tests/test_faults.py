"""Killed at random moments, many times over: nothing that was written is lost, and the end is that
of a run that was never killed.
"""

import random
import subprocess
import sys
import time

import pytest

from spdnet.experiments import RunFolder
from tests.datasets.test_store import kill_until_done
from tests.experiments.test_train import file_of, require_equal_runs


def train(*arguments):
    command = [sys.executable, "-m", "spdnet", "train", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_run(folder, process):
    """Until the process has begun to write, or has ended."""
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        if (folder / "settings.toml").exists():
            return
        time.sleep(0.01)


@pytest.mark.slow
def test_a_training_killed_at_random_moments(tmp_path):
    """A checkpoint is written after every epoch, of which there are hundreds a second: a kill
    hits the writing of one as often as a step.
    """
    data, run, straight = file_of(tmp_path), tmp_path / "run", tmp_path / "straight"
    options = (data, "--epochs", 1200, "--device", "cpu", "--no-baseline")
    rng, kills, seen = random.Random(0), 0, 0
    process = train(*options, "--out", run)
    while kills < 30:
        wait_for_run(run, process)
        time.sleep(rng.uniform(0, 2.5) if kills else 1)
        process.kill()
        _, errors = process.communicate()
        if RunFolder(run).finished:
            break
        kills += 1
        assert "Traceback" not in errors
        epochs = len(RunFolder(run).metrics())
        assert epochs >= seen  # nothing is lost
        seen = epochs
        process = train("--resume", "--out", run)
    process.communicate()
    last = train("--resume", "--out", run)
    _, errors = last.communicate()
    assert last.returncode == 0, errors
    assert kills >= 10
    whole = train(*options, "--out", straight)
    _, errors = whole.communicate()
    assert whole.returncode == 0, errors
    require_equal_runs(run, straight)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_a_build_killed_at_random_moments(tmp_path, seed):
    assert kill_until_done(tmp_path, 8, seed=seed) >= 3
