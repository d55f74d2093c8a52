import dataclasses

import numpy as np
import pytest

from spdnet.cli.data import valid_part
from spdnet.data import Dataset, examine, load_dataset, make_split, open_stored
from spdnet.data.io import readers
from spdnet.runs import RunFolder, TrainedModel, bad_trials, train
from spdnet.runs.bad_trials import describe_bad_trials, find_bad_trials, screen_trials
from spdnet.runs.report import write_report
from spdnet.runs.results import RunResults
from tests.adaptation.test_outliers import trials
from tests.runs.test_train import Interrupt, Lines, quick, require_equal_runs

#: position of the bad trials in each part
BAD = {"train": (3, 40), "val": (91,), "test": (125, 130)}
SPLIT = np.array(["train"] * 90 + ["val"] * 30 + ["test"] * 30)


def file_of(folder, name="a.npz", bad=BAD, save=np.savez, **more):
    """Two classes that differ in one coordinate, with noise in a few trials of each part."""
    X = trials(150, 4).numpy()
    y = np.arange(150) % 2
    X[y == 1, 3, 3] *= 4
    for i in np.concatenate([np.empty(0, int), *bad.values()]):
        X[int(i), 0, 0] += 1e4
    save(folder / name, X=X, y=y, **{"split": SPLIT, **more})
    return str(folder / name)


def counts(found):
    return {name: score.n for name, score in found.parts.items()}


@pytest.mark.parametrize("treatment", ["none", "flag", "drop"])
def test_treatments(tmp_path, treatment):
    watch, folder = Lines(), RunFolder(tmp_path / "run")
    settings = quick(file_of(tmp_path), bad_trials=treatment, epochs=1)
    found = train(settings, folder, watch=watch)
    write_report(folder)
    page = folder.report_file.read_text()
    said = "\n".join(watch.lines)
    if treatment == "none":
        assert found.bad_trials is None
        assert counts(found) == {"train": 90, "val": 30, "test": 30}
        assert "look" not in said + page
        return
    dropped = treatment == "drop"
    left = {"train": 88, "val": 29} if dropped else {"train": 90, "val": 30}
    assert counts(found) == {**left, "test": 30}
    assert found.bad_trials.dropped == dropped
    assert found.bad_trials.n_unscreened == 0
    for name, bad in BAD.items():
        assert set(bad) <= set(found.bad_trials.parts[name])
        text = ", ".join(map(str, found.bad_trials.parts[name]))
        fate = ", left out" * (dropped and name != "test")
        are = "trials are outliers" if ", " in text else "trials is an outlier"
        assert f"{are}{fate}: {text}" in said
        assert f"{are}{fate}: {text}" in page
    assert folder.results() == found
    assert RunResults.from_json(found.to_json()).bad_trials == found.bad_trials
    parts = TrainedModel.load(folder.path).data["parts"]
    assert (3 in parts["train"].tolist()) != dropped
    assert parts["test"].tolist() == list(range(120, 150))


def test_a_resumed_run_has_the_same_trials(tmp_path):
    settings = quick(file_of(tmp_path), bad_trials="drop", epochs=2)
    straight, folder = RunFolder(tmp_path / "straight"), RunFolder(tmp_path / "run")
    expected = train(settings, straight)
    with pytest.raises(KeyboardInterrupt):
        train(settings, folder, watch=Interrupt(1))
    found = train(folder.settings(), folder, resume=True)
    require_equal_runs(folder.path, straight.path)
    assert found.bad_trials == expected.bad_trials
    assert counts(found)["train"] == 88
    with pytest.raises(ValueError, match="expected bad_trials = 'drop', with which the run"):
        train(settings.changed(bad_trials="none"), folder, resume=True)


def test_parts_do_not_affect_each_other(tmp_path):
    data = load_dataset(file_of(tmp_path))
    other = load_dataset(file_of(tmp_path, "b.npz", {"train": BAD["train"]}))
    split, found, _ = screen_trials(data, make_split(data), "drop")
    assert screen_trials(other, make_split(other), "drop")[1].parts["train"] == found.parts["train"]
    assert len(split.parts["test"]) == 30


def test_groups_are_screened_separately(tmp_path):
    groups = np.array(["ann", "bob", "eve"])[np.arange(150) // 60]
    data = load_dataset(file_of(tmp_path, split=np.full(150, "train"), groups=groups))
    scale = np.where(groups == "bob", 400.0, 1.0)
    data = dataclasses.replace(data, X=data.X * scale[:, None, None])
    found = find_bad_trials(data, np.arange(150), who="test").tolist()
    assert {3, 40, 91, 125, 130} <= set(found)
    assert len(found) < 12
    lines = describe_bad_trials(data)
    assert lines[0] == f"outlier trials: {len(found)} of 150"
    assert any("(group ann)" in line and "3, " in line for line in lines)
    data = data.take(np.arange(125))  # five trials of eve
    _split, found, notes = screen_trials(data, make_split(data), "flag")
    assert found.n_unscreened == 5
    few = "trials were not screened for outliers: groups of fewer than 20 trials are too small"
    assert notes[-1] == f"5 {few}"
    assert describe_bad_trials(data.take(np.arange(110, 125)))[:1] == [f"15 {few}"]


@pytest.mark.parametrize("empty", [0.0, np.nan])
def test_a_channel_that_is_missing_in_all_trials_changes_nothing(tmp_path, empty):
    with np.load(file_of(tmp_path)) as arrays:
        values = dict(arrays)
    settings = quick(str(tmp_path / "a.npz"), bad_trials="flag", epochs=1)
    plain = train(settings, RunFolder(tmp_path / "plain"))
    lines = describe_bad_trials(load_dataset(tmp_path / "a.npz"))
    values["X"] = np.pad(values["X"], ((0, 0), (0, 1), (0, 1)), constant_values=empty)
    np.savez(tmp_path / "a.npz", **values)
    found = train(settings, RunFolder(tmp_path / "run"))
    assert found.bad_trials == plain.bad_trials
    assert any(found.bad_trials.parts.values())
    data = load_dataset(tmp_path / "a.npz")
    assert describe_bad_trials(*valid_part(data, examine(data.X, missing=True))) == lines


def test_trials_with_estimated_channels_are_not_screened(tmp_path):
    with np.load(file_of(tmp_path)) as arrays:
        values = dict(arrays)
    for i in (2, 40):  # the second one is also an outlier
        values["X"][i, 1] = values["X"][i, :, 1] = np.nan
    np.savez(tmp_path / "a.npz", **values)
    settings = quick(str(tmp_path / "a.npz"), bad_trials="drop", epochs=1)
    found = train(settings, RunFolder(tmp_path / "run"))
    assert not {2, 40} & set(found.bad_trials.parts["train"])
    assert 3 in found.bad_trials.parts["train"]
    assert "2 trials with missing channels were not screened for outliers" in found.notes


def test_no_class_is_dropped():
    X = trials(100, 4, bad=[0, 1]).numpy()
    X[1] = X[1, ::-1, ::-1]  # two trials that are bad in different ways
    y = np.array([1, 1] + [0] * 98)
    found = find_bad_trials(Dataset(X, y), np.arange(100), who="test")
    assert not {0, 1} <= set(found.tolist())
    clean = Dataset(trials(100, 4, seed=3).numpy()[:20])
    assert describe_bad_trials(clean) == ["no outlier trials"]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_data_on_disk(tmp_path, monkeypatch, save):
    monkeypatch.setattr(readers, "IN_MEMORY", 1000)
    path = file_of(tmp_path, save=save)
    on_disk = save is np.savez
    assert (open_stored(path) is not None) == on_disk
    data = load_dataset(path)
    rows = np.arange(150)
    found = find_bad_trials(data, rows, who="train")
    assert {3, 40, 91, 125, 130} <= set(found.tolist())
    monkeypatch.setattr(bad_trials, "_MAX_BYTES", 1000)
    if not on_disk:  # already in memory
        np.testing.assert_array_equal(find_bad_trials(data, rows, who="train"), found)
        return
    with pytest.raises(ValueError, match=r"train: .* GiB on disk; set bad_trials to none, or give"):
        train(quick(path, bad_trials="flag"), RunFolder(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
    assert describe_bad_trials(data)[0].startswith("outlier trials: not searched, at most")
