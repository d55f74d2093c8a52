import pytest
import torch
from torch.autograd import gradcheck

from spdnet.linalg import cholesky, symmetrize
from tests.cases import SPECTRA, every_dtype, with_spectrum


@every_dtype
@pytest.mark.parametrize("case", SPECTRA)
def test_cholesky(case, dtype):
    X = with_spectrum(SPECTRA[case], dtype=dtype)
    L = cholesky(X)
    torch.testing.assert_close(L @ L.mH, X)
    assert torch.equal(L, L.tril())
    assert torch.equal(L.diagonal().abs(), L.diagonal().real)
    assert gradcheck(lambda X: cholesky(symmetrize(X)), X.requires_grad_(), check_forward_ad=True)


def test_half_precision():
    X = with_spectrum(SPECTRA["generic"], dtype=torch.bfloat16)
    assert cholesky(X).dtype == torch.bfloat16
