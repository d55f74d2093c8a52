import pytest
import torch
from torch.func import jacfwd, jacrev

from spdnet.linalg import cholesky
from tests.cases import SPECTRA, with_spectrum


@pytest.mark.parametrize("case", SPECTRA)
def test_cholesky(case):
    X = with_spectrum(SPECTRA[case])
    L = cholesky(X)
    torch.testing.assert_close(L @ L.mT, X)
    assert torch.equal(L, L.tril())
    torch.testing.assert_close(jacfwd(cholesky)(X), jacrev(cholesky)(X))
    assert cholesky(X.bfloat16()).dtype == torch.bfloat16
