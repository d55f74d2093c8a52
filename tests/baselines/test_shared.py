"""Input validation and fitted state common to all baselines."""

import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from spdnet import covariance
from spdnet.baselines import (
    CDL,
    HERML,
    LEML,
    RSR,
    SPDML,
    DeepO2PClassifier,
    ExpressionletClassifier,
    LogEuclideanClassifier,
    MinimumDistanceToMean,
    NearestNeighbor,
    SteinSVC,
)
from spdnet.baselines.leml import draw_pairs
from spdnet.manifolds.log_euclidean import LogEuclidean
from tests.baselines.test_methods import every_method, problem, sets


def test_import_skips_lightning():
    code = "import sys, spdnet.baselines; print('lightning_fabric' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


@every_method
def test_accepts_rounding_errors_singular_matrices_and_tensors(model):
    X, y = problem()
    model = clone(model).fit(X, y)
    apart = X.astype("f4") * (1 + 1e-7 * np.random.default_rng(0).normal(size=X.shape)).astype("f4")
    assert not np.array_equal(apart, apart.swapaxes(1, 2))
    assert (model.predict(apart) == model.predict(X)).mean() > 0.9
    assert (model.predict(apart.astype("f8")) == model.predict(X)).mean() > 0.9
    T = torch.from_numpy(X).requires_grad_()
    np.testing.assert_array_equal(model.predict(T), model.predict(X))
    flat = X - X.mean(1, keepdims=True)
    flat -= flat.mean(2, keepdims=True)  # as of signals whose mean over channels is zero
    flat = (flat + flat.swapaxes(1, 2)) / 2
    for i in (0, 7):
        mixed = X.copy()
        mixed[i] = flat[i]
        with pytest.raises(ValueError, match=rf"X\[{i}\] is singular.*1 of 30.*regularize\(X\)"):
            model.predict(mixed)
    with pytest.raises(ValueError, match="30 of 30"):
        clone(model).fit(flat, y)
    assert clone(model).fit(covariance.regularize(flat), y).predict(X).shape == (30,)


@every_method
@pytest.mark.parametrize("wrong", ["labels", "matrices", "classes"])
def test_refused_fit_keeps_fitted_state(model, wrong):
    X, y = problem()
    model = clone(model).fit(X, y)
    before, state = model.predict(X), set(vars(model))
    new, other = problem(24, 6, labels=("x", "y"))
    bad = {"labels": other[:5], "matrices": other, "classes": ["x"] * 24}[wrong]
    with pytest.raises(ValueError, match="expected"):
        model.fit(-new if wrong == "matrices" else new, bad)
    assert set(vars(model)) == state
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert model.n_features_in_ == 4
    np.testing.assert_array_equal(model.predict(X), before)


def test_failed_fit_keeps_fitted_state():
    X, y = problem()
    model = CDL().fit(X, y)
    alike, other = np.repeat(np.eye(5)[None], 10, 0), np.arange(10) % 2
    with pytest.raises(ValueError, match="all are equal"):
        model.fit(alike, other)
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert model.predict(X).shape == (30,)
    F, labels = sets(20)
    herml = HERML().fit(F, labels)
    with pytest.raises(ValueError, match="differ"):
        herml.fit([np.ones((3, 2))] * 6, ["x", "y", "z"] * 2)
    assert herml.predict(F).shape == (20,)


CHANGES = [
    (CDL(), {"discriminant": "pls"}),
    (CDL("pls"), {"discriminant": "lda"}),
    (NearestNeighbor(), {"metric": "stein"}),
    (NearestNeighbor("stein"), {"metric": "log_euclidean"}),
    (MinimumDistanceToMean(), {"metric": "stein"}),
    (SPDML("stein", 2, tol=0.1), {"metric": "affine_invariant"}),
    (RSR(), {"normalize": "columns"}),
    (RSR(beta=1.0), {"beta": -1}),
    (SteinSVC(), {"C": -1}),
    (LEML(n_pairs=60), {"n_components": 99}),
    (LogEuclideanClassifier(), {"method": "svm"}),
]


@pytest.mark.parametrize(("model", "change"), CHANGES, ids=str)
def test_training_settings_do_not_affect_fitted_method(model, change):
    X, y = problem()
    model = clone(model).fit(X, y)
    before = model.predict(X)
    scores = model.decision_function(X) if hasattr(model, "decision_function") else None
    model.set_params(**change)
    np.testing.assert_array_equal(model.predict(X), before)
    if scores is not None:
        np.testing.assert_array_equal(model.decision_function(X), scores)
    if isinstance(model, LogEuclideanClassifier):
        assert model.predict_proba(X).shape == (30, 3)


@pytest.mark.parametrize("model", [HERML(), ExpressionletClassifier(2)], ids=str)
def test_training_settings_do_not_affect_fitted_set_method(model):
    X, y = sets()
    model = clone(model).fit(X, y)
    found = model.transform if hasattr(model, "transform") else model.distances
    before = found(X)
    model.set_params(reg=0.5)
    np.testing.assert_array_equal(found(X), before)


@pytest.mark.parametrize("model", [SPDML("stein", 2, max_iter=1), LEML(n_pairs=60, max_sweeps=1)])
def test_warnings_of_fit_name_the_line_of_the_caller(model):
    with pytest.warns(ConvergenceWarning, match="not converged") as caught:
        model.fit(*problem())
    assert {w.filename for w in caught} == {__file__}


def test_prediction_settings_are_validated_in_predict():
    X, y = problem()
    with pytest.raises(ValueError, match="k >= 1"):
        NearestNeighbor().fit(X, y).set_params(k=0).predict(X)
    with pytest.raises(ValueError, match="alpha > 0"):
        RSR().fit(X, y).set_params(alpha=-1).predict(X)


@every_method
def test_fitted_attributes_are_on_cpu(model):
    X, y = problem()
    for value in vars(clone(model).fit(X, y)).values():
        assert not isinstance(value, torch.Tensor) or value.device.type == "cpu"


def test_nearest_neighbor_decomposes_training_matrices_once(monkeypatch):
    X, y = problem()
    model = NearestNeighbor().fit(X, y)
    seen = []

    def logarithm(self, X, check):
        seen.append(len(X))
        return torch.linalg.eigh(X)[1]

    monkeypatch.setattr(LogEuclidean, "coordinates", logarithm)
    model.predict(X[:2])
    assert seen == [2]


STATES = [None, np.random.RandomState(3), 5]


@pytest.mark.parametrize("state", STATES, ids=str)
def test_random_state_types(state):
    X, y = problem()
    images, labels = np.random.default_rng(0).normal(size=(20, 8, 8)), np.arange(20) % 2
    F, of_sets = sets(20)
    for model, data, target in (
        (SPDML("stein", 2, init="random", tol=0.1), X, y),
        (LEML(n_pairs=20), X, y),
        (DeepO2PClassifier(epochs=1, batch_size=10, device="cpu"), images, labels),
        (HERML(), F, of_sets),
        (ExpressionletClassifier(2, max_features=100), F, of_sets),
    ):
        model.set_params(random_state=state)
        assert model.fit(data, target).predict(data).shape == target.shape


@pytest.mark.parametrize("model", [RSR(), SteinSVC(), LogEuclideanClassifier(method="svm")])
def test_global_random_generator_is_unchanged(model):
    X, y = problem()
    before = np.random.get_state()[1:3]
    clone(model).fit(X, y).predict(X)
    after = np.random.get_state()[1:3]
    np.testing.assert_array_equal(after[0], before[0])
    assert after[1] == before[1]


def test_deep_o2p_threads_pickle_and_invalid_input():
    X, y = np.random.default_rng(0).normal(size=(20, 8, 8)), np.arange(20) % 2

    def fit(_=0):
        return DeepO2PClassifier(epochs=1, batch_size=10, device="cpu").fit(X, y)

    model = fit()
    expected = model.decision_function(X)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(fit, range(40)):
            np.testing.assert_array_equal(found.decision_function(X), expected)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.decision_function(X), expected)
    assert {t.device.type for t in model.model_.state_dict().values()} == {"cpu"}
    tags = model.__sklearn_tags__().input_tags
    assert tags.three_d_array
    assert not tags.two_d_array
    with pytest.raises(ValueError, match="one label"):
        model.fit(X[:, :5, :5], y[:5])
    assert model.classes_.tolist() == [0, 1]
    np.testing.assert_array_equal(model.decision_function(X), expected)


def test_pairs_are_sampled_uniformly():
    codes = np.array([0, 1, 0, 2, 1, 0, 2])
    pairs, sign = draw_pairs(codes, 1000, 0)  # all there are
    drawn = {frozenset(pair) for pair in pairs.tolist()}
    assert len(drawn) == len(pairs) == 7 * 6 // 2
    np.testing.assert_array_equal(sign == 1, codes[pairs[:, 0]] == codes[pairs[:, 1]])
    counts: dict[frozenset[int], int] = {}
    for seed in range(2000):
        for pair in draw_pairs(codes, 4, seed)[0].tolist():
            counts[frozenset(pair)] = counts.get(frozenset(pair), 0) + 1
    same = [n for pair, n in counts.items() if len({codes[i] for i in pair}) == 1]
    other = [n for pair, n in counts.items() if len({codes[i] for i in pair}) == 2]
    assert (len(same), len(other)) == (5, 16)
    np.testing.assert_allclose(same, 2 * 2000 / 5, rtol=0.15)
    np.testing.assert_allclose(other, 2 * 2000 / 16, rtol=0.3)
    pairs, sign = draw_pairs(np.arange(4), 10, 0)  # none of one class
    assert (sign == -1).all()
    assert len(pairs) == 5
    many = np.arange(200_000) % 100  # 2e10 pairs: a list would not fit
    pairs, sign = draw_pairs(many, None, 0)
    assert pairs.shape == (2000, 2)
    assert (sign == 1).sum() == 1000
    assert len(np.unique(np.sort(pairs, 1), axis=0)) == 2000
    np.testing.assert_array_equal(sign == 1, many[pairs[:, 0]] == many[pairs[:, 1]])


def test_spdml_refuses_non_invariant_metrics():
    X, y = problem()
    with pytest.raises(ValueError, match="'affine_invariant', 'stein', got 'log_euclidean'"):
        SPDML("log_euclidean").fit(X, y)
