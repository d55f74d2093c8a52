import pytest
import torch

from spdnet.linalg import eigh
from tests.cases import SPECTRA, with_spectrum


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
