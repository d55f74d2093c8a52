"""Transformers of signals equal the functions and pyRiemann's classes."""

import pickle

import numpy as np
import pytest
import torch
from pyriemann.classification import MDM
from pyriemann.estimation import ERPCovariances as TheirERP
from pyriemann.estimation import XdawnCovariances as TheirXdawn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from spdnet import SPDNetClassifier, covariance
from spdnet.covariance import Covariances, ERPCovariances, XdawnCovariances
from spdnet.testing import assert_spd

KINDS = (Covariances, ERPCovariances, XdawnCovariances)
every = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
Y = np.resize(["other", "other", "target"], 30)


@pytest.fixture
def X(rng):
    """Return noise with an evoked response of the target in two channels."""
    X = rng.normal(size=(30, 5, 60))
    X[Y == "target", :2] += 2 * np.sin(np.arange(60) / 8)
    return X


@every
def test_scikit_learn_interface(kind, X):
    transformer = kind(estimator="oas", reg=0.01)
    assert transformer.get_params()["estimator"] == "oas"
    with pytest.raises(NotFittedError):
        transformer.transform(X)
    C = transformer.fit_transform(X, Y)
    assert C.dtype == np.float64
    assert transformer.n_features_in_ == 5
    assert_spd(torch.from_numpy(C))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(transformer)).transform(X), C)
    copied = clone(transformer)
    assert not hasattr(copied, "n_features_in_")
    np.testing.assert_array_equal(copied.fit(X, Y).transform(X[:3]), C[:3])
    np.testing.assert_array_equal(copied.fit(torch.from_numpy(X), Y).transform(X.tolist()), C)
    other = copied.set_params(reg=0.5).fit_transform(X, Y)
    assert abs(other - C).max() > 0.1
    assert repr(kind(reg=0.5)) == f"{kind.__name__}(reg=0.5)"


@pytest.mark.parametrize("estimator", covariance.ESTIMATORS)
def test_covariances_equal_estimate(estimator, X):
    C = Covariances(estimator, reg=0.1, mode="trace").fit_transform(X[:4])
    np.testing.assert_array_equal(C, covariance.estimate(X[:4], estimator, reg=0.1, mode="trace"))


def test_defaults_are_those_of_estimate(X):
    np.testing.assert_array_equal(Covariances().fit_transform(X), covariance.estimate(X))


@every
def test_pipelines(kind, X):
    network = SPDNetClassifier(recipe="fast", epochs=2, random_state=0, device="cpu")
    assert make_pipeline(kind(), network).fit(X, Y).predict(X).shape == (30,)
    scores = cross_val_score(make_pipeline(kind("ledoit_wolf"), MDM()), X, Y, cv=3)
    assert np.isfinite(scores).all()
    if kind is not Covariances:
        assert scores.mean() > 0.9


@pytest.mark.parametrize("classes", [None, ["target"], ["target", "other"]])
def test_erp_equals_pyriemann(classes, X):
    expected = TheirERP(classes=classes, estimator="cov").fit(X, Y).transform(X[:7])
    ours = ERPCovariances(classes=classes, mode="none").fit(X, Y)
    assert ours.classes_.tolist() == (classes or ["other", "target"])
    np.testing.assert_allclose(ours.transform(X[:7]), expected, atol=1e-14)


@pytest.mark.parametrize("classes", [None, ["target"]])
@pytest.mark.parametrize("n_filters", [1, 2, 5])
def test_xdawn_equals_pyriemann(classes, n_filters, X):
    theirs = TheirXdawn(n_filters, classes=classes, estimator="cov", xdawn_estimator="cov")
    expected = theirs.fit(X, Y).transform(X[:7])
    ours = XdawnCovariances(classes=classes, n_filters=n_filters, mode="none").fit(X, Y)
    filters = ours.filters_.reshape(-1, 5)
    sign = np.sign((filters * theirs.Xd_.filters_).sum(1))
    np.testing.assert_allclose(filters, sign[:, None] * theirs.Xd_.filters_, atol=1e-9)
    sign = np.concatenate([sign, sign])
    np.testing.assert_allclose(ours.transform(X[:7]), sign[:, None] * expected * sign, atol=1e-9)


def test_one_class_may_be_a_string(X):
    ours = ERPCovariances(classes="target").fit(X, Y)
    assert ours.classes_.tolist() == ["target"]
    expected = ERPCovariances(classes=["target"]).fit_transform(X, Y)
    np.testing.assert_array_equal(ours.transform(X), expected)


def test_xdawn_filters_solve_the_eigenproblem(X):
    found = XdawnCovariances(n_filters=3, mode="none").fit(X, Y)
    noise = np.cov(np.concatenate(list(X), axis=1))
    np.testing.assert_allclose(np.linalg.norm(found.filters_, axis=-1), 1)
    assert (
        np.take_along_axis(found.filters_, abs(found.filters_).argmax(-1)[..., None], -1) > 0
    ).all()
    for P, W in zip(found.averages_, found.filters_):
        power, total = W @ np.cov(P) @ W.T, W @ noise @ W.T
        np.testing.assert_allclose(power - np.diag(np.diag(power)), 0, atol=1e-12)
        ratio = np.diag(power) / np.diag(total)
        assert (np.diff(ratio) < 0).all()
    assert abs(found.filters_[1, 0, :2]).min() > 3 * abs(found.filters_[1, 0, 2:]).max()


def test_averages_are_those_of_the_training_signals(X):
    found = ERPCovariances().fit(X[:20], Y[:20])
    expected = X[:20][Y[:20] == "target"].mean(0)
    np.testing.assert_allclose(found.averages_[1], expected)
    found.transform(X)
    np.testing.assert_allclose(found.averages_[1], expected)


def test_rank_deficient_super_trials_are_regularized(X):
    """Ten filtered channels from five."""
    assert_spd(torch.from_numpy(XdawnCovariances(n_filters=5).fit_transform(X, Y)))
    centered = X - X.mean(1, keepdims=True)  # average reference
    assert_spd(torch.from_numpy(XdawnCovariances(n_filters=2).fit_transform(centered, Y)))


@every
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: X[:, :4], "expected signals of 5 channels as in fit, got 4"),
        (lambda X: X[0], r"expected X of shape \(n_signals, channels, T\), got \(5, 60\)"),
        (lambda X: X * np.nan, r"expected finite signals, got NaN or infinity in X\[0\]"),
        (lambda X: X[:0], "expected at least one"),
    ],
)
def test_invalid_signals_raise_message(kind, change, message, X):
    transformer = kind().fit(X, Y)
    with pytest.raises(ValueError, match=f"{kind.__name__}: {message}"):
        transformer.transform(change(X))


@every
def test_invalid_settings_raise_message(kind, X):
    with pytest.raises(ValueError, match=f"{kind.__name__}: expected estimator to be one of"):
        kind(estimator="lwf").fit(X, Y)
    with pytest.raises(ValueError, match="expected reg >= 0"):
        kind(reg=-1).fit(X, Y)
    with pytest.raises(ValueError, match="expected mode to be one of"):
        kind(mode="much").fit(X, Y)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda X: ERPCovariances(classes=["odd"]).fit(X, Y),
            r"ERPCovariances: expected distinct classes .* y, \['other', 'target'\], got \['odd",
        ),
        (lambda X: ERPCovariances(classes=[]).fit(X, Y), r"distinct classes among.*got \[\]"),
        (lambda X: ERPCovariances(classes=["odd", "target", "target"]).fit(X, Y), "distinct"),
        (lambda X: ERPCovariances(classes=["target", "target"]).fit(X, Y), "distinct"),
        (lambda X: ERPCovariances().fit(X, Y[:9]), "one label for each of 30 samples, got 9"),
        (
            lambda X: ERPCovariances().fit(X, Y).transform(X[..., 1:]),
            "ERPCovariances: expected signals of 60 observations as in fit, got 59",
        ),
        (lambda X: XdawnCovariances(n_filters=6).fit(X, Y), "n_filters <= 5.*got 6"),
        (lambda X: XdawnCovariances(n_filters=0).fit(X, Y), "n_filters >= 1"),
        (
            lambda X: XdawnCovariances(mode="none").fit(X - X.mean(1, keepdims=True), Y),
            r"XdawnCovariances: expected positive definite .* cov\(X\) is singular",
        ),
    ],
)
def test_invalid_erp_input_raises_message(call, message, X):
    with pytest.raises(ValueError, match=message):
        call(X)
