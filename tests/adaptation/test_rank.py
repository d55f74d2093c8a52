"""The numerical rank does not depend on units and storage; the subspace loses nothing."""

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from spdnet import SPDNetClassifier
from spdnet.adaptation import Subspace, find_rank
from spdnet.adaptation.shrinkage import GRID, cross_validate, shrink
from spdnet.covariance import oas, regularize
from spdnet.covariance.estimators import oas_shrinkage
from spdnet.linalg import symmetrize
from spdnet.manifolds import log_euclidean
from tests.cases import SPECTRA, random_spd, with_spectrum


def centering(n):
    return np.eye(n) - 1 / n


def random_basis(n, seed=0):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(n, n)))[0]


def covariances(count, n, T, seed=0):
    A = np.random.default_rng(seed).normal(size=(count, n, T))
    return symmetrize(A @ A.swapaxes(1, 2) / T)


def referenced(count, n, seed=0):
    """Return covariances after an average reference."""
    return symmetrize(centering(n) @ covariances(count, n, 5 * n, seed) @ centering(n))


def few_observations(count=48, n=6, T=5, seed=0):
    """Return covariances of rank T and of full rank, and two classes of different shape."""
    rng = np.random.default_rng(seed)
    y = np.arange(count) % 2
    X = []
    for i, label in enumerate(y):
        scale = np.ones(n)
        scale[0] += 2 * label
        A = scale[:, None] * rng.normal(size=(n, T if i % 4 else 4 * n))
        X.append(A @ A.T / A.shape[1])
    return np.stack(X), y


def decimal(X, digits):
    return np.vectorize(lambda v: float(f"{v:.{digits}g}"))(X)


STORAGE = {
    "float64": lambda X: X,
    "float32": lambda X: X.astype(np.float32),
    "float32 numbers in float64": lambda X: X.astype(np.float32).astype(np.float64),
    "six digits": lambda X: decimal(X, 6),
    "eight decimals": lambda X: X.round(8),
    "units of 1e-12": lambda X: 1e-12 * X,
    "units of 1e-12 in float32": lambda X: (1e-12 * X).astype(np.float32),
    "volts and microvolts": lambda X: scaled(X, 1e-6),
    "EEG and MEG": lambda X: scaled(X, 1e-8),
}


def scaled(X, factor):
    d = np.where(np.arange(X.shape[-1]) % 2, factor, 1.0)
    return d[:, None] * X * d


@pytest.mark.parametrize("how", STORAGE)
def test_rank_of_an_average_reference_for_each_storage(how):
    for n in (3, 8, 22):
        X = covariances(20, n, 5 * n)
        assert (find_rank(STORAGE[how](X)) == n).all()
        assert (find_rank(STORAGE[how](centering(n) @ X @ centering(n))) == n - 1).all()


def test_negative_eigenvalues_of_rounded_matrices_are_accepted():
    X = referenced(20, 8).astype(np.float32).astype(np.float64)
    assert np.linalg.eigvalsh(X).min() < -1e-9
    assert (find_rank(X) == 7).all()
    X[3] -= 1e-3 * np.eye(8)
    with pytest.raises(ValueError, match=r"find_rank: .*X\[3\] is not positive semi-definite"):
        find_rank(X)


@pytest.mark.parametrize("values", SPECTRA.values(), ids=SPECTRA)
def test_positive_definite_matrices_have_full_rank(values):
    assert find_rank(with_spectrum(values).numpy()[None]).tolist() == [len(values)]


def test_small_true_eigenvalues_count():
    for ratio in (1e-8, 1e-10):
        assert find_rank(with_spectrum([ratio, 0.3, 0.8, 1.0]).numpy()[None]) == 4
        assert find_rank(with_spectrum([0.0, ratio, 0.8, 1.0]).numpy()[None]) == 3
    assert find_rank(np.array([[[2.0, 1.9999], [1.9999, 2.0]]])) == 2  # few digits are exact


def test_duplicate_zero_and_interpolated_channels():
    X = covariances(5, 6, 40)
    W = np.vstack([np.eye(6), np.eye(6)[:1], np.zeros((1, 6)), np.full((1, 6), 1 / 6)])
    for Y in (W @ X @ W.T, (W @ X @ W.T).astype(np.float32)):
        assert (find_rank(Y) == 6).all()


def test_a_channel_that_a_projection_removes_does_not_count():
    Q = random_basis(8)
    inside = Q @ np.diag([0.0] + [1.0] * 7) @ Q.T
    X = Q.T @ (inside @ (Q @ covariances(20, 8, 40) @ Q.T) @ inside) @ Q
    assert 0 < abs(X[:, 0, 0]).max() < 1e-14
    assert (find_rank(X) == 7).all()


def test_rank_of_zero_of_one_channel_and_of_half_precision():
    assert find_rank(np.zeros((1, 3, 3))) == 0
    assert find_rank(np.ones((2, 1, 1))).tolist() == [1, 1]
    assert find_rank(np.ones((1, 3, 3), dtype=np.float16)) == 1


def test_rank_of_a_matrix_is_independent_of_its_batch():
    X = np.concatenate([referenced(3, 6), covariances(3, 6, 4), covariances(3, 6, 30)])
    X = np.concatenate([X, X.astype(np.float32)])
    assert find_rank(X).tolist() == [int(find_rank(x[None])[0]) for x in X]


@given(
    n=st.integers(2, 5),
    dead=st.integers(0, 2),
    seed=st.integers(0, 2**16),
    factor=st.sampled_from([0.0, 0.3]),
)
@settings(max_examples=15, deadline=None)
def test_a_dead_direction_changes_nothing(n, dead, seed, factor):
    X = covariances(4, n, 3 * n, seed)
    padded = np.zeros((4, n + dead, n + dead))
    padded[:, :n, :n] = X
    Q = random_basis(n + dead, seed)
    expected = torch.from_numpy(regularize(X, factor, "shrinkage"))
    for Y in (padded, symmetrize(Q @ padded @ Q.T)):
        subspace = Subspace(shrinkage=factor or "auto").fit(Y)
        Z = torch.from_numpy(subspace.transform(Y))
        assert Z.shape == X.shape
        torch.testing.assert_close(
            log_euclidean.pairwise(Z, Z), log_euclidean.pairwise(expected, expected),
            rtol=1e-6, atol=1e-6,
        )  # fmt: skip
        if factor == 0:
            assert subspace.shrinkage_ == 0
            np.testing.assert_allclose(subspace.inverse_transform(Z), Y, atol=1e-12 * Y.max())


@pytest.mark.parametrize("more", [1, 3])
def test_further_dead_directions_do_not_change_the_coordinates(more):
    X, y = referenced(40, 6), np.arange(40) % 2
    X[y == 1] *= 1.5
    padded = np.pad(X, ((0, 0), (0, more), (0, more)))
    Q = random_basis(6 + more, seed=1)
    padded = symmetrize(Q @ padded @ Q.T)
    found, expected = Subspace().fit_transform(padded), Subspace().fit_transform(X)
    np.testing.assert_allclose(found, expected, atol=1e-12 * X.max())
    probabilities = [
        SPDNetClassifier(recipe="fast", epochs=3, random_state=0).fit(Y, y).predict_proba(Y)
        for Y in (X, padded)
    ]
    np.testing.assert_allclose(*probabilities, atol=1e-8)


@pytest.mark.parametrize("settings", [{}, {"members": ("reduced", "sqrt-kernel", "all")}])
def test_one_dead_direction_does_not_change_the_default_network(settings):
    X, y = covariances(60, 6, 30), np.arange(60) % 2
    X[y == 1, 0, 0] *= 1.5
    padded = np.pad(X, ((0, 0), (0, 1), (0, 1)))
    Q = random_basis(7, seed=1)
    probabilities = [
        SPDNetClassifier(epochs=3, random_state=0, **settings).fit(Y, y).predict_proba(Y)
        for Y in (X, padded, symmetrize(Q @ padded @ Q.T))
    ]
    np.testing.assert_allclose(probabilities[1], probabilities[0], atol=1e-8)
    np.testing.assert_allclose(probabilities[2], probabilities[0], atol=1e-8)


def test_basis_is_the_range_of_the_mean_in_order_of_variance():
    X = referenced(10, 8)
    subspace = Subspace().fit(X)
    F = subspace.basis_
    np.testing.assert_allclose(F.T @ F, np.eye(7), atol=1e-13)
    np.testing.assert_allclose(F @ F.T, centering(8), atol=1e-13)
    mean = (X / np.trace(X, axis1=1, axis2=2)[:, None, None]).mean(0)
    s, U = np.linalg.eigh(mean)
    np.testing.assert_allclose(np.diag(F.T @ mean @ F), s[:0:-1], rtol=1e-12)
    np.testing.assert_allclose(abs(F.T @ U[:, :0:-1]), np.eye(7), atol=1e-6)
    np.testing.assert_allclose(subspace.transform(X), F.T @ X @ F, atol=1e-13)


def test_a_loud_recording_does_not_decide():
    X = covariances(10, 4, 30)
    X[0] = 1e20 * np.diag([1.0, 1.0, 1.0, 0.0])
    assert Subspace().fit(X).rank_ == 4


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_matrices_of_full_rank_are_not_changed(dtype):
    X = random_spd(7, 5, dtype=dtype)
    subspace = Subspace().fit_tensor(X, np.arange(7) % 2)
    assert (subspace.basis_, subspace.shrinkage_, subspace.shrinkage_curve_) == (None, 0.0, {})
    assert torch.equal(subspace.transform_tensor(X), X)
    assert subspace.describe() == "rank 5 of 5"
    np.testing.assert_array_equal(subspace.inverse_transform(X), X)


def test_shrinkage_is_the_formula():
    X, y = few_observations()
    for rho in (0.2, 1e-3):
        found = Subspace(shrinkage=rho).fit_transform(X, y)
        np.testing.assert_allclose(found, regularize(X, rho, "shrinkage"), rtol=1e-12, atol=1e-14)
    T = torch.from_numpy(X)
    torch.testing.assert_close(shrink(T, 0.2), regularize(T, 0.2, "shrinkage"))


def test_cross_validation_chooses_one_shrinkage_for_all_matrices():
    X, y = few_observations()
    subspace = Subspace().fit(X, y)
    curve = subspace.shrinkage_curve_
    assert list(curve) == list(GRID)
    assert curve[subspace.shrinkage_] == max(curve.values()) > 0.6
    Z = subspace.transform(X)
    np.testing.assert_allclose(Z, regularize(X, subspace.shrinkage_, "shrinkage"), atol=1e-14)
    np.testing.assert_allclose(subspace.transform(X[5:6]), Z[5:6], rtol=1e-12)
    text = subspace.describe()
    assert text.startswith("rank 6 of 6; 36 of 48 matrices are singular (rank 5); shrinkage ")
    assert "chosen by cross-validation within the training set" in text


def test_curve_equals_ridge_regression_on_the_logarithms():
    from sklearn.linear_model import RidgeClassifier

    X, y = few_observations()
    groups = np.arange(len(y)) // 12
    rho = GRID[6]
    curve = cross_validate(torch.from_numpy(X), y, groups, (rho,))
    shrunk = torch.from_numpy(regularize(X, rho, "shrinkage"))
    features = log_euclidean.vectors(shrunk).numpy()
    right = np.zeros((5, len(y)))
    for held in range(4):
        train = groups != held
        own = features[train]
        size = ((own - own.mean(0)) ** 2).sum(1).mean()
        for row, penalty in zip(right, (100, 10, 1, 0.1, 0.01), strict=True):
            model = RidgeClassifier(alpha=penalty * size).fit(own, y[train])
            row[~train] = model.predict(features[~train]) == y[~train]
    assert curve[rho] == pytest.approx(right.mean(1).max())


def test_groups_stay_together_in_the_cross_validation():
    X, _ = few_observations()
    groups = np.arange(48) % 8
    y = groups // 4
    mean = np.random.default_rng(0).normal(size=(8, 6))[groups]
    X = X * np.exp(mean[:, :, None] + mean[:, None, :])  # scales of groups, no classes
    within, across = Subspace().fit(X, y), Subspace().fit(X, y, groups=groups)
    assert max(within.shrinkage_curve_.values()) > max(across.shrinkage_curve_.values())
    with pytest.raises(ValueError, match=r"Subspace: expected groups of shape \(48,\)"):
        Subspace().fit(X, y, groups=groups[:3])


def test_without_labels_the_shrinkage_is_the_median_of_oas():
    X, _ = few_observations()
    signals = np.random.default_rng(0).normal(size=(9, 7, 5))
    signals -= signals.mean(-1, keepdims=True)
    C = torch.from_numpy(signals @ signals.swapaxes(1, 2) / 5)
    entries = [oas(torch.from_numpy(s))[0, 1] / c[0, 1] for s, c in zip(signals, C, strict=True)]
    expected = 1 - float(torch.stack(entries).median())
    assert find_rank(C).tolist() == [4] * 9
    found = oas_shrinkage(C, torch.full((9,), 5)).median()
    assert float(found) == pytest.approx(expected)
    subspace = Subspace(rank="full").fit(C)
    assert subspace.shrinkage_ == pytest.approx(min(expected, GRID[-1]))
    assert subspace.describe().endswith("estimated from the eigenvalues")
    few = Subspace().fit(X[:6], [0, 1] * 3)  # too few to hold out some
    assert few.shrinkage_curve_ == {}
    assert few.shrinkage_ > 0
    white = torch.eye(3, dtype=torch.float64)[None]
    assert oas_shrinkage(white, torch.tensor([3])) == 1


def test_candidates_exceed_rounding_errors():
    X, y = few_observations()
    X = decimal(X, 6)
    subspace = Subspace().fit(X, y)
    assert 1e-5 < min(subspace.shrinkage_curve_) < 1e-2
    smallest = Subspace(shrinkage=min(subspace.shrinkage_curve_))
    assert np.linalg.eigvalsh(smallest.fit_transform(X)).min() > 0


def test_the_type_of_tensors_is_kept():
    X, y = few_observations()
    for T in (torch.from_numpy(X).float(), torch.from_numpy(referenced(9, 6)).float()):
        found = Subspace().fit_tensor(T, y[: len(T)]).transform_tensor(T)
        assert found.dtype == torch.float32
        assert torch.linalg.eigvalsh(found.double()).min() > 0


def test_new_matrices_with_other_dead_directions():
    X, y = few_observations()
    new = covariances(3, 6, 2)
    assert np.linalg.eigvalsh(Subspace().fit(X, y).transform(new)).min() > 0
    full = Subspace().fit(covariances(9, 6, 30))
    with pytest.raises(ValueError, match=r"X\[0\] is singular.*shrinkage=0; 3 of 3.*such as 0.1"):
        full.transform(new)
    with pytest.raises(ValueError, match=r"shrinkage=0; 36 of 48 matrices are affected"):
        Subspace(shrinkage="none").fit(X, y)
    assert np.isfinite(Subspace(shrinkage="none").fit_transform(referenced(9, 6))).all()


def test_rank_settings():
    X = referenced(20, 6)
    for rank, size, text in (
        ("auto", 5, "rank 5 of 6: 1 direction without variance in all training matrices removed"),
        (5, 5, "rank 5 of 6: directions of the largest variance in the training matrices"),
        (3, 3, "rank 3 of 6: directions of the largest variance in the training matrices"),
        ("full", 6, "rank 6 of 6; 20 of 20 matrices are singular (rank 5); shrinkage 0.1 as set"),
    ):
        shrinkage = 0.1 if rank == "full" else "auto"
        subspace = Subspace(rank=rank, shrinkage=shrinkage).fit(X)
        assert subspace.transform(X).shape == (20, size, size)
        assert subspace.describe() == text
    with pytest.raises(ValueError, match="Subspace: expected rank <= 5, the rank of the mean"):
        Subspace(rank=6).fit(X)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"rank": "ful"}, ValueError, "rank to be one of 'auto', 'full', got 'ful'; did you mean"),
        ({"rank": 0}, ValueError, "expected rank >= 1, got 0"),
        ({"rank": 2.5}, TypeError, "expected rank to be an integer"),
        ({"shrinkage": "oas"}, ValueError, "shrinkage to be one of 'auto', 'none'"),
        ({"shrinkage": 1}, ValueError, "expected shrinkage >= 0 and < 1"),
        ({"shrinkage": -0.1}, ValueError, "expected shrinkage >= 0 and < 1"),
    ],
)
def test_wrong_settings(arguments, error, message):
    with pytest.raises(error, match=f"Subspace: .*{message}"):
        Subspace(**arguments).fit(referenced(5, 4))


def test_wrong_matrices():
    X = referenced(5, 4)
    X[2] = 0
    with pytest.raises(ValueError, match=r"Subspace: .*positive trace, but X\[2\] is zero"):
        Subspace().fit(X)
    subspace = Subspace().fit(referenced(5, 4))
    with pytest.raises(ValueError, match=r"Subspace: expected X of shape \(..., 4, 4\)"):
        subspace.transform(np.eye(3)[None])
    with pytest.raises(ValueError, match=r"Subspace: expected Y of shape \(..., 3, 3\)"):
        subspace.inverse_transform(np.eye(4))


def test_clone_copy_and_pickle():
    X, y = few_observations()
    subspace = Subspace(rank=5).fit(X, y)
    for twin in (
        copy.deepcopy(subspace), pickle.loads(pickle.dumps(subspace)), clone(subspace).fit(X, y)
    ):  # fmt: skip
        np.testing.assert_array_equal(twin.transform(X), subspace.transform(X))
    assert clone(subspace).get_params() == {"rank": 5, "shrinkage": "auto"}
