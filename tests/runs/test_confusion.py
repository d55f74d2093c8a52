import json
import tracemalloc

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from spdnet.runs import RunFolder, Settings, train
from spdnet.runs.confusion import Confusion
from spdnet.runs.report import make_page


def labels(n=50, n_classes=6):
    rng = np.random.default_rng(0)
    true, predicted = rng.integers(0, n_classes - 1, (2, n))
    return true, np.where(predicted == 2, n_classes - 1, predicted)  # 2 is never predicted


def test_it_counts_as_scikit_learn_does():
    true, predicted = labels()
    counts = Confusion.of(true, predicted, 6)
    np.testing.assert_array_equal(
        counts.dense(), confusion_matrix(true, predicted, labels=range(6))
    )
    expected = precision_recall_fscore_support(
        true, predicted, labels=range(6), zero_division=np.nan
    )
    table = counts.per_class("abcdef")
    assert [row.label for row in table] == list("abcdef")
    assert [row.n for row in table] == expected[3].tolist()
    ratios = np.array([[row.precision, row.recall, row.f1] for row in table], dtype=float)
    np.testing.assert_allclose(ratios.T, expected[:3], rtol=1e-15)
    assert table[2].precision is None
    assert table[5].recall is None


def test_it_is_read_as_it_was_written():
    counts = Confusion.of(*labels(), 6)
    assert Confusion.from_json(json.loads(json.dumps(counts.to_json()))) == counts
    np.testing.assert_array_equal((counts + counts).dense(), 2 * counts.dense())
    nothing = Confusion(3, (), (), ())
    assert nothing.dense().sum() == 0
    assert {(r.precision, r.recall, r.f1) for r in nothing.per_class("abc")} == {(None,) * 3}


@pytest.mark.parametrize(
    "stored",
    [
        {"true": [0], "predicted": [6], "count": [1]},
        {"true": [-1], "predicted": [0], "count": [1]},
        {"true": [0], "predicted": [0], "count": [0]},
        {"true": [0], "predicted": [0], "count": [10**30]},
        {"true": [0, 1], "predicted": [0], "count": [1]},
        {"true": [0.5], "predicted": [0], "count": [1]},
        {"true": ["0"], "predicted": [0], "count": [1]},
        {"true": [0], "predicted": [0]},
        {"true": [0], "predicted": [0], "count": [1], "more": 1},
    ],
    ids=str,
)
def test_what_is_no_confusion_is_refused(stored):
    with pytest.raises(ValueError, match="expected"):
        Confusion.from_json({"n_classes": 6, **stored})


def test_memory_does_not_grow_with_the_square_of_the_classes():
    n_classes = 20_000  # 3.2 GB as a table
    y = np.arange(n_classes)
    tracemalloc.start()
    counts = Confusion.of(y, np.roll(y, 1), n_classes)
    counts.per_class([str(label) for label in y])
    stored = json.dumps(counts.to_json())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50e6
    assert len(stored) < 1e6


def test_a_report_of_many_classes_names_the_most_confused_pairs(tmp_path):
    n_classes = 500
    y = np.arange(2 * n_classes) % n_classes
    X = np.eye(2) * (1 + y % 7)[:, None, None]
    split = np.repeat(["train", "test"], n_classes)
    np.savez(tmp_path / "a.npz", X=X, y=y, split=split)
    folder = RunFolder(tmp_path / "run")
    settings = Settings(data=str(tmp_path / "a.npz"), epochs=1, baseline=False, device="cpu")
    found = train(settings, folder)
    assert len(found.confusion.count) <= n_classes
    page = make_page(folder)
    assert "Confusion matrix" not in page  # no picture
    true, predicted, count = found.confusion.most_confused(1)[0]
    row = f"<td>{found.classes[true]}</td><td>{found.classes[predicted]}</td><td>{count}</td>"
    assert f"<tr>{row}</tr>" in page
