"""What the README shows runs as it stands."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cases import random_spd

README = Path(__file__).parent.parent / "README.md"


def test_every_block_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, str(README), "exec"), {"__name__": "__main__"})
    out = capsys.readouterr().out
    assert float(re.search(r"loss ([\d.]+)", out)[1]) < 0.3
    assert float(re.search(r"accuracy ([\d.]+)", out)[1]) > 0.97


@pytest.mark.slow
def test_every_command_runs(tmp_path):
    y = np.arange(40) % 2
    X = random_spd(40, 93).numpy() * np.where(y, 1.5, 1)[:, None, None]
    np.savez(tmp_path / "recordings.npz", X=X, y=y)
    np.savez(tmp_path / "later.npz", X=X[:9], y=y[:9])
    np.savez(tmp_path / "new.npz", X=X[:9])
    signals = np.random.default_rng(0).normal(size=(40, 8, 50)) * np.where(y, 3, 1)[:, None, None]
    np.savez(tmp_path / "eeg.npz", X=signals, y=y, groups=np.arange(40) // 8)
    for i, signal in enumerate(signals):
        (tmp_path / "motions" / f"class{y[i]}").mkdir(parents=True, exist_ok=True)
        np.save(tmp_path / "motions" / f"class{y[i]}" / f"{i}.npy", signal.T)
    commands = re.findall(r"^spdnet ([^#\n]*)", README.read_text(), re.MULTILINE)
    assert len(commands) >= 6
    for command in commands:
        run = subprocess.run(
            [sys.executable, "-m", "spdnet", *shlex.split(command)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, (command, run.stderr)
    assert (tmp_path / "runs/recordings/report.html").is_file()
    assert (tmp_path / "runs/recordings-2/seed-9/report.html").is_file()
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 10
