import warnings

import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spdnet.adaptation import masked_mean, observed_channels
from spdnet.linalg import expm, symmetrize, unvech, vech
from spdnet.manifolds import affine_invariant
from spdnet.testing import assert_spd
from tests.adaptation.test_missing import NAN, hide
from tests.cases import random_spd, random_symmetric


def partial(N, n, *, most, spread=0.5, seed=0, condition=1.0):
    """Return matrices around a common one, of which up to ``most`` channels are missing."""
    rng = np.random.default_rng(seed)
    scale = torch.logspace(0, -np.log10(condition) / 2, n, dtype=torch.float64)
    root = torch.linalg.cholesky(random_spd(n, seed=seed))
    S = spread * random_symmetric(N, n, seed=seed + 1)
    X = symmetrize(root @ expm(S) @ root.mT) * scale * scale[:, None]
    for i in range(1, N):  # the first is complete, so that all entries are determined
        X[i] = hide(X[i], *rng.choice(n, rng.integers(most + 1), replace=False))
    return X


def blocks(X):
    return [(keep, x[keep][:, keep]) for x, keep in zip(X, observed_channels(X), strict=True)]


def objective(X, M):
    distances = [affine_invariant.squared_distance(M[k][:, k], C) for k, C in blocks(X)]
    return torch.stack(distances).mean()


def gradient(X, M):
    """Compute the gradient as the formula states it, and return its affine-invariant norm."""
    G = torch.zeros_like(M)
    for keep, C in blocks(X):
        K = torch.eye(len(M), dtype=M.dtype)[:, keep]
        inverse = torch.linalg.inv(K.T @ M @ K)
        G -= 2 / len(X) * M @ K @ inverse @ affine_invariant.log(K.T @ M @ K, C) @ inverse @ K.T @ M
    return affine_invariant.inner(M, symmetrize(G), symmetrize(G)).sqrt()


CASES = {
    "few": {"N": 5, "n": 4, "most": 2},
    "many": {"N": 60, "n": 8, "most": 5},
    "spread": {"N": 12, "n": 5, "most": 3, "spread": 1.0},
    "one channel": {"N": 3, "n": 1, "most": 0},
    "condition 1e8": {"N": 20, "n": 5, "most": 3, "condition": 1e8},
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_gradient_vanishes(case):
    X = partial(**case)
    M = masked_mean(X)
    assert_spd(M)
    assert gradient(X, M) < 1e-8


@pytest.mark.parametrize("seed", range(3))
def test_minimum_equals_that_of_a_generic_optimizer(seed):
    X = partial(6, 4, most=2, seed=seed, spread=0.8)
    M = masked_mean(X)

    def f(v):
        v = torch.tensor(v, requires_grad=True)
        value = objective(X, expm(unvech(v)))
        return value.item(), torch.autograd.grad(value, v)[0].numpy()

    start = np.zeros(10)
    found = scipy.optimize.minimize(f, start, jac=True, method="L-BFGS-B", options={"ftol": 1e-15})
    assert objective(X, M) <= found.fun + 1e-12
    torch.testing.assert_close(
        vech(M), vech(expm(unvech(torch.tensor(found.x)))), rtol=0, atol=1e-4
    )


def test_objective_is_below_that_of_pyriemann():
    mean = pytest.importorskip("pyriemann.geometry.mean")
    X = partial(6, 4, most=2, spread=0.8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it does not converge
        theirs = torch.from_numpy(mean.nanmean_riemann(X.numpy()))
    assert gradient(X, theirs) > 1e-3
    assert objective(X, masked_mean(X)) < objective(X, theirs) - 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_the_mean_without_missing_channels(dtype):
    X = random_spd(7, 4, dtype=dtype)
    torch.testing.assert_close(masked_mean(X), affine_invariant.mean(X), rtol=0, atol=0)


def test_missing_in_all_but_one_matrix_equals_the_restricted_problem():
    """Matrices that share their channels have the usual mean there."""
    X = hide(random_spd(6, 4), 3)
    X[0] = random_spd(4)
    M = masked_mean(X)
    torch.testing.assert_close(M[:3, :3], affine_invariant.mean(X[:, :3, :3]), rtol=1e-8, atol=1e-8)


def test_float32_and_arrays():
    X = partial(8, 3, most=1)
    M = masked_mean(X)
    assert masked_mean(X.float()).dtype == torch.float32
    torch.testing.assert_close(masked_mean(X.float()).double(), M, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(masked_mean(X.numpy()), M.numpy())


def test_pairs_without_common_matrix_maximize_the_determinant():
    """For a chain of blocks, C_ac = C_ab C_bb^-1 C_bc."""
    C = random_spd(7)
    M = masked_mean(torch.stack([hide(C, 5, 6), hide(C, 0, 1)]))
    expected = C.clone()
    expected[:2, 5:] = C[:2, 2:5] @ torch.linalg.inv(C[2:5, 2:5]) @ C[2:5, 5:]
    expected[5:, :2] = expected[:2, 5:].T
    torch.testing.assert_close(M, expected, rtol=1e-9, atol=1e-9)
    ring = [hide(C[:4, :4], i, (i + 1) % 4) for i in range(4)]  # not chordal
    M = masked_mean(torch.stack(ring))
    inverse = torch.linalg.inv(M)
    assert max(abs(inverse[0, 2]), abs(inverse[1, 3])) < 1e-9 * inverse.abs().max()
    torch.testing.assert_close(M.diagonal(), C.diagonal()[:4], rtol=1e-9, atol=0)
    torch.testing.assert_close(M[[0, 1, 2, 3], [1, 2, 3, 0]], C[[0, 1, 2, 3], [1, 2, 3, 0]])


def test_published_chain():
    X = torch.tensor(
        [[[1, 0.5, NAN], [0.5, 1, NAN], [NAN] * 3], [[NAN] * 3, [NAN, 1, 0.4], [NAN, 0.4, 1]]]
    )
    torch.testing.assert_close(masked_mean(X)[0, 2], torch.tensor(0.2))


def test_invalid_input_raises_errors():
    X = random_spd(3, 3)
    with pytest.raises(ValueError, match=r"but channels \[1\] are missing in all matrices"):
        masked_mean(hide(X, 1))
    X[2] = hide(X[2], 0, 1, 2)
    with pytest.raises(ValueError, match=r"all of X\[2\] are missing; 1 of 3"):
        masked_mean(X)
    X = hide(random_spd(3, 3), 1)
    X[1, 0, 0] = -1
    with pytest.raises(ValueError, match=r"masked_mean: .* X\[1\] is not positive definite"):
        masked_mean(X)
    with pytest.raises(ValueError, match="tol"):
        masked_mean(X, tol=0.0)
    with pytest.raises(ValueError, match="max_iter"):
        masked_mean(X, max_iter=0)
    with pytest.raises(ValueError, match="expected X of shape"):
        masked_mean(X[0])


def test_contradictions_raise_an_error():
    def pair(i, j, r):
        C = torch.eye(3, dtype=torch.float64)
        C[i, j] = C[j, i] = r
        return hide(C, 3 - i - j)

    X = torch.stack([pair(0, 1, 0.99), pair(1, 2, 0.99), pair(0, 2, -0.99)])
    with pytest.raises(ValueError, match="tends to a singular matrix"):
        masked_mean(X)


def test_too_few_iterations_warn():
    X = partial(6, 4, most=2)
    with pytest.warns(RuntimeWarning, match="not converged after at most 1 iterations") as record:
        masked_mean(X, max_iter=1)
    assert record[0].filename == __file__


@settings(max_examples=25)
@given(st.integers(1, 6), st.integers(2, 8), st.integers(0, 2**16))
def test_permutation_and_scaling_of_channels_commute(n, N, seed):
    X = partial(N, n, most=n - 1, spread=0.3, seed=seed)
    M = masked_mean(X)
    assert_spd(M)
    rng = np.random.default_rng(seed)
    order = torch.from_numpy(rng.permutation(n))
    torch.testing.assert_close(
        masked_mean(X[:, order][:, :, order]), M[order][:, order], rtol=1e-7, atol=1e-7
    )
    d = torch.from_numpy(np.exp(rng.normal(size=n)))
    torch.testing.assert_close(
        masked_mean(X * d * d[:, None]), M * d * d[:, None], rtol=1e-7, atol=1e-7
    )
