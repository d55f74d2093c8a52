"""Missing or modified files, ill-conditioned matrices, and processes killed at random times.

Completed work is never lost, and resumed commands give the same results as undisturbed ones.
"""

import logging
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import mpmath
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from spdnet import SPDNet
from spdnet.cli import app
from spdnet.data import build, read
from spdnet.data.io import readers
from spdnet.data.sources import matrix_sources
from spdnet.runs import RunFolder, Settings
from spdnet.runs import train as train_here
from spdnet.runs.watch import Watch
from tests.cases import with_spectrum
from tests.data.test_store import kill_until_done
from tests.runs.test_train import Interrupt, file_of, quick, require_equal_runs

LOG = logging.getLogger(__name__)  # pytest --log-cli-level=INFO shows it


def command(*arguments):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


def test_train_resumes_after_missing_data_file_is_restored(tmp_path):
    data, run, expected_run = (
        file_of(tmp_path),
        RunFolder(tmp_path / "run"),
        tmp_path / "expected_run",
    )
    with pytest.raises(KeyboardInterrupt):
        train_here(quick(data), run, watch=Interrupt(2))
    os.rename(data, tmp_path / "elsewhere.npz")
    code, output = command("train", "--resume", "--out", run.path)
    assert code == 2
    assert "expected a file or folder at" in output.replace("\n", " ")
    assert data in output.replace("\n", "")
    os.rename(tmp_path / "elsewhere.npz", data)
    assert command("train", "--resume", "--out", run.path)[0] == 0
    train_here(quick(data), RunFolder(expected_run))
    require_equal_runs(run.path, expected_run)


def test_build_resumes_after_missing_source_is_restored(tmp_path):
    folder = tmp_path / "matrices"
    for i in range(6):
        (folder / f"c{i % 2}").mkdir(parents=True, exist_ok=True)
        np.save(folder / f"c{i % 2}" / f"{i}.npy", np.eye(3) * (1 + i))
    away, back = folder / "c1" / "3.npy", tmp_path / "3.npy"

    def vanish(done, total):
        if done == 2 and away.exists():
            away.rename(back)

    sources = matrix_sources(folder)
    with pytest.raises((OSError, ValueError), match=r"3\.npy"):
        build(sources, tmp_path / "a.npz", on_source=vanish)
    back.rename(away)
    build(sources, tmp_path / "a.npz")
    build(sources, tmp_path / "b.npz")
    np.testing.assert_array_equal(read(tmp_path / "a.npz").X, read(tmp_path / "b.npz").X)


def test_train_stops_when_data_file_changes_during_reading(tmp_path, monkeypatch):
    """An error in the prefetching thread stops training and leaves a valid checkpoint."""
    monkeypatch.setattr(readers, "IN_MEMORY", 1)
    data, run, expected_run = (
        file_of(tmp_path),
        RunFolder(tmp_path / "run"),
        tmp_path / "expected_run",
    )
    whole, state = Path(data).read_bytes(), os.stat(data)

    class Truncate(Watch):
        def epoch(self, trainer):
            if trainer.progress.epoch == 2:
                os.truncate(data, 3000)

    with pytest.raises(ValueError, match="it was modified"):
        train_here(quick(data), run, watch=Truncate())
    assert len(run.metrics()) == 2
    Path(data).write_bytes(whole)
    os.utime(data, ns=(state.st_atime_ns, state.st_mtime_ns))
    train_here(run.settings(), run, resume=True)
    train_here(quick(data), RunFolder(expected_run))
    require_equal_runs(run.path, expected_run)


def ill_conditioned(condition, n=6, count=60):
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.standard_normal((count, n, n)))[0]
    s = np.geomspace(1, 1 / condition, n) * rng.uniform(0.5, 1, (count, n))
    s[1::2, 0] *= 3
    X = (Q * s[:, None]) @ Q.swapaxes(1, 2)
    return (X + X.swapaxes(1, 2)) / 2


@pytest.mark.parametrize("more", [{}, {"recipe": "paper"}, {"norm": "log_cholesky"}], ids=str)
def test_train_with_condition_number_1e12(tmp_path, more):
    np.savez(tmp_path / "a.npz", X=ill_conditioned(1e12), y=np.arange(60) % 2)
    run = RunFolder(tmp_path / "run")
    found = train_here(quick(str(tmp_path / "a.npz"), **more), run)
    assert all(np.isfinite(list(row.values())).all() for row in run.metrics())
    assert found.orthonormality[0].gap < 1e-12


@pytest.mark.parametrize(("condition", "dtype"), [(1e17, "float64"), (1e12, "float32")])
def test_train_refuses_numerically_singular_matrices(tmp_path, condition, dtype):
    np.savez(tmp_path / "a.npz", X=ill_conditioned(condition), y=np.arange(60) % 2)
    full = {"rank": "full", "shrinkage": "none"}
    settings = Settings(data=str(tmp_path / "a.npz"), device="cpu", dtype=dtype, **full)
    with pytest.raises(ValueError, match=r"60 singular|indefinite.*choose 'drop' or 'repair'"):
        train_here(settings, RunFolder(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("spectrum", "bound"),
    [
        ([1e-12, 1e-9, 1e-5, 1e-3, 0.1, 1.0], 1e-10),
        ([1e-12, 1e-12, 1e-12, 1e-5, 1.0, 1.0], 1e-10),
        ([1e-6, 1e-4, 1e-2, 1e1, 1e4, 1e6], 1e-6),
        ([1e-6, 1e-6, 1e-5, 1e-4, 1e6, 1e6], 1e-6),
    ],
    ids=str,
)
def test_network_matches_60_digit_reference_at_condition_number_1e12(spectrum, bound):
    """The error grows with the ratio of the largest eigenvalue to the threshold."""
    X = with_spectrum(spectrum)
    torch.manual_seed(0)
    net = SPDNet((6, 4, 3), n_classes=2, eps=1e-4, dtype=torch.float64)
    with mpmath.workdps(60):
        A = mpmath.matrix(X.tolist())
        for i, bimap in enumerate(net.bimaps):
            W = mpmath.matrix(bimap.weight.tolist())
            s, Q = mpmath.eigsy(W.T * A * W)
            last = i == len(net.bimaps) - 1
            s = [mpmath.log(v) if last else max(v, mpmath.mpf(1e-4)) for v in s]
            A = Q * mpmath.diag(s) * Q.T
        logits = mpmath.matrix(net.classifier.weight.tolist()) * mpmath.matrix(
            [A[i, j] for i in range(3) for j in range(3)]
        )
        expected = torch.tensor([[float(v) for v in logits]], dtype=torch.float64)
    assert (net(X[None]) - expected).abs().max() < bound * expected.abs().max()


def train(*arguments):
    command = [sys.executable, "-m", "spdnet", "train", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_run(folder, process):
    """Wait until the process has created the run folder or has ended."""
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        if (folder / "settings.toml").exists():
            return
        time.sleep(0.01)


@pytest.mark.slow
def test_the_same_command_twice(tmp_path):
    """Two processes with several threads give bitwise equal runs."""
    data = file_of(tmp_path, n=40, size=40)
    for name in ("one", "two"):
        flags = ("--epochs", 3, "--device", "cpu", "--no-baseline", "--out", tmp_path / name)
        process = train(data, *flags)
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    require_equal_runs(tmp_path / "one", tmp_path / "two")


@pytest.mark.slow
def test_train_killed_at_random_times_resumes(tmp_path):
    """Epochs are so short that kills often interrupt the writing of a checkpoint."""
    data, run, expected_run = file_of(tmp_path), tmp_path / "run", tmp_path / "expected_run"
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
        assert epochs >= seen  # no epoch is lost
        seen = epochs
        process = train("--resume", "--out", run)
    process.communicate()
    last = train("--resume", "--out", run)
    _, errors = last.communicate()
    assert last.returncode == 0, errors
    assert kills >= 10
    LOG.info("training was killed %d times", kills)
    whole = train(*options, "--out", expected_run)
    _, errors = whole.communicate()
    assert whole.returncode == 0, errors
    require_equal_runs(run, expected_run)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_build_killed_at_random_times_resumes(tmp_path, seed):
    kills = kill_until_done(tmp_path, 8, seed=seed)
    assert kills >= 3
    LOG.info("build was killed %d times", kills)
