"""Low-rank formulas for clamped eigenvalues compared with the full formulas."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from spdnet.linalg import Clamp, clamp_eig, clamped, eigh, spectral_map
from spdnet.linalg.spectral import _first, _value
from tests.cases import every_dtype, random_matrix, random_symmetric

N, EPS = 26, 0.25


def with_low(n_low, seed=0, low=(-1.0, EPS), high=(EPS, 3.0), dtype=torch.float64):
    """Return a symmetric matrix with this number of eigenvalues below the threshold."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(n, interval):
        return interval[0] + (interval[1] - interval[0]) * torch.rand(
            n, generator=generator, dtype=torch.float64
        )

    s = torch.cat([uniform(n_low, low), uniform(N - n_low, high)])
    U = torch.linalg.qr(torch.randn(N, N, generator=generator, dtype=dtype))[0]
    X = (U * s) @ U.mH
    return (X + X.mH) / 2


@given(st.lists(st.integers(0, N), min_size=1, max_size=5), st.integers(0, 1000))
def test_value_and_derivative_equal_full_formula(n_low, seed):
    for dtype, tolerance in (
        *((torch.float64, 1e-12), (torch.float32, 1e-4)),
        *((torch.complex128, 1e-12), (torch.complex64, 1e-4)),
    ):
        wide = torch.promote_types(dtype, torch.float64)
        A = torch.stack([with_low(k, seed + i, dtype=wide) for i, k in enumerate(n_low)]).to(dtype)
        D = random_matrix(*A.shape, seed=seed, dtype=dtype).to(dtype)
        s, U = eigh(A)
        assert clamped.is_faster(s)
        for short, long in (
            (clamped.value(A, s, U, Clamp(EPS)), _value(s, U, Clamp(EPS))),
            (clamped.first(s, U, Clamp(EPS), D), _first(s, U, Clamp(EPS), D)),
        ):
            torch.testing.assert_close(short, long, rtol=0, atol=tolerance)
            assert torch.equal(short, short.mH)


def test_eigenvalues_at_the_threshold_and_tied():
    U = torch.linalg.qr(torch.randn(N, N, dtype=torch.float64))[0]
    for n_low, at in ((3, 20), (20, 3), (0, N), (1, N - 1), (N, 0)):
        s = torch.tensor([0.1] * n_low + [EPS] * at + [2.0] * (N - n_low - at)).double()[None]
        X = (U * s[:, None, :]) @ U.mT
        G = random_symmetric(1, N)
        short = clamped.first(s, U[None], Clamp(EPS), G)
        torch.testing.assert_close(short, _first(s, U[None], Clamp(EPS), G), rtol=0, atol=1e-12)
        value = clamped.value(X, s, U[None], Clamp(EPS))
        torch.testing.assert_close(value, _value(s, U[None], Clamp(EPS)), rtol=0, atol=1e-12)


def test_result_is_independent_of_other_matrices_in_batch():
    X = torch.stack([with_low(k, seed=k) for k in (1, 4, 13, 14, 25, 4)])
    together = clamp_eig(X, EPS)
    for i in range(len(X)):
        torch.testing.assert_close(clamp_eig(X[i], EPS), together[i], rtol=0, atol=1e-14)


def test_threshold_per_matrix_broadcasts():
    X = torch.stack([with_low(k, seed=k) for k in (1, 4, 13, 14, 25, 4)])
    eps = torch.tensor([0.1, 0.25, 0.5, 0.2, 0.3, 2.0]).double()
    expected = torch.stack([clamp_eig(x, float(e)) for x, e in zip(X, eps, strict=True)])
    torch.testing.assert_close(clamp_eig(X, eps), expected)
    grid = X.reshape(2, 3, N, N)
    torch.testing.assert_close(clamp_eig(grid, EPS), clamp_eig(X, EPS).reshape(grid.shape))
    torch.testing.assert_close(
        clamp_eig(grid, eps[:2]), clamp_eig(X, eps[:2].repeat_interleave(3)).reshape(grid.shape)
    )


@every_dtype
@pytest.mark.parametrize("n_low", [2, 22])
def test_derivatives(n_low, dtype):
    X = with_low(n_low, low=(-1.0, 0.2), high=(0.3, 2.0), dtype=dtype).requires_grad_()

    def function(X):
        return spectral_map((X + X.mH) / 2, Clamp(EPS), check=False)

    assert gradcheck(function, X, fast_mode=True, check_forward_ad=True)
    assert gradgradcheck(function, X, fast_mode=True, check_fwd_over_rev=True)


def test_nan_propagates():
    s, U = torch.full((1, N), torch.nan), torch.full((1, N, N), torch.nan)
    assert clamped.value(torch.eye(N)[None], s, U, Clamp(EPS)).isnan().all()
    assert clamped.first(s, U, Clamp(EPS), torch.eye(N)[None]).isnan().all()
