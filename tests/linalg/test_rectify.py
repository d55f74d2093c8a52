"""ReEig without decomposing matrices that need no clamping."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from spdnet.linalg import Clamp, clamp_eig, logm, spectral_map, symmetrize
from spdnet.linalg import rectify as module
from spdnet.linalg.validate import fails_cholesky
from spdnet.manifolds import stiefel
from tests.cases import every_dtype, random_spd, random_symmetric, with_spectrum

EPS = 0.25


def full(X):
    """Clamp by decomposing every matrix."""
    return spectral_map(X, Clamp(EPS))


def value_and_gradient(function, X, G):
    X = X.clone().requires_grad_()
    Y = function(X)
    return Y.detach(), torch.autograd.grad(Y, X, G)[0]


def spd(spectrum, seed=0):
    generator = torch.Generator().manual_seed(seed)
    n = len(spectrum)
    U = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64, generator=generator))[0]
    X = (U * torch.tensor(spectrum, dtype=torch.float64)) @ U.mT
    return (X + X.mT) / 2


@given(
    spectra=st.lists(
        st.lists(st.floats(-1, 4).filter(lambda s: abs(s - EPS) > 1e-6), min_size=4, max_size=4),
        min_size=1,
        max_size=4,
    ),
    seed=st.integers(0, 100),
)
def test_equals_the_full_decomposition(spectra, seed):
    """Batches with no, some and all matrices clipped."""
    X = torch.stack([spd(s, seed + i) for i, s in enumerate(spectra)])
    G = random_symmetric(len(X), 4, seed=seed)
    for dtype, tolerance in ((torch.float64, 1e-11), (torch.float32, 2e-4)):
        got = value_and_gradient(lambda X: clamp_eig(X, EPS), X.to(dtype), G.to(dtype))
        expected = value_and_gradient(full, X, G)
        for a, b in zip(got, expected, strict=True):
            torch.testing.assert_close(a.double(), b, rtol=0, atol=tolerance)


@given(
    ulps=st.lists(st.integers(-2, 2), min_size=2, max_size=2),
    top=st.floats(0.5, 100),
    seed=st.integers(0, 100),
)
def test_eigenvalues_within_rounding_of_the_threshold_are_not_clipped(ulps, top, seed):
    """The derivative is that of the identity."""
    unit = 2.0**-52 * top
    X = spd([EPS + ulps[0] * unit, EPS + ulps[1] * unit, 1.5 * EPS, top], seed)[None]
    G = random_symmetric(1, 4, seed=seed)
    for function in (lambda X: clamp_eig(X, EPS), lambda X: module._rectify_all(X, EPS, "test")):
        value, gradient = value_and_gradient(function, X, G)
        torch.testing.assert_close(value, X, rtol=0, atol=40 * unit)
        torch.testing.assert_close(gradient, G, rtol=0, atol=1e-11)


def test_bimap_after_clamp_needs_no_decomposition(monkeypatch):
    """By interlacing, eigenvalues stay above the threshold except for rounding errors."""
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(20, 30, 6, dtype=torch.float64, generator=generator)
    X = clamp_eig(A @ A.mT, 1e-4)  # rank 6: most eigenvalues are at the threshold
    decomposed = []
    monkeypatch.setattr(module, "_rectify_all", lambda X, *_: decomposed.append(len(X)))
    for k in (25, 15, 8):
        W = stiefel.random_point(X.shape[-1], k, dtype=torch.float64)
        X = clamp_eig(W.mT @ X @ W, 1e-4, check=False)
    assert decomposed == []


def test_only_clipped_matrices_are_decomposed(monkeypatch):
    X = torch.stack([spd([1.0, 2.0, 3.0]), spd([0.1, 2.0, 3.0]), spd([1.0, 1.0, 1.0])])
    real, seen = module._rectify_all, []
    monkeypatch.setattr(module, "_rectify_all", lambda X, *a: (seen.append(len(X)), real(X, *a))[1])
    Y = clamp_eig(X, EPS)
    assert seen == [1]
    assert torch.equal(Y[0], X[0])
    torch.testing.assert_close(Y, full(X))


@pytest.mark.parametrize("eps", [1e-6, 0.5, 1e3])
def test_result_does_not_share_memory_with_input(eps):
    """No, some and all eigenvalues clipped."""
    X = random_spd(3, 4)
    before = X.clone()
    for function in (clamp_eig, lambda X, eps: module.rectify(X, eps)):
        function(X, eps).zero_()
        assert torch.equal(X, before)


def test_float32_error_suggests_float64_when_threshold_is_lost():
    """A threshold below 1e-7 times the largest eigenvalue is lost by rounding."""
    A = torch.randn(20, 20, 3, generator=torch.Generator().manual_seed(0))
    X = symmetrize(1e3 * A @ A.mT)
    with pytest.raises(
        ValueError, match=r"use float64 throughout: .*the eps of a ReEig has to be above"
    ):
        logm(clamp_eig(X, 1e-4))
    logm(clamp_eig(X.double(), 1e-4))
    logm(clamp_eig(X, 1.0))


def test_zero_and_singular_matrices_are_always_clipped():
    for scale in (1.0, 1e6, 1e12):
        X = torch.stack([torch.zeros(3, 3), torch.diag(torch.tensor([scale, 0.0, scale]))]).double()
        lowest = torch.linalg.eigvalsh(clamp_eig(X, 1e-4))[:, 0]
        torch.testing.assert_close(lowest, torch.full((2,), 1e-4, dtype=torch.float64))


@every_dtype
def test_derivatives_of_partly_clipped_batch(dtype):
    spectra = [1.0, 2.0, 3.0], [0.1, 0.1, 3.0]
    X = torch.stack([with_spectrum(s, dtype=dtype) for s in spectra]).requires_grad_()
    torch.testing.assert_close(clamp_eig(X, EPS), full(X))

    def function(X):
        return clamp_eig((X + X.mH) / 2, EPS, check=False)

    assert gradcheck(function, X, check_forward_ad=True)
    assert gradgradcheck(function, X, check_fwd_over_rev=True, fast_mode=True)


def test_shapes_and_symmetry():
    X = random_spd(2, 3, 4)
    assert clamp_eig(X, 1e-3).shape == X.shape
    assert clamp_eig(X[0, 0], 1e-3).shape == (4, 4)
    assert clamp_eig(X[:0], 1e-3).shape == (0, 3, 4, 4)
    askew = X + 1e-9 * torch.triu(torch.ones(4, 4, dtype=torch.float64), 1)
    Y = clamp_eig(askew, 1e-3)
    assert torch.equal(Y, Y.mT)
    _, gradient = value_and_gradient(lambda X: clamp_eig(X, 1e-3), X, torch.randn_like(X))
    assert torch.equal(gradient, gradient.mT)


def test_nan_is_refused():
    X = random_spd(2, 3)
    X[1, 0, 0] = float("nan")
    with pytest.raises(ValueError, match=r"X\[1\] contains NaN"):
        clamp_eig(X, EPS)


def test_negative_threshold():
    X = with_spectrum([-2.0, 0.5, 1.0])
    torch.testing.assert_close(clamp_eig(X, -1.0), spectral_map(X, Clamp(-1.0)))


@pytest.mark.parametrize("n", [1, 5, 128, 129])
@every_dtype
def test_a_cholesky_decomposition_finds_indefinite_matrices(n, dtype):
    X = random_spd(4, n, dtype=dtype)
    X[1] = -X[1]
    X[3, -1, -1] = -1.0
    assert fails_cholesky(X.clone()).tolist() == [False, True, False, True]
