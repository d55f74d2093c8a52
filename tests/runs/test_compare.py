import json
import sys

import numpy as np
import pytest

from spdnet.baselines import CDL, LogEuclideanClassifier
from spdnet.data import Dataset
from spdnet.data.sources import Source, with_random_split
from spdnet.options.run import EMBEDDED
from spdnet.runs import (
    Comparison,
    ComparisonFolder,
    RunFolder,
    Settings,
    compare,
    methods,
    parallel,
)
from spdnet.runs.methods import METHODS, Method
from spdnet.runs.report import make_page, write_report
from spdnet.runs.training import divide
from spdnet.runs.watch import Watch
from tests.cases import random_spd
from tests.runs.test_train import file_of, recordings

QUICK = {"repeats": 2, "device": "cpu", "epochs": 2}
FEW = ("nn-stein", "cdl", "spdnet-1")


def run(tmp_path, data=None, name="out", **more):
    settings = {"methods": FEW, **QUICK, **more}
    folder = ComparisonFolder(tmp_path / name)
    data = file_of(tmp_path) if data is None else data
    return compare(Comparison(data=data, **settings), folder), folder


def test_a_table_with_the_same_parts_for_all(tmp_path):
    found, folder = run(tmp_path, test_size=0.4)
    assert [row.method for row in found.rows] == list(FEW)
    assert found.protocol == "random-halves"
    assert found.n_train == (36, 36)
    assert found.to_json() == json.loads(folder.results_file.read_text())
    assert found == folder.results()
    for row in found.rows:
        values = row.accuracy.values
        assert len(values) == row.repeats == 2
        assert row.accuracy.mean == pytest.approx(np.mean(values))
        assert row.accuracy.std == pytest.approx(np.std(values, ddof=1))
        assert row.fit_seconds.mean > 0
    names = {p.name for p in folder.path.iterdir()}
    assert names - {".lock"} == {
        "cells",
        "comparison.json",
        "environment.json",
        "results.json",
        "table.csv",
        "table.tex",
        "table.txt",
    }
    again, _ = run(tmp_path, name="again", test_size=0.4)
    for a, b in zip(found.rows, again.rows, strict=True):
        assert a.accuracy == b.accuracy


def test_every_method_runs(tmp_path):
    found, _ = run(tmp_path, methods=None, repeats=1)
    assert len(found.rows) == len([m for m in METHODS.values() if m.takes == "matrices"])
    for row in found.rows:
        assert row.errors == (), row.method
        assert row.accuracy.std is None
    data = recordings(tmp_path, n=60)
    found, _ = run(tmp_path, data, "signals", methods=None, repeats=1, epochs=1)
    assert {"herml", "expressionlets"} < {row.method for row in found.rows}
    assert all(row.errors == () for row in found.rows)
    assert found.protocol == "groups"


@pytest.mark.parametrize("data", EMBEDDED)
def test_images_of_the_digits(tmp_path, data):
    found, _ = run(tmp_path, data, methods=("deepo2p",), repeats=1, test_size=0.9)
    assert found.rows[0].accuracy.mean > 0.8


def test_what_is_there_is_not_done_again(tmp_path, monkeypatch):
    calls = []
    made = METHODS["cdl"].make

    def count(where):
        calls.append(where.seed)
        return made(where)

    monkeypatch.setitem(methods.METHODS, "cdl", Method("CDL", count))
    data = file_of(tmp_path)
    _, folder = run(tmp_path, data)
    assert calls == [0, 1]
    run(tmp_path, data)
    assert calls == [0, 1]
    (folder.path / "cells" / "cdl-1.json").write_text("{")  # damaged
    run(tmp_path, data)
    assert calls == [0, 1, 1]
    found, _ = run(tmp_path, data, repeats=3, methods=("cdl", "logistic"))  # more of it
    assert calls == [0, 1, 1, 2]
    rows = {row.method: row for row in found.rows}
    assert {name: row.repeats for name, row in rows.items()} == {
        "nn-stein": 2,
        "logistic": 3,
        "cdl": 3,
        "spdnet-1": 2,
    }
    assert rows["nn-stein"].accuracy.values[2] is None
    assert "NN, Stein (2 of 3)" in found.as_text()
    assert "nn-stein" not in found.best
    assert "nn-stein,3" not in found.as_csv()
    with pytest.raises(ValueError, match=r"test_size = 0\.5"):
        run(tmp_path, data, test_size=0.3)
    with pytest.raises(ValueError, match="digest"):
        run(tmp_path, file_of(tmp_path, n=63))


class Notes(Watch):
    """Collects messages, and stops after some cells."""

    def __init__(self, most=100):
        super().__init__()
        self.most, self.said = most, []

    def say(self, text):
        self.said.append(text)
        if len(self.cells) == self.most:
            raise KeyboardInterrupt

    @property
    def cells(self):
        return [text for text in self.said if text.startswith("repeat")]


def test_an_interruption_keeps_what_is_done(tmp_path):
    data, folder = file_of(tmp_path), ComparisonFolder(tmp_path / "out")
    settings = Comparison(data=data, methods=FEW, **QUICK)
    with pytest.raises(KeyboardInterrupt):
        compare(settings, folder, watch=Notes(most=2))
    assert len(list((folder.path / "cells").iterdir())) == 2
    watch = Notes()
    compare(settings, folder, watch=watch)
    assert len(watch.cells) == 4


@pytest.mark.slow
def test_processes_give_the_same_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(parallel, "_SHORT", 0.0)
    data = file_of(tmp_path)
    expected, _ = run(tmp_path, data, jobs=1)
    watch, folder = Notes(), ComparisonFolder(tmp_path / "several")
    found = compare(Comparison(data=data, methods=FEW, jobs=2, **QUICK), folder, watch=watch)
    for a, b in zip(expected.rows, found.rows, strict=True):
        assert a.accuracy == b.accuracy
    assert len(watch.cells) == 6
    # the number of processes is no setting of the comparison
    assert compare(Comparison(data=data, methods=FEW, jobs=1, **QUICK), folder) == found


class Broken:
    def fit(self, X, y):
        raise RuntimeError("no such luck")


def test_a_failure_is_told_in_its_cell_and_the_rest_goes_on(tmp_path, monkeypatch):
    monkeypatch.setitem(methods.METHODS, "cdl", Method("CDL", lambda where: Broken()))
    data = file_of(tmp_path)
    found, folder = run(tmp_path, data)
    rows = {row.method: row for row in found.rows}
    assert rows["cdl"].errors == ("RuntimeError: no such luck",)
    assert rows["cdl"].accuracy is None
    assert rows["spdnet-1"].repeats == 2
    assert "cdl" not in found.best
    text = found.as_text()
    assert "failed: CDL: RuntimeError: no such luck" in text
    assert "no such luck" in make_page(folder)
    assert "CDL (0 of 2) & failed & - & -" in found.as_latex()
    monkeypatch.undo()
    again, _ = run(tmp_path, data)  # what failed is tried again
    assert [row.errors for row in again.rows] == [(), (), ()]


def test_tuning_uses_the_training_part_alone(tmp_path):
    found, folder = run(tmp_path, methods=("cdl", "lda"), tune=True)
    rows = {row.method: row for row in found.rows}
    assert all(p["reg"] in [10.0**e for e in range(-2, 5)] for p in rows["cdl"].parameters)
    assert rows["lda"].parameters == ({}, {})
    assert "The values that the search selected" in make_page(folder)


def test_protocols(tmp_path):
    y = np.arange(40) % 2
    X = random_spd(40, 3).numpy()
    split = np.array(["train", "val", "test", "train"])[np.arange(40) // 10]
    groups = np.arange(40) // 4
    path = tmp_path / "a.npz"
    np.savez(path, X=X, y=y, split=split, groups=groups)
    found, _ = run(tmp_path, str(path))
    assert found.protocol == "file"
    assert found.n_train == (30, 30)
    found, _ = run(tmp_path, str(path), "once", repeats=None)
    assert found.repeats == 1
    found, _ = run(tmp_path, str(path), "groups", protocol="groups", test_size=0.25)
    assert found.n_train[0] % 4 == 0
    watch = Notes()
    settings = Comparison(data=str(path), methods=("cdl",), protocol="groups", **QUICK)
    compare(settings, ComparisonFolder(tmp_path / "said"), watch=watch)
    assert "20 train (5 groups), 20 test (5 groups)" in watch.said[0]
    plain = tmp_path / "b.npz"
    np.savez(plain, X=X, y=y)
    for protocol, what in (("file", "a split"), ("groups", "groups")):
        with pytest.raises(ValueError, match=f"expected data with {what}"):
            run(tmp_path, str(plain), "none", protocol=protocol)
    assert not (tmp_path / "none").exists()


def test_repeats_keep_their_numbers(tmp_path, monkeypatch):
    made = METHODS["cdl"].make

    def fail_first(where):
        return Broken() if where.seed == 0 else made(where)

    monkeypatch.setitem(methods.METHODS, "cdl", Method("CDL", fail_first))
    found, _ = run(tmp_path, repeats=3, methods=("cdl", "lda"))
    lines = [line.split(",")[:2] for line in found.as_csv().splitlines()]
    assert [line for line in lines if line[0] == "cdl"] == [["cdl", "2"], ["cdl", "3"]]
    assert "CDL (2 of 3)" in found.as_text()
    assert found.best == {"lda"}


def test_tuning_keeps_groups_whole(tmp_path, monkeypatch):
    seen = []

    class Spy(CDL):
        def fit(self, X, y):
            seen.append({round(x[0, 0] * 1000) % 1000 for x in X})
            return super().fit(X, y)

    groups = np.arange(48) // 4
    X = random_spd(48, 3).numpy()
    X[:, 0, 0] = np.ceil(X[:, 0, 0]) + 3 + groups / 1000  # a matrix knows its group
    np.savez(tmp_path / "g.npz", X=X, y=np.arange(48) % 2, groups=groups)
    monkeypatch.setitem(
        methods.METHODS, "cdl", Method("CDL", lambda where: Spy(), lambda n: {"reg": [1.0, 2.0]})
    )
    found, _ = run(tmp_path, str(tmp_path / "g.npz"), tune=True, methods=("cdl",), repeats=1)
    assert found.rows[0].errors == ()
    everyone = seen[-1]  # the last fit is on the whole training part
    assert all(part < everyone for part in seen[:-1])  # in each fold some are wholly missing


def test_methods_that_take_groups_get_those_of_the_training_part(tmp_path, monkeypatch):
    seen = []

    class Spy(LogEuclideanClassifier):
        def fit(self, X, y, *, groups=None):
            seen.append((len(X), groups))
            return super().fit(X, y, groups=groups)

    groups = np.arange(48) // 4
    np.savez(tmp_path / "g.npz", X=random_spd(48, 3).numpy(), y=np.arange(48) % 2, groups=groups)
    monkeypatch.setitem(methods.METHODS, "logistic", Method("logistic", lambda where: Spy()))
    for protocol in ("groups", "random-halves"):
        chosen = {"methods": ("logistic",), "repeats": 1, "protocol": protocol}
        found, _ = run(tmp_path, str(tmp_path / "g.npz"), protocol, **chosen)
        assert found.rows[0].errors == ()
    (n, known), (_, unknown) = seen
    assert len(known) == n < 48
    assert len(set(known)) < 12
    assert unknown is None


def test_damaged_files_are_named(tmp_path):
    data = file_of(tmp_path)
    _, folder = run(tmp_path, data)
    cells = sorted((folder.path / "cells").iterdir())
    for text in ("[]", "{}", "null"):
        cells[0].write_text(text)
        found, _ = run(tmp_path, data)
        assert all(row.is_complete for row in found.rows)
    (folder.path / "comparison.json").write_text("{")
    with pytest.raises(ValueError, match=r"comparison\.json"):
        run(tmp_path, data)


def test_a_folder_that_another_process_writes_is_left_as_it_is(tmp_path):
    data = file_of(tmp_path)
    _, folder = run(tmp_path, data)
    before = (folder.path / "comparison.json").read_text()
    with RunFolder(folder.path).locked(), pytest.raises(ValueError, match="another is writing"):
        run(tmp_path, data, repeats=5)
    assert (folder.path / "comparison.json").read_text() == before


def test_a_folder_that_was_filled_meanwhile_is_refused(tmp_path):
    """Another comparison begins between the first look at the folder and its lock."""
    data, folder = file_of(tmp_path), ComparisonFolder(tmp_path / "out")

    class Meanwhile(Watch):
        def say(self, text):
            if not folder.path.exists():
                compare(Comparison(data=data, methods=("mdm",), repeats=2, seed=5), folder)

    with pytest.raises(ValueError, match="seed = 5, got 0"):
        compare(Comparison(data=data, methods=("mdm",), repeats=2), folder, watch=Meanwhile())
    assert json.loads((folder.path / "comparison.json").read_text())["seed"] == 5


def test_data_on_which_nothing_can_be_scored(tmp_path):
    X = random_spd(6, 3).numpy()
    np.savez(tmp_path / "single.npz", X=X, y=np.arange(6))
    with pytest.raises(ValueError, match="too few members"):
        run(tmp_path, str(tmp_path / "single.npz"))
    X[3:, 0, 0] = np.nan
    np.savez(tmp_path / "lost.npz", X=X, y=np.arange(6) // 3)
    with pytest.raises(ValueError, match="two classes"):
        run(tmp_path, str(tmp_path / "lost.npz"), bad="drop")
    assert not (tmp_path / "out").exists()
    np.savez(tmp_path / "rare.npz", X=random_spd(22, 3).numpy(), y=[0] * 20 + [1] * 2)
    found, _ = run(tmp_path, str(tmp_path / "rare.npz"), tune=True, methods=("cdl",))
    assert "for the search" in found.rows[0].errors[0]


def row_of(found, line):
    return next(row for row in found.rows if line.startswith(row.title))


def test_tables(tmp_path):
    found, folder = run(tmp_path)
    lines = found.as_csv().splitlines()
    assert lines[0] == "method,repeat,accuracy,fit_seconds,predict_seconds"
    assert len(lines) == 1 + 2 * len(FEW)
    assert lines[1].startswith("nn-stein,1,")
    latex = found.as_latex()
    assert latex.count(r"\\") == 1 + len(FEW)
    assert latex.count(r"\boldmath") == len(found.best) >= 1
    assert latex.count(r"\pm") == len(FEW)
    text = found.as_text()
    assert text.count(" *") == len(found.best)
    for line in text.splitlines():
        if " *" in line:  # beside the accuracy
            assert line.split(" *")[0].split("  ")[-1].strip() == row_of(found, line).columns()[0]
    assert "\n* best\n" in text
    assert "most frequent class: 33.33 %\n" in text
    assert "dims: SPDNet-1BiRe 5,5\n" in text
    assert found.chance == pytest.approx(1 / 3)
    assert {row.method: row.dims for row in found.rows} == {
        "nn-stein": None,
        "cdl": None,
        "spdnet-1": (5, 5),
    }
    page = write_report(folder).read_text(encoding="utf-8")
    assert "SPDNet-1BiRe (5,5)" in page
    assert "★: best. Most frequent class: 33.33 %." in page
    assert "<svg" in page
    assert "http" not in page.replace("http://www.w3.org", "")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"methods": ("svmm",)}, "got 'svmm'"),
        ({"methods": ()}, "names of methods"),
        ({"repeats": 0}, "repeats >= 1"),
        ({"test_size": 1.0}, "test_size > 0 and < 1"),
        ({"protocol": "halves"}, "protocol"),
        ({"seed": -1}, "seed"),
        ({"epochs": 0}, "epochs"),
        ({"methods": ("herml",)}, "signals for herml"),
        ({"methods": ("deepo2p",)}, "images"),
    ],
)
def test_bad_settings_leave_nothing(tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        run(tmp_path, **settings)
    assert not (tmp_path / "out").exists()


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("")
    with pytest.raises(FileExistsError, match="something else"):
        run(tmp_path)
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("groups", [None, np.arange(40) // 4])
@pytest.mark.parametrize("seed", [0, 3])
def test_all_commands_draw_the_same_test_set(seed, groups):
    X = np.stack([np.eye(3)] * 40)
    data = Dataset(X, np.arange(40) % 2, groups=groups)
    protocol = "random-halves" if groups is None else "groups"
    trained = divide(data, Settings(data="x.npz", test=0.5, val=0.2, seed=seed))
    module = sys.modules["spdnet.runs.compare"]  # the function has the same name
    compared = module._split(protocol, data, Comparison(data="x.npz", seed=seed), 0)
    sources = [
        Source(str(i), lambda: X[0], str(i % 2), None, None if groups is None else str(groups[i]))
        for i in range(40)
    ]
    built = [s.split == "test" for s in with_random_split(sources, 0.5, seed=seed)]
    assert trained.parts["test"].tolist() == compared.parts["test"].tolist()
    assert trained.parts["test"].tolist() == np.flatnonzero(built).tolist()
