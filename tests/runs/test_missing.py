"""Missing channels and other montages in files: train, evaluate, predict, compare, data info."""

from itertools import pairwise

import numpy as np
import pytest
from typer.testing import CliRunner

from spdnet import SPDNetClassifier, covariance
from spdnet.adaptation import Conditioner, align_channels
from spdnet.cli.app import app
from spdnet.data import (
    DataError,
    Dataset,
    Preprocessing,
    StoredArray,
    clean,
    examine,
    prepare,
    read,
)
from spdnet.data.examination import covariances_of
from spdnet.runs import (
    Comparison,
    ComparisonFolder,
    RunFolder,
    Settings,
    TrainedModel,
    compare,
    train,
)
from spdnet.runs.watch import Terminated, Watch
from spdnet.training.checkpoint import CheckpointError

NAMES = ("Fz", "C3", "Cz", "C4", "Pz", "Oz")
MIXING = np.random.default_rng(7).normal(size=(6, 6))
QUICK = {"recipe": "fast", "epochs": 4, "device": "cpu", "baseline": False}


def signals(seed=0, n=80):
    """Return signals of two classes, which differ in the power of a source."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    sources = rng.normal(size=(n, 6, 60))
    sources[:, 0] *= np.where(y, 2.5, 1.0)[:, None]
    return MIXING @ sources, y


def matrices(seed=0, n=80):
    X, y = signals(seed, n)
    return covariance.estimate(X), y


def hide(X, rows, *channels):
    """Return a copy with missing channels in some matrices."""
    X = X.copy()
    for channel in channels:
        X[rows, channel] = X[rows, :, channel] = np.nan
    return X


def save(path, **arrays):
    np.savez(path, **arrays)
    return str(path)


def quick(data, **more):
    return Settings(data=data, **{**QUICK, **more})


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def trained_on(folder, **arrays):
    folder.mkdir(exist_ok=True)
    data = save(folder / "train.npz", **arrays)
    found = train(quick(data), RunFolder(folder / "run"))
    return TrainedModel.load(folder / "run", device="cpu"), found


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """Return a network that was trained on complete matrices with names."""
    X, y = matrices()
    return trained_on(tmp_path_factory.mktemp("named"), X=X, y=y, channels=NAMES)[0]


def test_missing_channels_in_all_parts(tmp_path):
    X, y = matrices()
    X = hide(hide(X, slice(0, 12), 1), slice(60, 66), 2, 4)
    X[70, 3] = X[70, :, 3] = 0
    split = np.repeat(["train", "test"], [55, 25])
    data = save(tmp_path / "a.npz", X=X, y=y, split=split)
    run = invoke("train", data, "--out", tmp_path / "run", "--epochs", 8, "--device", "cpu")
    assert run.exit_code == 0, run.output
    note = "19 of 80 matrices have missing channels, which are estimated from the others"
    assert run.output.count(note) == 1
    found = RunFolder(tmp_path / "run").run_results()
    assert note in found.notes
    assert found.accuracy > 0.8
    shown = invoke("evaluate", tmp_path / "run", data, "--device", "cpu")
    assert f"accuracy {100 * found.accuracy:.2f} %" in shown.output
    assert note in shown.output
    table = invoke("predict", tmp_path / "run", data, "--out", tmp_path / "p.csv")
    assert table.exit_code == 0, table.output
    trained = TrainedModel.load(tmp_path / "run", device="cpu")
    p = trained.predict_proba(X)
    one = np.concatenate([trained.predict_proba(X[i : i + 1]) for i in (0, 63, 70, 75)])
    np.testing.assert_allclose(one, p[[0, 63, 70, 75]], rtol=1e-9)
    zeros = np.nan_to_num(X, nan=0.0)
    np.testing.assert_array_equal(trained.predict_proba(zeros), p)


def test_complete_data_give_the_same_bits_as_without_conditioning(tmp_path):
    X, y = matrices()
    data = Dataset(X, y)
    how = Preprocessing.of(data, estimator="sample", reg=1e-3)
    made = prepare(data, how, "refuse", missing=True)
    np.testing.assert_array_equal(made.X, X)
    S, _ = signals()
    how = Preprocessing.of(Dataset(S, y), estimator="oas", reg=1e-3)
    np.testing.assert_array_equal(how(Dataset(S, y), missing=True), how(Dataset(S, y)))
    trained, found = trained_on(tmp_path / "a", X=X, y=y)
    assert found.notes == ()
    assert trained.conditioner.completes
    p = trained.predict_proba(X)
    trained.conditioner = Conditioner()
    np.testing.assert_array_equal(trained.predict_proba(X), p)
    same, kept, report = clean(X, missing=True)
    assert same is X
    assert (len(kept), report) == (80, "")


@pytest.mark.parametrize("estimator", ["sample", "oas", "student_t"])
def test_flat_and_nan_channels_of_signals(tmp_path, estimator):
    S, y = signals()
    S[3:9, 2], S[5, 4], S[40:50, 0] = 0.1, np.nan, 7
    data = save(tmp_path / "a.npz", X=S, y=y, channels=NAMES)
    found = train(quick(data, estimator=estimator, reg=0.01), RunFolder(tmp_path / "run"))
    assert "16 of 80 matrices have missing channels" in found.notes[0]
    trained = TrainedModel.load(tmp_path / "run", device="cpu")
    made = trained.preprocessing(read(data), missing=True)
    own = [0, 1, 3, 5]
    expected = covariance.estimate(S[5][own], estimator, reg=0.01)
    np.testing.assert_allclose(made[5][np.ix_(own, own)], expected, rtol=1e-12, atol=1e-12)
    assert np.isnan(made[5][[2, 4]]).all()
    assert len(trained.predict(S)) == 80
    shown = invoke("data", "info", data).stdout
    assert "missing channels (NaN, flat): 3 channels of 6, in 16 of 80 signals" in shown
    assert "  channel Cz in 6: 3, 4, 5, 6, 7, 8\n  channel Pz in 1: 5\n" in shown


@pytest.mark.parametrize("kind", ["matrices", "flat", "estimator"])
def test_a_channel_that_is_never_observed_is_removed(tmp_path, kind):
    X, y = matrices()
    X = hide(hide(X, slice(None), 3), slice(0, 5), 1)
    if kind == "estimator":
        model = SPDNetClassifier(recipe="fast", epochs=3, random_state=0, device="cpu").fit(X, y)
        assert model.conditioner_.notes_ == [
            "80 of 80 matrices have missing channels, which are estimated from the others, "
            "or removed if no training matrix has them",
            "channel 3 is missing in all training matrices, and is removed",
        ]
        assert (model.n_features_in_, model.dims_[0]) == (6, 5)
        whole, _ = matrices(1)
        np.testing.assert_array_equal(
            model.predict_proba(whole), model.predict_proba(hide(whole, slice(None), 3))
        )
        return
    S, _ = signals()
    S[:, 3], S[:5, 1] = 4, np.nan
    inputs = {"matrices": X, "flat": S}[kind]
    trained, found = trained_on(tmp_path / "a", X=inputs, y=y, channels=NAMES)
    assert "channel C4 is missing in all training matrices, and is removed" in found.notes
    assert found.dims[0] == 5
    assert trained.predict(inputs).shape == (80,)
    only = np.full_like(matrices()[0], np.nan)
    only[:, 3, 3] = 1
    if kind == "matrices":
        with pytest.raises(ValueError, match=r"one observed channel .* all of X\[0\] are missing"):
            trained.predict(only)
        shown = invoke("data", "info", tmp_path / "a" / "train.npz").stdout
        assert "  channel C4 in all\n" in shown
        assert "  those that are missing in all are removed in training" in shown
        assert "all symmetric positive definite" in shown


def test_average_reference_and_missing_channels(tmp_path):
    """Singular matrices are completed, too, before they are made definite."""
    S, y = signals()
    reference = np.eye(6) - 1 / 6
    C = reference @ covariance.sample_covariance(S) @ reference
    for name, X in (("train", hide(C, slice(0, 9), 2)), ("later", C)):
        trained, found = trained_on(tmp_path / name, X=X, y=y)
        assert any(note.startswith("rank") for note in found.notes)
        assert len(trained.predict(hide(C, slice(0, 40), 1, 5))) == 80


def test_other_montages_are_arranged_by_name(named, tmp_path):
    X, y = matrices(1)
    order = [4, 0, 5, 2, 1, 3]
    names = [NAMES[i] for i in order]
    p = named.predict_proba(X)
    moved = X[:, order][:, :, order]
    np.testing.assert_array_equal(named.predict_proba(moved, channels=names), p)
    np.testing.assert_array_equal(named.predict_proba(X, channels=np.array(NAMES)), p)
    # without Oz, and with two channels that the training did not have
    more = np.stack([np.eye(7)] * 80)
    more[:, 1:6, 1:6] = moved[:, [0, 1, 3, 4, 5]][:, :, [0, 1, 3, 4, 5]]
    own = ["T9", *(k for k in names if k != "Oz"), "T10"]
    data = save(tmp_path / "b.npz", X=more, y=y, channels=own)
    lack = "channels of the training data that are missing here: Oz"
    drop = "channels dropped, because the training data lack them: T9, T10"
    with pytest.warns(UserWarning, match="predict") as caught:
        found = named.predict_proba(more, channels=own)
    note = "80 of 80 matrices have missing channels, which are estimated from the others"
    note += ", or removed if no training matrix has them"
    texts = [f"predict: {text}" for text in (lack, drop, note)]
    assert [str(warning.message) for warning in caught] == texts
    np.testing.assert_array_equal(found, named.predict_proba(hide(X, slice(None), 5)))
    aligned = align_channels(more, own, NAMES, drop=True)
    np.testing.assert_array_equal(found, named.predict_proba(aligned))
    assert (found.argmax(1) == y).mean() > 0.8
    made = named.prepare(read(data), "refuse")
    np.testing.assert_array_equal(named.probabilities(made), found)
    assert made.notes == (lack, drop, note)


def test_signals_are_arranged_by_name(tmp_path):
    S, y = signals()
    trained, _ = trained_on(tmp_path / "a", X=S, y=y, channels=NAMES)
    data = save(tmp_path / "b.npz", X=S[:, ::-1], y=y, channels=NAMES[::-1])
    shown = invoke("evaluate", tmp_path / "a/run", data, "--part", "all", "--device", "cpu")
    same = invoke("evaluate", tmp_path / "a/run", tmp_path / "a/train.npz", "--part", "all")
    assert shown.output == same.output
    few = save(tmp_path / "c.npz", X=S[:, [4, 1, 2]], channels=["Pz", "C3", "Cz"])
    run = invoke("predict", tmp_path / "a/run", few, "--out", tmp_path / "p.csv")
    assert run.exit_code == 0, run.output
    assert "channels of the training data that are missing here: Fz, C4, Oz" in run.output
    S[:, [0, 3, 5]] = np.nan
    rows = (tmp_path / "p.csv").read_text().splitlines()[1:]
    np.testing.assert_allclose(
        [float(row.split(",")[-1]) for row in rows], trained.predict_proba(S)[:, 1], rtol=1e-5
    )


def test_names_that_do_not_fit_are_refused(named, tmp_path):
    X, y = matrices(1)
    for channels, text in (
        (("a", "b", "c", "d", "e", "f"), "expected the training channels, Fz, .* without"),
        (("Fz", "Fz", "c", "d", "e", "f"), "6 distinct names, .* got 'Fz' twice"),
        (NAMES[:4], r"6 distinct names.* shape \(4,\)"),
        ([1, 2, 3, 4, 5, 6], "6 distinct names.* int64"),
    ):
        with pytest.raises(DataError, match=text):
            named.predict(X, channels=channels)
        data = save(tmp_path / "a.npz", X=X, y=y, channels=channels)
        run = invoke("predict", named_folder(named, tmp_path), data, "--out", tmp_path / "p.csv")
        assert run.exit_code == 2
    with pytest.raises(DataError, match=r"did you mean 'Fz'\?"):
        named.predict(X, channels=["a", "Fz1", *"cdef"])
    with pytest.raises(ValueError, match=r"6 x 6 as in training, got 4 x 4; to match .* montages"):
        named.predict(X[:, :4, :4])
    with pytest.raises(DataError, match=r"without Oz; they are estimated only .* 'repair'"):
        named.prepare(Dataset(X[:, :5, :5], channels=NAMES[:5]), "repair")
    np.savez(tmp_path / "c.npz", X=X, y=y, ch_names=NAMES)
    assert "not used: array 'ch_names' (did you mean channels?)" in read(tmp_path / "c.npz").notes


def test_too_few_known_channels_are_refused(named):
    X, _ = matrices(1)
    with pytest.raises(DataError, match=r"without Fz, .*; 1 of 6 channels are too few"):
        named.predict(X, channels=["a", "b", "Cz", "d", "e", "f"])
    with pytest.warns(UserWarning, match="predict") as caught:
        assert len(named.predict(X, channels=["a", "b", "Cz", "d", "C4", "f"])) == len(X)
    assert "missing here: Fz, C3, Pz, Oz" in str(caught[0].message)


def named_folder(named, tmp_path):
    """Return the folder of the run of a network, trained again."""
    folder = tmp_path / "again"
    if not folder.exists():
        X, y = matrices()
        trained_on(folder, X=X, y=y, channels=NAMES)
    return folder / "run"


def test_partly_missing_channels_are_refused_by_name(tmp_path):
    X, y = matrices()
    X[7, 2, :3] = np.nan
    with pytest.raises(ValueError, match="1 not finite: 7"):
        train(quick(save(tmp_path / "a.npz", X=X, y=y)), RunFolder(tmp_path / "run"))
    with pytest.raises(ValueError, match=r"SPDNetClassifier: .*X\[7\] contains NaN"):
        SPDNetClassifier().fit(X, y)
    S, y = signals()
    S[7, 2, 5], S[9, 1] = np.nan, np.nan
    data = save(tmp_path / "b.npz", X=S, y=y, channels=NAMES)
    with pytest.raises(DataError, match="1 not finite: 7, the first in channel Cz"):
        train(quick(data), RunFolder(tmp_path / "run"))
    S[3] = np.nan
    data = save(tmp_path / "c.npz", X=S, y=y)
    found = train(quick(data, bad="drop"), RunFolder(tmp_path / "run"))
    assert found.notes[0].startswith("dropped 2 of 80 matrices (2 not finite: 3, 7); 1 of 78 matri")


def test_drop_keeps_matrices_with_missing_channels(tmp_path):
    """It drops what would be refused."""
    X, y = matrices()
    X[6] = -X[6]
    data = save(tmp_path / "a.npz", X=hide(X, [4, 5], 1), y=y)
    with pytest.raises(ValueError, match=r"1 of 80 that are not \(1 indefinite: 6\)"):
        train(quick(data), RunFolder(tmp_path / "run"))
    found = train(quick(data, bad="drop"), RunFolder(tmp_path / "a"))
    assert found.notes[0].startswith("dropped 1 of 80 matrices (1 indefinite: 6); 2 of 79 matrices")
    with pytest.raises(ValueError, match="2 not finite: 4, 5"):
        train(quick(data, bad="repair"), RunFolder(tmp_path / "b"))
    trained = TrainedModel.load(tmp_path / "a", device="cpu")
    assert len(trained.prepare(read(data), "drop")) == 79


def test_networks_of_signals_refuse_nan_and_accept_constant_channels(tmp_path):
    S, y = signals()
    S[3, 1] = 2
    more = {"model": "tsmnet", "dims": (6, 3)}
    data = save(tmp_path / "a.npz", X=S, y=y, groups=np.arange(80) // 8, channels=NAMES)
    train(quick(data, **more), RunFolder(tmp_path / "a"))
    trained = TrainedModel.load(tmp_path / "a", device="cpu")
    groups = np.arange(80) // 8
    p = trained.predict_proba(S, groups=groups)
    moved = trained.predict_proba(S[:, ::-1], groups=groups, channels=NAMES[::-1])
    np.testing.assert_array_equal(moved, p)
    with pytest.raises(DataError, match="without Oz; they are estimated only"):
        trained.predict(S[:, :5], groups=groups, channels=NAMES[:5])
    S[3, 1] = np.nan
    data = save(tmp_path / "b.npz", X=S, y=y, groups=groups)
    with pytest.raises(ValueError, match="1 not finite: 3"):
        train(quick(data, **more), RunFolder(tmp_path / "b"))


def test_methods_are_compared_with_missing_channels(tmp_path):
    S, y = signals()
    S[3:20, 2], S[70:, 4], S[:, 5] = np.nan, 1, 3
    data = save(tmp_path / "a.npz", X=S, y=y)
    settings = Comparison(data=data, methods=("mdm", "logistic"), repeats=2, device="cpu")
    found = compare(settings, ComparisonFolder(tmp_path / "b"))
    assert all(row.accuracy.mean > 0.75 for row in found.rows)
    settings = Comparison(data=data, methods=("herml",), repeats=1, device="cpu")
    with pytest.raises(ValueError, match=r"expected data with signals for herml, got .* NaN"):
        compare(settings, ComparisonFolder(tmp_path / "c"))


class Stopping(Watch):
    """Request a stop after some epochs."""

    epochs = 0

    def epoch(self, trainer):
        self.epochs += 1
        if self.epochs == 2:
            self.stop()


def test_an_interrupted_run_is_resumed_with_the_same_result(tmp_path):
    X, y = matrices()
    data = save(tmp_path / "a.npz", X=hide(hide(X, slice(0, 9), 2), slice(None), 4), y=y)
    whole = train(quick(data), RunFolder(tmp_path / "whole"))
    with pytest.raises(Terminated):
        train(quick(data), RunFolder(tmp_path / "parts"), watch=Stopping())
    parts = train(quick(data), RunFolder(tmp_path / "parts"), resume=True)
    assert parts.parts == whole.parts
    assert parts.notes == whole.notes
    models = [TrainedModel.load(tmp_path / name, device="cpu") for name in ("whole", "parts")]
    p, again = (model.predict_proba(X) for model in models)
    np.testing.assert_array_equal(again, p)


def test_accuracy_falls_smoothly_with_missing_channels():
    """And it stays above that of regression on the observed channels without the residual."""
    X, y = matrices(0, 240)
    test, t = matrices(1, 240)
    model = SPDNetClassifier(recipe="fast", epochs=10, random_state=0, device="cpu").fit(X, y)
    M = model.conditioner_.steps_[0].mean_
    accuracy, plain = [], []
    for k in range(4):
        rng, Z, R = np.random.default_rng(k), test.copy(), test.copy()
        for i in range(len(Z)):
            h = rng.choice(6, k, replace=False)
            o = np.setdiff1d(np.arange(6), h)
            Z[i, h] = Z[i, :, h] = np.nan
            B = np.eye(6)[:, o]
            B[h] = np.linalg.solve(M[np.ix_(o, o)], M[np.ix_(o, h)]).T
            R[i] = B @ test[i][np.ix_(o, o)] @ B.T + 1e-3 * np.diag(M.diagonal()) * (k > 0)
        accuracy.append(model.score(Z, t))
        plain.append(model.score(R, t))
    assert accuracy[0] > 0.9
    assert all(b > a - 0.15 for a, b in pairwise(accuracy))
    assert all(a >= b for a, b in zip(accuracy, plain, strict=True))
    assert accuracy[3] > plain[3] + 0.05


def test_zero_rows_are_missing_channels_of_the_estimator():
    X, y = matrices()
    partial = hide(X, slice(0, 30), 2)
    how = {"recipe": "fast", "epochs": 3, "random_state": 0, "device": "cpu"}
    for rank in ("auto", "full"):
        a, b = (SPDNetClassifier(rank=rank, shrinkage="auto", **how) for _ in range(2))
        p = a.fit(partial, y).predict_proba(partial)
        zeros = np.nan_to_num(partial, nan=0.0)
        np.testing.assert_array_equal(b.fit(zeros, y).predict_proba(zeros), p)
        assert a.conditioner_.notes_[0].startswith("30 of 80 matrices have missing channels")


def test_matrices_on_disk_have_all_channels(tmp_path, monkeypatch):
    monkeypatch.setattr("spdnet.data.io.readers.IN_MEMORY", 1000)
    X, y = matrices()
    data = save(tmp_path / "a.npz", X=X, y=y, channels=NAMES)
    assert isinstance(read(data).X, StoredArray)
    train(quick(data), RunFolder(tmp_path / "run"))
    trained = TrainedModel.load(tmp_path / "run", device="cpu")
    assert not trained.conditioner.completes
    with pytest.raises(DataError, match=r"without Oz; they are .* data in memory"):
        trained.predict(X[:, :5, :5], channels=NAMES[:5])
    moved = save(tmp_path / "b.npz", X=X, y=y, channels=NAMES[::-1])
    with pytest.raises(DataError, match=r"training order.* rearrange them in the file"):
        trained.prepare(read(moved), "refuse")
    partial = save(tmp_path / "c.npz", X=hide(X, [3], 1), y=y)
    with pytest.raises(ValueError, match="1 not finite: 3"):
        train(quick(partial), RunFolder(tmp_path / "run2"))
    assert "1 not finite: 3" in invoke("data", "info", partial).stdout


def test_names_are_part_of_the_digest_and_of_the_checkpoint(named):
    X, y = matrices()
    plain, with_names = Dataset(X, y), Dataset(X, y, channels=NAMES)
    assert with_names.digest != plain.digest
    assert with_names.inputs_digest == plain.inputs_digest
    assert with_names.take([1, 2]).channels == NAMES
    assert named.preprocessing.channels == NAMES
    state = named.state()
    for wrong in (NAMES[:3], (1, 2, 3, 4, 5, 6), "abcdef", 3):
        damaged = {**state, "preprocessing": {**state["preprocessing"], "channels": wrong}}
        with pytest.raises(CheckpointError, match="expected channels to be 6 distinct names"):
            TrainedModel._from_state({**damaged, "model": named.model.state_dict()}, None, "refuse")


def test_robust_estimators_name_the_signal():
    S, _ = signals()
    S[3:8, 0], S[6, 2] = 0, S[6, 1]
    text = r"tyler: .* X\[3\] .*; X are the 5 signals with 5 observed channels, X\[0\] is signal 3"
    with pytest.raises(ValueError, match=text):
        covariances_of(S, "tyler", 1e-3, missing=True)


def test_examine_describes_missing_channels():
    X, _ = matrices()
    found = examine(hide(X, [2, 4], 1), missing=True)
    assert len(found.bad) == 0
    assert {k: v.tolist() for k, v in found.missing.items()} == {1: [2, 4]}
    assert examine(hide(X, [2, 4], 1)).bad.tolist() == [2, 4]
