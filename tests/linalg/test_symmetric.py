import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from spdnet.linalg import cholesky, congruence, eigh, unvech, vech
from spdnet.testing import assert_symmetric
from tests.cases import BATCH_SHAPES, SPECTRA, random_spd, random_symmetric, with_spectrum


@pytest.mark.parametrize("batch", BATCH_SHAPES)
def test_vech_is_an_isometry_and_unvech_its_inverse(batch):
    A, B = random_symmetric(*batch, 4), random_symmetric(*batch, 4, seed=1)
    exact = {"rtol": 1e-14, "atol": 1e-14}
    torch.testing.assert_close((vech(A) * vech(B)).sum(-1), (A * B).sum((-2, -1)), **exact)
    torch.testing.assert_close(unvech(vech(A)), A, **exact)
    assert vech(A).shape == (*batch, 10)


def test_vech_order_is_row_after_row():
    X = torch.tensor([[1.0, 2, 3], [2, 4, 5], [3, 5, 6]])
    root = 2**0.5
    torch.testing.assert_close(vech(X), torch.tensor([1, 2 * root, 3 * root, 4, 5 * root, 6]))


def test_vech_derivatives():
    assert gradcheck(vech, random_symmetric(2, 3).requires_grad_(), check_forward_ad=True)
    assert gradcheck(unvech, vech(random_symmetric(2, 3)).requires_grad_(), check_forward_ad=True)


def test_congruence():
    X, W = random_spd(2, 4), random_symmetric(4)[:, :3]
    Y = congruence(X, W)
    assert_symmetric(Y)
    torch.testing.assert_close(Y, W.mT @ X @ W)
    inputs = (X.requires_grad_(), W.clone().requires_grad_())
    assert gradcheck(congruence, inputs, check_forward_ad=True)
    assert gradgradcheck(congruence, inputs)


def test_congruence_in_half_precision_and_under_autocast():
    X, W = random_spd(2, 4, dtype=torch.float32), torch.eye(4)[:, :3]
    expected = congruence(X, W)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(congruence(X, W), expected)
    half = congruence(X.bfloat16(), W.bfloat16())
    assert half.dtype == torch.bfloat16
    assert congruence(X.bfloat16(), W).dtype == torch.float32
    torch.testing.assert_close(half.float(), expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("case", SPECTRA)
def test_eigh(case):
    X = with_spectrum(SPECTRA[case])
    s, U = eigh(X)
    torch.testing.assert_close((U * s) @ U.mT, X)
    torch.testing.assert_close(s, torch.tensor(sorted(SPECTRA[case]), dtype=torch.float64))


def test_eigh_is_differentiable_in_the_eigenvalues_at_ties():
    X = torch.eye(3, dtype=torch.float64).requires_grad_()
    (gradient,) = torch.autograd.grad(eigh(X)[0].sum(), X)
    torch.testing.assert_close(gradient, torch.eye(3, dtype=torch.float64))


def test_eigh_accurate_resolves_small_eigenvalues_in_float32():
    X = with_spectrum([1e-4, 2e-4, 1.0, 100.0], dtype=torch.float32)
    exact = torch.linalg.eigvalsh(X.double())
    error = {a: ((eigh(X, accurate=a)[0] - exact) / exact).abs().max() for a in (False, True)}
    assert error[True] < 1e-6 < error[False]


def test_eigh_lifts_half_precision():
    X = with_spectrum(SPECTRA["generic"], dtype=torch.bfloat16)
    s, U = eigh(X)
    assert s.dtype == U.dtype == torch.bfloat16


@pytest.mark.parametrize("case", SPECTRA)
def test_cholesky(case):
    X = with_spectrum(SPECTRA[case])
    L = cholesky(X)
    torch.testing.assert_close(L @ L.mT, X)
    assert torch.equal(L, L.tril())
    assert cholesky(X.bfloat16()).dtype == torch.bfloat16
