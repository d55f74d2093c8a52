import numpy as np
import pytest
import torch

from spdnet.linalg import symmetrize


def test_tensors_and_arrays():
    X = np.random.default_rng(0).normal(size=(2, 3, 3))
    expected = (X + X.swapaxes(-1, -2)) / 2
    for dtype in (np.float32, np.float64, np.longdouble):
        Y = symmetrize(X.astype(dtype))
        assert Y.dtype == dtype
        np.testing.assert_allclose(Y, expected, rtol=1e-6)
        np.testing.assert_array_equal(Y, Y.swapaxes(-1, -2))
    torch.testing.assert_close(symmetrize(torch.from_numpy(X)), torch.from_numpy(expected))


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_refusals(kind):
    for bad in ([[1.0, 2.0, 3.0]], [1.0, 2.0], 1.0):
        with pytest.raises(ValueError, match=r"symmetrize: expected X of shape \(..., n, n\), got"):
            symmetrize(kind(bad))
    with pytest.raises(TypeError, match="symmetrize: expected X with a real floating dtype, got"):
        symmetrize(kind([[1, 2], [3, 4]]))


def test_other_things_are_refused():
    with pytest.raises(TypeError, match=r"symmetrize: expected X to be a torch.Tensor, got list"):
        symmetrize([[1.0]])
