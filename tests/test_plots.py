"""Plots: drawn data, axes, legends, and unchanged matplotlib settings."""

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib import pyplot

from spdnet import metrics, plots
from tests.cases import random_spd

HOSTILE = ["$x$", r"$\frac{1$", "<b>&", "a_b^c"]
HISTORY = [
    {"epoch": 3, "loss": 2.0, "accuracy": 0.4, "val_loss": 2.5, "val_accuracy": 0.3},
    {"epoch": 4, "loss": 0.5, "accuracy": 0.8, "val_loss": 1.0, "val_accuracy": 0.6},
]
TWO = np.array([[[3.0, 1.0], [1.0, 2.0]], [[1.0, 0.0], [0.0, 4.0]]])


@pytest.fixture(autouse=True)
def _agg():
    before = matplotlib.get_backend()
    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")
    pyplot.switch_backend(before)


#: every function with valid input
DRAW = {
    "spectra": lambda **k: plots.spectra(random_spd(5, 3), label="$a$", **k),
    "learning_curves": lambda **k: plots.learning_curves(HISTORY, label="$a$", **k),
    "confusion": lambda **k: plots.confusion(np.eye(4), HOSTILE, **k),
    "roc": lambda **k: plots.roc(([0.0, 0.1, 1.0], [0.5, 0.7, 1.0]), label="$a$", **k),
    "cone": lambda **k: plots.cone(np.stack([TWO, TWO + np.eye(2)]), ["$x$", "$y"], **k),
    "embedding": lambda **k: plots.embedding(random_spd(4, 3), HOSTILE, **k),
}


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def new_axes(name):
    """Return new axes whose ticks have been drawn."""
    ax = pyplot.figure().add_subplot(projection="3d" if name == "cone" else None)
    ax.figure.canvas.draw()
    return ax


@pytest.mark.parametrize("name", DRAW)
@pytest.mark.parametrize("given", [True, False])
def test_uses_given_axes_and_keeps_rc_params(name, given):
    """Without axes, a pyplot figure is created; all text can be rendered."""
    ax = new_axes(name) if given else None
    figures, settings = pyplot.get_fignums(), dict(matplotlib.rcParams)
    found = DRAW[name](ax=ax)
    assert dict(matplotlib.rcParams) == settings
    assert (found is ax) == given
    assert len(pyplot.get_fignums()) == len(figures) + (not given)
    found.figure.canvas.draw()  # raises an error if mathtext cannot be parsed


def test_new_axes_have_report_style():
    ax = plots.spectra(random_spd(5, 3))
    ax.figure.canvas.draw()
    assert not ax.spines["top"].get_visible()
    assert ax.xaxis.get_ticklabels()[0].get_color() == plots.INK
    assert ax.xaxis.get_gridlines()[0].get_color() == plots.STYLE["grid.color"]


def test_panels():
    grid = plots.panels(2, 3, size=(6, 4))
    assert grid.shape == (6,)
    assert len({ax.figure for ax in grid}) == 1
    assert grid[0].figure.get_size_inches().tolist() == [6, 4]
    assert plots.panels(projection="3d")[0].name == "3d"


@pytest.mark.parametrize("kind", [torch.Tensor.clone, torch.Tensor.numpy, torch.Tensor.tolist])
def test_spectra(kind):
    X = random_spd(2, 10, 4)
    s = np.sort(np.linalg.eigvalsh(X.numpy()).reshape(20, 4), -1)[:, ::-1]
    ax = plots.spectra(kind(X), label="X", color="red")
    np.testing.assert_allclose(ax.lines[0].get_ydata(), np.median(s, 0))
    assert ax.lines[0].get_xdata().tolist() == [1, 2, 3, 4]
    low, high = np.quantile(s, [0.05, 0.95], axis=0)
    band = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert band.min() == pytest.approx(low.min())
    assert band.max() == pytest.approx(high.max())
    assert ax.get_yscale() == "log"
    assert legend(ax) == ["X"]


def test_spectra_of_indefinite_matrices_and_quantiles():
    assert plots.spectra(torch.diag(torch.tensor([1.0, -2.0]))).get_yscale() == "linear"
    assert plots.spectra(np.eye(2), log=False).get_yscale() == "linear"
    row = {"layer": "BiMap 1", "low": [2, 1], "median": [4, 2], "high": [8, 4]}
    ax = plots.spectra(row)
    assert ax.lines[0].get_ydata().tolist() == [4, 2]
    assert ax.get_legend() is None
    plots.spectra(np.eye(2), label="a", ax=ax)
    plots.spectra(np.eye(2), label="b", ax=ax)
    assert legend(ax) == ["a", "b"]


def test_learning_curves():
    ax = plots.learning_curves(HISTORY, best_epoch=4)
    assert [line.get_label() for line in ax.lines] == ["train", "validation", "best epoch"]
    assert [line.get_ydata().tolist() for line in ax.lines[:2]] == [[2.0, 0.5], [2.5, 1.0]]
    assert ax.lines[0].get_xdata().tolist() == [3, 4]
    assert ax.lines[0].get_color() == plots.TRAIN
    assert ax.get_yscale() == "log"
    ax = plots.learning_curves(HISTORY, "accuracy", parts=["val"], label="a", color="red", ls="--")
    assert [line.get_label() for line in ax.lines] == ["a"]
    assert ax.lines[0].get_color() == "red"
    assert ax.get_yscale() == "linear"
    plots.learning_curves(HISTORY, "accuracy", label="b", ax=ax)
    assert legend(ax) == ["a", "b, train", "b, validation"]


def test_learning_curves_of_custom_history():
    ax = plots.learning_curves([{"loss": 1.0, "test_loss": 0.0}, {"loss": 0.5, "test_loss": 0.0}])
    assert ax.lines[0].get_xdata().tolist() == [1, 2]
    assert legend(ax) == ["train", "test"]
    assert ax.get_yscale() == "linear"  # a loss of zero
    assert plots.learning_curves(HISTORY[:1]).lines[0].get_marker() == "o"


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_confusion_of_labels(kind):
    ax = plots.confusion(y_true=kind([0, 0, 2, 2, 2]), y_pred=kind([0, 2, 2, 2, 0]))
    assert [text.get_text() for text in ax.get_xticklabels()] == ["0", "2"]
    np.testing.assert_allclose(ax.images[0].get_array(), [[1 / 2, 1 / 2], [1 / 3, 2 / 3]])
    cells = {text.get_position(): text.get_text() for text in ax.texts}
    assert cells == {(0, 0): "1", (1, 0): "1", (0, 1): "1", (1, 1): "2"}
    ax = plots.confusion(classes=[1, 0, 7], y_true=kind([0, 1]), y_pred=kind([0, 0]))
    assert ax.images[0].get_array().tolist() == [[0, 1, 0], [0, 1, 0], [0, 0, 0]]


@pytest.mark.parametrize("kind", [list, tuple, np.array, torch.tensor])
def test_confusion_of_counts(kind):
    ax = plots.confusion(kind([(3, 1), (0, 0)]), ["walk", "a very long name of a class"])
    assert ax.images[0].get_array().tolist() == [[0.75, 0.25], [0, 0]]
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert names[0] == "walk"
    assert names[1] == "a very lo… class"
    assert [text.get_text() for text in plots.confusion(np.eye(2)).get_xticklabels()] == ["0", "1"]


def test_confusion_of_many_classes_has_no_cell_text():
    assert len(plots.confusion(np.eye(25)).texts) == 25
    assert len(plots.confusion(np.eye(26)).texts) == 0


def test_legend_shows_names_with_leading_underscore():
    points = np.arange(12.0).reshape(6, 2)
    ax = plots.embedding(points, ["_a", "b"] * 3)
    assert legend(ax) == [" _a", "b"]
    ax = plots.cone(np.stack([np.eye(2)] * 2), ["_a", "b"])
    assert legend(ax) == [" _a", "b"]


def test_names_are_not_parsed_as_mathtext():
    for ax in (new_axes(""), None):
        ax = plots.confusion(np.eye(4), HOSTILE, ax=ax)
        labels = [*ax.get_xticklabels(), *ax.get_yticklabels()]
        assert [text.get_text() for text in labels] == HOSTILE * 2
        assert not any(text.get_parse_math() for text in labels)
    for name in ("spectra", "learning_curves", "roc", "cone", "embedding"):
        texts = DRAW[name]().get_legend().get_texts()
        assert any("$" in text.get_text() for text in texts)
        assert not any(text.get_parse_math() for text in texts)


def test_roc(rng):
    same = rng.random(500) < 0.3
    curve = metrics.roc(rng.normal(size=500) + same, same)
    ax = plots.roc(curve, label="a")
    seen = curve.far > 0
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), curve.far[seen])
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), curve.rate[seen])
    assert ax.lines[1].get_xdata() == [0.01, 0.01]
    plots.roc(tuple(map(torch.from_numpy, curve)), label="b", color="red", ax=ax)
    assert len(ax.lines) == 3  # the mark is drawn once
    assert legend(ax) == ["a", "b"]
    assert len(plots.roc(curve, mark=None).lines) == 1


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy, np.ndarray.tolist])
def test_cone(kind):
    ax = plots.cone(kind(TWO))
    x, y, z = (np.ma.getdata(v) for v in ax.collections[-1]._offsets3d)
    np.testing.assert_allclose(np.stack([x, y, z]), [[0.5, -1.5], [1, 0], [2.5, 2.5]])
    assert ax.get_legend() is None


def test_cone_distance_to_boundary_is_smallest_eigenvalue():
    X = random_spd(50, 2)
    x, y, z = plots.cone(X).collections[-1]._offsets3d
    smallest = np.asarray(z) - np.hypot(x, y)
    np.testing.assert_allclose(smallest, np.linalg.eigvalsh(X.numpy())[:, 0])


def test_cone_draws_paths_of_stages():
    stages = np.stack([TWO, 2 * TWO, 3 * TWO])
    ax = plots.cone(torch.from_numpy(stages), np.array(["b", "a"]))
    assert legend(ax) == ["a", "b"]
    paths = [
        np.stack(line.get_data_3d(), -1) for line in ax.lines if len(line.get_data_3d()[0]) == 3
    ]
    first, second = np.array([-1.5, 0, 2.5]), np.array([0.5, 1, 2.5])  # a before b
    np.testing.assert_allclose(paths, [np.outer([1, 2, 3], first), np.outer([1, 2, 3], second)])
    ends = [np.stack(points._offsets3d, -1)[0] for points in ax.collections[1:]]
    np.testing.assert_allclose(ends, [first, 3 * first, second, 3 * second])


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_embedding_preserves_distances_in_a_plane(rng, kind):
    plane = rng.normal(size=(30, 2)) * [3, 1]
    features = plane @ np.linalg.qr(rng.normal(size=(5, 2)))[0].T + 7
    ax = plots.embedding(kind(features), kind(np.arange(30) % 3))
    assert legend(ax) == ["0", "1", "2"]
    points = np.concatenate([c.get_offsets() for c in ax.collections])
    original = np.concatenate([plane[i::3] for i in range(3)])
    distance = np.linalg.norm(points[:, None] - points, axis=-1)
    np.testing.assert_allclose(distance, np.linalg.norm(original[:, None] - original, axis=-1))
    shares = [float(label.split()[-2]) for label in (ax.get_xlabel(), ax.get_ylabel())]
    assert sum(shares) == pytest.approx(100, abs=1)
    assert shares[0] > shares[1]


def test_embedding_of_matrices_is_log_euclidean():
    X = torch.diag_embed(torch.tensor([[1.0, 1.0], [4.0, 1.0], [16.0, 1.0]], dtype=torch.float64))
    ax = plots.embedding(X)
    np.testing.assert_allclose(np.diff(ax.collections[0].get_offsets()[:, 0]), np.log([4, 4]))
    assert ax.get_xlabel() == "first component, 100 %"
    assert ax.get_legend() is None


def test_embedding_omits_legend_for_many_classes(rng):
    for n, shown in ((10, True), (25, True), (26, False)):
        ax = plots.embedding(rng.normal(size=(2 * n, 3)), np.arange(2 * n) % n)
        colors = {tuple(c.get_facecolor()[0]) for c in ax.collections}
        assert len(colors) == n
        assert (ax.get_legend() is not None) == shown


BAD = {
    "spectra of vectors": (lambda: plots.spectra(np.ones(3)), ValueError, r"spectra: .*got \(3,\)"),
    "spectra of NaN": (
        lambda: plots.spectra(np.full((2, 2), np.nan)),
        ValueError,
        "spectra: .*NaN",
    ),
    "spectra of text": (
        lambda: plots.spectra("abc"),
        TypeError,
        "spectra: .*real numbers, got str",
    ),
    "spectra of nothing": (
        lambda: plots.spectra(np.ones((0, 2, 2))),
        TypeError,
        "spectra: .*shape",
    ),
    "not a band": (
        lambda: plots.spectra({"low": [1]}),
        ValueError,
        r"dict with low.*got \['low'\]",
    ),
    "no epochs": (lambda: plots.learning_curves([]), ValueError, "learning_curves: .*got none"),
    "measure": (
        lambda: plots.learning_curves(HISTORY, "f1"),
        ValueError,
        "learning_curves: expected measure .*'f1'",
    ),
    "part": (
        lambda: plots.learning_curves(HISTORY, parts=["dev"]),
        ValueError,
        "learning_curves: expected part .*'dev'",
    ),
    "missing": (
        lambda: plots.learning_curves([*HISTORY, {"epoch": 5}]),
        ValueError,
        r"'loss' in every row .*\['epoch'\] in row 2",
    ),
    "no loss at all": (
        lambda: plots.learning_curves([{"lr": 1}]),
        ValueError,
        r"'loss' in every row .*\['lr'\]",
    ),
    "counts": (lambda: plots.confusion(np.ones((2, 3))), ValueError, r"confusion: .*\(2, 3\)"),
    "negative": (lambda: plots.confusion(-np.eye(2)), ValueError, "confusion: .*at least 0"),
    "names": (lambda: plots.confusion(np.eye(2), "a"), ValueError, "confusion: .*2 classes, got 1"),
    "nothing": (lambda: plots.confusion(), ValueError, "confusion: expected either counts"),
    "half": (lambda: plots.confusion(y_true=[1]), ValueError, "confusion: expected either counts"),
    "lengths": (
        lambda: plots.confusion(y_true=[1], y_pred=[1, 2]),
        ValueError,
        "confusion: .*got 1 and 2",
    ),
    "label": (
        lambda: plots.confusion(classes=[1], y_true=[1], y_pred=[2]),
        ValueError,
        "confusion: .*got 2",
    ),
    "table": (
        lambda: plots.confusion(y_true=np.eye(2), y_pred=np.eye(2)),
        ValueError,
        r"confusion: expected y_true to be one-dimensional.*\(2, 2\)",
    ),
    "curve": (lambda: plots.roc([0.1, 0.2, 0.3]), ValueError, "roc: .*pair.*metrics.roc"),
    "rates": (lambda: plots.roc(([0, 2], [0, 1])), ValueError, "roc: .*from 0 to 1"),
    "mark": (lambda: plots.roc(([0, 1], [0, 1]), mark=0), ValueError, "roc: expected mark"),
    "size": (lambda: plots.cone(np.eye(3)), ValueError, r"cone: .*2, 2\), got \(3, 3\)"),
    "one": (lambda: plots.cone(np.eye(2)), ValueError, r"cone: .*stages.*got \(2, 2\)"),
    "indefinite": (lambda: plots.cone([-np.eye(2)]), ValueError, "cone: .*semi-definite"),
    "flat": (lambda: plots.cone(TWO, ax=plots.panels()[0]), ValueError, "cone: .*projection='3d'"),
    "classes": (lambda: plots.cone(TWO, [1]), ValueError, "cone: .*each of 2 points, got 1"),
    "features": (lambda: plots.embedding(np.ones(3)), ValueError, r"embedding: .*got \(3,\)"),
    "infinite": (lambda: plots.embedding([[np.inf]]), ValueError, "embedding: .*infinity"),
    "not SPD": (
        lambda: plots.embedding([-np.eye(2)]),
        ValueError,
        "embedding: .*positive definite",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_invalid_input_raises_message(name):
    call, kind, text = BAD[name]
    with pytest.raises(kind, match=text):
        call()
    assert len(pyplot.get_fignums()) == (name == "flat")  # no figure is created
