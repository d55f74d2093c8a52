import pickle

import numpy as np
import pytest
import torch
from pyriemann.artifact_detection import Potato as MeanPotato
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from spdnet.adaptation import Potato
from spdnet.adaptation.outliers import MIN_MATRICES
from spdnet.linalg import expm
from spdnet.manifolds import METRICS, affine_invariant
from tests.cases import ILL_CONDITIONED, random_symmetric, with_spectrum


def trials(n=100, size=6, bad=(), center=None, seed=0):
    """Trials around a center, with noise on the first channel of the bad ones."""
    X = expm(0.3 * random_symmetric(n, size, seed=seed))
    if center is not None:
        X = center @ X @ center.mT
    X[list(bad), 0, 0] += 300 * X[list(bad)].diagonal(dim1=-2, dim2=-1).mean(-1)
    return X


def flagged(found):
    return np.flatnonzero(found == -1).tolist()


@pytest.mark.parametrize("metric", METRICS)
def test_noise_on_a_channel_is_found_in_every_metric(metric):
    X = trials(bad=[3, 50])
    potato = Potato(metric)
    found = potato.fit_predict(X)
    assert {3, 50} <= set(flagged(found))
    assert len(flagged(found)) < 8
    np.testing.assert_array_equal(found, potato.predict(X.numpy()))


@pytest.mark.parametrize("share", [0.01, 0.1, 0.3])
def test_equal_outliers_do_not_mask_each_other(share):
    n = 200
    bad = list(range(round(share * n)))
    X = trials(n, bad=bad).numpy()
    found = Potato().fit_predict(X)
    assert (found[bad] == -1).all()
    assert np.mean(np.delete(found, bad) == -1) < 0.03
    if share == 0.3:  # with mean and standard deviation they do
        assert (MeanPotato().fit(X).predict(X) == 1).all()


def test_scores_by_their_formula():
    X = trials(40)
    potato = Potato(threshold=20.0).fit(X)
    M = affine_invariant.mean(X)
    x = affine_invariant.distance(X, M).log().numpy()
    z = (x - np.median(x)) / (1.4826 * np.median(np.abs(x - np.median(x))))
    np.testing.assert_allclose(potato.score_samples(X), -z, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(potato.decision_function(X), 20 - z, rtol=1e-8, atol=1e-8)
    assert potato.offset_ == -20
    # pyriemann has another location and scale of the same logarithms
    theirs = MeanPotato(threshold=20).fit(X.numpy())
    expected = theirs.transform(X.numpy()) * theirs._std + theirs._mean
    ours = potato.location_ - potato.scale_ * potato.score_samples(X)
    np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-6)


def test_decisions_are_those_of_pyriemann_on_clear_cases():
    X = trials(bad=[7, 8]).numpy()
    theirs = MeanPotato(threshold=4).fit(X).predict(X)
    assert flagged(Potato(threshold=4.0).fit_predict(X)) == np.flatnonzero(theirs == 0).tolist()


def test_outliers_do_not_move_the_statistics():
    X = trials(bad=[0])
    with_one, without = Potato().fit(X), Potato().fit(X[1:])
    np.testing.assert_allclose(with_one.location_, without.location_, rtol=1e-9)
    np.testing.assert_allclose(with_one.scale_, without.scale_, rtol=1e-9)


def test_affine_invariance_of_the_default_only():
    W = torch.diag(torch.logspace(-3, 3, 6, dtype=torch.float64)) + 0.1
    X = trials(60, bad=[5])
    moved = W @ X @ W.mT
    expected = Potato().fit(X).score_samples(X)
    np.testing.assert_allclose(Potato().fit(moved).score_samples(moved), expected, atol=1e-5)
    flat = Potato("log_euclidean")
    assert not np.allclose(flat.fit(moved).score_samples(moved), flat.fit(X).score_samples(X))


def test_domains_are_screened_separately():
    far = 30 * torch.eye(6, dtype=torch.float64)
    X = torch.cat([trials(50, bad=[4]), trials(30, bad=[2], center=far, seed=1)])
    domains = np.array(["a"] * 50 + ["b"] * 30)
    potato = Potato()
    found = potato.fit_predict(X, domains=domains)
    assert {4, 52} <= set(flagged(found))
    assert len(flagged(found)) < 8
    for name, of in (("a", slice(0, 50)), ("b", slice(50, 80))):
        alone = Potato().fit(X[of]).score_samples(X[of])
        np.testing.assert_allclose(potato.score_samples(X, domains=domains)[of], alone)
        # a new domain is compared with itself, with or without a name
        other = Potato().fit(X[50:] if name == "a" else X[:50], domains=["x"] * (80 - len(alone)))
        np.testing.assert_allclose(other.score_samples(X[of], domains=[name] * len(alone)), alone)
        np.testing.assert_allclose(other.score_samples(X[of]), alone)
    assert potato.domains_.tolist() == ["a", "b"]
    assert Potato().fit(X).domains_ is None
    # one trial of a known domain is compared with those of the training
    assert potato.predict(X[4:5], domains=["a"]).tolist() == [-1]
    assert potato.predict(X[4:5], domains=["new"]).tolist() == [1]


def test_a_rare_class_is_not_an_outlier():
    far = 30 * torch.eye(6, dtype=torch.float64)
    X = torch.cat([trials(190, bad=[4]), trials(10, center=far, seed=1)])
    y = np.array(["often"] * 190 + ["rarely"] * 10)
    found = Potato().fit_predict(X, y)
    assert found[4] == -1
    assert (found[190:] == 1).all()
    assert np.sum(found == -1) < 6
    assert (Potato().fit_predict(X)[190:] == -1).all()  # the limit of a detector without classes
    near = torch.diag(torch.tensor([1.3] + [1.0] * 5, dtype=torch.float64))
    X = torch.cat([trials(190, bad=[4]), trials(10, center=near, seed=1)])
    assert (Potato().fit_predict(X)[190:] == 1).sum() >= 9  # unless the classes are close


@pytest.mark.parametrize("metric", METRICS)
def test_classes_of_one_matrix_do_not_decide_what_is_far(metric):
    X = trials(60, bad=[59])
    y = np.minimum(np.arange(60), 30)  # 30 classes of one matrix, and one of 30
    found = flagged(Potato(metric).fit(X, y).predict(X))
    assert 59 in found
    assert len(found) < 8
    assert not flagged(Potato(metric).fit(X[:48], y[:48]).predict(X[:48]))  # too few to tell


def test_domains_that_are_not_screened_have_no_outliers():
    few = trials(MIN_MATRICES - 1, bad=[0])
    potato = Potato().fit(few)
    assert (potato.score_samples(few) == 0).all()
    assert np.isinf(potato.scale_).all()
    assert (potato.predict(trials(30, bad=[1])) == 1).all()
    assert Potato().fit_predict(trials(MIN_MATRICES, bad=[0]))[0] == -1
    for metric in ("affine_invariant", "log_euclidean"):
        same = torch.eye(3, dtype=torch.float64).repeat(30, 1, 1)
        other = same.clone()
        other[0, 0, 0] = 4.0
        halves = same.clone()
        halves[::2] *= 4  # both are equally far from the mean
        for X in (same, other, halves):
            assert (Potato(metric).fit_predict(X) == 1).all()
    every = np.arange(30)  # every matrix is the mean of its class
    assert (Potato().fit_predict(trials(30, bad=[1]), every) == 1).all()


@pytest.mark.parametrize("metric", ["affine_invariant", "log_euclidean"])
def test_ill_conditioned_matrices(metric):
    root = with_spectrum([value**0.5 for value in ILL_CONDITIONED], seed=1)  # condition 1e8
    X = trials(40, 4, bad=[3], center=root)
    scores = Potato(metric).fit(X).score_samples(X)
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("metric", ["affine_invariant", "log_euclidean"])
def test_complex_matrices_are_screened_as_a_whole(metric):
    rng = np.random.default_rng(0)
    signals = rng.normal(size=(60, 3, 80)) + 1j * rng.normal(size=(60, 3, 80))
    signals[[3, 50], 1] = 1j * signals[[3, 50], 0] + 0.1 * signals[[3, 50], 1]
    X = signals @ signals.conj().swapaxes(1, 2) / 160
    assert flagged(Potato(metric).fit_predict(X)) == [3, 50]
    assert not {3, 50} & set(flagged(Potato(metric).fit_predict(X.real)))


def test_float32_and_a_small_unit():
    X = trials(bad=[9])
    found = Potato().fit_predict(X.float())
    assert found[9] == -1
    np.testing.assert_array_equal(Potato().fit_predict(1e-12 * X), Potato().fit_predict(X))


def test_scikit_learn_interface():
    X = trials(bad=[1])
    potato = Potato("log_euclidean", threshold=2.5)
    assert clone(potato).get_params() == {"metric": "log_euclidean", "threshold": 2.5}
    with pytest.raises(NotFittedError):
        potato.predict(X)
    assert potato.fit(X) is potato
    assert potato.n_features_in_ == 6
    again = pickle.loads(pickle.dumps(potato))
    np.testing.assert_array_equal(again.score_samples(X), potato.score_samples(X))
    assert potato.__sklearn_tags__().estimator_type == "outlier_detector"


def test_errors():
    X = trials(30)
    with pytest.raises(ValueError, match="Potato: expected threshold > 0"):
        Potato(threshold=0.0).fit(X)
    with pytest.raises(ValueError, match="Potato: expected metric to be one of"):
        Potato("cosine").fit(X)
    with pytest.raises(ValueError, match=r"Potato: expected y of shape \(30,\), one class for"):
        Potato().fit(X, np.zeros(29))
    with pytest.raises(ValueError, match="Potato: expected domains of the 30 samples"):
        Potato().fit(X, domains=["a"])
    with pytest.raises(ValueError, match="Potato"):
        Potato().fit(X).predict(trials(30, 5))
