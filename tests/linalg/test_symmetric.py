import torch
from torch.autograd import gradcheck, gradgradcheck

from spdnet.linalg import congruence
from spdnet.testing import assert_symmetric
from tests.cases import random_spd, random_symmetric


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
