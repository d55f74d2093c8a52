import subprocess
import sys

import numpy as np
import pytest

from tests.cases import random_spd

X = random_spd(6, 4).numpy()
Y = np.array(["walk", "run", "walk", "run", "walk", "<b>odd</b> [red]"])


def spdnet(*arguments):
    command = [sys.executable, "-m", "spdnet", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_help_and_version():
    for arguments in (("--help",), ("data", "--help"), ("data", "info", "--help")):
        run = spdnet(*arguments)
        assert run.returncode == 0
        assert "Usage: spdnet" in run.stdout
    assert spdnet("--version").stdout.startswith("spdnet 0.")


def test_help_loads_nothing_heavy():
    code = (
        "import sys; from typer.testing import CliRunner; from spdnet.cli import app;"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0;"
        "print([m for m in ('sklearn', 'scipy', 'lightning_fabric') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_info_of_matrices(tmp_path):
    bad = X.copy()
    bad[1] = 0
    bad[4, 0, 0] = np.nan
    split = np.array(["train"] * 4 + ["test"] * 2)
    np.savez(tmp_path / "a.npz", X=bad, y=Y, split=split, groups=np.arange(6) // 2)
    run = spdnet("data", "info", tmp_path / "a.npz")
    assert run.returncode == 0
    for text in (
        "6 matrices of 4 x 4, float64",
        "3 classes, 1 to 3 each (always the largest: 50.0 %)",
        "<b>odd</b> [red]",
        "split: 2 test, 4 train",
        "3 groups",
        "condition numbers:",
        "not SPD: 2 of 6",
        "1 not finite: 4",
        "1 zero: 1",
    ):
        assert text in run.stdout


def test_info_of_good_matrices_in_a_folder_and_of_signals(tmp_path):
    for i, matrix in enumerate(X):
        folder = tmp_path / "data" / f"class{i % 40}"
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / f"{i}.npy", matrix)
    run = spdnet("data", "info", tmp_path / "data")
    assert "all symmetric positive definite" in run.stdout
    np.savez(tmp_path / "s.npz", X=np.ones((40, 3, 50)), y=np.arange(40))
    run = spdnet("data", "info", tmp_path / "s.npz")
    assert "40 signals" in run.stdout
    assert "covariances will be 3 x 3" in run.stdout
    assert "... and 10 more" in run.stdout


def test_labels(tmp_path):
    np.save(tmp_path / "X.npy", X)
    (tmp_path / "y.txt").write_text("\n".join("ababab"))
    run = spdnet("data", "info", tmp_path / "X.npy", "--labels", tmp_path / "y.txt")
    assert "2 classes, 3 to 3 each" in run.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("data", "info", "absent.npz"), "error: read: expected a file or folder at absent.npz"),
        (("data", "info"), "Missing argument"),
        (("data", "look"), "No such command"),
        (("--fast",), "No such option"),
    ],
)
def test_bad_input_leaves_with_code_2(arguments, message):
    run = spdnet(*arguments)
    assert run.returncode == 2
    assert message in run.stderr
    assert "Traceback" not in run.stderr
