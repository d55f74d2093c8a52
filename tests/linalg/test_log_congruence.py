import pytest
import torch

from spdnet.linalg.log_congruence import _svd_by_eigh, log_congruence
from tests.cases import every_dtype, random_spd


@every_dtype
@pytest.mark.parametrize("condition", [1.0, 1e3, 1e6])
def test_svd_by_eigh_is_accurate(condition, dtype):
    """The relative accuracy is that of a singular value decomposition, also at ties."""
    Q = torch.linalg.qr(torch.randn(4, 6, 6, dtype=dtype)).Q
    sigma = torch.linspace(0, 1, 6, dtype=torch.float64).mul(-torch.tensor(condition).log()).exp()
    sigma[1] = sigma[0]
    M = (Q * sigma) @ Q.flip(0).mH
    found, U = _svd_by_eigh(M)
    torch.testing.assert_close(found.flip(-1), sigma.expand(4, 6), rtol=1e-14 * condition, atol=0)
    torch.testing.assert_close((U * found[..., None, :].square()) @ U.mH, M @ M.mH)


@every_dtype
@pytest.mark.parametrize("power", [1.0, 0.5, -2.0])
def test_log_congruence_equals_log_of_product(power, dtype):
    X, W = random_spd(5, 4, dtype=dtype), random_spd(5, 4, dtype=dtype)
    s, U = torch.linalg.eigh(X)
    product = W @ (U * s.pow(power)[..., None, :]) @ U.mH @ W
    s, U = torch.linalg.eigh((product + product.mH) / 2)
    torch.testing.assert_close(log_congruence(X, W, power), (U * s.log()[..., None, :]) @ U.mH)
