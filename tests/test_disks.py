"""Full and read-only disks: errors are clear, written files stay valid, and resumed commands give
the same results as undisturbed ones.
"""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from spdnet.cli import app
from spdnet.data import StoredArray, open_stored
from tests.runs.test_train import file_of, require_equal_runs
from tests.small_disk import needs_small_disks, run_on_small_disk

pytestmark = [needs_small_disks, pytest.mark.slow]


def sizes(start, step, count):
    return [f"{start + i * step}k" for i in range(count)]


def require_full(found, at_least):
    """Check that all steps but the last fail with a clear message and the last succeeds."""
    *failed, (_, code, output) = found
    assert code == 0, output
    assert len(failed) >= at_least
    for size, code, output in failed:
        assert code == 1, (size, output)
        assert "No space left on device" in output
        assert "free some" in output


def run(*arguments):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def require_equal_scores(folder, expected):
    """Compare results.json of two folders except for durations."""
    found, wanted = (json.loads((f / "results.json").read_text()) for f in (folder, expected))
    assert without_seconds(found) == without_seconds(wanted)


def without_seconds(value):
    if isinstance(value, dict):
        return {k: without_seconds(v) for k, v in value.items() if "seconds" not in k}
    return [without_seconds(v) for v in value] if isinstance(value, list) else value


def test_train_resumes_after_full_disk(tmp_path):
    data = file_of(tmp_path)
    train = ["train", data, "--epochs", 4, "--device", "cpu"]
    run(*train, "--out", tmp_path / "expected")
    first = [*train, "--out", "DISK/run"]
    again = ["train", "--resume", "--out", "DISK/run"]
    steps = [("4k", first)] + [(size, again) for size in sizes(40, 60, 60)]
    found, copy = run_on_small_disk(tmp_path, steps)
    require_full(found, 4)
    require_equal_runs(copy / "run", tmp_path / "expected")
    assert not [p for p in copy.rglob("*") if p.name.endswith(".part")]


def matrices(folder):
    for i in range(60):
        (folder / "matrices" / f"c{i % 3}").mkdir(parents=True, exist_ok=True)
        np.save(folder / "matrices" / f"c{i % 3}" / f"{i}.npy", np.eye(20) * (1 + i))
    return folder / "matrices"


def test_build_resumes_after_full_disk(tmp_path):
    folder = matrices(tmp_path)
    run("data", "build", folder, tmp_path / "expected.npz")
    build = ["data", "build", folder, "DISK/built.npz"]
    found, copy = run_on_small_disk(tmp_path, [(s, build) for s in sizes(172, 4, 30)])
    require_full(found, 4)
    assert isinstance(open_stored(copy / "built.npz"), StoredArray)
    with np.load(copy / "built.npz") as built, np.load(tmp_path / "expected.npz") as expected:
        for name in set(expected.files) - {"provenance"}:  # contains the time
            np.testing.assert_array_equal(built[name], expected[name])
    assert [p.name for p in copy.iterdir()] == ["built.npz"]


@pytest.mark.parametrize(
    ("command", "step", "failures"),
    [
        ("compare DATA --methods ridge,mdm,spdnet-1 --repeats 2 --epochs 2", 12, 2),
        ("reproduce no-logeig --standin generated --quick", 100, 3),
    ],
)
def test_compare_and_reproduce_resume_after_full_disk(tmp_path, command, step, failures):
    data = file_of(tmp_path)
    command = [data if word == "DATA" else word for word in command.split()]
    command += ["--device", "cpu", "--out"]
    run(*command, tmp_path / "expected")
    steps = [(size, [*command, "DISK/found"]) for size in sizes(4, step, 40)]
    found, copy = run_on_small_disk(tmp_path, steps)
    require_full(found, failures)
    require_equal_scores(copy / "found", tmp_path / "expected")


def test_predict_leaves_no_partial_file_on_full_disk(tmp_path):
    data = file_of(tmp_path, n=600)
    run("train", data, "--epochs", 1, "--device", "cpu", "--out", tmp_path / "run")
    predict = ["predict", tmp_path / "run", data, "--out", "DISK/predicted.csv"]
    found, copy = run_on_small_disk(tmp_path, [("8k", predict), ("8k", predict)])
    assert [code for _, code, _ in found] == [1, 1]
    assert list(copy.iterdir()) == []


@pytest.mark.parametrize("command", ["train", "build", "compare", "reproduce", "predict"])
def test_read_only_disk_is_reported(tmp_path, command):
    data = file_of(tmp_path)
    if command == "predict":
        run("train", data, "--epochs", 1, "--device", "cpu", "--out", tmp_path / "run")
    arguments = {
        "train": ["train", data, "--epochs", 1, "--device", "cpu", "--out", "DISK/run"],
        "build": ["data", "build", matrices(tmp_path), "DISK/built.npz"],
        "compare": ["compare", data, "--methods", "mdm", "--out", "DISK/compared"],
        "reproduce": ["reproduce", "epsilon", "--standin", "digits", "--quick", "--out", "DISK/r"],
        "predict": ["predict", tmp_path / "run", data, "--out", "DISK/p.csv"],
    }[command]
    ((_, code, output),), copy = run_on_small_disk(tmp_path, [("ro", arguments)])
    assert code == 1, output
    assert "Read-only file system" in output
    assert "choose a folder that is writable" in output
    assert list(copy.iterdir()) == []
