import json
import logging
import math
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace

import numpy as np
import pytest
import tomli_w
import torch

from spdnet.baselines import LogEuclideanClassifier
from spdnet.data import Preprocessing, load_dataset, prepare
from spdnet.nn import SPDDomainBatchNorm
from spdnet.runs import RunFolder, Settings, TrainedModel, train
from spdnet.runs.parallel import run_parallel
from spdnet.runs.report import write_report
from spdnet.runs.watch import Terminated, Watch
from spdnet.training import checkpoint
from tests.cases import random_spd

LABELS = np.array(["walk", "run", "jump"])


def file_of(folder, n=60, size=5, name="a.npz", **more):
    """Three classes that differ in the scale of some coordinates."""
    y = LABELS[np.arange(n) % 3]
    scale = np.ones((n, size))
    scale[y == "run", :2] = 3
    scale[y == "jump", 2:] = 3
    X = random_spd(n, size).numpy() * scale[:, :, None] * scale[:, None, :]
    np.savez(folder / name, X=X, y=y, **more)
    return str(folder / name)


class Lines(Watch):
    def __init__(self):
        self.lines = []

    def say(self, text):
        self.lines.append(text)


def quick(data, **more):
    return Settings(data=data, **{"recipe": "fast", "epochs": 4, "device": "cpu", **more})


def test_a_run_folder_holds_everything(tmp_path):
    watch, folder = Lines(), RunFolder(tmp_path / "runs" / "a")
    found = train(quick(file_of(tmp_path)), folder, watch=watch)
    names = {p.name for p in folder.path.iterdir()}
    assert names - {".lock"} == {
        "settings.toml",
        "environment.json",
        "metrics.csv",
        "checkpoints",
        "results.json",
    }
    checkpoints = {p.name for p in (folder.path / "checkpoints").iterdir()}
    assert checkpoints == {"best.pt", "last.pt", "previous.pt"}
    assert found.to_json() == json.loads(folder.results_file.read_text())
    assert folder.results() == found
    assert found.parts["test"].n == 12
    assert found.parts["val"].n == 5
    assert found.scored == "test"
    assert list(found.classes) == ["jump", "run", "walk"]
    counts = found.confusion.dense()
    assert counts.sum() == 12
    right = np.trace(counts) / 12
    assert right == pytest.approx(found.parts["test"].accuracy)
    assert [row.n for row in found.per_class] == counts.sum(1).tolist()
    assert found.baseline.accuracy["test"] > 0.5
    layers = [entry.layer for entry in found.spectra]
    assert layers == ["input", "Center", "BiMap 1", "ReEig 1", "BiMap 2", "LogEig"]
    assert all(row.gap < 1e-12 for row in found.orthonormality)
    assert len(folder.metrics()) == 4
    assert set(folder.metrics()[0]) >= {"epoch", "loss", "accuracy", "val_loss", "val_accuracy"}
    environment = folder.environment()
    assert environment["seed"] == 0
    assert environment["libraries"]["torch"]
    assert folder.settings().dims == (5, 5, 5)
    assert watch.lines[0].startswith("60 matrices of 5 x 5, 3 classes: 43 train, 5 val, 12 test")
    assert "dims 5,5,5 (chosen)" in watch.lines[0]


def test_predictions_need_nothing_but_the_folder(tmp_path):
    data = file_of(tmp_path)
    folder = RunFolder(tmp_path / "run")
    found = train(quick(data), folder)
    trained = TrainedModel.load(folder.path, device="cpu")
    arrays = load_dataset(data)
    matrices = prepare(arrays, trained.preprocessing, "refuse")
    logits = trained.logits(matrices)
    test = trained.data["parts"]["test"]
    codes = trained.codes(matrices.y)
    right = (logits.argmax(-1).numpy() == codes)[test].mean()
    assert right == pytest.approx(found.parts["test"].accuracy)
    assert trained.warnings == ()
    with pytest.raises(ValueError, match=r"expected the classes of the training.*got 'fly'"):
        trained.codes(np.array(["fly", "run"]))


def test_parts_that_the_data_name_are_taken_as_they_are(tmp_path):
    split = np.array(["train"] * 40 + ["test"] * 20)
    found = train(quick(file_of(tmp_path, split=split)), RunFolder(tmp_path / "run"))
    assert {k: v.n for k, v in found.parts.items()} == {"train": 40, "test": 20}
    assert "val_loss" not in RunFolder(tmp_path / "run").metrics()[0]
    settings = quick(file_of(tmp_path, split=split), val=0.25)
    found = train(settings, RunFolder(tmp_path / "run2"))
    assert {k: v.n for k, v in found.parts.items()} == {"train": 30, "val": 10, "test": 20}
    split[split == "test"] = "val"
    found = train(quick(file_of(tmp_path, split=split)), RunFolder(tmp_path / "run3"))
    assert found.scored == "val"
    assert "optimistic" in found.notes[0]


def test_groups_are_not_divided(tmp_path):
    groups = np.arange(60) // 6
    folder = RunFolder(tmp_path / "run")
    train(quick(file_of(tmp_path, groups=groups)), folder)
    parts = TrainedModel.load(folder.path, device="cpu").data["parts"]
    sets = [set(groups[index.numpy()].tolist()) for index in parts.values()]
    assert sum(map(len, sets)) == len(set.union(*sets)) == 10


def test_baseline_chooses_its_penalty_with_whole_groups(tmp_path, monkeypatch):
    seen = []
    fit = LogEuclideanClassifier.fit

    def spy(self, X, y, *, groups=None):
        seen.append((len(X), groups))
        return fit(self, X, y, groups=groups)

    monkeypatch.setattr(LogEuclideanClassifier, "fit", spy)
    groups = np.arange(60) // 6
    train(quick(file_of(tmp_path, groups=groups)), RunFolder(tmp_path / "run"))
    train(quick(file_of(tmp_path)), RunFolder(tmp_path / "other"))
    (n, known), (_, unknown) = seen
    assert len(known) == n < 60
    assert set(np.bincount(known)) == {0, 6}
    assert unknown is None


def test_signals_become_covariances(tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    X = rng.normal(size=(60, 4, 50)) * np.where(y, 3, 1)[:, None, None]
    np.savez(tmp_path / "s.npz", X=X, y=y.astype(float))
    folder = RunFolder(tmp_path / "run")
    found = train(quick(str(tmp_path / "s.npz"), estimator="oas", reg=0.01), folder)
    assert list(found.classes) == ["0", "1"]
    assert list(found.dims) == [4, 4, 4]
    trained = TrainedModel.load(folder.path, device="cpu")
    assert trained.preprocessing == Preprocessing(True, 4, "oas", 0.01)
    again = prepare(load_dataset(str(tmp_path / "s.npz")), trained.preprocessing, "refuse")
    assert again.X.shape == (60, 4, 4)
    np.savez(tmp_path / "t.npz", X=X[:, :3], y=y)
    with pytest.raises(ValueError, match="expected signals of 4 channels as in training, got 3 x"):
        prepare(load_dataset(str(tmp_path / "t.npz")), trained.preprocessing, "refuse")


def test_square_signals_need_the_flag_and_bad_ones_are_named(tmp_path):
    X = np.random.default_rng(0).normal(size=(30, 6, 6))
    X[7, 0, 0] = np.inf
    np.savez(tmp_path / "s.npz", X=X, y=np.arange(30) % 2)
    data = str(tmp_path / "s.npz")
    with pytest.raises(ValueError, match="29 asymmetric"):
        train(quick(data), RunFolder(tmp_path / "run"))
    with pytest.raises(ValueError, match="1 not finite: 7"):
        train(quick(data, signals=True), RunFolder(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
    watch = Lines()
    found = train(quick(data, signals=True, bad="drop"), RunFolder(tmp_path / "run"), watch=watch)
    assert watch.lines[0] == "note: dropped 1 of 30 matrices (1 not finite: 7)"
    few = "the part 'test' has 6 samples, so its accuracy is very uncertain"
    assert list(found.notes) == ["dropped 1 of 30 matrices (1 not finite: 7)", few]
    assert sum(part.n for part in found.parts.values()) == 29


def test_repeats_give_mean_and_deviation(tmp_path):
    folder = RunFolder(tmp_path / "run")
    seen = []
    settings = quick(file_of(tmp_path), repeat=3, seed=5)
    found = train(settings, folder, on_finished=lambda one: seen.append(one.path.name))
    assert list(found.seeds) == [5, 6, 7]
    assert seen == ["seed-5", "seed-6", "seed-7", "run"]
    each = [one.results().parts["test"].accuracy for one in folder.seeds()]
    assert found.accuracy.known == each
    assert found.accuracy.mean == pytest.approx(np.mean(each))
    assert found.accuracy.std == pytest.approx(np.std(each, ddof=1))
    assert sum(found.confusion.count) == 36
    parts = [
        TrainedModel.load(one.path, device="cpu").data["parts"]["test"] for one in folder.seeds()
    ]
    assert not np.array_equal(parts[0], parts[1])
    with pytest.raises(ValueError, match=r"contains 3 repeats; choose one, such as .*seed-5"):
        TrainedModel.load(folder.path)


@pytest.mark.slow
def test_repeats_in_processes_equal_those_of_one_process(tmp_path, monkeypatch):
    data, seen, watch = file_of(tmp_path), [], Lines()
    # the processes are kept, and stay in the working directory of their start
    list(run_parallel(pow, [(2, 2), (2, 3)], jobs=2, at_once=True))
    monkeypatch.chdir(tmp_path)
    together, alone = RunFolder("together"), RunFolder("alone")
    expected = train(quick(data, repeat=3, jobs=1), alone)
    found = train(
        quick(data, repeat=3, jobs=2),
        together,
        watch=watch,
        on_finished=lambda one: seen.append(one.path.name),
    )
    assert found.accuracy == expected.accuracy
    assert sorted(seen) == ["seed-0", "seed-1", "seed-2", "together"]
    assert sum("test accuracy" in line for line in watch.lines) == 3
    for one, other in zip(together.seeds(), alone.seeds(), strict=True):
        assert without_times(one.metrics()) == without_times(other.metrics())
    assert together.settings().identity("") == alone.settings().identity("")


class Interrupt(Watch):
    def __init__(self, epoch):
        self.left = epoch

    def epoch(self, trainer):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def without_times(rows):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


def require_equal_runs(run, straight):
    """Bit for bit: the table of epochs, and both checkpoints."""
    assert without_times(RunFolder(run).metrics()) == without_times(RunFolder(straight).metrics())
    for name in ("best.pt", "last.pt"):
        a, b = (checkpoint.load(f / "checkpoints" / name) for f in (run, straight))
        for state in (a, b):
            state.get("trainer", {}).pop("history", None)
            state.get("trainer", {}).pop("random_state", None)
        assert checkpoint._digest(a) == checkpoint._digest(b)


def recordings(folder, n=90, groups=3, name="signals.npz", **more):
    """Two classes that differ in one source, seen by sensors of another scale in each group."""
    rng = np.random.default_rng(0)
    group, y = np.arange(n) % groups, np.arange(n) // groups % 2
    X = rng.normal(size=(n, 4, 40))
    X[y == 1, 0] *= 3
    X *= (10.0**group)[:, None, None]
    more = {"groups": np.array(["ann", "bob", "eve", "zoe"])[group], **more}
    np.savez(folder / name, X=X, y=y, **{k: v for k, v in more.items() if v is not None})
    return str(folder / name)


TSMNET = {"model": "tsmnet", "dims": (6, 3), "batch_size": 20}
BY_DOMAIN = {"norm": "domain", "batch_size": 20}


@pytest.mark.parametrize(
    "more",
    [
        {"recipe": "auto"},
        {"recipe": "auto", "repeat": 2},
        {"repeat": 1},
        {"repeat": 2},
        {"norm": "brooks"},
        {"norm": "log_cholesky", "head": "log_euclidean"},
        {"head": "mlp", "hidden": 16},
        {"model": "multibranch", "head": "log_cholesky", "eps": "10%"},
        TSMNET,
        BY_DOMAIN,
        {**BY_DOMAIN, "ensemble": 2, "val": 0.3},
    ],
    ids=str,
)
def test_interrupted_and_resumed_is_equal(tmp_path, more):
    uses_groups = more is TSMNET or more.get("norm") == "domain"
    data = recordings(tmp_path) if uses_groups else file_of(tmp_path)
    settings = quick(data, **more)
    straight, folder = RunFolder(tmp_path / "straight"), RunFolder(tmp_path / "run")
    train(settings, straight)
    for epoch in (1, 3):
        with pytest.raises(KeyboardInterrupt):
            train(settings, folder, resume=epoch > 1, watch=Interrupt(epoch))
    assert folder.exists
    assert not folder.finished
    train(folder.settings(), folder, resume=True)
    pairs = zip(straight.seeds() or [straight], folder.seeds() or [folder], strict=True)
    for a, b in pairs:
        assert without_times(a.metrics()) == without_times(b.metrics())
        for name in ("best.pt", "last.pt"):
            states = [checkpoint.load(f.path / "checkpoints" / name) for f in (a, b)]
            for state in states:
                state.get("trainer", {}).pop("history", None)
                state.get("trainer", {}).pop("random_state", None)
            assert checkpoint._digest(states[0]) == checkpoint._digest(states[1])
        for key in ("parts", "confusion", "spectra"):
            assert getattr(a.results(), key) == getattr(b.results(), key)


class InterruptComparison(Lines):
    """Interrupts the comparison of networks after some batches, by Ctrl-C or a signal."""

    def __init__(self, left, *, signal=False):
        super().__init__()
        self.left, self.signal = left, signal

    def count(self, what, done, total):
        if what == "comparing networks: batch":
            self.left -= 1
            if self.left == 0:
                if self.signal:
                    self.stop()
                raise KeyboardInterrupt


@pytest.mark.parametrize("signal", [False, True])
def test_an_interrupted_comparison_is_repeated(tmp_path, signal):
    settings = quick(file_of(tmp_path), recipe="auto", batch_size=8)
    straight, folder = RunFolder(tmp_path / "straight"), RunFolder(tmp_path / "run")
    train(settings, straight)
    for left in (1, 30):
        watch = InterruptComparison(left, signal=signal)
        with pytest.raises(Terminated if signal else KeyboardInterrupt):
            train(settings, folder, resume=left > 1, watch=watch)
        assert not folder.choice_file.exists()
        assert not folder.finished
    watch = Lines()
    train(folder.settings(), folder, resume=True, watch=watch)
    assert any("comparing networks" in line for line in watch.lines)
    require_equal_runs(folder.path, straight.path)
    a, b = (json.loads(f.choice_file.read_text()) for f in (folder, straight))
    assert {**a, "seconds": 0} == {**b, "seconds": 0}


def test_a_choice_is_not_made_again(tmp_path, monkeypatch):
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        train(quick(file_of(tmp_path), recipe="auto"), folder, watch=Interrupt(2))
    choice = json.loads(folder.choice_file.read_text())
    monkeypatch.setattr(sys.modules["spdnet.runs.training"], "choose_members", None)
    watch = Lines()
    found = train(folder.settings(), folder, resume=True, watch=watch)
    assert not any("comparing" in line for line in watch.lines)
    assert json.loads(folder.choice_file.read_text()) == choice
    assert found.notes[0].startswith(f"chose {choice['members'][0]} ")
    assert TrainedModel.load(folder.path, device="cpu").recipe.members == tuple(choice["members"])


def test_each_repeat_has_its_choice(tmp_path):
    folder = RunFolder(tmp_path / "run")
    train(quick(file_of(tmp_path), recipe="auto", repeat=2), folder)
    assert [one.choice_file.is_file() for one in folder.seeds()] == [True, True]
    assert not folder.choice_file.exists()


@pytest.mark.parametrize("by_groups", [True, False])
def test_networks_are_compared_by_groups(tmp_path, by_groups):
    more = {"groups": np.arange(60) // 6} if by_groups else {}
    watch, folder = Lines(), RunFolder(tmp_path / "run")
    found = train(quick(file_of(tmp_path, **more), recipe="auto"), folder, watch=watch)
    note = next(note for note in found.notes if note.startswith("chose "))
    assert ("4-fold cross-validation by groups" in note) is by_groups
    assert json.loads(folder.choice_file.read_text())["by_groups"] is by_groups
    assert f"note: {note}" in watch.lines
    write_report(folder)
    assert f'<p class="note">{note}' in folder.report_file.read_text(encoding="utf-8")


def test_domains_are_the_groups_and_new_ones_are_adapted_to(tmp_path):
    data, folder = recordings(tmp_path), RunFolder(tmp_path / "run")
    watch = Lines()
    found = train(quick(data, **TSMNET, epochs=12, test=0.3, val=0.3), folder, watch=watch)
    assert "90 signals of 4 channels" in watch.lines[0]
    assert "TSMNet, dims 6,3" in watch.lines[0]
    assert found.network == "TSMNet"
    assert found.parts["test"].n == 30  # a whole group
    assert found.parts["test"].accuracy > 0.8
    assert [row.layer for row in found.spectra] == [
        "CovPool",
        "BiMap 1",
        "ReEig 1",
        "SPDDomainBatchNorm",
        "LogEig",
    ]
    trained = TrainedModel.load(folder.path, device="cpu")
    assert len(trained.domains) == 1
    assert trained.model.norm.n_domains == 1
    for other in ({"groups": 4, "name": "four.npz"}, {"groups": 1, "name": "none.npz"}):
        path = recordings(tmp_path, **other)
        matrices = prepare(load_dataset(path), trained.preprocessing, "refuse")
        logits = trained.logits(matrices)
        assert (logits.argmax(-1).numpy() == trained.codes(matrices.y)).mean() > 0.8
    assert trained.model.norm.n_domains == 1  # the copy knew more
    with np.load(recordings(tmp_path, groups=1, name="alone.npz")) as file:
        np.savez(tmp_path / "bare.npz", X=1e3 * file["X"], y=file["y"])  # one new domain
    bare = prepare(load_dataset(str(tmp_path / "bare.npz")), trained.preprocessing, "refuse")
    assert (trained.logits(bare).argmax(-1).numpy() == trained.codes(bare.y)).mean() > 0.8


@pytest.mark.parametrize("more", [{}, {"ensemble": 3}, {"adapt": "recenter"}], ids=str)
def test_matrices_are_normalized_by_group(tmp_path, more):
    data, folder = recordings(tmp_path, n=120, groups=4), RunFolder(tmp_path / "run")
    settings = quick(data, **BY_DOMAIN, epochs=12, test=0.3, val=0.3, patience=8, **more)
    found = train(settings, folder)
    assert found.parts["test"].n == found.parts["val"].n == 30  # whole groups
    assert found.parts["test"].accuracy > 0.8
    n = more.get("ensemble", 1)
    assert [row.layer for row in found.spectra].count("SPDDomainBatchNorm 1") == 1
    trained = TrainedModel.load(folder.path, device="cpu")
    assert len(trained.domains) == 2
    assert trained.uses_groups
    norms = [m for m in trained.model.modules() if isinstance(m, SPDDomainBatchNorm)]
    assert [norm.n_domains for norm in norms] == [2] * 2 * n
    matrices = trained.prepare(load_dataset(data), "refuse")
    test = trained.data["parts"]["test"].numpy()
    right = trained.logits(matrices).argmax(-1).numpy() == trained.codes(matrices.y)
    assert right[test].mean() == found.parts["test"].accuracy
    with np.load(data) as file:
        predicted = trained.predict(file["X"], groups=file["groups"])
        assert (predicted.astype(int) == file["y"]).mean() > 0.8
        with pytest.raises(ValueError, match="expected groups of the 120 samples"):
            trained.predict(file["X"])


def test_normalization_by_group_without_groups(tmp_path):
    with np.load(recordings(tmp_path, groups=1)) as file:
        np.savez(tmp_path / "bare.npz", X=file["X"], y=file["y"])
    folder = RunFolder(tmp_path / "run")
    found = train(quick(str(tmp_path / "bare.npz"), **BY_DOMAIN, epochs=12), folder)
    assert found.parts["test"].accuracy > 0.8
    trained = TrainedModel.load(folder.path, device="cpu")
    assert trained.domains == []
    assert not trained.uses_groups


def test_tsmnet_without_groups(tmp_path):
    y = np.arange(60) % 2
    X = np.random.default_rng(0).normal(size=(60, 4, 40)) * 1e-6
    X[y == 1, 0] *= 3
    np.savez(tmp_path / "a.npz", X=X, y=y)
    folder = RunFolder(tmp_path / "run")
    found = train(quick(str(tmp_path / "a.npz"), **TSMNET, epochs=12), folder)
    assert found.parts["test"].accuracy > 0.8
    assert found.baseline.accuracy["test"] > 0.8
    trained = TrainedModel.load(folder.path, device="cpu")
    assert trained.domains == []
    X[7, 0, 0] = np.nan
    np.savez(tmp_path / "b.npz", X=X, y=y)
    with pytest.raises(ValueError, match="7"):
        train(quick(str(tmp_path / "b.npz"), **TSMNET), RunFolder(tmp_path / "other"))
    dropped = train(
        quick(str(tmp_path / "b.npz"), **TSMNET, bad="drop"), RunFolder(tmp_path / "other")
    )
    assert sum(part.n for part in dropped.parts.values()) == 59
    unborn = tmp_path / "unborn"
    with pytest.raises(ValueError, match="two sizes"):
        train(quick(str(tmp_path / "a.npz"), model="tsmnet", dims=(6, 4, 3)), RunFolder(unborn))
    assert not unborn.exists()


def test_networks_that_the_data_do_not_fit_are_refused_before_anything_is_written(tmp_path):
    data, folder = file_of(tmp_path), RunFolder(tmp_path / "run")
    for more, text in (
        ({"model": "tsmnet"}, "signals"),
        ({"model": "multibranch", "dims": (5,)}, "BiMap"),
        ({"norm": "brooks", "dims": (5,)}, "BiMap"),
    ):
        with pytest.raises(ValueError, match=text):
            train(quick(data, **more), folder)
    with pytest.raises(ValueError, match="center"):
        quick(data, model="tsmnet", center="log_euclidean")
    assert not folder.path.exists()


def test_groups_are_the_same_as_numbers_and_as_text(tmp_path):
    codes = []
    for kind in (int, float, str):
        path = tmp_path / f"{kind.__name__}.npz"
        groups = np.array([2, 1, 2, 1, 3, 3]).astype(kind)
        np.savez(path, X=random_spd(6, 3).numpy(), y=[0, 1] * 3, groups=groups)
        arrays = load_dataset(str(path))
        data = prepare(arrays, Preprocessing(False, 3, "sample", 1e-3), "refuse")
        codes.append(data.group_codes(["1", "2"]).tolist())
    assert codes == [[1, 0, 1, 0, 2, 2]] * 3
    np.savez(path, X=random_spd(2, 3).numpy(), y=[0, 1], groups=[np.nan, 1.0])
    with pytest.raises(ValueError, match="groups"):
        load_dataset(str(path))


@pytest.mark.parametrize(
    "more",
    [
        {"norm": "brooks"},
        {"head": "bures_wasserstein"},
        {"head": "mlp", "hidden": 16},
        {"model": "multibranch"},
    ],
    ids=str,
)
def test_every_network_is_loaded_as_it_was(tmp_path, more):
    data, folder = file_of(tmp_path), RunFolder(tmp_path / "run")
    found = train(quick(data, **more, epochs=2), folder)
    trained = TrainedModel.load(folder.path, device="cpu")
    assert found.network == trained.recipe.network != "SPDNet"
    matrices = prepare(load_dataset(data), trained.preprocessing, "refuse")
    right = trained.logits(matrices).argmax(-1).numpy() == trained.codes(matrices.y)
    test = trained.data["parts"]["test"]
    assert right[test].mean() == pytest.approx(found.parts["test"].accuracy)
    assert found.spectra[0].layer == "input"
    assert found.orthonormality[0].gap < 1e-12


def test_a_damaged_checkpoint_is_passed_over(tmp_path):
    settings = quick(file_of(tmp_path))
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        train(settings, folder, watch=Interrupt(3))
    last = folder.path / "checkpoints" / "last.pt"
    last.write_bytes(last.read_bytes()[:500])
    best = folder.path / "checkpoints" / "best.pt"
    best.write_bytes(b"")
    trained = TrainedModel.load(folder.path, device="cpu")
    assert len(trained.warnings) == 2
    assert "best.pt is" in trained.warnings[0]
    watch = Lines()
    train(folder.settings(), folder, resume=True, watch=watch)
    assert any("last.pt is truncated or damaged" in line for line in watch.lines)
    assert "resuming after epoch 2" in watch.lines
    straight = RunFolder(tmp_path / "straight")
    train(settings, straight)
    assert without_times(straight.metrics()) == without_times(folder.metrics())


def test_checkpoints_that_take_long_are_written_less_often(tmp_path, monkeypatch):
    """A training that is interrupted later repeats epochs, with the same result."""
    settings = quick(file_of(tmp_path))
    straight, folder = RunFolder(tmp_path / "straight"), RunFolder(tmp_path / "run")
    train(settings, straight)
    monkeypatch.setattr("spdnet.runs.checkpoints._QUICK", 0)
    monkeypatch.setattr("spdnet.runs.checkpoints._PAUSE", math.inf)
    with pytest.raises(KeyboardInterrupt):
        train(settings, folder, watch=Interrupt(2))
    assert checkpoint.load(folder.checkpoints().last)["trainer"]["history"] == []
    assert not folder.checkpoints().previous.exists()
    train(folder.settings(), folder, resume=True)
    require_equal_runs(folder.path, straight.path)


def test_other_data_are_refused_on_resume(tmp_path):
    data = file_of(tmp_path)
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        train(quick(data), folder, watch=Interrupt(2))
    file_of(tmp_path, n=90)
    with pytest.raises(ValueError, match=r"expected the data with which the run in .* was started"):
        train(folder.settings(), folder, resume=True)
    file_of(tmp_path)
    for name, value in (
        ("lr", "0.5"),
        ("dims", "[5, 4]"),
        ("seed", "1"),
        ("test", "0.3"),
        ("reg", "0.1"),
        ("estimator", '"oas"'),
        ("class_weight", '"balanced"'),
        ("bad", '"drop"'),
        ("patience", "3"),
        ("repeat", "2"),
        ("epochs", "3"),
    ):
        before = folder.settings_file.read_text()
        edited = {**tomllib.loads(before), **tomllib.loads(f"{name} = {value}")}
        folder.settings_file.write_text(tomli_w.dumps(edited))
        with pytest.raises(ValueError, match=rf"expected {name} = .*, with which the run in"):
            train(folder.settings(), folder, resume=True)
        folder.settings_file.write_text(before)
    train(folder.settings(), folder, resume=True)
    assert folder.finished


@pytest.mark.parametrize("more", [{"seed": 1}, {"class_weight": "balanced"}, {"patience": 3}])
def test_a_checkpoint_of_another_training_is_refused(tmp_path, more):
    """Its parts are others, so that the test part would have been trained on."""
    data = file_of(tmp_path)
    folder, other = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "other")
    for run, settings in ((folder, quick(data)), (other, quick(data, **more))):
        with pytest.raises(KeyboardInterrupt):
            train(settings, run, watch=Interrupt(2))
    shutil.rmtree(folder.path / "checkpoints")
    shutil.copytree(other.path / "checkpoints", folder.path / "checkpoints")
    with pytest.raises(ValueError, match=f"expected {next(iter(more))} = "):
        train(folder.settings(), folder, resume=True)
    for file in (folder.checkpoints().last, folder.checkpoints().previous):
        state = checkpoint.load(file)
        state["identity"] = quick(data, dims=(5, 5, 5)).identity(state["identity"]["data"])
        state["trainer"]["seed"] = 0
        checkpoint.save(state, file)
    if "seed" in more:
        with pytest.raises(ValueError, match="expected the training, validation and test parts"):
            train(folder.settings(), folder, resume=True)


def test_repeats_are_resumed_with_the_same_data_and_settings(tmp_path):
    data = file_of(tmp_path)
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        train(quick(data, repeat=2), folder, watch=Interrupt(6))  # in the second
    assert folder.of_seed(0).finished
    file_of(tmp_path, n=90)
    with pytest.raises(ValueError, match="expected the data"):
        train(folder.settings(), folder, resume=True)
    file_of(tmp_path)
    before = folder.settings_file.read_text()
    folder.settings_file.write_text(before.replace("repeat = 2", "repeat = 3"))
    with pytest.raises(ValueError, match="expected repeat = 2"):
        train(folder.settings(), folder, resume=True)
    folder.settings_file.write_text(before)
    assert len(train(folder.settings(), folder, resume=True).seeds) == 2


def test_a_run_is_extended(tmp_path):
    data = file_of(tmp_path)
    folder = RunFolder(tmp_path / "run")
    train(quick(data, schedule="constant"), folder, on_finished=write_report)
    first = folder.metrics()
    longer = replace(folder.settings(), epochs=6)
    with pytest.raises(KeyboardInterrupt):
        train(longer, folder, resume=True, watch=Interrupt(1))
    assert not folder.finished
    assert not folder.report_file.exists()
    assert folder.settings().epochs == 6
    found = train(folder.settings(), folder, resume=True)
    assert found.epochs == 6
    assert folder.metrics()[:4] == first
    straight = RunFolder(tmp_path / "straight")
    train(quick(data, schedule="constant", epochs=6), straight)
    assert without_times(straight.metrics()) == without_times(folder.metrics())
    with pytest.raises(ValueError, match="expected epochs = 6"):
        train(replace(longer, epochs=2), folder, resume=True)


def test_repeats_are_extended(tmp_path):
    folder = RunFolder(tmp_path / "run")
    train(quick(file_of(tmp_path), repeat=2), folder)
    train(replace(folder.settings(), epochs=5), folder, resume=True)
    assert [len(one.metrics()) for one in folder.seeds()] == [5, 5]


def test_data_that_moved_are_named_anew(tmp_path):
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        train(quick(file_of(tmp_path)), folder, watch=Interrupt(2))
    moved = (tmp_path / "a.npz").rename(tmp_path / "moved.npz")
    with pytest.raises(FileNotFoundError):
        train(folder.settings(), folder, resume=True)
    train(replace(folder.settings(), data=str(moved)), folder, resume=True)
    assert folder.finished
    assert folder.settings().data == str(moved)


def test_a_loss_that_is_not_finite_keeps_the_last_good_checkpoint(tmp_path):
    X = np.stack([np.eye(3) * 1e150, np.eye(3)] * 20)
    np.savez(tmp_path / "a.npz", X=X, y=np.arange(40) % 2)
    folder = RunFolder(tmp_path / "run")
    settings = quick(str(tmp_path / "a.npz"), recipe="paper", lr=1e305)
    with pytest.raises(FloatingPointError, match=r"expected a finite .* in epoch 1"):
        train(settings, folder)
    assert not folder.finished
    TrainedModel.load(folder.path, device="cpu")


@pytest.mark.parametrize("val", [0.0, 0.3])
def test_weights_that_are_not_finite_are_found_at_the_end_of_an_epoch(tmp_path, val):
    X = np.stack([np.eye(3) * 1e150, np.eye(3)] * 20)
    np.savez(tmp_path / "a.npz", X=X, y=np.arange(40) % 2)
    folder = RunFolder(tmp_path / "run")
    more = {"recipe": "paper", "lr": 1e307, "epochs": 1, "batch_size": 500, "val": val}
    with pytest.raises(FloatingPointError, match=r"expected a finite .* in epoch 1, its end"):
        train(quick(str(tmp_path / "a.npz"), **more), folder)
    assert not folder.finished
    weights = TrainedModel.load(folder.path, device="cpu").model.parameters()
    assert all(p.isfinite().all() for p in weights)


@pytest.mark.parametrize(
    "change",
    [
        {"trainer": {}},
        {"trainer": 7},
        {"network": 3},
        {"recipe": None},
        {"data": []},
        {"model": {"classifier.weight": torch.zeros(1)}},
        {"optimizer": {"state": {}, "param_groups": []}},
        {"history": 3},
        {"random_state": torch.zeros(3)},
        {"seed": None, "history": [5]},
    ],
    ids=str,
)
def test_a_made_up_checkpoint_is_refused(tmp_path, change):
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        train(quick(file_of(tmp_path)), folder, watch=Interrupt(2))
    for file in (folder.checkpoints().last, folder.checkpoints().previous):
        state = checkpoint.load(file)
        for name, value in change.items():
            (state if name in state else state["trainer"])[name] = value
        checkpoint.save(state, file)
    with pytest.raises(checkpoint.CheckpointError, match="do not match"):
        train(folder.settings(), folder, resume=True)


def test_a_foreign_checkpoint_says_so(tmp_path):
    checkpoint.save({"weights": 1}, tmp_path / "a.pt")
    with pytest.raises(checkpoint.CheckpointError, match="expected a checkpoint of spdnet train"):
        TrainedModel.load(tmp_path / "a.pt")


@pytest.mark.parametrize("dtype", ["int64", "uint8", ">f8", "float16", "longdouble"])
def test_numbers_of_any_type(tmp_path, dtype):
    y = np.arange(30) % 2
    X = (np.eye(3) * (1 + y)[:, None, None]).astype(dtype)
    np.savez(tmp_path / "a.npz", X=X, y=y.astype(bool))
    found = train(quick(str(tmp_path / "a.npz")), RunFolder(tmp_path / "run"))
    assert list(found.classes) == ["False", "True"]
    assert found.baseline.accuracy["test"] == 1


def test_matrices_that_are_singular_in_float32_are_named_by_their_place(tmp_path):
    with np.load(file_of(tmp_path)) as file:
        X, y = file["X"].copy(), file["y"]
    X[3] = 0
    X[7] = np.diag([1, 1, 1, 1, 1e-9])
    np.savez(tmp_path / "b.npz", X=X, y=y)
    data = str(tmp_path / "b.npz")
    full = {"rank": "full", "shrinkage": "none"}
    with pytest.raises(ValueError, match=r"1 zero: 3; 1 singular: 7\); choose 'drop'"):
        train(quick(data, dtype="float32", **full), RunFolder(tmp_path / "run"))
    drop = {"dtype": "float32", "bad": "drop"}
    found = train(quick(data, **drop, **full), RunFolder(tmp_path / "dropped"))
    assert sum(part.n for part in found.parts.values()) == 58
    found = train(quick(data, **drop), RunFolder(tmp_path / "run"))
    assert sum(part.n for part in found.parts.values()) == 59  # the singular one is shrunk
    with pytest.raises(ValueError, match=r"\(1 zero: 3\)"):
        train(quick(data), RunFolder(tmp_path / "run2"))


def test_what_a_reader_should_know_is_noted(tmp_path):
    everything = np.array(["train"] * 60)
    found = train(quick(file_of(tmp_path, split=everything)), RunFolder(tmp_path / "a"))
    assert found.scored == "train"
    assert "the accuracy is that on the training data" in found.notes[0]
    split = np.array(["train", "test"] * 30)
    data = file_of(tmp_path, split=split, groups=np.arange(60) // 10)
    found = train(quick(data), RunFolder(tmp_path / "b"))
    assert list(found.notes) == ["some groups are in more than one part of the split in the data"]
    data = file_of(tmp_path, groups=np.arange(60) % 4)
    found = train(quick(data, test=0.05, val=0.0), RunFolder(tmp_path / "c"))
    assert "matrices instead of 5 %, because" in found.notes[0]


def test_a_folder_has_one_process(tmp_path):
    folder = RunFolder(tmp_path / "run")
    data = file_of(tmp_path)

    class Second(Watch):
        def epoch(self, trainer):
            with pytest.raises(ValueError, match="another is writing there"):
                train(quick(data), RunFolder(tmp_path / "run"), resume=True)

    train(quick(data), folder, watch=Second())
    names = [RunFolder(tmp_path / "runs" / "a", numbered=True) for _ in range(3)]
    for one in names:
        one.claim()
    assert [one.path.name for one in names] == ["a", "a-2", "a-3"]


def test_a_folder_that_was_filled_meanwhile_is_refused(tmp_path):
    """Another process trains in the folder, and ends, while this one reads its data."""
    folder = RunFolder(tmp_path / "run")
    data = file_of(tmp_path)

    class Meanwhile(Watch):
        def matrix(self, done, total):
            if not folder.exists:
                train(quick(data, seed=5), RunFolder(folder.path))

    with pytest.raises(FileExistsError, match="is not empty"):
        train(quick(data), folder, watch=Meanwhile())
    assert folder.settings().seed == 5
    assert folder.environment()["seed"] == 5
    assert len(folder.metrics()) == 4


@pytest.mark.parametrize(
    "more",
    [{}, {"recipe": "auto"}, {"norm": "log_euclidean", "eps": "10%", "val": 0.3}],
    ids=str,
)
def test_stopped_between_batches_is_equal(tmp_path, more):
    data = file_of(tmp_path)
    more = {"batch_size": 8, **more}
    straight, folder = RunFolder(tmp_path / "straight"), RunFolder(tmp_path / "run")
    train(quick(data, **more), straight)

    class Stop(Lines):
        def batch(self, trainer, done, total):
            if trainer.progress.step % 5 == 0:  # within epochs, and at the end of one
                self.stop()

    settings, stops = quick(data, **more), 0
    while not folder.finished:
        watch = Stop()
        try:
            train(settings, folder, resume=stops > 0, watch=watch)
        except Terminated:
            stops += 1
            assert watch.lines[-1].startswith("checkpoint written after epoch")
            settings = folder.settings()
    assert stops >= 3
    assert without_times(straight.metrics()) == without_times(folder.metrics())
    assert straight.results().parts == folder.results().parts


KILL = """
import os, pathlib, sys
from spdnet.runs import RunFolder, Settings, train
from spdnet.runs.report import write_report

left = int(sys.argv[1])
real = pathlib.Path.replace

def replace(self, target):
    global left
    left -= 1
    if left == 0:
        os._exit(9)
    return real(self, target)

pathlib.Path.replace = replace
folder = RunFolder(sys.argv[2])
resume = folder.exists
settings = folder.settings() if resume else Settings(data=sys.argv[3], epochs=2, device="cpu")
train(settings, folder, resume=resume, on_finished=write_report)
"""


@pytest.mark.slow
def test_killed_before_every_write(tmp_path):
    """Whatever file was to be written next, the run goes on and ends as it would have."""
    data = file_of(tmp_path)
    straight = RunFolder(tmp_path / "straight")
    train(Settings(data=data, epochs=2, device="cpu"), straight)
    for number in range(1, 40):
        folder = RunFolder(tmp_path / f"run{number}")
        command = [sys.executable, "-c", KILL, str(number), str(folder.path), data]
        first = subprocess.run(command, capture_output=True, text=True, check=False)
        if first.returncode == 0:
            break
        assert first.returncode == 9, first.stderr
        again = subprocess.run([*command[:3], "0", *command[4:]], capture_output=True, check=False)
        assert again.returncode == 0, again.stderr
        assert without_times(folder.metrics()) == without_times(straight.metrics())
        assert folder.results().parts == straight.results().parts
        assert not list(folder.path.rglob(".*.part"))
    assert number > 12
    logging.getLogger(__name__).info("trainings were killed %d times", number - 1)


def test_float32(tmp_path):
    found = train(quick(file_of(tmp_path), dtype="float32"), RunFolder(tmp_path / "run"))
    assert found.orthonormality[0].gap < 1e-5
    trained = TrainedModel.load(tmp_path / "run", device="cpu")
    assert str(trained.model.classifier.weight.dtype) == "torch.float32"
