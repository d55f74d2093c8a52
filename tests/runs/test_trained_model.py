"""A run of the command line, used from Python."""

import csv

import numpy as np
import pytest
from typer.testing import CliRunner

from spdnet.cli import app
from spdnet.runs import RunFolder, TrainedModel, train
from tests.runs.test_train import TSMNET, file_of, quick, recordings


def predictions(run, data, out):
    """What ``spdnet predict`` writes: labels, and probabilities."""
    run = CliRunner().invoke(app, ["predict", str(run), str(data), "--out", str(out)])
    assert run.exit_code == 0, run.stderr
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    columns = [name for name in rows[0] if name.startswith("p(")]
    return [row["label"] for row in rows], [[float(row[c]) for c in columns] for row in rows]


@pytest.mark.parametrize("kind", ["matrices", "signals", "float32", "tsmnet"])
def test_predictions_are_those_of_the_command(tmp_path, kind):
    more = {"signals": {"estimator": "oas", "reg": 0.1}, "float32": {"dtype": "float32"}}
    more["tsmnet"] = TSMNET
    data = recordings(tmp_path) if kind in ("signals", "tsmnet") else file_of(tmp_path)
    train(quick(data, **more.get(kind, {})), RunFolder(tmp_path / "run"))
    trained = TrainedModel.load(tmp_path / "run", device="cpu")
    with np.load(data) as file:
        X = file["X"]
        groups = {"groups": file["groups"]} if kind == "tsmnet" else {}
    labels, p = predictions(tmp_path / "run", data, tmp_path / "p.csv")
    assert trained.predict(X, **groups).tolist() == labels
    np.testing.assert_allclose(trained.predict_proba(X, **groups), p, rtol=1e-5)
    assert set(labels) <= set(trained.classes)


def test_what_is_not_as_in_training_is_refused(tmp_path):
    data = file_of(tmp_path)
    train(quick(data), RunFolder(tmp_path / "run"))
    trained = TrainedModel.load(tmp_path / "run", device="cpu")
    assert repr(trained) == "TrainedModel(SPDNet, dims 5,5,5, 3 classes, for matrices of 5 x 5)"
    with np.load(data) as file:
        X = file["X"]
    for wrong, error, text in (
        (
            X[:, :4, :4],
            ValueError,
            r"expected 5 x 5 as in training, got 4 x 4; .* name the channels",
        ),
        (
            np.ones((3, 5, 40)),
            ValueError,
            "got 5 x 40; these are signals, but the training data were",
        ),
        (X[0], ValueError, r"expected X of shape \(N, n, n\), got \(5, 5\)"),
        (X[:0], ValueError, "at least one matrix"),
        (X + 1j, TypeError, "real numbers"),
        (X.astype(str), TypeError, "numbers"),
        (0 * X, ValueError, "60 zero"),
    ):
        with pytest.raises(error, match=text):
            trained.predict(wrong)
    with pytest.raises(ValueError, match="expected no groups"):
        trained.predict(X, groups=np.zeros(60))


def test_groups_of_tsmnet(tmp_path):
    data = recordings(tmp_path, groups=3)
    train(quick(data, **TSMNET), RunFolder(tmp_path / "run"))
    trained = TrainedModel.load(tmp_path / "run", device="cpu")
    with np.load(data) as file:
        X, groups = file["X"], file["groups"]
    assert repr(trained).endswith("2 classes, for signals of 4 channels)")
    with pytest.raises(ValueError, match=r"expected groups of the 90 samples.*\['new'\] \* len"):
        trained.predict(X)
    with pytest.raises(ValueError, match=r"expected groups of the 90 samples, got shape \(3,\)"):
        trained.predict(X, groups=groups[:3])
    with pytest.raises(ValueError, match="names or integers"):
        trained.predict(X, groups=np.linspace(0, 1, 90))
    whole = trained.predict_proba(X, groups=np.arange(90) % 3 + 5)
    np.testing.assert_array_equal(trained.predict_proba(X, groups=np.arange(90) % 3 + 5.0), whole)
    np.savez(tmp_path / "bare.npz", X=X)
    labels, _ = predictions(tmp_path / "run", tmp_path / "bare.npz", tmp_path / "p.csv")
    assert trained.predict(X, groups=["new"] * 90).tolist() == labels


def test_symmetric_matrices_are_no_signals(tmp_path):
    data = recordings(tmp_path)
    train(quick(data), RunFolder(tmp_path / "run"))
    trained = TrainedModel.load(tmp_path / "run", device="cpu")
    with pytest.raises(ValueError, match=r"expected signals of 4 channels, got symmetric matrices"):
        trained.predict(np.stack([np.eye(4)] * 3))


@pytest.mark.parametrize("bad", ["repair", "drop", "refuse"])
def test_bad_matrices_are_treated_as_in_training(tmp_path, bad):
    with np.load(file_of(tmp_path)) as file:
        X, y = file["X"].copy(), file["y"]
    train(quick(str(tmp_path / "a.npz"), bad=bad), RunFolder(tmp_path / "run"))
    for path in (tmp_path / "run", tmp_path / "run" / "checkpoints" / "best.pt"):
        trained = TrainedModel.load(path, device="cpu")
        assert trained.bad == bad
    X[3, 0] = X[3, 1]
    X[3, :, 0] = X[3, :, 1]  # singular
    np.savez(tmp_path / "b.npz", X=X, y=y)
    if bad == "repair":
        assert len(trained.predict(X)) == 60
    else:
        with pytest.raises(ValueError, match="1 singular: 3"):
            trained.predict(X)  # a row for each, or none
    for command in ("evaluate", "predict"):
        out = () if command == "evaluate" else ("--out", str(tmp_path / "p.csv"))
        arguments = [command, str(tmp_path / "run"), str(tmp_path / "b.npz"), *out]
        run = CliRunner().invoke(app, arguments)
        assert run.exit_code == (2 if bad == "refuse" else 0)
        told = CliRunner().invoke(app, [*arguments, "--bad", "refuse", *(["--force"] * bool(out))])
        assert told.exit_code == 2
        assert "1 singular: 3" in told.stderr
    (tmp_path / "run" / "settings.toml").write_text("bad = = 3")
    assert TrainedModel.load(tmp_path / "run", device="cpu").bad == "refuse"


def imbalanced(folder, n=400):
    """One class in ten, which overlaps with the other."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % 10 == 0
    scale = np.exp(rng.normal(size=(n, 3)) + 0.8 * y[:, None])
    np.savez(folder / "rare.npz", X=scale[:, :, None] * np.eye(3), y=y.astype(int))
    return str(folder / "rare.npz")


def test_balanced_classes_find_the_rare_one(tmp_path):
    data, recall, found = imbalanced(tmp_path), {}, {}
    more = {"epochs": 15, "lr": 0.01, "test": 0.4}
    for name in ("none", "balanced"):
        folder = RunFolder(tmp_path / name)
        found[name] = train(quick(data, **more, class_weight=name), folder)
        recall[name] = found[name].per_class[1].recall
        assert folder.settings().class_weight == name
    assert recall["balanced"] > recall["none"] + 0.2
    plain = train(quick(data, **more), RunFolder(tmp_path / "plain"))
    assert plain.parts == found["none"].parts
    with pytest.raises(ValueError, match="class_weight to be one of 'balanced', 'none', got 'equ"):
        quick(data, class_weight="equal")


def test_balanced_weights_are_those_of_the_estimator(tmp_path):
    from sklearn.utils.class_weight import compute_sample_weight

    from spdnet.data import Preprocessing, load_dataset, prepare
    from spdnet.runs.training import divide

    data = imbalanced(tmp_path)
    matrices = prepare(load_dataset(data), Preprocessing(False, 3, "sample", 1e-3), "refuse")
    division = divide(matrices, quick(data))
    learn = division.parts["train"]
    expected = compute_sample_weight("balanced", division.codes[learn])
    np.testing.assert_allclose(division.balanced_weights[learn], expected)
    assert expected.mean() == pytest.approx(1)


def test_another_unit_warns(tmp_path):
    data = file_of(tmp_path)
    train(quick(data), RunFolder(tmp_path / "run"))
    trained = TrainedModel.load(tmp_path / "run", device="cpu")
    X = np.load(data)["X"]
    trained.predict(X)
    with pytest.warns(UserWarning, match=r"60 of 60 samples .* factor of about 1e\+12"):
        trained.predict(1e12 * X)
    np.savez(tmp_path / "b.npz", X=1e12 * X, y=np.load(data)["y"])
    for command in ("predict", "evaluate"):
        out = ("--out", str(tmp_path / "p.csv")) if command == "predict" else ()
        arguments = [command, str(tmp_path / "run"), str(tmp_path / "b.npz"), *out]
        run = CliRunner().invoke(app, arguments)
        assert run.exit_code == 0
        assert "warning: the scale of 60 of 60 samples" in run.output
