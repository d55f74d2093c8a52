import numpy as np
import pytest
import torch

from spdnet import covariance
from spdnet.linalg import logm
from spdnet.testing import assert_spd

SIGNALS = np.random.default_rng(0).normal(size=(3, 2, 5, 40)) @ np.diag(np.linspace(0.5, 2, 40))


def test_gaussian_embedding():
    X = SIGNALS + 3.0
    P = covariance.gaussian_embedding(X)
    C = covariance.estimate(X, mode="trace")
    m = X.mean(-1, keepdims=True)
    np.testing.assert_allclose(P[..., :-1, :-1], C + m @ m.swapaxes(-1, -2))
    np.testing.assert_allclose(P[..., :-1, -1:], m)
    assert_spd(torch.from_numpy(P))
    np.testing.assert_allclose(np.linalg.det(P), np.linalg.det(C))
    scaled = covariance.gaussian_embedding(X, scale_det=True)
    np.testing.assert_allclose(np.linalg.det(scaled), 1)
    gap = logm(torch.from_numpy(P)) - logm(torch.from_numpy(scaled))
    shift = np.log(np.linalg.det(C)) / 6
    expected = torch.from_numpy(shift)[..., None, None] * torch.eye(6)
    torch.testing.assert_close(gap, expected.double(), atol=1e-8, rtol=0)
    half = covariance.gaussian_embedding(X, weight=0.5)
    np.testing.assert_allclose(half[..., :-1, -1:], m / 2)


def test_determinant_scaling_does_not_underflow(rng):
    X = 1e-4 * rng.normal(size=(400, 500))
    P = covariance.gaussian_embedding(X, scale_det=True)
    assert abs(np.linalg.slogdet(P)[1]) < 1e-6


def test_joint_covariance(rng):
    joints = rng.normal(size=(2, 50, 31, 3)).cumsum(1)
    C = covariance.joint_covariance(joints, mode="none")
    np.testing.assert_allclose(C[1], np.cov(joints[1].reshape(50, 93).T), atol=1e-10)
    assert_spd(torch.from_numpy(covariance.joint_covariance(joints)))
    moved = joints + rng.normal(size=(2, 50, 1, 3))
    for root in (0, 5, -1):
        centered = covariance.joint_covariance(joints, root=root)
        np.testing.assert_allclose(
            centered, covariance.joint_covariance(moved, root=root), atol=1e-9
        )


def test_image_features(rng):
    image = rng.normal(size=(6, 9))
    F = covariance.image_features(image).reshape(17, 6, 9)
    gy, gx = np.gradient(image)
    np.testing.assert_allclose(F[0][2], np.linspace(-1, 1, 9))
    np.testing.assert_allclose(F[1][:, 3], np.linspace(-1, 1, 6))
    np.testing.assert_allclose(F[2], image)
    np.testing.assert_allclose(F[3], gx)
    np.testing.assert_allclose(F[4], gy)
    np.testing.assert_allclose(F[5], np.gradient(gx, axis=1))
    np.testing.assert_allclose(F[6], np.gradient(gy, axis=0))
    np.testing.assert_allclose(F[7], np.gradient(gx, axis=0))
    np.testing.assert_allclose(
        F[8:13], image * np.stack([F[0], F[1], F[0] * F[1], F[0] ** 2, F[1] ** 2])
    )
    np.testing.assert_allclose(F[13:], [gx * F[0], gx * F[1], gy * F[0], gy * F[1]])
    images = rng.normal(size=(4, 8, 8))
    assert_spd(torch.from_numpy(covariance.region_covariance(images)))
    few = covariance.region_covariance(images, n_features=8, reg=0.0)
    all_features = covariance.region_covariance(images, reg=0.0)
    np.testing.assert_allclose(few, all_features[:, :8, :8], atol=1e-15)
    with pytest.raises(ValueError, match="expected n_features <= 17, got 18"):
        covariance.region_covariance(images, n_features=18)
    with pytest.raises(ValueError, match="expected n_features >= 1, got 0"):
        covariance.region_covariance(images, n_features=0)


@pytest.mark.parametrize(
    ("frames", "settings", "lengths"),
    [
        (10, {"length": 5}, [5, 5]),
        (11, {"length": 5}, [5, 5]),
        (13, {"length": 5, "min_length": 3}, [5, 5, 3]),
        (12, {"length": 5, "min_length": 3}, [5, 5]),
        (10, {"length": 4, "stride": 2}, [4, 4, 4, 4]),
        (11, {"length": 4, "stride": 2, "min_length": 3}, [4, 4, 4, 4, 3]),
        (3, {"length": 5}, []),
        (3, {"length": 5, "min_length": 2}, [3]),
        (0, {"length": 5, "min_length": 1}, []),
        (20, {"length": 3, "stride": 10}, [3, 3]),
    ],
)
def test_segment(frames, settings, lengths):
    X = np.arange(frames)
    windows = covariance.segment(X, **settings)
    assert [len(w) for w in windows] == lengths
    for k, window in enumerate(windows):
        start = k * settings.get("stride", settings["length"])
        np.testing.assert_array_equal(window, X[start : start + len(window)])


@pytest.mark.parametrize("lags", [(1,), (1, 2, 3), (7, 2), ()])
def test_lagged(lags):
    Y = covariance.lagged(SIGNALS, lags)
    longest = max(lags, default=0)
    assert Y.shape == (3, 2, 5 * (1 + len(lags)), 40 - longest)
    for i, k in enumerate((0, *lags)):
        for t in range(40 - longest):
            now = SIGNALS[..., t + longest - k]
            np.testing.assert_array_equal(Y[..., 5 * i : 5 * (i + 1), t], now)


def test_lagged_covariance_is_nearly_block_toeplitz(rng):
    noise = rng.normal(size=(2, 50_002))
    X = np.stack([noise[0, 2:], noise[0, 1:-1] + noise[1, 2:]])  # the second follows by one step
    C = covariance.sample_covariance(covariance.lagged(X, [1, 2])).reshape(3, 2, 3, 2)
    theory = {0: [[1, 0], [0, 2]], 1: [[0, 0], [1, 0]], 2: [[0, 0], [0, 0]]}
    for i in range(3):
        for j in range(i, 3):
            np.testing.assert_allclose(C[i, :, j], theory[j - i], atol=0.03)


@pytest.mark.parametrize(
    ("lags", "error", "message"),
    [
        ([1, 1], ValueError, r"lagged: expected distinct lags of at most 38 for 40.*\[1, 1\]"),
        ([39], ValueError, "at most 38"),
        ([0], ValueError, "every lag >= 1, got 0"),
        ([1.5], TypeError, "every lag to be an integer"),
    ],
)
def test_invalid_lags_raise_message(lags, error, message):
    with pytest.raises(error, match=message):
        covariance.lagged(SIGNALS, lags)
