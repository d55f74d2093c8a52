import warnings

import numpy as np
import pytest
import scipy.linalg
from sklearn.base import clone
from sklearn.covariance import LedoitWolf
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import make_scorer
from sklearn.model_selection import GridSearchCV, GroupKFold, StratifiedKFold
from sklearn.svm import SVC

from spdnet.baselines import LogEuclideanClassifier
from tests.cases import random_spd

CHOOSING = ["logistic", "ridge", "svm"]


def problem(n, size, seed=0):
    X = random_spd(n, size, seed=seed).numpy()
    y = np.array(["low", "middle", "high"])[np.arange(n) % 3]
    return X * np.where(y == "low", 1, np.where(y == "high", 2, 1.5))[:, None, None], y


def logarithms(X):
    upper = np.triu_indices(X.shape[-1])
    scale = np.where(upper[0] == upper[1], 1, np.sqrt(2))
    return np.stack([scipy.linalg.logm(x)[upper] * scale for x in X])


def scaled(X):
    F = logarithms(X) - logarithms(X).mean(0)
    return F / np.sqrt((F**2).sum(1).mean())


@pytest.mark.parametrize(("n", "size"), [(60, 4), (30, 9)])  # fewer features, fewer matrices
def test_equals_direct_computation(n, size):
    X, y = problem(n, size)
    obvious = LogisticRegression(C=10, tol=1e-10, max_iter=5000).fit(scaled(X), y)
    ours = LogEuclideanClassifier(10).fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(X), obvious.predict_proba(scaled(X)), atol=2e-4)
    assert ours.C_ == 10
    assert (ours.rotation_ is None) == (size == 4)
    np.testing.assert_array_equal(ours.predict(X), obvious.predict(scaled(X)))
    assert ours.classes_.tolist() == sorted(set(y))


@pytest.mark.parametrize(("n", "size"), [(60, 4), (30, 9), (90, 15)])
def test_lda_shrinks_as_in_the_space_of_all_features(n, size):
    """scikit-learn does the same without rotation, but with the p by p matrix."""
    X, y = problem(n, size)
    new, _ = problem(40, size, seed=1)
    plain = LinearDiscriminantAnalysis("lsqr", covariance_estimator=LedoitWolf())
    plain.fit(logarithms(X), y)
    ours = LogEuclideanClassifier(method="lda").fit(X, y)
    np.testing.assert_array_equal(ours.predict(new), plain.predict(logarithms(new)))
    np.testing.assert_allclose(
        ours.predict_proba(new), plain.predict_proba(logarithms(new)), atol=1e-6
    )


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("size", [4, 12])  # fewer features, fewer matrices
@pytest.mark.parametrize("method", CHOOSING)
def test_strength_is_the_best_in_cross_validation(method, size, grouped):
    X, y = problem(72, size, seed=2)
    groups = np.random.default_rng(0).integers(6, size=72) if grouped else None
    folds = GroupKFold(4) if grouped else StratifiedKFold(4)
    estimator, grid = {
        "logistic": (LogisticRegression(tol=1e-8, max_iter=9999), {"C": 10.0 ** np.arange(-2, 5)}),
        "ridge": (RidgeClassifier(), {"alpha": 10.0 ** -np.arange(-2.0, 5)}),
        "svm": (SVC(), {"C": [1, 10, 100], "gamma": [0.1, 0.3, 1, 3]}),
    }[method]
    count = make_scorer(lambda y, found: (y == found).sum())  # folds differ in size
    search = GridSearchCV(estimator, grid, cv=folds, scoring=count)
    search.fit(scaled(X), y, groups=groups)
    model = LogEuclideanClassifier(method=method).fit(X, y, groups=groups)
    best = search.best_params_
    assert pytest.approx(1 / best["alpha"] if method == "ridge" else best["C"]) == model.C_
    assert getattr(model, "gamma_", None) == best.get("gamma")
    assert len(set(search.cv_results_["mean_test_score"])) > 1


@pytest.mark.parametrize("method", CHOOSING)
def test_folds_are_consecutive_or_keep_groups_together(method, monkeypatch):
    seen = []

    def count_right(self, features, codes, train, test, candidates):
        seen.append((train.tolist(), test.tolist()))
        return [0] * len(candidates)

    monkeypatch.setattr(LogEuclideanClassifier, "_count_right", count_right)
    X, y = problem(24, 3)
    model = LogEuclideanClassifier(method=method).fit(X, y)
    assert [test for _, test in seen] == [list(range(i, i + 6)) for i in range(0, 24, 6)]
    strongest = 1 if method == "svm" else 0.01
    assert strongest == model.C_  # of ties
    seen.clear()
    groups = np.array(["a", "b", "c", "a"])[np.arange(24) // 6]
    model.fit(X, y, groups=groups)
    assert len(seen) == 3
    assert all(not {*groups[train]} & {*groups[test]} for train, test in seen)
    seen.clear()
    model.fit(X, y, groups=["a"] * 24)  # one group cannot be held out
    assert len(seen) == 4


@pytest.mark.parametrize("method", CHOOSING)
def test_rare_classes_and_small_data(method):
    X, _ = problem(60, 3)
    model = LogEuclideanClassifier(method=method)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for y in ([0] * 40 + [1] * 17 + [2] * 2 + [3], np.arange(60) // 2):
            assert model.fit(X, y).predict(X).shape == (60,)
        for y, groups in (
            (np.arange(12), None),  # no class has two members
            (np.arange(12) // 6, np.arange(12) // 6),  # each class is one group
            (np.arange(12) // 3, np.arange(12) // 3),
        ):
            assert model.fit(X[:12], y, groups=groups).C_ == 3
        assert model.fit(X[:6], [0, 1] * 3).C_ == 3
        assert model.set_params(C=5).fit(X[:6], [0, 1] * 3).C_ == 5
    assert getattr(model, "gamma_", 1) == 1


def test_large_data_choose_on_a_subset(monkeypatch):
    monkeypatch.setattr("spdnet.baselines.log_euclidean._MOST", 30)
    sizes = []
    fit = LogisticRegression.fit
    monkeypatch.setattr(
        LogisticRegression, "fit", lambda self, X, y: sizes.append(len(X)) or fit(self, X, y)
    )
    X, y = problem(90, 3)
    LogEuclideanClassifier().fit(X, y)
    assert max(sizes[:-1]) < 30
    assert sizes[-1] == 90


def test_svm_chooses_gamma():
    X, y = problem(60, 4)
    model = LogEuclideanClassifier(method="svm").fit(X, y)
    assert (model.C_, model.gamma_) == (model.classifier_.C, model.classifier_.gamma)
    assert model.gamma_ in (0.1, 0.3, 1, 3)
    assert LogEuclideanClassifier(7, method="svm").fit(X, y).C_ == 7
    assert LogEuclideanClassifier(method="svm", gamma=0.2).fit(X, y).gamma_ == 0.2


def test_follows_sklearn_conventions():
    X, y = problem(30, 3)
    model = clone(LogEuclideanClassifier(C=0.5))
    assert model.get_params() == {"C": 0.5, "gamma": None, "max_iter": 2000, "method": "logistic"}
    with pytest.raises(NotFittedError):
        model.predict(X)
    assert 0.5 < model.fit(X, y).score(X, y) <= 1
    assert 0 < model.n_iter_ < 2000
    with pytest.raises(ValueError, match=r"expected X of shape \(..., 3, 3\)"):
        model.predict(random_spd(2, 4).numpy())
    for wrong in ({"C": 0}, {"gamma": -1.0}):
        with pytest.raises(ValueError, match=f"expected {next(iter(wrong))} > 0"):
            LogEuclideanClassifier(**wrong).fit(X, y)
    with pytest.raises(ValueError, match=r"expected groups of shape \(30,\).*got \(5,\)"):
        model.fit(X, y, groups=np.arange(5))


@pytest.mark.parametrize("method", ["logistic", "lda", "ridge", "svm"])
@pytest.mark.parametrize("C", [None, 1.0])
def test_constant_features_with_rounding_errors_are_ignored(method, C):
    """For example, coordinates of a joint relative to itself."""
    X, y = problem(60, 4)
    wide = np.zeros((60, 6, 6))
    wide[:, :4, :4] = X
    wide[:, [4, 5], [4, 5]] = 1e-3
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    wide[:, :4, :4] = turn @ wide[:, :4, :4] @ turn.T  # so that the decomposition has rounding
    wide = (wide + wide.transpose(0, 2, 1)) / 2
    model = LogEuclideanClassifier(C, method=method).fit(wide[:40], y[:40])
    narrow = LogEuclideanClassifier(C, method=method).fit(wide[:40, :4, :4], y[:40])
    if method != "lda":  # its shrinkage depends on the number of features
        np.testing.assert_array_equal(model.predict(wide[40:]), narrow.predict(wide[40:, :4, :4]))
    shifted = wide[40:].copy()
    shifted[:, 4, :4] = shifted[:, :4, 4] = 1e-15  # rounding of another kind
    np.testing.assert_array_equal(model.predict(shifted), model.predict(wide[40:]))


def test_equal_matrices():
    model = LogEuclideanClassifier().fit(np.repeat(2 * np.eye(3)[None], 12, 0), [0, 0, 1] * 4)
    assert model.predict(np.eye(3)[None]).tolist() == [0]
