import csv
import functools
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from spdnet.cli import app
from spdnet.models import MEMBERS
from spdnet.options.run import EMBEDDED
from spdnet.runs import RunFolder
from spdnet.runs.methods import METHODS
from spdnet.training import RECIPES, checkpoint
from tests.cases import random_spd
from tests.runs.test_train import file_of, require_equal_runs, without_times

X = random_spd(6, 4).numpy()
Y = np.array(["walk", "run", "walk", "run", "walk", "<b>odd</b> [red]"])


def spdnet(*arguments):
    """A real process."""
    command = [sys.executable, "-m", "spdnet", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def invoke(*arguments):
    """The same in this process, which is faster."""
    return CliRunner().invoke(app, [str(a) for a in arguments], prog_name="spdnet")


def read_csv(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_help_and_version():
    commands = ["", "train", "compare", "reproduce", "evaluate", "predict", "report", "data"]
    for command in [*commands, "data info", "data build", "data fetch", "data import"]:
        run = invoke(*command.split(), "--help")
        assert run.exit_code == 0
        assert "Usage: spdnet" in run.stdout
    assert spdnet("--version").stdout.startswith("spdnet 0.")


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        (["train", "--help"], "torch numpy sklearn scipy matplotlib lightning_fabric"),
        (["data", "info", "digits"], "lightning_fabric torch._dynamo"),  # two seconds
    ],
    ids=["help", "info"],
)
def test_a_command_loads_what_it_needs(arguments, heavy):
    code = (
        "import sys; from typer.testing import CliRunner; from spdnet.cli import app;"
        f"assert CliRunner().invoke(app, {arguments}).exit_code == 0;"
        f"print([m for m in {heavy.split()} if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_info_of_matrices(tmp_path):
    bad = X.copy()
    bad[1] = 0
    bad[4, 0, 0] = np.nan
    split = np.array(["train"] * 4 + ["test"] * 2)
    np.savez(tmp_path / "a.npz", X=bad, y=Y, split=split, groups=np.arange(6) // 2)
    run = invoke("data", "info", tmp_path / "a.npz")
    assert run.exit_code == 0
    for text in (
        "6 matrices of 4 x 4, float64",
        "3 classes, 1 to 3 each (most frequent: 50.0 %)",
        "<b>odd</b> [red]",
        "split: 2 test, 4 train",
        "3 groups",
        "condition numbers:",
        "not SPD: 2 of 6",
        "1 not finite: 4",
        "1 zero: 1",
    ):
        assert text in run.stdout


def test_info_of_folders_signals_and_unlabelled_files(tmp_path):
    for i, matrix in enumerate(X):
        folder = tmp_path / "data" / f"class{i % 40}"
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / f"{i}.npy", matrix)
    assert "all symmetric positive definite" in invoke("data", "info", tmp_path / "data").stdout
    np.savez(tmp_path / "s.npz", X=np.ones((40, 3, 50)), y=np.arange(40))
    run = invoke("data", "info", tmp_path / "s.npz")
    assert "40 signals" in run.stdout
    assert "covariances will be 3 x 3" in run.stdout
    assert "... and 10 more" in run.stdout
    np.save(tmp_path / "X.npy", X)
    assert "no labels" in invoke("data", "info", tmp_path / "X.npy").stdout
    (tmp_path / "y.txt").write_text("\n".join("ababab"))
    run = invoke("data", "info", tmp_path / "X.npy", "--labels", tmp_path / "y.txt")
    assert "2 classes, 3 each" in run.stdout
    for name in EMBEDDED:
        assert "10 classes" in invoke("data", "info", name).stdout


def test_the_whole_way(tmp_path):
    """Train, evaluate, predict, report: as a person types it."""
    data, run = file_of(tmp_path), tmp_path / "run"
    trained = spdnet("train", data, "--epochs", 5, "--lr", 0.1, "--out", run)
    assert trained.returncode == 0, trained.stderr
    assert "60 matrices of 5 x 5, 3 classes: 48 train, 12 test" in trained.stdout
    choice = json.loads((run / "choice.json").read_text())
    assert len(choice["accuracy"]) == len(MEMBERS)
    assert f"PortfolioNet, {', '.join(choice['members'])}" in trained.stdout
    assert ", recipe auto" in trained.stdout
    first = choice["members"][0]
    chose = f"chose {first} {100 * choice['accuracy'][first]:.1f} %"
    assert f"note: {chose}" in trained.stdout
    assert "in 4-fold cross-validation within the training set" in " ".join(trained.stdout.split())
    report = (run / "report.html").read_text(encoding="utf-8")
    assert chose in report
    assert all(f"<td>{name}</td>" in report for name in choice["accuracy"])
    assert "Orthonormality" not in report
    assert "epoch    5  loss" in trained.stdout
    assert "log-Euclidean logistic regression" in trained.stdout
    assert (run / "report.html").is_file()
    found = RunFolder(run).results()
    evaluated = invoke("evaluate", run, data)
    assert "12 matrices of the test set, which was held out from training" in evaluated.stdout
    assert f"accuracy {100 * found.parts['test'].accuracy:.2f} %" in evaluated.stdout
    assert "all 60 matrices" in invoke("evaluate", run, data, "--part", "all").stdout
    assert "matrices of the training set" in invoke("evaluate", run, data, "--part", "train").stdout
    with np.load(data) as file:
        np.savez(tmp_path / "new.npz", X=file["X"][:7])
        np.savez(tmp_path / "other.npz", X=file["X"][:7], y=file["y"][:7])
    assert "all 7 matrices" in invoke("evaluate", run, tmp_path / "other.npz").stdout
    out = tmp_path / "p.csv"
    predicted = invoke("predict", run, tmp_path / "new.npz", "--out", out)
    assert predicted.exit_code == 0
    rows = read_csv(out)
    assert list(rows[0]) == ["index", "label", "p(jump)", "p(run)", "p(walk)"]
    assert len(rows) == 7
    for row in rows:
        p = {name: float(row[f"p({name})"]) for name in ("jump", "run", "walk")}
        assert sum(p.values()) == pytest.approx(1, abs=1e-5)
        assert row["label"] == max(p, key=p.get)
    (run / "report.html").unlink()
    assert invoke("report", run).exit_code == 0
    assert (run / "report.html").is_file()
    (run / "report.html").unlink()
    again = invoke("train", "--resume", "--out", run)
    assert "is finished" in again.stdout
    assert (run / "report.html").is_file()


def test_another_network_by_one_flag(tmp_path):
    data = file_of(tmp_path)
    flags = ("--epochs", 2, "--norm", "log_euclidean", "--head", "log_cholesky")
    trained = invoke("train", data, *flags, "--model", "multibranch", "--out", tmp_path / "run")
    assert trained.exit_code == 0, trained.stdout
    name = "MultiBranchSPDNet, norm log_euclidean, head log_cholesky"
    assert f"{name}, dims 5,5,5 (chosen), recipe fast" in trained.stdout
    assert trained.stdout.count(name) == 2  # and beside its accuracy
    assert f"{name}: 5 → 5 → 5" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert 'norm = "log_euclidean"' in (tmp_path / "run" / "settings.toml").read_text()
    assert invoke("evaluate", tmp_path / "run", data).exit_code == 0


def test_labels_beside_a_file_and_force(tmp_path):
    with np.load(file_of(tmp_path)) as file:
        np.save(tmp_path / "X.npy", file["X"])
        (tmp_path / "y.txt").write_text("\n".join(file["y"]))
    labels, run = ("--labels", tmp_path / "y.txt"), tmp_path / "run"
    trained = invoke("train", tmp_path / "X.npy", *labels, "--epochs", 1, "--out", run)
    assert trained.exit_code == 0, trained.stderr
    evaluated = invoke("evaluate", run, tmp_path / "X.npy", *labels)
    assert "12 matrices of the test set, which was held out from training" in evaluated.stdout
    out = text_file(tmp_path, "p.csv", "mine")
    assert invoke("predict", run, tmp_path / "X.npy", "--out", out).exit_code == 2
    assert out.read_text() == "mine"
    assert invoke("predict", run, tmp_path / "X.npy", "--out", out, "--force").exit_code == 0
    assert len(read_csv(out)) == 60


def test_predictions_for_a_folder_name_the_files(tmp_path):
    run = tmp_path / "run"
    assert invoke("train", file_of(tmp_path, size=4), "--epochs", 1, "--out", run).exit_code == 0
    (tmp_path / "new").mkdir()
    for i in range(3):
        np.save(tmp_path / "new" / f"clip{i}.npy", X[i])
    np.save(tmp_path / "new" / "clip1.npy", np.zeros((4, 4)))
    out = tmp_path / "p.csv"
    refused = invoke("predict", run, tmp_path / "new", "--out", out)
    assert refused.exit_code == 2
    assert "1 zero: 1" in refused.stderr
    assert not out.exists()
    assert invoke("predict", run, tmp_path / "new", "--out", out, "--bad", "drop").exit_code == 0
    rows = read_csv(out)
    assert [(r["index"], r["file"]) for r in rows] == [("0", "clip0.npy"), ("2", "clip2.npy")]


def test_settings_from_a_file_and_flags_before_it(tmp_path):
    settings = tmp_path / "s.toml"
    settings.write_text(f'data = "{file_of(tmp_path)}"\nepochs = 2\nlr = 0.5\ndims = [5, 3]\n')
    run = invoke("train", "--settings", settings, "--lr", 0.25, "--out", tmp_path / "run")
    assert run.exit_code == 0, run.stderr
    assert "dims 5,3, recipe fast" in run.stdout
    used = RunFolder(tmp_path / "run").settings()
    assert (used.epochs, used.lr, used.dims) == (2, 0.25, (5, 3))
    copy = invoke("train", "--settings", tmp_path / "run/settings.toml", "--out", tmp_path / "b")
    assert copy.exit_code == 0
    assert without_times(RunFolder(tmp_path / "b").metrics()) == without_times(
        RunFolder(tmp_path / "run").metrics()
    )


def test_runs_get_names_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file_of(tmp_path)
    for _ in range(2):
        assert invoke("train", "a.npz", "--epochs", 1, "--no-baseline").exit_code == 0
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == ["a", "a-2"]
    assert RunFolder("runs/a").results().baseline is None


def start(*arguments):
    """A process that Ctrl-C reaches, also where it does not reach the tests themselves."""
    code = (
        "import runpy, signal;"
        "signal.signal(signal.SIGINT, signal.default_int_handler);"
        "runpy.run_module('spdnet', run_name='__main__', alter_sys=True)"
    )
    command = [sys.executable, "-u", "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(process, epoch):
    for line in process.stdout:
        if line.startswith(f"epoch {epoch:>4}"):
            return
    raise AssertionError(process.stderr.read())


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """Data, the options of a training of them, and its run."""
    place = tmp_path_factory.mktemp("uninterrupted")
    options = (file_of(place), "--epochs", 60, "--device", "cpu", "--no-baseline")
    assert spdnet("train", *options, "--out", place / "run").returncode == 0
    return options, place / "run"


@pytest.mark.parametrize(
    "how",
    [
        signal.SIGKILL,
        *(
            pytest.param(s, marks=pytest.mark.slow)
            for s in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
        ),
    ],
    ids=lambda s: s.name,
)
def test_stopped_and_resumed_ends_bit_equal(tmp_path, uninterrupted, how):
    (data, *flags), straight = uninterrupted
    run = tmp_path / "run"
    process = start("train", data, *flags, "--out", run)
    wait_for(process, 5)
    process.send_signal(how)
    output, _ = process.communicate(timeout=60)
    if how != signal.SIGKILL:
        assert process.returncode == (130 if how == signal.SIGINT else 143)
        assert f"resume with: spdnet train --resume --out {run}" in output
    assert 5 <= len(RunFolder(run).metrics()) < 100
    assert invoke("predict", run, data, "--out", tmp_path / "p.csv").exit_code == 0
    resumed = invoke("train", "--resume", "--out", run)
    assert resumed.exit_code == 0, resumed.stderr
    assert "resuming after epoch" in resumed.stdout
    require_equal_runs(run, straight)
    assert not list(run.rglob(".*.part"))


def test_the_same_command_resumes_and_extends(tmp_path, monkeypatch):
    """Also with relative paths, and with a file of settings."""
    file_of(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.toml").write_text('dims = [5, 3]\nlr = 0.02\nbad = "drop"\n')
    command = ("train", "a.npz", "--settings", "my.toml", "--epochs", 2, "--out", "run")
    assert invoke(*command).exit_code == 0
    assert invoke(*command).exit_code == 2  # a second run there
    (tmp_path / "run" / "results.json").unlink()
    again = invoke(*command, "--resume")
    assert again.exit_code == 0, again.output
    assert "resuming after epoch 2" in again.output
    assert "is finished" in invoke(*command, "--resume").output
    more = invoke("train", "--resume", "--out", "run", "--epochs", 4)
    assert more.exit_code == 0, more.output
    assert RunFolder("run").results().epochs == 4
    assert RunFolder("run").report_file.exists()
    (tmp_path / "a.npz").rename(tmp_path / "b.npz")
    (tmp_path / "run" / "results.json").unlink()
    assert invoke("train", "--resume", "--out", "run").exit_code == 2
    assert invoke("train", "b.npz", "--resume", "--out", "run").exit_code == 0
    assert invoke("train", "--resume", "--out", "run").exit_code == 0


@pytest.mark.slow
def test_a_terminal_gets_a_live_line(tmp_path):
    """In terminals of two widths, one after the other; to start a process takes seconds."""
    pty = pytest.importorskip("pty")
    leader, follower = pty.openpty()
    flags = ["train", file_of(tmp_path), "--val", "0.1", "--epochs", "5", "--no-baseline", "--out"]
    code = (
        "import os; from spdnet.cli import app\n"
        "for width in ('80', '120'):\n"
        "    os.environ['COLUMNS'] = width\n"
        f"    app([*{flags}, width], standalone_mode=False)\n"
        "    print('end of', width)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        stdout=follower,
        stderr=follower,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(follower)
    output = b""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            piece = os.read(leader, 4096)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        output += piece
    assert process.wait(timeout=60) == 0
    narrow, wide, _ = re.split(rb"end of \d+", output)
    for width, shown in ((80, narrow), (120, wide)):
        text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())
        last = [line for line in re.split(r"[\r\n]+", text) if "5/5" in line][-1]
        assert re.search(r"5/5 .*loss \d\.\d+  train .* %  val .* %  [\d,]+/s 0?0:00", last)
        assert ("━" in last) == (width == 120)
        assert len(last.rstrip()) <= width
        assert shown.count(b"\x1b[?25l") == shown.count(b"\x1b[?25h")  # the cursor is back


@functools.cache
def small_run(epochs):
    """A run of the matrices of ``file_of``, in a folder that lasts as long as the process."""
    place = tempfile.TemporaryDirectory()
    data = file_of(Path(place.name))
    run = invoke("train", data, "--epochs", epochs, "--out", Path(place.name) / "r")
    assert run.exit_code == 0
    return place


def run_folder(tmp_path, epochs=1):
    """A run of 5 x 5 matrices, beside its data."""
    file_of(tmp_path)
    return shutil.copytree(Path(small_run(epochs).name) / "r", tmp_path / "r")


def save(tmp_path, **arrays):
    path = tmp_path / "bad.npz"
    np.savez(path, **{"X": random_spd(20, 4).numpy(), "y": np.arange(20) % 2, **arrays})
    return path


def with_bad(tmp_path, value):
    matrices = random_spd(20, 4).numpy()
    matrices[3] = value
    return save(tmp_path, X=matrices)


def text_file(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    return tmp_path / name


def toml(tmp_path, text):
    return ("train", "--settings", text_file(tmp_path, "s.toml", text))


CLIPS = ("--of", "sequences", "--clip-length", 5)


def classes(tmp_path):
    """A folder of classes, a matrix or sequence in each file."""
    for i, matrix in enumerate([np.eye(3), 2 * np.eye(3)]):
        (tmp_path / "folder" / f"class{i}").mkdir(parents=True)
        np.save(tmp_path / "folder" / f"class{i}" / f"{i}.npy", matrix)
    return tmp_path / "folder"


def good(tmp_path, *flags):
    return ("train", save(tmp_path), *flags)


def truncated(tmp_path):
    run = run_folder(tmp_path)
    for name in ("best", "last", "previous"):
        path = run / "checkpoints" / f"{name}.pt"
        path.write_bytes(path.read_bytes()[:100])
    return run


def foreign(tmp_path):
    path = tmp_path / "model.pt"
    checkpoint.save({"state_dict": {}}, path)
    return path


#: what is typed, and what has to be said; everything ends with exit code 2
BAD = {
    # files
    "no such file": (lambda p: ("train", p / "no.npz"), "expected a file or folder at"),
    "no such name": (lambda p: ("train", "digit"), "expected a file or folder at digit"),
    "a damaged file": (lambda p: ("train", text_file(p, "a.npz", "PK")), "damaged"),
    "another kind of file": (lambda p: ("train", text_file(p, "a.csv", "1,2")), ".npz or a .npy"),
    "an empty folder": (lambda p: ("train", p), "<class>/*.npy or *.mat"),
    "no labels": (
        lambda p: (np.save(p / "X.npy", X), ("train", p / "X.npy"))[1],
        "expected labels for X.npy",
    ),
    "a file without y": (
        lambda p: (np.savez(p / "a.npz", X=X), ("train", p / "a.npz"))[1],
        "expected arrays X and y",
    ),
    "a TOML file that is none": (lambda p: toml(p, "epochs = = 3"), "expected a TOML file"),
    "no TOML file": (lambda p: ("train", "--settings", p / "no.toml"), "expected a TOML file"),
    "an unknown setting": (
        lambda p: toml(p, 'data = "digits"\nepoch = 3'),
        "did you mean 'epochs'?",
    ),
    "a setting of another type": (
        lambda p: toml(p, 'data = "digits"\nepochs = "many"'),
        "expected epochs to be an integer, got 'many'",
    ),
    "data of another type": (lambda p: toml(p, "data = 3"), "expected data to be text, got 3"),
    "a folder that is not empty": (
        lambda p: (text_file(p, "old", ""), good(p, "--out", p))[1],
        "is not empty",
    ),
    "a file in the place of the folder": (
        lambda p: good(p, "--out", text_file(p, "out", "")),
        "Not a directory",
    ),
    "a finished run": (
        lambda p: ("train", p / "a.npz", "--out", run_folder(p)),
        "is not empty; choose another (--out), or resume the run in it with --resume",
    ),
    "labels for a file that has them": (
        lambda p: good(p, "--labels", "y.txt"),
        "which contains its own labels",
    ),
    "dims of other data, many times": (
        lambda p: good(p, "--dims", "9,5", "--repeat", 2, "--out", p / "new"),
        "begin with the size of the matrices",
    ),
    "another device, many times": (
        lambda p: good(p, "--device", "cuda:99", "--repeat", 2, "--out", p / "new"),
        "device of this machine",
    ),
    # shapes and types
    "one matrix": (lambda p: ("train", save(p, X=np.eye(4), y=np.arange(4))), "shape (4, 4)"),
    "complex numbers": (
        lambda p: ("train", save(p, X=1j * np.ones((20, 4, 4)))),
        "20 not Hermitian",
    ),
    "complex signals": (
        lambda p: ("train", save(p, X=1j * np.ones((20, 4, 30)))),
        "expected X with real numbers, got torch.complex128",
    ),
    "no matrices": (
        lambda p: ("train", save(p, X=np.ones((0, 4, 4)), y=np.ones(0))),
        "expected at least one matrix",
    ),
    "not finite": (lambda p: ("train", with_bad(p, np.nan)), "1 not finite: 3"),
    "zero": (lambda p: ("train", with_bad(p, 0)), "1 zero: 3"),
    "indefinite": (lambda p: ("train", with_bad(p, -np.eye(4))), "1 indefinite: 3"),
    "asymmetric": (
        lambda p: ("train", with_bad(p, np.triu(np.ones((4, 4))))),
        "1 asymmetric: 3); choose 'drop' or 'repair'",
    ),
    "singular": (
        lambda p: ("train", with_bad(p, np.ones((4, 4))), "--rank", "full", "--shrinkage", "none"),
        "1 singular: 3",
    ),
    "beyond repair": (
        lambda p: ("train", with_bad(p, np.nan), "--bad", "repair"),
        "1 not finite: 3); choose 'drop'",
    ),
    # labels
    "too few labels": (lambda p: ("train", save(p, y=np.arange(5))), "expected y of shape (20,)"),
    "one class": (
        lambda p: ("train", save(p, y=np.ones(20))),
        "at least two classes, got one: '1'",
    ),
    "real numbers as labels": (
        lambda p: ("train", save(p, y=np.linspace(0, 1, 20))),
        "expected classes in y",
    ),
    "a split of other names": (
        lambda p: ("train", save(p, split=np.array(["dev"] * 20))),
        "'train', 'val' and 'test'",
    ),
    "nothing to train on": (
        lambda p: ("train", save(p, split=np.array(["test"] * 20))),
        "got none in the part 'train'",
    ),
    "one class to train on": (
        lambda p: ("train", save(p, split=np.array(["train", "test"] * 10))),
        "got only '0' in the part 'train'",
    ),
    "groups that cannot be divided": (
        lambda p: ("train", save(p, groups=np.arange(20) % 2)),
        "expected groups that can be held out",
    ),
    # flags
    "no data": (lambda p: ("train",), "expected data: the name 'digits' or 'digits-small'"),
    "an unknown flag": (lambda p: good(p, "--fast"), "No such option"),
    "an unknown command": (lambda p: ("trian", "digits"), "No such command"),
    "dims of letters": (lambda p: good(p, "--dims", "4,a"), "expected dims such as 93,70,50,30"),
    "dims that grow": (lambda p: good(p, "--dims", "4,8"), "expected non-increasing sizes"),
    "dims of other data": (
        lambda p: good(p, "--dims", "9,5"),
        "begin with the size of the matrices, 4, got 9,5",
    ),
    "no epochs": (lambda p: good(p, "--epochs", 0), "expected epochs >= 1, got 0"),
    "words for epochs": (lambda p: good(p, "--epochs", "ten"), "'--epochs'"),
    "an empty batch": (lambda p: good(p, "--batch-size", 0), "expected batch_size >= 1"),
    "a negative lr": (lambda p: good(p, "--lr", -1), "expected lr >= 0"),
    "lr not finite": (lambda p: good(p, "--lr", "nan"), "expected lr >= 0 and finite, got nan"),
    "eps of letters": (lambda p: good(p, "--eps", "small"), "expected eps to be a number >= 0"),
    "eps below zero": (lambda p: good(p, "--eps", -1), "expected eps >= 0"),
    "another optimizer": (lambda p: good(p, "--optimizer", "lbfgs"), "'adam', 'sgd', got 'lbfgs'"),
    "momentum without sgd": (lambda p: good(p, "--momentum", 0.9), "optimizer='sgd'"),
    "another recipe": (
        lambda p: good(p, "--recipe", "papr"),
        "'auto', 'fast', 'paper', got 'papr'",
    ),
    "another centre": (
        lambda p: good(p, "--center", "mean"),
        "'bures_wasserstein', 'stein', 'none', got 'mean'",
    ),
    "another network": (
        lambda p: good(p, "--model", "resnet"),
        "'tsmnet', 'package.module:Class', got 'resnet'",
    ),
    "another norm": (lambda p: good(p, "--norm", "batch"), "'log_cholesky', 'none', got 'batch'"),
    "another head": (lambda p: good(p, "--head", "svm"), "got 'svm'"),
    "a norm for tsmnet": (
        lambda p: good(p, "--model", "tsmnet", "--norm", "brooks"),
        "expected no norm with model='tsmnet', which has only dims, eps",
    ),
    "another device": (lambda p: good(p, "--device", "gpu"), "'cuda:1', got 'gpu'"),
    "a device that is not here": (
        lambda p: good(p, "--device", "cuda:99"),
        "device of this machine",
    ),
    "another dtype": (lambda p: good(p, "--dtype", "half"), "'float64', 'float32', got 'half'"),
    "all for validation": (
        lambda p: good(p, "--val", 1),
        "expected val >= 0 and < 1 and finite, got 1.0",
    ),
    "patience without validation": (
        lambda p: good(p, "--patience", 3, "--val", 0),
        "expected validation data with patience",
    ),
    "no repeats": (lambda p: good(p, "--repeat", 0), "expected repeat >= 1"),
    "a negative seed": (
        lambda p: good(p, "--seed", -1),
        "expected seed to be an integer from 0",
    ),
    "another remedy": (lambda p: good(p, "--bad", "ignore"), "'refuse', 'drop', 'repair'"),
    "another estimator": (
        lambda p: good(p, "--estimator", "robust"),
        "'tyler', 'mcd', got 'robust'",
    ),
    "resume what is not there": (
        lambda p: ("train", "--resume", "--out", p / "r"),
        "expected a run folder at",
    ),
    "resume without a folder": (lambda p: ("train", "--resume"), "expected --out"),
    "resume with other settings": (
        lambda p: ("train", "--resume", "--out", run_folder(p), "--lr", 7),
        "lr = 0.003, got 7.0",
    ),
    "resume with fewer epochs": (
        lambda p: ("train", "--resume", "--out", run_folder(p, epochs=2), "--epochs", 1),
        "epochs = 2, got 1",
    ),
    # runs
    "evaluate what is no run": (lambda p: ("evaluate", p, "digits"), "expected a run folder"),
    "evaluate other sizes": (
        lambda p: ("evaluate", run_folder(p), "digits"),
        "expected 5 x 5 as in training, got 17 x 17",
    ),
    "evaluate other classes": (
        lambda p: ("evaluate", run_folder(p), save(p, X=random_spd(20, 5).numpy())),
        "expected the classes of the training, 'jump', 'run', 'walk', got '0', '1'",
    ),
    "evaluate without labels": (
        lambda p: (np.savez(p / "u.npz", X=X), ("evaluate", run_folder(p), p / "u.npz"))[1],
        "expected arrays X and y",
    ),
    "evaluate another part": (
        lambda p: ("evaluate", run_folder(p), p / "a.npz", "--part", "dev"),
        "'train', 'val', 'test', 'all', got 'dev'",
    ),
    "predict into nowhere": (
        lambda p: ("predict", run_folder(p), p / "a.npz", "--out", p / "no" / "p.csv"),
        "expected a folder",
    ),
    "predict over a file": (
        lambda p: ("predict", run_folder(p), p / "a.npz", "--out", text_file(p, "p.csv", "mine")),
        "p.csv exists; use --force",
    ),
    "predict with damaged checkpoints": (
        lambda p: ("predict", truncated(p), p / "a.npz", "--out", p / "p.csv"),
        "truncated or damaged",
    ),
    "predict with a foreign checkpoint": (
        lambda p: ("predict", foreign(p), save(p), "--out", p / "p.csv"),
        "expected a checkpoint of spdnet train",
    ),
    "predict with data and run swapped": (
        lambda p: ("predict", save(p), run_folder(p), "--out", p / "p.csv"),
        "swapped?",
    ),
    "evaluate with data and run swapped": (
        lambda p: ("evaluate", save(p), run_folder(p)),
        "swapped?",
    ),
    "predict of signals by a network for matrices": (
        lambda p: ("predict", run_folder(p), signals(p), "--out", p / "p.csv"),
        "got 4 x 40; these are signals",
    ),
    "other weights of classes": (
        lambda p: good(p, "--class-weight", "equal"),
        "'balanced', 'none', got 'equal'",
    ),
    "a network nearly by its name": (
        lambda p: good(p, "--model", "TSM-Net"),
        "did you mean 'tsmnet'?",
    ),
    "report of what is no run": (lambda p: ("report", p), "expected a run folder"),
    "info of nothing": (lambda p: ("data", "info", p / "no.npz"), "expected a file or folder"),
    "info without a file": (lambda p: ("data", "info"), "Missing argument"),
    "build of nothing": (
        lambda p: ("data", "build", p / "no", p / "b.npz"),
        "expected a folder or an archive",
    ),
    "build of an empty folder": (lambda p: ("data", "build", p, p / "b.npz"), "got none"),
    "build into another kind of file": (
        lambda p: ("data", "build", classes(p), p / "b.npy"),
        "expected the name of a .npz file",
    ),
    "build over a file": (
        lambda p: ("data", "build", classes(p), text_file(p, "b.npz", "mine")),
        "expected a new file",
    ),
    "build of something else": (
        lambda p: ("data", "build", classes(p), p / "b.npz", "--of", "cakes"),
        "expected of to be one of 'matrices', 'sequences', 'signals', got 'cakes'",
    ),
    "build of clips without parts": (
        lambda p: ("data", "build", classes(p), p / "b.npz", *CLIPS),
        "made before the split leak test data",
    ),
    "build of matrices with settings of sequences": (
        lambda p: ("data", "build", classes(p), p / "b.npz", "--pca", 3, "--every", 2),
        "expected --pca, --every with --of sequences",
    ),
    "build of sequences with an index": (
        lambda p: ("data", "build", p, p / "b.npz", "--of", "sequences", "--index", p / "i.mat"),
        "expected an index with --of matrices",
    ),
    "import of another set": (lambda p: ("data", "import", "mnist", p), "'mnist'"),
    "import of nothing": (
        lambda p: ("data", "import", "afew", p / "no.zip"),
        "expected a folder or an archive",
    ),
    "fetch of another set": (lambda p: ("data", "fetch", "mnist"), "'mnist'"),
    "reproduction of another experiment": (lambda p: ("reproduce", "mnist"), "'mnist'"),
    "reproduction without data": (lambda p: ("reproduce", "afew"), "spdnet data import afew"),
    "reproduction on nothing": (
        lambda p: ("reproduce", "hdm05", "--standin", p / "no.npz"),
        "expected a file or folder",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_says_why_and_leaves_nothing(tmp_path, monkeypatch, case):
    make, message = BAD[case]
    (tmp_path / "home").mkdir()
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path / "home")
    arguments = make(tmp_path / "data")
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}
    run = invoke(*arguments)
    assert run.exit_code == 2
    # a box may break the line anywhere
    assert message.replace(" ", "") in "".join(run.stderr.split()).replace("│", "")
    assert "Traceback" not in run.stderr
    after = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}
    assert after == before


@pytest.mark.parametrize(
    "case",
    [
        pytest.param("no such file", marks=pytest.mark.slow),
        pytest.param("not finite", marks=pytest.mark.slow),
        "an unknown flag",
    ],
)
def test_bad_input_in_a_real_process(tmp_path, case):
    make, message = BAD[case]
    run = spdnet(*make(tmp_path), "--out", tmp_path / "run")
    assert run.returncode == 2
    assert message in run.stderr
    assert "Traceback" not in run.stderr
    assert not (tmp_path / "run").exists()


def test_a_run_goes_on_from_another_folder(tmp_path, monkeypatch):
    file_of(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert invoke("train", "a.npz", "--epochs", 1, "--out", "run").exit_code == 0
    (tmp_path / "run" / "results.json").unlink()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert invoke("train", "--resume", "--out", "../run").exit_code == 0
    folder = tmp_path / "elsewhere" / "deep"
    (folder / "a").mkdir(parents=True)
    for i, matrix in enumerate(X):
        (folder / "ab"[i % 2]).mkdir(exist_ok=True)
        np.save(folder / "ab"[i % 2] / f"{i}.npy", matrix)
    monkeypatch.chdir(folder / "a")
    assert invoke("train", "..", "--epochs", 1, "--no-baseline").exit_code == 0
    assert (folder / "a" / "runs" / "deep" / "report.html").is_file()


def test_the_defaults_in_the_help_are_those_of_the_recipes():
    default, fast, paper = RECIPES.values()
    text = " ".join(invoke("train", "--help").stdout.replace("│", " ").split())
    for shown in (
        f"[default: {default.epochs}, paper {paper.epochs}]",
        f"[default: {default.optimizer}, paper {paper.optimizer}]",
        f"[default: {default.schedule}, paper {paper.schedule}]",
        f"[default: {default.center}, paper none]",
        f"[default: {default.label_smoothing:g}, paper {paper.label_smoothing:g}]",
        f"[default: {default.batch_size}, fast {fast.batch_size}, paper {paper.batch_size}]",
        f"[default: {default.model}, fast {fast.model}, paper {paper.model}]",
        f"[default: {default.lr}, paper {paper.lr}]",
    ):
        assert shown in text
    for name in ("epochs", "optimizer", "schedule", "center", "label_smoothing", "lr"):
        assert getattr(fast, name) == getattr(default, name)


def test_a_loss_that_is_not_finite_never_ends_well(tmp_path):
    matrices = np.stack([np.eye(3) * 1e150, np.eye(3)] * 20)
    np.savez(tmp_path / "a.npz", X=matrices, y=np.arange(40) % 2)
    options = ("--recipe", "paper", "--lr", 1e305, "--out", tmp_path / "run")
    run = invoke("train", tmp_path / "a.npz", *options)
    assert run.exit_code == 1
    assert "error: training: expected a finite" in run.stderr
    assert not (tmp_path / "run" / "results.json").exists()


def test_compare(tmp_path, monkeypatch):
    data = file_of(tmp_path)
    monkeypatch.chdir(tmp_path)
    flags = ("--methods", "cdl, spdnet-0", "--repeats", 2, "--epochs", 2)
    first = invoke("compare", data, *flags)
    assert first.exit_code == 0, first.stdout
    assert "3 classes; random-halves, 2 repeats: 30 train, 30 test" in first.stdout
    assert "repeat 2  SPDNet-0BiRe" in first.stdout
    assert "accuracy, %" in first.stdout
    folder = tmp_path / "runs" / "compare-a"
    assert (folder / "report.html").is_file()
    again = invoke("compare", data, *flags)
    assert "repeat" not in again.stdout.split("methods\n")[1]
    assert (folder / "table.txt").read_text() in again.stdout
    wrong = invoke("compare", data, "--methods", "cdll")
    assert wrong.exit_code == 2
    assert "got 'cdll'" in wrong.stderr
    help_text = "".join(invoke("compare", "--help").stdout.replace("│", " ").split())
    for name in METHODS:
        assert name in help_text or name.startswith("spdnet-")


def test_build_and_train(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    lengths = rng.integers(20, 40, 24)
    label = np.arange(24) % 2
    frames = [rng.normal(size=(n, 2, 3)) * (1 + 2 * c) for n, c in zip(lengths, label, strict=True)]
    raw = tmp_path / "motions.npz"
    np.savez(raw, frames=np.concatenate(frames), lengths=lengths, label=label)
    monkeypatch.chdir(tmp_path)
    flags = ("--of", "sequences", "--test", 0.5, "--clip-length", 10, "--root", 0, "--reg", 0.01)
    run = invoke("data", "build", raw, "built.npz", *flags, "--dtype", "float32")
    assert run.exit_code == 0, run.stderr
    assert "24 of 24 sequences" in run.stderr
    assert run.stdout == "77 matrices of 6 x 6, float32\nfile: built.npz\n"  # 12, and clips
    shown = invoke("data", "info", "built.npz").stdout
    assert "6 x 6, float32" in shown
    assert "12 test" in shown
    assert "24 groups" in shown
    run = invoke("train", "built.npz", "--epochs", 2, "--dims", "6,4")
    assert run.exit_code == 0, run.stderr
    assert (
        json.loads((tmp_path / "runs/built/results.json").read_text())["parts"]["test"]["n"] == 12
    )
    half = ("--of", "sequences", "--test", 0.5, "--clip-length", 0.5, "--clips", 3)
    assert invoke("data", "build", raw, "half.npz", *half).exit_code == 0


def test_import_and_reproduce(tmp_path, monkeypatch):
    monkeypatch.setenv("SPDNET_DATA", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for i, matrix in enumerate(random_spd(24, 6).numpy()):
        folder = tmp_path / "raw" / ("train" if i % 2 else "val") / str(i % 3)
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / f"video{i}_1.npy", matrix)
    run = invoke("data", "import", "afew", tmp_path / "raw")
    assert run.exit_code == 0, run.stderr
    assert run.stdout.split() == ["file:", str(tmp_path / "home" / "afew.npz")]
    run = invoke("reproduce", "convergence", "--epochs", 2, "--device", "cpu")
    assert run.exit_code == 0, run.stderr
    assert "SPDNet-3BiRe" in run.stdout
    assert "34.23" in run.stdout
    assert "STAND-IN" not in run.stdout
    folder = tmp_path / "runs" / "reproduce-convergence"
    assert (folder / "report.html").is_file()
    assert (folder / "afew-curves-loss.svg").read_text().startswith("<svg")
    again = invoke("reproduce", "convergence", "--epochs", 2, "--device", "cpu")
    assert "epoch    1" not in again.stdout
    quick = invoke("reproduce", "hdm05", "--standin", "digits", "--quick")
    assert (tmp_path / "runs" / "reproduce-hdm05-on-digits-quick" / "table.csv").is_file()
    assert "STAND-IN for hdm05" in quick.stdout


def signals(tmp_path, **more):
    rng = np.random.default_rng(0)
    y = np.arange(48) % 2
    values = rng.normal(size=(48, 4, 40)) * (1 + y)[:, None, None]
    np.savez(tmp_path / "signals.npz", X=values, y=y, **more)
    return tmp_path / "signals.npz"


def test_a_linear_network_is_called_one(tmp_path):
    data = file_of(tmp_path)
    fast = ("--recipe", "fast", "--epochs", 1)
    run = invoke("train", data, *fast, "--out", tmp_path / "a")
    assert run.stdout.count("note: no ReEig raised an eigenvalue and no BiMap reduces") == 1
    assert "--dims 5,4,2 or --eps 10% make it nonlinear" in run.stdout
    assert re.search(r"most frequent class +33.33 %", run.stdout)
    for flags in (("--dims", "5,4,2"), ("--eps", "10%"), ("--norm", "brooks")):
        run = invoke("train", data, "--epochs", 1, *flags, "--out", tmp_path / flags[1])
        assert "note:" not in run.stdout
    run = invoke(
        "train", data, "--epochs", 1, "--dims", "5,4", "--eps", 0.1, "--out", tmp_path / "b"
    )
    assert "note: eps has no effect with fewer than two BiMaps" in run.stdout
    run = invoke("train", data, *fast, "--repeat", 2, "--out", tmp_path / "c")
    assert run.stdout.count("this network is a linear classifier") == 1


def test_later_signals_without_groups_are_told(tmp_path):
    data = signals(tmp_path, groups=np.arange(48) // 6)
    run = tmp_path / "run"
    trained = invoke(
        "train", data, "--model", "TSMNet", "--dims", "6,3", "--epochs", 1, "--out", run
    )
    assert trained.exit_code == 0, trained.stderr
    assert re.search(
        r"\d+ train \(\d groups\), 6 val \(1 group\), \d+ test \(\d group", trained.stdout
    )
    bare = tmp_path / "bare.npz"
    with np.load(data) as file:
        np.savez(bare, X=file["X"], y=file["y"])
    note = f"note: no groups in {bare}: all its samples are treated as one new group"
    for arguments in (("evaluate", run, bare), ("predict", run, bare, "--out", tmp_path / "p.csv")):
        found = invoke(*arguments)
        assert found.exit_code == 0
        assert note in found.stderr
        assert note not in found.stdout
    found = invoke("predict", run, data, "--out", tmp_path / "q.csv")
    assert "no groups" not in found.stderr


def test_predictions_for_the_data_of_the_training_tell_the_part(tmp_path):
    data, run, out = file_of(tmp_path), tmp_path / "run", tmp_path / "p.csv"
    found = invoke("train", data, "--epochs", 3, "--out", run)
    assert found.exit_code == 0
    assert invoke("predict", run, data, "--out", out).exit_code == 0
    rows = read_csv(out)
    assert list(rows[0]) == ["index", "part", "label", "p(jump)", "p(run)", "p(walk)"]
    with np.load(data) as file:
        y, X = file["y"], file["X"]
    results = RunFolder(run).results()
    for part, scores in results.parts.items():
        own = [row for row in rows if row["part"] == part]
        right = [row["label"] == y[int(row["index"])] for row in own]
        assert len(own) == scores.n
        assert np.mean(right) == pytest.approx(scores.accuracy)
    np.savez(tmp_path / "without.npz", X=X)  # the same matrices, no labels
    assert invoke("predict", run, tmp_path / "without.npz", "--out", out, "--force").exit_code == 0
    assert read_csv(out) == rows
    np.savez(tmp_path / "others.npz", X=X[:9])
    assert invoke("predict", run, tmp_path / "others.npz", "--out", out, "--force").exit_code == 0
    assert "part" not in read_csv(out)[0]


def test_options_by_their_other_names(tmp_path):
    data = file_of(tmp_path)
    flags = ("--epochs", 1, "--learning-rate", 0.5, "--test-size", 0.4, "--repeats", 2)
    run = invoke("train", data, *flags, "--no-baseline", "--out", tmp_path / "run")
    assert run.exit_code == 0, run.stderr
    used = RunFolder(tmp_path / "run").settings()
    assert (used.lr, used.test, used.repeat) == (0.5, 0.4, 2)
    flags = ("--methods", "CDL", "--repeat", 2, "--test", 0.4)
    run = invoke("compare", data, *flags, "--out", tmp_path / "compare")
    assert "2 repeats: 36 train, 24 test" in run.stdout
    assert "* best" in run.stdout
    assert "most frequent class: 33.33 %" in run.stdout


def test_names_in_any_case(tmp_path):
    flags = ("--model", "SPDNet", "--optimizer", "Adam", "--norm", "None", "--bad", "Repair")
    options = (*flags, "--class-weight", "Balanced", "--epochs", 1, "--out", tmp_path / "run")
    run = invoke("train", file_of(tmp_path), *options)
    assert run.exit_code == 0, run.stderr
    used = RunFolder(tmp_path / "run").settings()
    assert (used.model, used.optimizer, used.bad) == ("spdnet", "adam", "repair")
    assert used.class_weight == "balanced"
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "<td>class_weight</td><td>balanced</td>" in page


def test_quiet(tmp_path):
    flags = ("--epochs", 2, "--quiet", "--out", tmp_path / "run")
    run = invoke("train", file_of(tmp_path), *flags)
    assert run.exit_code == 0
    assert "epoch " not in run.stdout
    assert "test accuracy:" in run.stdout
    assert len(RunFolder(tmp_path / "run").metrics()) == 2
    assert "runs/NAME-2" in "".join(invoke("train", "--help").stdout.replace("│", " ").split())


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run and its data; one class is an arrow."""
    place = tmp_path_factory.mktemp("trained")
    with np.load(file_of(place)) as file:
        np.savez(place / "data.npz", X=file["X"], y=np.where(file["y"] == "walk", "→", file["y"]))
    run = place / "run"
    assert invoke("train", place / "data.npz", "--epochs", 1, "--out", run).exit_code == 0
    return run, place / "data.npz"


def test_a_run_folder_may_be_called_like_a_checkpoint(trained, tmp_path):
    data, run = trained[1], shutil.copytree(trained[0], tmp_path / "model.pt")
    for path in (run, run / "checkpoints" / "best.pt"):
        assert "12 matrices of the test set" in invoke("evaluate", path, data).stdout
        out = tmp_path / f"{path.stem}.csv"
        assert invoke("predict", path, data, "--out", out).exit_code == 0
        assert len(read_csv(out)) == 60
    assert "swapped?" in invoke("evaluate", data, run).stderr
    assert "swapped?" in invoke("evaluate", data, run / "checkpoints" / "best.pt").stderr
    missing = invoke("evaluate", tmp_path / "no.pt", data)
    assert missing.exit_code == 2
    assert "no.pt; there is no such file" in missing.stderr


def test_predictions_go_through_links(trained, tmp_path):
    """A link stays a link, and what it leads to is written."""
    run, data = trained
    (tmp_path / "results").mkdir()
    target = tmp_path / "results" / "p.csv"
    last, first = tmp_path / "last.csv", tmp_path / "first.csv"
    last.symlink_to(target)
    first.symlink_to(last)
    assert invoke("predict", run, data, "--out", first).exit_code == 0  # which led to nothing
    assert first.is_symlink()
    assert last.is_symlink()
    assert len(read_csv(target)) == 60
    refused = invoke("predict", run, data, "--out", first)
    assert refused.exit_code == 2
    assert "use --force to replace it" in refused.stderr
    target.write_text("old")
    assert invoke("predict", run, data, "--out", first, "--force").exit_code == 0
    assert last.is_symlink()
    assert len(read_csv(target)) == 60
    assert [path.name for path in target.parent.iterdir()] == ["p.csv"]
    nowhere = tmp_path / "nowhere.csv"
    nowhere.symlink_to(tmp_path / "no" / "p.csv")
    refused = invoke("predict", run, data, "--out", nowhere, "--force")
    assert refused.exit_code == 2
    assert "expected a folder" in refused.stderr
    assert nowhere.is_symlink()


@pytest.mark.parametrize("more", [(), ("--force",)])
def test_predictions_go_through_pipes_and_devices(trained, tmp_path, more):
    run, data = trained
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True) as reader:
        try:
            predicted = invoke("predict", run, data, "--out", pipe, *more)
            assert predicted.exit_code == 0, predicted.stderr
            assert pipe.is_fifo()
            rows = list(csv.DictReader(reader.stdout))
        finally:
            reader.kill()
    assert len(rows) == 60
    device = tmp_path / "null"
    try:
        os.mknod(device, 0o600 | stat.S_IFCHR, os.makedev(1, 3))  # one of our own
        device.write_bytes(b"")
    except PermissionError:
        pytest.skip("devices cannot be made here")
    assert invoke("predict", run, data, "--out", device, *more).exit_code == 0
    assert device.is_char_device()


def test_what_predictions_cannot_be_written_to_is_not_to_be_forced(trained, tmp_path):
    run, data = trained
    for more in ((), ("--force",)):
        refused = invoke("predict", run, data, "--out", tmp_path, *more)
        assert refused.exit_code == 2
        assert "is a folder" in refused.stderr
        assert "force" not in refused.stderr


@pytest.mark.slow
def test_predictions_on_standard_output(trained, tmp_path):
    """In UTF-8, and nothing but CSV, into a pipe and into a file."""
    run, data = trained
    command = [sys.executable, "-m", "spdnet", "predict", run, data, "--out"]
    ascii_terminal = {**os.environ, "PYTHONIOENCODING": "ascii"}
    found = subprocess.run([*command, "-"], capture_output=True, check=True, env=ascii_terminal)
    assert len(list(csv.DictReader(found.stdout.decode().splitlines()))) == 60
    assert "p(→)" in found.stdout.decode()
    assert found.stderr.decode().strip() == "60 predictions"
    file = tmp_path / "p.csv"
    with file.open("wb") as stdout:
        subprocess.run([*command, "/dev/stdout"], stdout=stdout, check=True)
    assert file.read_bytes() == found.stdout


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", pytest.param("latin-1", marks=pytest.mark.slow)])
def test_what_a_terminal_cannot_show_ends_no_command(trained, encoding):
    command = [sys.executable, "-m", "spdnet", "evaluate", *trained]
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    shown = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert shown.returncode == 0, shown.stderr
    assert "\\u2192" in shown.stdout.decode(encoding)


@pytest.mark.slow
@pytest.mark.parametrize("command", [("--help",), ("report",)])
def test_output_that_nobody_reads(trained, command):
    command = (*command, trained[0]) if command == ("report",) else command
    read, write = os.pipe()
    os.close(read)
    run = subprocess.run(
        [sys.executable, "-m", "spdnet", *command],
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write)
    assert run.returncode == 1
    assert run.stderr == b""


def test_the_help_of_compare_lists_all_methods():
    help_text = "".join(invoke("compare", "--help").stdout.replace("│", "").split())
    between = {"spdnet-1", "spdnet-2"}  # spdnet-0 to spdnet-3
    assert [name for name in METHODS if name not in help_text and name not in between] == []
