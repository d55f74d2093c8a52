import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from spdnet.linalg import symmetrize, unvech, vech
from tests.cases import BATCH_SHAPES, random_symmetric


def test_symmetrize_tensors_and_arrays():
    X = np.random.default_rng(0).normal(size=(2, 3, 3))
    expected = (X + X.swapaxes(-1, -2)) / 2
    for dtype in (np.float32, np.float64, np.longdouble):
        Y = symmetrize(X.astype(dtype))
        assert Y.dtype == dtype
        np.testing.assert_allclose(Y, expected, rtol=1e-6)
        np.testing.assert_array_equal(Y, Y.swapaxes(-1, -2))
    torch.testing.assert_close(symmetrize(torch.from_numpy(X)), torch.from_numpy(expected))


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_invalid_input_is_refused(kind):
    for bad in ([[1.0, 2.0, 3.0]], [1.0, 2.0], 1.0):
        with pytest.raises(ValueError, match=r"symmetrize: expected X of shape \(..., n, n\), got"):
            symmetrize(kind(bad))
    with pytest.raises(TypeError, match="symmetrize: expected X with a real floating dtype, got"):
        symmetrize(kind([[1, 2], [3, 4]]))


def test_symmetrize_refuses_lists():
    with pytest.raises(TypeError, match=r"symmetrize: expected X to be a torch.Tensor, got list"):
        symmetrize([[1.0]])


@pytest.mark.parametrize("batch", BATCH_SHAPES)
def test_vech_is_an_isometry_and_unvech_its_inverse(batch):
    A, B = random_symmetric(*batch, 4), random_symmetric(*batch, 4, seed=1)
    exact = {"rtol": 1e-14, "atol": 1e-14}
    torch.testing.assert_close((vech(A) * vech(B)).sum(-1), (A * B).sum((-2, -1)), **exact)
    torch.testing.assert_close(unvech(vech(A)), A, **exact)
    assert vech(A).shape == (*batch, 10)


def test_vech_is_in_row_major_order():
    X = torch.tensor([[1.0, 2, 3], [2, 4, 5], [3, 5, 6]])
    root = 2**0.5
    torch.testing.assert_close(vech(X), torch.tensor([1, 2 * root, 3 * root, 4, 5 * root, 6]))


def test_vech_derivatives():
    assert gradcheck(vech, random_symmetric(2, 3).requires_grad_(), check_forward_ad=True)
    assert gradcheck(unvech, vech(random_symmetric(2, 3)).requires_grad_(), check_forward_ad=True)
