import numpy as np
import pytest
import torch

from spdnet import covariance
from spdnet.adaptation import Completion, align_channels, masked_mean, observed_channels
from tests.cases import random_spd

NAN = float("nan")


def hide(X, *channels):
    """Return a matrix whose channels are missing."""
    X = X.clone()
    X[..., channels, :] = NAN
    X[..., :, channels] = NAN
    return X


def test_nan_and_zero_channels_are_missing():
    X = random_spd(3, 4)
    X[1] = hide(X[1], 0, 2)
    X[2] = hide(X[2], 3)
    X[2, 1, :3] = X[2, :3, 1] = 0
    expected = torch.tensor([[1, 1, 1, 1], [0, 1, 0, 1], [1, 0, 1, 0]]).bool()
    torch.testing.assert_close(observed_channels(X), expected)
    torch.testing.assert_close(observed_channels(X.float()), expected)
    torch.testing.assert_close(observed_channels(X[1]), expected[1])
    assert (observed_channels(X.numpy()) == expected.numpy()).all()
    assert not observed_channels(torch.full((2, 2), NAN)).any()
    assert not observed_channels(torch.zeros(2, 2)).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_constant_signals_are_missing(dtype):
    signals = torch.randn(5, 3, 100, generator=torch.Generator().manual_seed(0)).to(dtype)
    signals[:, 1] = 0.1  # its mean has a rounding error
    mask = observed_channels(covariance.sample_covariance(signals))
    torch.testing.assert_close(mask, torch.tensor([True, False, True]).expand(5, 3))


def test_channels_of_small_units_are_observed():
    scale = torch.tensor([1.0, 1e-10, 1e-12], dtype=torch.float64)
    X = random_spd(4, 3) * scale * scale[:, None]
    assert observed_channels(X).all()


def test_partial_rows_and_infinity_raise_errors():
    X = hide(random_spd(3, 3), 0)
    X[1, 1, 2] = NAN
    with pytest.raises(ValueError, match=r"X\[1\] also has nan in row 1, column 2"):
        observed_channels(X)
    X[1, 1, 2] = torch.inf
    for call in (observed_channels, masked_mean):
        with pytest.raises(ValueError, match=r"X\[1\] also has inf in row 1, column 2"):
            call(X)
    with pytest.raises(ValueError, match=r"^Completion: .* X\[1\] also has inf"):
        Completion().fit(X)
    with pytest.raises(ValueError, match="but X also has inf"):
        observed_channels(X[1])


def test_align_channels_reorders_and_inserts():
    X = np.arange(9.0).reshape(1, 3, 3)
    X = X + X.swapaxes(1, 2)
    names, reference = ["a", "b", "c"], ["c", "x", "a", "b"]
    A = align_channels(X, names, reference)
    assert np.isnan(A[:, 1]).all()
    assert np.isnan(A[:, :, 1]).all()
    np.testing.assert_array_equal(A[:, [2, 3, 0]][:, :, [2, 3, 0]], X)
    np.testing.assert_array_equal(align_channels(X, names, names), X)
    torch.testing.assert_close(
        align_channels(torch.from_numpy(X), names, reference), torch.from_numpy(A), equal_nan=True
    )
    B = align_channels(X, names, ["b", "a"], drop=True)
    np.testing.assert_array_equal(B, X[:, [1, 0]][:, :, [1, 0]])


def test_align_channels_rejects_unknown_names():
    X = np.eye(3)
    with pytest.raises(
        ValueError, match=r"'FP1', 'T9'; did you mean 'Fp1'\?; rename them, or pass"
    ):
        align_channels(X, ["C3", "FP1", "T9"], ["C3", "Fp1"])
    with pytest.raises(ValueError, match="none of them: 'a', 'b', 'c'"):
        align_channels(X, ["a", "b", "c"], ["C3", "Cz"], drop=True)
    with pytest.raises(ValueError, match="channels to be 3 distinct names"):
        align_channels(X, ["C3", "Cz"], ["C3", "Cz"])
    with pytest.raises(ValueError, match="channels to be 3 distinct names"):
        align_channels(X, ["C3", "Cz", "Cz"], ["C3", "Cz"])
    with pytest.raises(ValueError, match="reference to be distinct names"):
        align_channels(X, ["C3", "Cz", "C4"], ["C3", "C3"])
    with pytest.raises(ValueError, match="channels to be 3 distinct names"):
        align_channels(X, "abc", ["a", "b", "c"])
