"""Several processes that train together: real ones, started by torchrun or by the command."""

import csv
import json
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from spdnet.cli import app
from spdnet.runs import RunFolder
from spdnet.training import make_fabric
from tests.cases import random_spd

START = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
TORCHRUN = (*START, "-m", "spdnet")
SPDNET = (sys.executable, "-m", "spdnet")
TIMEOUT = 240


@pytest.fixture
def data(tmp_path):
    """61 matrices: no batch and no part divides evenly."""
    y = np.arange(61) % 3
    X = random_spd(61, 6).numpy() * np.array([1, 1.5, 2.5])[y][:, None, None]
    np.savez(tmp_path / "a.npz", X=X, y=y)
    signals = np.random.default_rng(0).normal(size=(61, 5, 40)) * (1 + y)[:, None, None]
    np.savez(tmp_path / "s.npz", X=signals, y=y, groups=np.arange(61) % 4)
    return tmp_path


def arguments(file, out, *flags):
    return list(map(str, ["train", file, "--out", out, "--device", "cpu", "--epochs", 3, *flags]))


def run_here(file, out, *flags):
    """One process, this one: to start another takes seconds."""
    found = CliRunner().invoke(app, arguments(file, out, *flags))
    assert found.exit_code == 0, found.stderr


def run(start, file, out, *flags):
    found = subprocess.run(
        [*start, *arguments(file, out, *flags)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


def curves(folder):
    with (folder / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    return [[float(row[k]) for k in row if k not in ("seconds", "epoch")] for row in rows]


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param((), marks=pytest.mark.slow),
        pytest.param(("--recipe", "paper", "--batch-size", 7), marks=pytest.mark.slow),
        pytest.param(("--norm", "affine_invariant", "--batch-size", 9), marks=pytest.mark.slow),
        pytest.param(("--eps", "30%"), marks=pytest.mark.slow),
        pytest.param(("--head", "mlp", "--batch-size", 7), marks=pytest.mark.slow),
        pytest.param(
            ("--model", "tsmnet", "--dims", "4,3", "--batch-size", 12), marks=pytest.mark.slow
        ),
    ],
    ids=str,
)
def test_two_processes_train_as_one(data, flags):
    """The batch is divided; 61 matrices leave a batch with fewer matrices than processes."""
    file = data / ("s.npz" if "tsmnet" in flags else "a.npz")
    flags = (*flags, "--no-baseline", "--dtype", "float64")
    run_here(file, data / "one", *flags)
    out = run(TORCHRUN, file, data / "two", *flags)
    np.testing.assert_allclose(curves(data / "two"), curves(data / "one"), rtol=0, atol=1e-9)
    one, two = (json.loads((data / f / "results.json").read_text()) for f in ("one", "two"))
    assert two["parts"]["test"]["n"] == one["parts"]["test"]["n"]
    assert two["parts"]["test"]["loss"] == pytest.approx(one["parts"]["test"]["loss"], abs=1e-9)
    assert out.count("test accuracy") == 1  # one process tells
    assert (data / "two" / "report.html").is_file()


@pytest.mark.slow
def test_the_command_starts_processes_itself(data):
    run_here(data / "a.npz", data / "one", "--no-baseline", "--repeat", 2)
    out = run(SPDNET, data / "a.npz", data / "two", "--no-baseline", "--repeat", 2, "--devices", 2)
    for seed in ("seed-0", "seed-1"):
        np.testing.assert_allclose(
            curves(data / "two" / seed), curves(data / "one" / seed), atol=1e-9
        )
    assert out.count("mean and standard deviation of 2 repeats") == 1


@pytest.mark.slow
def test_two_machines(data):
    """Each with an agent of its own that knows the address of the first."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = ["--nnodes", 2, "--nproc-per-node", 1, "--master-addr", "127.0.0.1"]
    own = ["train", data / "a.npz", "--epochs", 3, "--device", "cpu", "--no-baseline", "--out"]
    agents = []
    for node in (0, 1):
        command = [*START[:3], *where, "--master-port", port, "--node-rank", node, "-m", "spdnet"]
        agents.append(
            subprocess.Popen(
                [str(c) for c in [*command, *own, data / "two"]],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        )
    texts = [agent.communicate(timeout=TIMEOUT)[0] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], texts
    assert ["test accuracy" in text for text in texts] == [True, False]
    run_here(data / "a.npz", data / "one", "--no-baseline")
    np.testing.assert_allclose(curves(data / "two"), curves(data / "one"), rtol=0, atol=1e-9)


def wait_for_epoch(folder, n):
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        if (folder / "metrics.csv").exists() and len(curves(folder)) >= n:
            return
        time.sleep(0.02)
    raise AssertionError(f"no epoch {n} in {folder}")


def workers_of(pid):
    """The Python processes below a process."""
    found = []
    for path in (f"/proc/{pid}/task/{t}/children" for t in os.listdir(f"/proc/{pid}/task")):
        with open(path) as file:
            for child in map(int, file.read().split()):
                found += [child, *workers_of(child)]
    return found


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="needs /proc")
@pytest.mark.parametrize("restarts", [0, 1])
def test_a_process_that_dies(data, restarts):
    """The job ends with a usable checkpoint, or begins again from it by itself."""
    flags = ("--no-baseline", "--epochs", 150, "--device", "cpu", "--out", data / "run")
    command = [*START, "--max-restarts", restarts, *TORCHRUN[len(START) :], "train", data / "a.npz"]
    process = subprocess.Popen(
        [str(c) for c in [*command, *flags]],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        wait_for_epoch(data / "run", 5)
        os.kill(workers_of(process.pid)[-1], signal.SIGKILL)
        text, _ = process.communicate(timeout=TIMEOUT)
    finally:
        process.kill()
    folder = RunFolder(data / "run")
    if restarts:
        assert process.returncode == 0, text
        assert "resuming after epoch" in text
    else:
        assert process.returncode != 0
        assert "SIGKILL" in text or "Signal 9" in text or "exitcode: -9" in text.replace(" ", "")
        state, faults = folder.checkpoints().load_last()
        assert not faults
        assert len(state["trainer"]["history"]) >= 5
        resumed = subprocess.run(
            [*SPDNET, "train", "--resume", "--out", str(data / "run"), "--devices", "2"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert resumed.returncode == 0, resumed.stderr
    found = curves(data / "run")
    assert len(found) == 150
    whole = [
        *SPDNET,
        "train",
        str(data / "a.npz"),
        "--out",
        str(data / "whole"),
        *map(str, flags[:5]),
    ]
    subprocess.run(whole, check=True, capture_output=True)
    np.testing.assert_allclose(found, curves(data / "whole"), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "start",
    [(*SPDNET, "train", "--devices", 2), (*TORCHRUN, "train")],
    ids=["devices", "torchrun"],
)
def test_a_signal_stops_all_processes_in_the_same_batch(data, start):
    """A signal to the parent, or to torchrun; the run can be resumed by one process."""
    flags = ("--no-baseline", "--epochs", 100, "--device", "cpu", "--out", data / "run")
    process = subprocess.Popen(
        [str(c) for c in [*start, data / "a.npz", *flags]],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        wait_for_epoch(data / "run", 3)
        process.send_signal(signal.SIGTERM)
        text, _ = process.communicate(timeout=TIMEOUT)
    finally:
        process.kill()
    assert process.returncode != 0
    assert text.count("stopped; resume with") == 1
    assert 3 <= len(curves(data / "run")) < 100
    folder = RunFolder(data / "run")
    assert not folder.finished
    resume = [*SPDNET, "train", "--resume", "--out", str(data / "run")]
    subprocess.run(resume, check=True, capture_output=True)
    whole = [*SPDNET, "train", data / "a.npz", *flags[:-1], data / "whole"]
    subprocess.run([str(c) for c in whole], check=True, capture_output=True)
    np.testing.assert_allclose(curves(data / "run"), curves(data / "whole"), atol=1e-6)


@pytest.mark.slow
def test_bad_input_is_told_once(data):
    command = [*TORCHRUN, "train", data / "none.npz", "--out", data / "run"]
    found = subprocess.run(
        [str(c) for c in command], capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert found.returncode != 0
    assert found.stderr.count("error: read: expected a file") == 1
    assert not (data / "run").exists()


def test_what_cannot_be_several():
    if torch.cuda.is_available():
        with pytest.raises(ValueError, match="several processes"):
            make_fabric("cuda:0", 2)
        with pytest.raises(ValueError, match="expected at most the"):
            make_fabric("cuda", 1 + torch.cuda.device_count())
    with pytest.raises(ValueError, match="expected 'auto', 'cpu'"):
        make_fabric("cpu:0", 2)
    with pytest.raises(ValueError, match="processors of this machine, got 1000000"):
        make_fabric("cpu", 1_000_000)
    assert make_fabric("cpu").world_size == 1
