import pytest
import torch

from spdnet.linalg import eigh
from tests.cases import SPECTRA, every_dtype, with_spectrum


@every_dtype
@pytest.mark.parametrize("case", SPECTRA)
def test_eigh(case, dtype):
    X = with_spectrum(SPECTRA[case], dtype=dtype)
    s, U = eigh(X)
    torch.testing.assert_close((U * s) @ U.mH, X)
    torch.testing.assert_close(s, torch.tensor(sorted(SPECTRA[case]), dtype=torch.float64))


def test_eigh_is_differentiable_in_the_eigenvalues_at_ties():
    X = torch.eye(3, dtype=torch.float64).requires_grad_()
    (gradient,) = torch.autograd.grad(eigh(X)[0].sum(), X)
    torch.testing.assert_close(gradient, torch.eye(3, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_eigh_accurate_resolves_small_eigenvalues_in_single_precision(dtype):
    X = with_spectrum([1e-4, 2e-4, 1.0, 100.0], dtype=dtype)
    exact = torch.linalg.eigvalsh(X.to(torch.promote_types(dtype, torch.float64)))
    error = {a: ((eigh(X, accurate=a)[0] - exact) / exact).abs().max() for a in (False, True)}
    assert error[True] < 1e-6 < error[False]


def test_eigh_lifts_half_precision():
    X = with_spectrum(SPECTRA["generic"], dtype=torch.bfloat16)
    s, U = eigh(X)
    assert s.dtype == U.dtype == torch.bfloat16


def failing_on(chosen, monkeypatch):
    """Make LAPACK fail to converge on one matrix."""
    solve = torch.linalg.eigh

    def lapack(A, *, out=None):
        if any(torch.equal(X, chosen) for X in A.reshape(-1, *A.shape[-2:])):
            if out is not None:
                out[1].fill_(7)  # LAPACK overwrites the output
            raise torch.linalg.LinAlgError("linalg.eigh: the algorithm failed to converge")
        return solve(A, out=out) if out is not None else solve(A)

    monkeypatch.setattr(torch.linalg, "eigh", lapack)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.complex128])
def test_eigh_falls_back_and_logs_when_solver_fails(monkeypatch, caplog, dtype):
    X = torch.stack([with_spectrum(spectrum, dtype=dtype) for spectrum in ([1, 2, 3], [4, 5, 6])])
    expected = eigh(X)
    failing_on(X[1], monkeypatch)
    s, U = eigh(X)
    torch.testing.assert_close(s, expected[0])
    torch.testing.assert_close((U * s[..., None, :]) @ U.mH, X)
    assert "failed to converge; solved by QR iterations" in caplog.text
    assert torch.equal(s[0], expected[0][0])  # other matrices are unchanged


def test_eigh_of_nan_raises():
    X = torch.full((2, 3, 3), torch.nan)
    with pytest.raises(torch.linalg.LinAlgError):
        eigh(X, check=False)
