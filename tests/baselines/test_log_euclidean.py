import numpy as np
import pytest
import scipy.linalg
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from spdnet.baselines import LogEuclideanClassifier
from tests.cases import random_spd


def problem(n, size):
    X = random_spd(n, size).numpy()
    y = np.array(["low", "middle", "high"])[np.arange(n) % 3]
    return X * np.where(y == "low", 1, np.where(y == "high", 2, 1.5))[:, None, None], y


@pytest.mark.parametrize(("n", "size"), [(60, 4), (30, 9)])  # fewer features, fewer matrices
def test_equals_direct_computation(n, size):
    X, y = problem(n, size)
    upper = np.triu_indices(size)
    scale = np.where(upper[0] == upper[1], 1, np.sqrt(2))
    logs = np.stack([scipy.linalg.logm(x)[upper] * scale for x in X])
    obvious = make_pipeline(StandardScaler(), LogisticRegression(tol=1e-10, max_iter=5000))
    obvious.fit(logs, y)
    ours = LogEuclideanClassifier().fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(X), obvious.predict_proba(logs), atol=2e-3)
    assert (ours.rotation_ is None) == (size == 4)
    np.testing.assert_array_equal(ours.predict(X), obvious.predict(logs))
    assert ours.classes_.tolist() == sorted(set(y))


def test_follows_sklearn_conventions():
    X, y = problem(30, 3)
    model = clone(LogEuclideanClassifier(C=0.5))
    assert model.get_params() == {"C": 0.5, "max_iter": 2000, "method": "logistic"}
    with pytest.raises(NotFittedError):
        model.predict(X)
    assert 0.5 < model.fit(X, y).score(X, y) <= 1
    assert 0 < model.n_iter_ < 2000
    with pytest.raises(ValueError, match=r"expected X of shape \(..., 3, 3\)"):
        model.predict(random_spd(2, 4).numpy())
    with pytest.raises(ValueError, match="expected C > 0"):
        LogEuclideanClassifier(C=0).fit(X, y)


@pytest.mark.parametrize("method", ["logistic", "lda", "ridge", "svm"])
def test_constant_features_with_rounding_errors_are_ignored(method):
    """For example, coordinates of a joint relative to itself."""
    X, y = problem(60, 4)
    wide = np.zeros((60, 6, 6))
    wide[:, :4, :4] = X
    wide[:, [4, 5], [4, 5]] = 1e-3
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    wide[:, :4, :4] = turn @ wide[:, :4, :4] @ turn.T  # so that the decomposition has rounding
    wide = (wide + wide.transpose(0, 2, 1)) / 2
    model = LogEuclideanClassifier(method=method).fit(wide[:40], y[:40])
    narrow = LogEuclideanClassifier(method=method).fit(wide[:40, :4, :4], y[:40])
    if method in ("logistic", "ridge"):
        np.testing.assert_array_equal(model.predict(wide[40:]), narrow.predict(wide[40:, :4, :4]))
    shifted = wide[40:].copy()
    shifted[:, 4, :4] = shifted[:, :4, 4] = 1e-15  # rounding of another kind
    np.testing.assert_array_equal(model.predict(shifted), model.predict(wide[40:]))
