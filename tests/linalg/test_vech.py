import pytest
import torch
from torch.autograd import gradcheck

from spdnet.linalg import unvech, vech
from tests.cases import BATCH_SHAPES, random_symmetric


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
