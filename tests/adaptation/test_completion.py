import pickle

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

from spdnet.adaptation import Completion, complete, masked_mean, observed_channels
from spdnet.baselines import LogEuclideanClassifier
from spdnet.testing import assert_spd
from tests.adaptation.test_mean import partial
from tests.adaptation.test_missing import hide
from tests.cases import ILL_CONDITIONED, random_spd, random_symmetric, with_spectrum


def conditional(C, M, o, h):
    """Compute the completion from inverses, as the formula states it."""
    B = M[h][:, o] @ torch.linalg.inv(M[o][:, o])
    rest = M[h][:, h] - B @ M[o][:, h]
    return B, rest, B @ C[o][:, o], rest + B @ C[o][:, o] @ B.T


def case(n=5, missing=(1, 3), seed=0):
    C, M = random_spd(n, seed=seed), random_spd(n, seed=seed + 1)
    mask = torch.ones(n, dtype=torch.bool)
    mask[list(missing)] = False
    return C, M, mask, complete(hide(C, *missing)[None], mask[None], M)[0]


def test_formula_determinant_and_inverse():
    C, M, mask, Z = case()
    o, h = mask.nonzero()[:, 0], (~mask).nonzero()[:, 0]
    _, rest, cross, own = conditional(C, M, o, h)
    torch.testing.assert_close(Z[h][:, o], cross)
    torch.testing.assert_close(Z[h][:, h], own)
    torch.testing.assert_close(Z[o][:, o], C[o][:, o], rtol=0, atol=0)
    torch.testing.assert_close(Z, Z.T, rtol=0, atol=0)
    torch.testing.assert_close(Z.det(), C[o][:, o].det() * rest.det())
    torch.testing.assert_close(torch.linalg.inv(Z)[h], torch.linalg.inv(M)[h])


def test_divergence_from_the_reference_is_smallest():
    _, M, mask, Z = case()
    free = ~(mask[:, None] & mask)

    def divergence(A):  # twice, up to a constant
        return (torch.linalg.inv(M) @ A).trace() - A.logdet()

    for seed in range(5):
        V = random_symmetric(5, seed=seed) * free
        for t in (1e-2, -1e-2):
            assert divergence(Z + t * V) > divergence(Z)
        Z_ = Z.clone().requires_grad_()
        (G,) = torch.autograd.grad(divergence(Z_), Z_)
        assert (G * V).sum().abs() < 1e-10


def test_reference_completes_to_itself():
    _, M, mask, _ = case()
    torch.testing.assert_close(complete(M[None], mask[None], M)[0], M)


def test_result_does_not_depend_on_the_batch_or_on_missing_entries():
    X = partial(20, 5, most=3)
    M, mask = masked_mean(X), observed_channels(X)
    Z = complete(X, mask, M)
    for i in range(20):
        torch.testing.assert_close(complete(X[i : i + 1], mask[i : i + 1], M)[0], Z[i])
    torch.testing.assert_close(complete(X.nan_to_num(7.0), mask, M), Z, rtol=0, atol=0)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_determinant_at_condition_1e8_equals_that_of_exact_arithmetic(seed):
    M, C = with_spectrum(ILL_CONDITIONED), with_spectrum(ILL_CONDITIONED, seed=seed)
    mask, o, h = torch.tensor([[True, True, False, True]]), [0, 1, 3], [2]
    Z = complete(C[None], mask, M)[0]
    with mpmath.workdps(60):
        own, known, across = (
            mpmath.matrix(A.tolist()) for A in (M[o][:, o], C[o][:, o], M[o][:, h])
        )
        rest = mpmath.mpf(M[2, 2].item()) - (across.T * own**-1 * across)[0]
        expected = float(mpmath.log(mpmath.det(known) * rest))
    assert torch.linalg.eigvalsh(Z)[0] > 0
    assert abs(Z.logdet() - expected) < 1e-8


def test_float32_stays_float32():
    X = partial(6, 4, most=2)
    model = Completion().fit(X.float())
    Z = model.transform_tensor(X.float())
    assert Z.dtype == torch.float32
    torch.testing.assert_close(
        Z.double(), Completion().fit(X).transform_tensor(X), rtol=1e-4, atol=1e-5
    )


def test_complete_matrices_are_unchanged():
    X = partial(10, 4, most=3)
    X[:5] = random_spd(5, 4)
    Z = Completion().fit(X).transform(X)
    np.testing.assert_array_equal(Z[:5], X[:5].numpy())
    assert np.isfinite(Z).all()
    assert_spd(torch.from_numpy(Z))


def test_zero_channels_are_completed_like_nan():
    X = partial(10, 4, most=3)
    model = Completion().fit(X)
    np.testing.assert_array_equal(model.transform(X.nan_to_num(0.0)), model.transform(X))
    np.testing.assert_array_equal(Completion().fit(X.nan_to_num(0.0)).mean_, model.mean_)


def test_is_a_scikit_learn_transformer():
    X, y = partial(24, 3, most=1).numpy(), np.array(["a", "b"] * 12)
    with pytest.raises(NotFittedError):
        Completion().transform(X)
    model = clone(Completion()).fit(X, y)
    assert (model.n_features_in_, model.get_params()) == (3, {})
    Z = model.transform(X)
    np.testing.assert_array_equal(Completion().fit_transform(X, y), Z)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).transform(X), Z)
    np.testing.assert_array_equal(model.transform(X[::-1])[::-1], Z)
    pipeline = make_pipeline(Completion(), LogEuclideanClassifier(C=1.0)).fit(X, y)
    assert set(pipeline.predict(X)) <= {"a", "b"}
    assert model.__sklearn_tags__().input_tags.allow_nan


def test_invalid_matrices_raise_errors():
    X = partial(4, 3, most=1)
    model = Completion().fit(X)
    bad = X.clone()
    bad[2] = hide(bad[2], 0, 1, 2)
    for call in (model.fit, model.transform):
        with pytest.raises(ValueError, match=r"^Completion: .* but all of X\[2\] are missing"):
            call(bad)
    bad = hide(X, 2)
    bad[1, 0, 0] = -1
    with pytest.raises(ValueError, match=r"^Completion: .* X\[1\] is not positive definite"):
        model.transform(bad)
    with pytest.raises(ValueError, match=r"expected X of shape \(..., 3, 3\)"):
        model.transform(random_spd(2, 4))
    mask = observed_channels(X)
    for wrong in (mask[:2], mask.double()):
        with pytest.raises(
            ValueError, match=r"complete: expected X of shape \(N, n, n\) and a mask"
        ):
            complete(X, wrong, X[0])
    with pytest.raises(ValueError, match=r"complete: .*M is not positive definite"):
        complete(X, observed_channels(X), -torch.eye(3, dtype=torch.float64))


@settings(max_examples=40)
@given(st.integers(2, 6), st.integers(0, 2**16), st.data())
def test_permutation_and_scaling_of_channels_commute(n, seed, data):
    missing = data.draw(st.sets(st.integers(0, n - 1), max_size=n - 1))
    C, M, mask, Z = case(n, tuple(missing), seed)
    assert_spd(Z)
    order = torch.from_numpy(np.random.default_rng(seed).permutation(n))
    d = torch.from_numpy(np.exp(np.random.default_rng(seed).normal(size=n)))

    def move(A):
        return (A * d * d[:, None])[order][:, order]

    moved = complete(move(C)[None], mask[order][None], move(M))[0]
    torch.testing.assert_close(moved, move(Z), rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(complete(Z[None], mask[None], M)[0], Z)
