"""Rank, shrinkage and adaptation to groups in runs, on the command line and in comparisons."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from spdnet.cli.app import app
from spdnet.data import Dataset, StoredArray, make_split, read
from spdnet.runs import (
    Comparison,
    ComparisonFolder,
    RunFolder,
    Settings,
    TrainedModel,
    compare,
    train,
)
from spdnet.runs.conditioning import fit_conditioner

RUN = CliRunner()
QUICK = {"recipe": "fast", "epochs": 10, "device": "cpu", "baseline": False}


def recordings(groups="abcd", seed=0, n=30):
    """Return matrices of two classes; the channels of each group have other gains."""
    rng = np.random.default_rng(seed)
    X, y = [], np.tile(np.repeat([0, 1], n // 2), len(groups))
    for i in range(len(groups)):
        signals = rng.normal(size=(n, 5, 60))
        signals[n // 2 :, 0] *= 2
        gains = np.exp(np.random.default_rng(ord(groups[i])).normal(size=(5, 1)))
        X.append(gains * signals)
    X = np.concatenate(X)
    return X @ X.swapaxes(1, 2) / 60, y, np.repeat(list(groups), n)


@pytest.fixture
def file(tmp_path):
    X, y, groups = recordings()
    split = np.where(groups == "d", "test", "train")
    np.savez(tmp_path / "a.npz", X=X, y=y, groups=groups, split=split)
    return str(tmp_path / "a.npz")


@pytest.mark.parametrize("adapt", ["recenter", "rescale", "auto"])
def test_groups_are_recentered(file, tmp_path, adapt):
    plain = train(Settings(data=file, **QUICK), RunFolder(tmp_path / "plain"))
    found = train(Settings(data=file, adapt=adapt, **QUICK), RunFolder(tmp_path / "run"))
    assert found.accuracy > 0.85
    assert found.accuracy > plain.accuracy
    assert any("recentered by domain (3 in the training set)" in note for note in found.notes)
    trained = TrainedModel.load(tmp_path / "run", device="cpu")
    assert trained.uses_groups
    X, y, groups = recordings("xy", seed=1)
    assert (trained.predict(X, groups=groups).astype(int) == y).mean() > 0.85
    with pytest.raises(ValueError, match="expected groups of the 60 samples"):
        trained.predict(X)
    # the evaluation of the same file repeats the accuracy of the training
    shown = RUN.invoke(app, ["evaluate", str(tmp_path / "run"), file, "--device", "cpu"])
    assert f"accuracy {100 * found.accuracy:.2f} %" in shown.output


def test_an_interrupted_run_is_resumed_with_the_same_result(file, tmp_path):
    settings = Settings(data=file, adapt="auto", **QUICK)
    train(settings, RunFolder(tmp_path / "whole"))
    train(settings.changed(epochs=6, schedule="constant"), RunFolder(tmp_path / "two"))
    longer = settings.changed(schedule="constant")
    train(longer, RunFolder(tmp_path / "two"), resume=True)
    train(longer, RunFolder(tmp_path / "three"))
    a, b = (RunFolder(tmp_path / name).run_results() for name in ("two", "three"))
    assert a.parts == b.parts
    with pytest.raises(ValueError, match="adapt"):
        train(longer.changed(adapt="none"), RunFolder(tmp_path / "two"), resume=True)


def test_adapt_requires_groups(tmp_path):
    X, y, _ = recordings()
    np.savez(tmp_path / "a.npz", X=X, y=y)
    found = RUN.invoke(app, ["train", str(tmp_path / "a.npz"), "--adapt", "auto"])
    assert found.exit_code != 0
    assert "expected data with groups" in found.output


@pytest.mark.parametrize("rank", ["auto", "3", "full"])
def test_matrices_of_deficient_rank(tmp_path, rank):
    X, y, _ = recordings()
    reference = np.eye(5) - 1 / 5
    np.savez(tmp_path / "a.npz", X=reference @ X @ reference, y=y)
    out = tmp_path / "run"
    more = ["--rank", rank, "--recipe", "fast", "--epochs", "3", "--out", str(out), "--no-baseline"]
    shown = RUN.invoke(app, ["train", str(tmp_path / "a.npz"), "--device", "cpu", *more])
    assert shown.exit_code == 0, shown.output
    results = RunFolder(out).run_results()
    note = next(note for note in results.notes if note.startswith("rank"))
    expected = {"auto": "rank 4 of 5: 1 direction", "3": "rank 3 of 5", "full": "rank 5 of 5"}[rank]
    assert note.startswith(expected)
    assert ("shrinkage" in note) == (rank == "full")
    assert results.dims[0] == {"auto": 4, "3": 3, "full": 5}[rank]
    trained = TrainedModel.load(out, device="cpu")
    assert trained.predict(reference @ X[:5] @ reference).shape == (5,)


@pytest.mark.parametrize("bad", ["refuse", "drop"])
def test_singular_test_matrices(tmp_path, bad):
    """All matrices are shrunk, although no training matrix is singular; indefinite ones are not."""
    X, y, _ = recordings()
    test = np.arange(len(X)) % 4 == 3
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 3)))[0]
    X[3] = basis @ np.diag([3.0, 2.0, 1.0]) @ basis.T
    if bad == "drop":
        X[8] = -X[8]
    np.savez(tmp_path / "a.npz", X=X, y=y, split=np.where(test, "test", "train"))
    settings = Settings(data=str(tmp_path / "a.npz"), bad=bad, **QUICK)
    found = train(settings, RunFolder(tmp_path / "run"))
    assert found.parts["test"].n == test.sum()
    assert found.parts["train"].n == (~test).sum() - (bad == "drop")
    assert any("rank 5 of 5; shrinkage" in note for note in found.notes)
    trained = TrainedModel.load(tmp_path / "run", device="cpu")
    assert len(trained.predict(X[3:4])) == 1


def test_singular_matrices_are_refused_if_asked_to(tmp_path):
    X, y, _ = recordings()
    reference = np.eye(5) - 1 / 5
    np.savez(tmp_path / "a.npz", X=reference @ X @ reference, y=y)
    settings = Settings(data=str(tmp_path / "a.npz"), rank="full", shrinkage="none", **QUICK)
    with pytest.raises(ValueError, match="120 of 120 that are not"):
        train(settings, RunFolder(tmp_path / "run"))
    with pytest.raises(ValueError, match="rank"):
        Settings(data="a.npz", rank="most")


def test_methods_are_compared_on_the_same_matrices(file, tmp_path):
    accuracy = {}
    for adapt in ("none", "auto"):
        settings = Comparison(data=file, methods=("mdm",), adapt=adapt, device="cpu")
        found = compare(settings, ComparisonFolder(tmp_path / adapt))
        accuracy[adapt] = found.rows[0].accuracy.mean
    assert accuracy["auto"] > max(0.85, accuracy["none"])


def test_only_the_training_part_is_fitted():
    X, y, groups = recordings()
    data = Dataset(X, y, groups=groups, split=np.where(groups == "d", "test", "train"))
    split = make_split(data)
    settings = Settings(data="a.npz", adapt="recenter")
    fitted = fit_conditioner("train", data, split, settings)
    X[groups == "d"] *= 100
    again = fit_conditioner("train", data, split, settings)
    np.testing.assert_array_equal(fitted.steps_[-1].means_, again.steps_[-1].means_)
    assert fitted.steps_[-1].domains_.tolist() == ["a", "b", "c"]


@pytest.mark.parametrize(
    "more", [{}, {"adapt": "recenter"}, {"adapt": "rescale"}, {"adapt": "auto"}]
)
@pytest.mark.parametrize("is_singular", [False, True])
def test_matrices_on_disk_are_conditioned_as_they_are_read(
    tmp_path, monkeypatch, more, is_singular
):
    reference = np.eye(5) - is_singular / 5
    X, y, groups = recordings()
    np.savez(tmp_path / "a.npz", X=reference @ X @ reference, y=y, groups=groups)
    train(Settings(data=str(tmp_path / "a.npz"), **QUICK, **more), RunFolder(tmp_path / "run"))
    trained = TrainedModel.load(tmp_path / "run", device="cpu")
    X, _, groups = recordings("axya", seed=1)  # "a" is known, and its matrices are not together
    np.savez(tmp_path / "new.npz", X=reference @ X @ reference, groups=groups)
    monkeypatch.setattr("spdnet.training.evaluation._CHUNK", 7 * 8 * 25)
    data = read(tmp_path / "new.npz", labeled=False)
    expected = trained.predict_proba(data)
    monkeypatch.setattr("spdnet.data.io.readers.IN_MEMORY", 1)
    stored = read(tmp_path / "new.npz", labeled=False)
    assert isinstance(stored.X, StoredArray)
    np.testing.assert_allclose(trained.predict_proba(stored), expected, rtol=0, atol=1e-12)
    used = groups if more else None
    np.testing.assert_allclose(
        trained.predict_proba(stored.X, groups=used), expected, rtol=0, atol=1e-12
    )
    few = trained.prepare(stored, "refuse").take(np.array([3, 70]))
    np.testing.assert_allclose(trained.probabilities(few), expected[[3, 70]], rtol=0, atol=1e-12)
    if more:
        monkeypatch.setattr("spdnet.runs.conditioning._MAX_BYTES", 29 * 8 * 25)
        with pytest.raises(ValueError, match="of matrices in one new group"):
            trained.predict(stored)


def test_errors_of_matrices_on_disk_name_the_matrix_and_leave_no_file(tmp_path, monkeypatch):
    reference = np.eye(5) - 1 / 5
    X, y, _ = recordings()
    np.savez(tmp_path / "a.npz", X=reference @ X @ reference, y=y)
    train(Settings(data=str(tmp_path / "a.npz"), **QUICK), RunFolder(tmp_path / "run"))
    monkeypatch.setattr("spdnet.training.evaluation._CHUNK", 7 * 8 * 25)
    out, errors = tmp_path / "out" / "p.csv", []
    out.parent.mkdir()
    lost = reference - np.outer([1, -1, 0, 0, 0], [1, -1, 0, 0, 0]) / 2
    for place, bad, text in (
        (101, lost, "is singular in the subspace"),
        (102, np.full((5, 5), np.inf), "1 not finite: 102"),
    ):
        changed = reference @ X @ reference
        changed[place] = bad @ changed[place] @ bad if place == 101 else bad
        np.savez(tmp_path / "bad.npz", X=changed)
        for limit in (2**28, 1):
            monkeypatch.setattr("spdnet.data.io.readers.IN_MEMORY", limit)
            command = ["predict", str(tmp_path / "run"), str(tmp_path / "bad.npz"), "--out"]
            shown = RUN.invoke(app, [*command, str(out), "--device", "cpu"])
            assert shown.exit_code != 0
            assert text in " ".join(shown.output.split())
            errors.append(str(shown.output))
        assert errors[-1] == errors[-2]
        assert str(place) in errors[-1]
        assert list(out.parent.iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak from /proc")
def test_memory_does_not_grow_with_the_number_of_matrices(tmp_path):
    X, y, _ = recordings()
    wide = np.eye(40) + np.pad(X, ((0, 0), (0, 35), (0, 35)))
    np.savez(tmp_path / "a.npz", X=wide, y=y)
    train(Settings(data=str(tmp_path / "a.npz"), **QUICK), RunFolder(tmp_path / "run"))
    peaks = []
    for n in (200, 400):  # more than 256 MiB, and twice as much
        np.savez(tmp_path / "new.npz", X=np.tile(wide, (n, 1, 1)))
        command = ["predict", str(tmp_path / "run"), str(tmp_path / "new.npz"), "--force", "--out"]
        code = (
            "from pathlib import Path; from spdnet.cli.app import app; "
            f"app({[*command, str(tmp_path / 'p.csv')]}, standalone_mode=False); "
            "print(Path('/proc/self/status').read_text())"
        )
        shown = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        # not ru_maxrss, which would include the peak of this process
        peaks.append(int(shown.stdout.split(b"VmHWM:")[1].split()[0]) / 1024)
    assert peaks[1] - peaks[0] < 100  # MiB
