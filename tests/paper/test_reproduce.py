import csv
import sys
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

from spdnet.data import DataError, Dataset, StoreWriter
from spdnet.data.io import readers as readers_module
from spdnet.metrics import verification_rate
from spdnet.options.run import EXPERIMENTS
from spdnet.paper import Reproduction, ReproductionFolder, reproduce, write_reproduction
from spdnet.paper.data import (
    ExperimentData,
    generated,
    held_out,
    load_data,
    make_matrices,
    tasks,
)
from spdnet.runs import RunFolder
from spdnet.runs.watch import Watch
from tests.cases import random_spd

MODULE = sys.modules["spdnet.paper.reproduce"]  # the function has its name


class Notes(Watch):
    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)


def run(path, **settings):
    settings = {"quick": True, "device": "cpu", **settings}
    folder = ReproductionFolder(path)
    notes = Notes()
    found = reproduce(Reproduction(**settings), folder, watch=notes)
    write_reproduction(folder)
    return found, folder, notes.said


def test_a_folder_that_another_process_writes_is_left_as_it_is(tmp_path):
    settings = {"experiment": "epsilon", "standin": "digits"}
    _, folder, _ = run(tmp_path / "run", **settings)
    before = (folder.path / "reproduction.json").read_text()
    with RunFolder(folder.path).locked(), pytest.raises(ValueError, match="another is writing"):
        run(folder.path, **settings, repeats=3)
    assert (folder.path / "reproduction.json").read_text() == before


@pytest.mark.parametrize("standin", ["digits", "generated"])
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_recipe_runs_on_a_standin(tmp_path, experiment, standin):
    found, folder, _ = run(tmp_path / "run", experiment=experiment, standin=standin)
    names = {p.name for p in folder.path.iterdir()}
    assert {"results.json", "table.txt", "table.csv", "report.html"} <= names
    assert any(name.endswith(".svg") for name in names)
    page = folder.report_file.read_text()
    table = (folder.path / "table.txt").read_text()
    for text in (page, table, *(p.read_text() for p in folder.path.glob("*.svg"))):
        assert "STAND-IN" in text
        assert "QUICK" in text
    for part in found.experiments:
        for row in part.rows:
            assert row.errors == ()
            assert row.ours
            if row.kind == "network":
                assert row.paper
                assert row.seconds > 0
                if set(row.ours) != {"all"}:
                    assert f"{next(iter(row.paper.values())):.2f}" in table
    rows = list(csv.DictReader((folder.path / "table.csv").read_text().splitlines()))
    measures = {m for row in found.experiments[0].rows for m in row.ours}
    assert {row["measure"] for row in rows} == measures
    assert {row["quick"] for row in rows} == {"True"}
    assert not list(folder.path.rglob("*.npz*"))  # matrices are made again where they are needed


def test_what_is_there_is_not_done_again(tmp_path):
    settings = {"experiment": "hdm05", "standin": "generated"}
    first, _, _ = run(tmp_path / "run", **settings)
    again, _, said = run(tmp_path / "run", **settings)
    assert not any(text.startswith("repeat") for text in said)
    assert again == first
    more, _, said = run(tmp_path / "run", **settings, repeats=2)
    assert all("repeat 2 of 2" in text for text in said if text.startswith("repeat"))
    row = more.experiments[0].rows[-1]
    assert len(row.ours["accuracy"].values) == 2
    assert row.ours["accuracy"].std is not None
    with pytest.raises(ValueError, match="recipe"):
        run(tmp_path / "run", **settings, recipe="fast")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(FileExistsError, match="something else"):
        run(tmp_path / "other", **settings)


def test_an_interrupted_training_goes_on(tmp_path):
    class Stop(Watch):
        def __init__(self):
            self.left = 5

        def epoch(self, trainer):
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt

    settings = {"experiment": "hdm05", "standin": "generated", "quick": True, "device": "cpu"}
    wanted = Reproduction(**settings, epochs=3)
    with pytest.raises(KeyboardInterrupt):
        reproduce(wanted, ReproductionFolder(tmp_path / "a"), watch=Stop())
    broken = reproduce(wanted, ReproductionFolder(tmp_path / "a"))
    whole = reproduce(wanted, ReproductionFolder(tmp_path / "b"))
    for one, other in zip(*(r.experiments[0].rows for r in (broken, whole)), strict=True):
        assert one.ours == other.ours
        if one.history:
            losses = [[e["loss"] for e in row.history] for row in (one, other)]
            assert losses[0] == losses[1]


@pytest.mark.slow
def test_baselines_and_what_is_only_cited(tmp_path):
    found, _, _ = run(tmp_path / "a", experiment="pasc", standin="generated", baselines=True)
    rows = {row.title: row for row in found.experiments[0].rows}
    for name in ("CDL", "LEML", "SPDML-AIM", "SPDML-Stein"):
        assert rows[name].errors == ()
        assert set(rows[name].ours) == {"control", "handheld"}
    assert rows["VGGDeepFace"].kind == "cited"
    assert "not run: VGGDeepFace" in found.as_text()
    found, _, _ = run(tmp_path / "b", experiment="hdm05", standin="generated", baselines=True)
    rows = {row.title: row for row in found.experiments[0].rows}
    assert rows["RSR"].ours["accuracy"].mean > 0.3
    assert rows["RSR"].paper["accuracy"] == 41.12


def test_logits_instead_of_features(tmp_path):
    settings = {"experiment": "pasc", "standin": "generated"}
    features, _, _ = run(tmp_path / "a", **settings)
    logits, _, _ = run(tmp_path / "b", **settings, score="logits")
    rates = [r.experiments[0].rows[1].equal_error for r in (features, logits)]
    assert rates[0] != rates[1]


def test_a_network_that_diverges_is_a_failed_row(tmp_path, monkeypatch):
    problem = generated("hdm05", quick=True)
    blown = [
        type(s)(s.name, lambda load=s.load: 1e80 * load(), s.y, s.split, s.group)
        for s in problem.sources
    ]
    monkeypatch.setattr(
        "spdnet.paper.data.generated",
        lambda *a, **k: ExperimentData.of_sources("blown up", True, blown),
    )
    found, _, said = run(tmp_path / "a", experiment="no-logeig", standin="generated")
    row = found.experiments[1].rows[-1]
    assert row.title == "without LogEig"
    assert row.repeats == 0
    assert "failed" in found.as_text()
    assert any("expected a finite loss" in text for text in said)


def test_without_the_data_it_says_what_to_put_where(tmp_path, monkeypatch):
    monkeypatch.setenv("SPDNET_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"spdnet data import afew") as caught:
        run(tmp_path / "run", experiment="epsilon")
    assert str(tmp_path / "afew.npz") in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_the_paper_s_data_from_disk(tmp_path, monkeypatch):
    """Matrices of the authors, larger than what is held in memory."""
    monkeypatch.setenv("SPDNET_DATA", str(tmp_path))
    X = random_spd(60, 8).numpy()
    with StoreWriter(tmp_path / "afew.npz", {}) as writer:
        for i, matrix in enumerate(X):
            part = "train" if i < 40 else "test"
            writer.add(f"v{i}", matrix[None], y=str(i % 3), split=part, groups=f"g{i // 2}")
        writer.finish({})
    found, _, _ = run(tmp_path / "memory", experiment="afew", quick=False, epochs=2)
    monkeypatch.setattr(readers_module, "IN_MEMORY", 1000)
    stored, _, _ = run(tmp_path / "disk", experiment="afew", quick=False, epochs=2)
    assert not found.experiments[0].standin
    assert found.experiments[0].n_test == 20
    assert "STAND-IN" not in (tmp_path / "memory" / "table.txt").read_text()
    for one, other in zip(*(r.experiments[0].rows for r in (found, stored)), strict=True):
        assert one.ours == other.ours


def test_sequences_are_divided_before_they_are_cut(tmp_path):
    wanted = Reproduction(experiment="hdm05", standin="generated", quick=True)
    experiment = wanted.experiments()[0]
    problem = load_data(wanted, experiment)
    names = [problem.sources[i].name for i in problem.samples.X.ravel()]
    for repeat in range(3):
        data = make_matrices(problem, experiment, wanted, repeat, tmp_path / f"{repeat}.npz")
        train, test = (set(data.names[data.split == p]) for p in ("train", "test"))
        assert not train & test
        assert train | test == set(names)
        assert len(data.names[data.split == "test"]) == len(test)  # whole
        assert (data.split == "train").sum() > 5 * len(train)  # cut
    uncut = Reproduction(experiment="hdm05", standin="generated", quick=True, clips=False)
    assert len(make_matrices(problem, experiment, uncut, 0, tmp_path / "uncut.npz")) == len(names)


def test_the_classes_with_the_most_sequences_are_kept(tmp_path):
    y = np.repeat(["a", "b", "c", "d"], [5, 2, 9, 5])
    np.savez(tmp_path / "a.npz", X=random_spd(21, 3).numpy(), y=y)
    wanted = Reproduction(experiment="hdm05", standin=str(tmp_path / "a.npz"), classes=3)
    problem = load_data(wanted, wanted.experiments()[0])
    assert set(problem.y) == {"a", "c", "d"}


def test_people_are_not_trained_on_and_verified(tmp_path):
    wanted = Reproduction(experiment="pasc", standin="generated", quick=True)
    experiment = wanted.experiments()[0]
    problem = load_data(wanted, experiment)
    data = make_matrices(problem, experiment, wanted, 0, tmp_path / "a.npz")
    assert not set(data.y[data.split == "train"]) & set(data.y[data.split == "test"])
    found = tasks(data, experiment.measures)
    assert set(found) == {"control", "handheld"}
    assert not (found["control"] & found["handheld"]).any()
    nameless = Dataset(data.X, data.y, data.split)
    assert list(tasks(nameless, experiment.measures)) == ["all"]
    stray = np.where(data.names == data.names[found["control"]][0], "elsewhere/1", data.names)
    with pytest.raises(DataError, match="elsewhere/1"):
        tasks(Dataset(data.X, data.y, data.split, names=stray), experiment.measures)
    parent = np.char.add("pasc control+handheld/", data.names.astype(str))
    again = tasks(Dataset(data.X, data.y, data.split, names=parent), experiment.measures)
    assert again["control"].tolist() == found["control"].tolist()  # whole names of folders


def test_the_rate_is_that_of_all_pairs_without_the_diagonal(tmp_path):
    found, _, _ = run(tmp_path / "a", experiment="pasc", standin="generated")
    wanted = Reproduction(experiment="pasc", standin="generated", quick=True)
    experiment = wanted.experiments()[0]
    problem = load_data(wanted, experiment)
    data = make_matrices(problem, experiment, wanted, 0, tmp_path / "matrices.npz")
    chosen = tasks(data, experiment.measures)["control"]
    s, U = np.linalg.eigh(data.X[chosen])
    logs = (U * np.log(s)[:, None]) @ U.swapaxes(1, 2)
    flat = logs.reshape(len(logs), -1)
    flat /= np.linalg.norm(flat, axis=1, keepdims=True)
    off = ~np.eye(len(flat), dtype=bool)
    same = data.y[chosen][:, None] == data.y[chosen][None, :]
    expected = verification_rate((flat @ flat.T)[off], same[off], far=0.01)
    row = found.experiments[0].rows[0]
    assert row.title == "log-Euclidean cosine"
    assert row.ours["control"].mean == pytest.approx(expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"experiment": "mnist"}, "experiment"),
        ({"experiment": "afew", "recipe": "x"}, "recipe"),
        ({"experiment": "afew", "repeats": 0}, "repeats"),
        ({"experiment": "afew", "epochs": 0}, "epochs"),
        ({"experiment": "afew", "classes": 1}, "classes"),
        ({"experiment": "pasc", "score": "x"}, "score"),
        ({"experiment": "afew", "seed": -1}, "seed"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        Reproduction(**settings)


def test_dims_in_the_same_ratios():
    row = Reproduction(experiment="afew").experiments()[0].rows[-1]
    assert row.dims_for(400) == (400, 200, 100, 50)
    assert row.dims_for(17) == (17, 8, 4, 2)
    assert row.dims_for(3) == (3, 2, 2, 2)


def test_a_row_that_fails_leaves_the_others(tmp_path, monkeypatch):
    def broken(settings, *arguments, **more):
        if len(settings.dims) == 3:
            raise RuntimeError("CUDA out of memory")
        return training(settings, *arguments, **more)

    training = MODULE.Training
    monkeypatch.setattr(MODULE, "Training", broken)
    found, _, said = run(tmp_path / "a", experiment="afew", standin="digits")
    rows = {row.title: row for row in found.experiments[0].rows}
    assert rows["SPDNet-2BiRe"].errors == ("RuntimeError: CUDA out of memory",)
    assert rows["SPDNet-3BiRe"].ours
    assert any("out of memory" in text for text in said)
    monkeypatch.undo()
    again, _, _ = run(tmp_path / "a", experiment="afew", standin="digits")
    assert all(row.errors == () for row in again.experiments[0].rows)


def test_other_data_are_not_mixed_in(tmp_path):
    path = tmp_path / "a.npz"
    y = np.arange(24) % 2
    np.savez(path, X=random_spd(24, 4).numpy(), y=y)
    settings = {"experiment": "hdm05", "standin": str(path)}
    run(tmp_path / "run", **settings)
    np.savez(path, X=2 * random_spd(24, 4).numpy(), y=y)
    with pytest.raises(ValueError, match="the data with which repeat 1"):
        run(tmp_path / "run", **settings, repeats=2)


def test_matrices_on_disk_and_methods_that_take_some(tmp_path, monkeypatch):
    monkeypatch.setattr(readers_module, "IN_MEMORY", 1000)
    monkeypatch.setattr(MODULE, "_MAX_BYTES", 50_000)
    found, _, _ = run(tmp_path / "a", experiment="hdm05", standin="generated")
    row = found.experiments[0].rows[0]
    assert row.ours["accuracy"].mean > 0.5
    assert "of 238 matrices, as many as fit in memory" in row.notes[0]
    assert row.notes[0] in found.as_text()


def test_the_whole_of_a_sequence_is_tested_on(tmp_path):
    """Of a file that has clips already."""
    names = np.repeat([f"s{i}" for i in range(12)], 3)
    np.savez(
        tmp_path / "a.npz",
        X=random_spd(36, 4).numpy(),
        y=np.repeat(np.arange(12) % 2, 3),
        groups=names,
        names=names,
    )
    wanted = Reproduction(experiment="hdm05", standin=str(tmp_path / "a.npz"))
    experiment = wanted.experiments()[0]
    problem = load_data(wanted, experiment)
    data = make_matrices(problem, experiment, wanted, 0, tmp_path / "none.npz")
    assert sorted(data.names[data.split == "test"]) == sorted(set(data.names[data.split == "test"]))
    assert (data.split == "train").sum() == 18
    kept = [int(np.flatnonzero((x == problem.samples.X).all((1, 2)))[0]) for x in data.X]
    assert all(k % 3 == 0 for k, part in zip(kept, data.split, strict=True) if part == "test")


def test_groups_of_signals_are_not_divided(tmp_path):
    rng = np.random.default_rng(0)
    y, groups = np.arange(32) % 2, np.arange(32) // 4
    np.savez(tmp_path / "a.npz", X=rng.normal(size=(32, 4, 30)), y=y, groups=groups)
    wanted = Reproduction(experiment="hdm05", standin=str(tmp_path / "a.npz"))
    problem = load_data(wanted, wanted.experiments()[0])
    test = held_out(problem, "random-halves", 0)
    assert not set(groups[test]) & set(groups[~test])


@pytest.mark.parametrize(
    ("y", "protocol", "message"),
    [
        (np.arange(6), "random-halves", "expected test samples"),
        (
            np.zeros(6, int),
            "random-halves",
            "two classes, got 3 test samples, and 3 training samples of 1",
        ),
        (np.arange(3), "verification", "two people"),
        (np.arange(8), "verification", "one of them with two samples"),
    ],
)
def test_too_little_to_divide(y, protocol, message):
    problem = ExperimentData("few", True, Dataset(random_spd(len(y), 3).numpy(), y))
    with pytest.raises(DataError, match=message):
        held_out(problem, protocol, 0)


def test_names_are_not_markup(tmp_path):
    path = tmp_path / 'q" onload="alert(1)" x="<b>.npz'
    np.savez(path, X=random_spd(24, 4).numpy(), y=np.arange(24) % 2)
    _, folder, _ = run(tmp_path / "run", experiment="convergence", standin=str(path))

    class Parser(HTMLParser):
        def handle_starttag(self, tag, attrs):
            assert "onload" not in dict(attrs)

    Parser().feed(folder.report_file.read_text())
    for file in folder.path.glob("*.svg"):
        ElementTree.parse(file)


@pytest.mark.parametrize("content", [b"no zip", b"PK\x03\x04 cut short"])
def test_a_damaged_standin(tmp_path, content):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"a\.npz"):
        run(tmp_path / "run", experiment="hdm05", standin=str(tmp_path / "a.npz"))


def test_a_threshold_that_plays_no_part_is_said_so(tmp_path):
    found, _, _ = run(tmp_path / "a", experiment="epsilon", standin="generated")
    assert "the threshold has no effect" in found.as_text()
