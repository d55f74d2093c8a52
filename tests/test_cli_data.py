"""``spdnet data`` with what people have: tables, signals, groups, and things by other names."""

import csv
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from spdnet.data import read
from tests.cases import random_spd
from tests.test_cli import invoke

RNG = np.random.default_rng(0)


def recordings(folder, shape=(4, 60), suffix=".csv", count=12):
    """Two classes of recordings, the second louder in one channel."""
    for i in range(count):
        values = RNG.normal(size=shape)
        values[0] *= 1 + 3 * (i % 2)
        file = folder / ("rest", "move")[i % 2] / f"{i:02}{suffix}"
        file.parent.mkdir(parents=True, exist_ok=True)
        if suffix == ".npy":
            np.save(file, values)
        else:
            np.savetxt(file, values, delimiter=",")
    return folder


def groups_file(folder, count=12):
    (folder / "groups.txt").write_text("\n".join(f"p{i // 2}" for i in range(count)))
    return folder / "groups.txt"


def test_train_on_a_folder_of_csv_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recordings(tmp_path / "rec", count=24)
    run = invoke("train", "rec", "--epochs", 2, "--device", "cpu")
    assert run.exit_code == 0, run.stderr
    assert (tmp_path / "runs" / "rec" / "report.html").is_file()
    predicted = invoke("predict", "runs/rec", "rec", "--out", "p.csv")
    assert predicted.exit_code == 0, predicted.stderr
    assert "rest/00.csv" in (tmp_path / "p.csv").read_text()


@pytest.mark.parametrize("suffix", [".csv", ".npy"])
def test_build_of_signals_and_of_sequences(tmp_path, suffix):
    data = recordings(tmp_path / "rec", suffix=suffix)
    run = invoke("data", "build", data, tmp_path / "a.npz", "--of", "signals")
    assert run.exit_code == 0, run.stderr
    assert run.stdout.startswith("12 matrices of 4 x 4")
    assert "note" not in run.stderr
    run = invoke("data", "build", data, tmp_path / "b.npz", "--of", "sequences")
    assert run.exit_code == 0, run.stderr
    assert "note: fewer samples than channels in 12" in run.stderr
    assert "are the axes swapped?" in run.stderr
    wrong = invoke("data", "build", data, tmp_path / "c.npz")
    assert wrong.exit_code == 2
    assert "--of signals" in wrong.stderr


def test_signals_are_built_as_they_are_trained(tmp_path):
    from spdnet.covariance import estimate

    data = recordings(tmp_path / "rec")
    assert invoke("data", "build", data, tmp_path / "a.npz", "--of", "signals").exit_code == 0
    expected = estimate(read(data).X)
    np.testing.assert_allclose(read(tmp_path / "a.npz").X, expected, rtol=1e-12)
    flags = ("--of", "signals", "--mode", "trace")
    assert invoke("data", "build", data, tmp_path / "b.npz", *flags).exit_code == 0
    assert not np.allclose(read(tmp_path / "b.npz").X, expected, rtol=1e-4)


def test_groups_of_a_build_and_of_info(tmp_path):
    data, groups = recordings(tmp_path / "rec"), groups_file(tmp_path)
    flags = ("--of", "signals", "--groups", groups, "--test", 0.5)
    run = invoke("data", "build", data, tmp_path / "a.npz", *flags)
    assert run.exit_code == 0, run.stderr
    built = read(tmp_path / "a.npz")
    assert sorted(set(built.groups)) == [f"p{i}" for i in range(6)]
    parts = {(g, s) for g, s in zip(built.groups, built.split, strict=True)}
    assert len(parts) == 6
    assert "6 groups" in invoke("data", "info", data, "--groups", groups).stdout
    groups.write_text("a\nb")
    for command in (("info", data), ("build", data, tmp_path / "b.npz", "--of", "signals")):
        run = invoke("data", *command, "--groups", groups)
        assert run.exit_code == 2
        assert "expected groups of shape (12,)" in run.stderr


def test_info_looks_at_signals(tmp_path):
    X = RNG.normal(size=(10, 4, 50))
    X[3, 1, 7], X[:, 2] = np.nan, 1
    np.savez(tmp_path / "a.npz", X=X, y=np.arange(10) % 2, subject=np.arange(10))
    shown = invoke("data", "info", tmp_path / "a.npz").stdout
    for text in (
        "10 signals",
        "2 classes, 5 each",
        "not finite: 1 signal of 10: 3",
        "channel 2 in all",
        "condition numbers of the covariances",
        "note: not used: array 'subject' (did you mean groups?)",
        "--bad",
    ):
        assert text in shown
    square = RNG.normal(size=(10, 4, 4))
    np.savez(tmp_path / "b.npz", X=square, y=np.arange(10) % 2)
    shown = invoke("data", "info", tmp_path / "b.npz").stdout
    assert "10 matrices" in shown
    assert "set signals (--signals)" in shown
    shown = invoke("data", "info", tmp_path / "b.npz", "--signals").stdout
    assert "10 signals" in shown
    assert "not more time points than channels" in shown


def test_info_names_remedies(tmp_path):
    X = random_spd(6, 3).numpy()
    X[2] = 1
    np.savez(tmp_path / "a.npz", X=X, y=np.zeros(6, dtype=int))
    shown = invoke("data", "info", tmp_path / "a.npz").stdout
    assert "singular: 1 of 6: 2\n  training makes them positive definite (--rank" in shown
    assert "not SPD" not in shown
    X[3, 0, 1] = 9
    np.savez(tmp_path / "a.npz", X=X, y=np.zeros(6, dtype=int))
    shown = invoke("data", "info", tmp_path / "a.npz").stdout
    assert "not SPD: 1 of 6\n  1 asymmetric: 3\n  choose 'drop' (--bad)" in shown
    assert "1 class, 6 each" in shown


def test_info_of_swapped_axes(tmp_path):
    shown = invoke("data", "info", recordings(tmp_path / "rec", (60, 4))).stdout
    assert "note: 4 samples of 60 channels: are the axes swapped?" in shown


def test_nothing_is_lost_in_silence(tmp_path):
    data = recordings(tmp_path / "rec")
    (data / "rest" / "notes.md").write_text("mine")
    note = "note: not read: 1 .md file, such as rest/notes.md"
    assert note in invoke("data", "info", data).stdout
    run = invoke("data", "build", data, tmp_path / "a.npz", "--of", "signals")
    assert note in run.stderr
    (data / "other").mkdir()
    (data / "other" / "1.edf").write_bytes(b"")
    for command in (("info", data), ("build", data, tmp_path / "b.npz", "--of", "signals")):
        run = invoke("data", *command)
        assert run.exit_code == 2
        assert "got 1 .edf file in other" in run.stderr


def test_damaged_tables_are_named_by_file_and_line(tmp_path):
    data = recordings(tmp_path / "rec")
    (data / "rest" / "00.csv").write_text("1,2\n3,\x1b[31m\n")
    for command in (("info", data), ("build", data, tmp_path / "b.npz", "--of", "signals")):
        run = invoke("data", *command)
        assert run.exit_code == 2
        assert "line 2, column 2 of" in run.stderr
        assert "rest/00.csv" in run.stderr
        assert "\x1b" not in run.stderr


def test_groups_from_a_file_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = np.arange(24) % 2
    X = rng.normal(size=(24, 3, 40)) * np.where(y, 3, 1)[:, None, None]
    np.save("signals.npy", X)
    np.save("y.npy", y)
    (tmp_path / "people.txt").write_text("\n".join(f"p{i // 4}" for i in range(24)))
    flags = ("--labels", "y.npy", "--groups", "people.txt")
    trained = invoke("train", "signals.npy", *flags, "--epochs", 2, "--out", "run")
    assert trained.exit_code == 0, trained.stderr
    assert "(1 group)" in trained.stdout
    assert 'groups = "' in (tmp_path / "run/settings.toml").read_text()
    compared = invoke("compare", "signals.npy", *flags, "--methods", "logistic", "--repeats", 2)
    assert compared.exit_code == 0, compared.stderr
    assert "12 test (3 groups)" in compared.stdout
    for command in (("evaluate", "run", "signals.npy", *flags), ("predict", "run", "signals.npy")):
        done = invoke(*command)
        assert done.exit_code == 0, done.stderr
    refused = invoke("train", "signals.npy", "--labels", "y.npy", "--groups", "y2.npy")
    assert refused.exit_code == 2
    assert "expected groups at y2.npy" in refused.stderr


def test_what_is_not_used_is_said_by_training(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    y = np.arange(24) % 2
    X = np.eye(3) * (1 + y)[:, None, None] * np.linspace(1, 2, 24)[:, None, None]
    np.savez("people.npz", X=X, y=y, subject=np.arange(24) // 4)
    for command in (("train", "people.npz", "--epochs", 1), ("data", "info", "people.npz")):
        done = invoke(*command)
        assert done.exit_code == 0, done.stderr
        assert "not used: array 'subject' (did you mean groups?)" in done.stdout + done.stderr


def test_evaluation_knows_its_own_data_without_the_file_of_groups(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    y = np.arange(40) % 2
    np.savez("m.npz", X=random_spd(40, 3).numpy() * (1 + y)[:, None, None], y=y)
    (tmp_path / "g.txt").write_text("\n".join(str(i // 4) for i in range(40)))
    flags = ("--groups", "g.txt")
    assert invoke("train", "m.npz", *flags, "--epochs", 1, "--out", "run").exit_code == 0
    for more in ((), flags):
        done = invoke("evaluate", "run", "m.npz", *more)
        assert "of the test set, which was held out from training" in done.stdout


def test_a_class_may_be_called_test(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for kind in ("Test", "Control"):
        (tmp_path / "data" / kind).mkdir(parents=True)
        for i, X in enumerate(random_spd(4, 3).numpy()):
            np.save(tmp_path / "data" / kind / f"{i}.npy", X)
    data = read(tmp_path / "data")
    assert sorted(set(data.y.tolist())) == ["Control", "Test"]
    assert data.split is None


ODD = [b"\xe8", b"\xe9", "\u2028é".encode()]


def odd_npz(folder):
    """Classes and groups of bytes, of which two are not UTF-8."""
    X = random_spd(24, 4).numpy()
    y = np.resize(np.array(ODD), 24)
    np.savez(folder / "odd.npz", X=X, y=y, groups=np.repeat(y[:8], 3))
    return folder / "odd.npz"


def odd_folders(folder):
    for i, matrix in enumerate(random_spd(24, 4).numpy()):
        place = folder / "odd" / os.fsdecode(ODD[i % 3])
        place.mkdir(parents=True, exist_ok=True)
        np.save(place / f"{i:02}.npy", matrix)
    return folder / "odd"


@pytest.mark.parametrize("make", [odd_npz, odd_folders])
def test_classes_that_are_no_text_stay_apart(tmp_path, monkeypatch, make):
    monkeypatch.chdir(tmp_path)
    data = make(tmp_path)
    shown = invoke("data", "info", data)
    assert "3 classes, 8 each" in shown.stdout
    assert "\\xe8" in shown.stdout
    run = invoke("train", data, "--epochs", 1, "--device", "cpu", "--out", "run")
    assert run.exit_code == 0, run.stderr
    assert (tmp_path / "run" / "report.html").is_file()
    scored = invoke("evaluate", "run", data, "--part", "all")
    assert scored.exit_code == 0, scored.stderr
    predicted = invoke("predict", "run", data, "--out", "p.csv")
    assert predicted.exit_code == 0, predicted.stderr
    with (tmp_path / "p.csv").open(newline="", encoding="utf-8") as file:
        (row, *_) = csv.DictReader(file)
    assert {"p(\\xe8)", "p(\\xe9)", "p(\u2028é)"} < set(row)


def test_bad_matrices_of_a_folder_are_named_by_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for i, matrix in enumerate(random_spd(12, 3).numpy()):
        file = tmp_path / "data" / ("rest", "move")[i % 2] / f"{i:02}.npy"
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, 0 * matrix if i == 4 else matrix)
    shown = invoke("data", "info", "data").stdout
    assert "1 zero: 8 (rest/04.npy)" in shown
    refused = invoke("train", "data", "--epochs", 1, "--device", "cpu")
    assert refused.exit_code == 2
    assert "(1 zero: 8 (rest/04.npy)); choose 'drop' (--bad)" in refused.stderr
    run = invoke("train", "data", "--epochs", 1, "--device", "cpu", "--bad", "drop")
    assert run.exit_code == 0, run.stderr
    assert "dropped 1 of 12 matrices (1 zero: 8 (rest/04.npy))" in run.stderr + run.stdout


def test_bad_signals_of_a_folder_are_named_by_file(tmp_path):
    recordings(tmp_path / "rec", suffix=".npy")
    file = tmp_path / "rec" / "move" / "03.npy"
    values = np.load(file)
    values[2, 5] = np.nan
    np.save(file, values)
    shown = invoke("data", "info", tmp_path / "rec").stdout
    assert "not finite: 1 signal of 12: 1 (move/03.npy)" in shown
    assert "  channel 2 in 1: 1 (move/03.npy)" in shown


def test_a_flat_channel_in_a_few_trials(tmp_path, monkeypatch):
    """The channel is estimated there, also with ``--bad drop``."""
    monkeypatch.chdir(tmp_path)
    X, y = RNG.normal(size=(30, 4, 50)), np.arange(30) % 2
    X[[3, 7, 8], 2] = 1.5
    np.savez("few.npz", X=X, y=y)
    shown = invoke("data", "info", "few.npz").stdout
    assert "missing channels (NaN, flat): 1 channel of 4, in 3 of 30 signals" in shown
    assert "  channel 2 in 3: 3, 7, 8\n" in shown
    assert "  they are estimated from the others in training" in shown
    assert "removed" not in shown
    run = invoke("train", "few.npz", "--epochs", 1, "--device", "cpu")
    assert run.exit_code == 0, run.stderr
    assert "3 of 30 matrices have missing channels, which are estimated" in run.output
    flags = ("--bad", "drop", "--reg", 0, "--epochs", 1, "--device", "cpu")
    run = invoke("train", "few.npz", *flags)
    assert run.exit_code == 0, run.stderr
    assert "3 of 30 matrices have missing channels, which are estimated" in run.output
    X[:, 0] = 0
    np.savez("most.npz", X=X, y=y, channels=["Fz", "C3", "Cz", "C4"])
    shown = invoke("data", "info", "most.npz").stdout
    assert "2 channels of 4, in 30 of 30 signals" in shown
    assert "  channel Fz in all\n  channel Cz in 3: 3, 7, 8\n" in shown
    assert "  they are estimated from the others in training\n  those that" in shown
    run = invoke("train", "most.npz", "--epochs", 1, "--device", "cpu")
    assert run.exit_code == 0, run.stderr
    assert "channel Fz is missing in all training matrices, and is removed" in run.output


LOOPS = (
    "data info loop.npz",
    "data info X.npy --labels loop.npz",
    "data info X.npy --groups loop.npz",
    "data build loop.npz out.npz",
    "data import afew loop.npz",
    "train loop.npz",
    "compare loop.npz",
    "reproduce afew --standin loop.npz",
    "predict loop.npz X.npy",
)


@pytest.mark.parametrize("command", LOOPS)
def test_links_to_themselves(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", random_spd(4, 3).numpy())
    (tmp_path / "loop.npz").symlink_to("loop.npz")
    run = invoke(*command.split())
    assert run.exit_code == 2, run.output
    assert isinstance(run.exception, SystemExit)
    assert run.stderr.count("error: ") == 1
    assert "loop.npz" in run.stderr
    assert "did you mean 'loop.npz'" not in run.stderr


def test_an_error_of_the_system_about_a_loop_is_bad_input(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "spdnet.cli.data.read_shown", lambda *_, **__: (tmp_path / "loop").read_text()
    )
    (tmp_path / "loop").symlink_to("loop")
    run = invoke("data", "info", "a.npz")
    assert run.exit_code == 2
    assert "symbolic links" in run.stderr


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "setresuid") or os.getuid() != 0, reason="needs root")
@pytest.mark.parametrize(
    ("command", "code", "expected"),
    [
        ("data fetch afew", 2, "error: data: expected a home folder .* SPDNET_DATA"),
        ("data info X.npy", 0, "4 matrices of 3 x 3"),
    ],
)
def test_a_user_without_home(tmp_path, command, code, expected):
    """As in a container that runs under an arbitrary uid."""
    import pwd

    np.save(tmp_path / "X.npy", random_spd(4, 3).numpy())
    uid = next(uid for uid in range(54321, 65000) if uid not in {p.pw_uid for p in pwd.getpwall()})
    unset = {"HOME", "USER", "LOGNAME", "XDG_CACHE_HOME", "SPDNET_DATA"}
    run = subprocess.run(
        [sys.executable, "-m", "spdnet", *command.split()],
        env={k: v for k, v in os.environ.items() if k not in unset},
        # the real uid tells the home folder; the effective one may still read the interpreter
        preexec_fn=lambda: os.setresuid(uid, 0, 0),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == code, run.stderr
    assert re.search(expected, run.stdout + run.stderr)
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize("flags", [(), ("--signals",)])
def test_info_tells_which_trials_look_bad(tmp_path, flags):
    X = np.random.default_rng(0).normal(size=(60, 4, 4 if flags else 80))
    X[[7, 41], 1] *= 100
    X[5, 0] = np.nan
    np.savez(tmp_path / "a.npz", X=X, y=np.arange(60) % 2, groups=np.arange(60) // 30)
    run = invoke("data", "info", tmp_path / "a.npz", *flags)
    assert run.exit_code == 0, run.stderr
    if not flags:  # covariances of four samples are far from each other
        assert re.search(
            r"outlier trials: \d of 59\n  .*\b7\b.* \(group 0\)\n  .*\b41\b.* \(group 1\)",
            run.stdout,
        )
    run = invoke("data", "info", "digits")
    assert "outlier trials: " in run.stdout
    np.savez(tmp_path / "b.npz", X=np.zeros((30, 4, 4)))
    assert "bad" not in invoke("data", "info", tmp_path / "b.npz").stdout
