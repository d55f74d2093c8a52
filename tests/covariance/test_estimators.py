import numpy as np
import pytest
import torch
from sklearn import covariance as theirs
from torch.autograd import gradcheck

from spdnet import covariance
from spdnet.linalg import logm
from spdnet.testing import assert_spd, assert_symmetric

SIGNALS = np.random.default_rng(0).normal(size=(3, 2, 5, 40)) @ np.diag(np.linspace(0.5, 2, 40))
FEW = np.random.default_rng(1).normal(size=(4, 8, 5))  # fewer observations than channels


def test_sample_covariance():
    C = covariance.sample_covariance(SIGNALS)
    assert C.shape == (3, 2, 5, 5)
    np.testing.assert_allclose(C[1, 0], np.cov(SIGNALS[1, 0]), atol=1e-14)
    assert_symmetric(torch.from_numpy(C))


@pytest.mark.parametrize("X", [SIGNALS, FEW, 1e3 * FEW])
@pytest.mark.parametrize("name", ["ledoit_wolf", "oas"])
def test_shrinkage_equals_scikit_learn(name, X):
    ours = getattr(covariance, name)(X)
    for index in np.ndindex(X.shape[:-2]):
        expected, _ = getattr(theirs, name)(X[index].T)
        np.testing.assert_allclose(ours[index], expected, rtol=1e-12, atol=1e-12)
    assert_spd(torch.from_numpy(ours))


@pytest.mark.parametrize("name", ["ledoit_wolf", "oas"])
def test_shrinkage_of_white_data(name):
    """A multiple of the identity is unchanged."""
    X = np.concatenate([np.eye(3), -np.eye(3)], axis=1)
    np.testing.assert_allclose(getattr(covariance, name)(X), np.eye(3) / 3, atol=1e-15)


@pytest.mark.parametrize("estimator", covariance.ESTIMATORS)
def test_estimate(estimator):
    C = covariance.estimate(FEW, estimator)
    assert_spd(torch.from_numpy(C))
    raw = getattr(covariance, {"sample": "sample_covariance"}.get(estimator, estimator))(FEW)
    np.testing.assert_array_equal(covariance.estimate(FEW, estimator, mode="none"), raw)


def test_regularize():
    C = covariance.sample_covariance(FEW)
    trace = np.trace(C, axis1=-2, axis2=-1)[:, None, None]
    eye = np.eye(8)
    expected = {
        "mean": C + 0.1 * trace / 8 * eye,
        "trace": C + 0.1 * trace * eye,
        "absolute": C + 0.1 * eye,
        "shrinkage": 0.9 * C + 0.1 * trace / 8 * eye,
        "none": C,
    }
    assert set(expected) == set(covariance.REGULARIZERS)
    for mode, wanted in expected.items():
        np.testing.assert_allclose(covariance.regularize(C, 0.1, mode), wanted, atol=1e-14)
    assert_spd(torch.from_numpy(covariance.regularize(np.zeros((2, 2)), 0.1, "absolute")))


def test_correlation():
    C = covariance.estimate(SIGNALS)
    R = covariance.correlation(C)
    np.testing.assert_array_equal(np.diagonal(R, axis1=-2, axis2=-1), 1)
    np.testing.assert_allclose(R[0, 1], np.corrcoef(SIGNALS[0, 1]), atol=2e-3)
    assert_spd(torch.from_numpy(R))


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


def test_estimate_keeps_array_type_and_dtype():
    for dtype in (np.float32, np.float64):
        assert covariance.estimate(FEW.astype(dtype)).dtype == dtype
        assert covariance.estimate(torch.from_numpy(FEW.astype(dtype))).numpy().dtype == dtype
    assert covariance.estimate([[1, 2, 4], [0, 1, 0]]).dtype == np.float64
    assert covariance.estimate(torch.tensor([[1, 2, 4], [0, 1, 0]])).dtype == torch.float64
    assert covariance.estimate(FEW.swapaxes(-1, -2)).shape == (4, 5, 5)


@pytest.mark.parametrize("estimator", covariance.ESTIMATORS)
def test_estimate_is_differentiable(estimator):
    X = torch.from_numpy(FEW[:2, :3]).requires_grad_()
    assert gradcheck(lambda X: covariance.estimate(X, estimator), X)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-6, 1.0])
@pytest.mark.parametrize("name", ["ledoit_wolf", "oas"])
def test_shrinkage_gradients_of_white_data_and_one_channel_are_finite(name, scale, dtype):
    eye = torch.eye(3, dtype=dtype)
    for X in (torch.cat([eye, -eye], 1), torch.tensor([[1.0, 2.0, 4.0]], dtype=dtype)):
        X = (scale * X).requires_grad_()
        (gradient,) = torch.autograd.grad(getattr(covariance, name)(X).sum(), X)
        assert gradient.isfinite().all()


def test_parameters_accept_documented_keywords(rng):
    C = covariance.estimate(X=SIGNALS, estimator="oas")
    np.testing.assert_array_equal(C, covariance.estimate(SIGNALS, "oas"))
    np.testing.assert_array_equal(
        covariance.regularize(C=C, reg=0.1), covariance.regularize(C, 0.1)
    )
    np.testing.assert_array_equal(covariance.correlation(C=C), covariance.correlation(C))
    joints, images = rng.normal(size=(10, 4, 3)), rng.normal(size=(2, 5, 6))
    assert covariance.joint_covariance(joints=joints).shape == (12, 12)
    assert covariance.image_features(images=images).shape == (2, 17, 30)
    assert covariance.region_covariance(images=images).shape == (2, 17, 17)
    assert covariance.gaussian_embedding(X=FEW).shape == (4, 9, 9)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'C'"):
        covariance.correlation()


def test_unusual_arrays_are_converted_or_refused():
    expected = covariance.estimate(FEW)
    read_only = FEW.copy()
    read_only.flags.writeable = False
    for X in (FEW.astype(">f8"), FEW.astype(np.longdouble), read_only, FEW[::-1][::-1]):
        C = covariance.estimate(X)  # no warning
        assert C.dtype == np.float64
        np.testing.assert_array_equal(C, expected)
    assert covariance.estimate(FEW.astype(">f4")).dtype == np.float32
    for X in (FEW + 1j, torch.from_numpy(FEW + 1j)):
        with pytest.raises(TypeError, match=r"estimate: expected X with real numbers.*imaginary"):
            covariance.estimate(X)


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_signals_of_unequal_length_are_refused_with_a_hint(kind):
    signals = [kind(FEW[0]), kind(FEW[1][:, :4])]
    with pytest.raises(ValueError, match=r"\(8, 5\), \(8, 4\).*stack.*estimate\(x\)"):
        covariance.estimate(signals)


def test_correlation_under_vmap_and_compiled():
    C = torch.from_numpy(covariance.estimate(FEW))
    R = covariance.correlation(C)
    torch.testing.assert_close(torch.func.vmap(covariance.correlation)(C), R)
    compiled = torch.compile(covariance.correlation, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(C), R)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: covariance.estimate(FEW, "robust"),
            "estimator to be one of 'sample'.*got 'robust'",
        ),
        (lambda: covariance.estimate(np.ones((3, 1))), r"at least 2 observations, got \(3, 1\)"),
        (lambda: covariance.estimate(np.ones(3)), r"sample_covariance: .*got \(3,\)"),
        (lambda: covariance.oas(np.full((2, 3, 4), np.nan)), r"oas: .*X\[0\] contains NaN"),
        (lambda: covariance.regularize(np.ones((2, 3))), r"regularize: expected C of shape"),
        (lambda: covariance.regularize(np.eye(2), -1), "reg >= 0"),
        (lambda: covariance.regularize(np.eye(2), 2, "shrinkage"), "reg >= 0 and <= 1"),
        (lambda: covariance.regularize(np.eye(2), mode="much"), "mode to be one of.*got 'much'"),
        (lambda: covariance.regularize(np.triu(np.ones((2, 2)))), "C is not symmetric"),
        (lambda: covariance.correlation(np.zeros((2, 2, 2))), r"positive variance.*\(0, 0\)"),
        (lambda: covariance.gaussian_embedding(FEW, weight=0), "weight > 0"),
        (
            lambda: covariance.gaussian_embedding(FEW, mode="none", scale_det=True),
            r"gaussian_embedding: .*covariance\[\d\] is not positive definite",
        ),
        (
            lambda: covariance.joint_covariance(np.ones((5, 3))),
            r"frames, joints, 3\), got \(5, 3\)",
        ),
        (
            lambda: covariance.image_features(np.ones((5, 2, 8))),
            r"at least 3 by 3, got \(5, 2, 8\)",
        ),
        (lambda: covariance.segment(FEW, 0), "segment: expected length >= 1"),
        (lambda: covariance.segment(FEW, 2, stride=0), "segment: expected stride >= 1"),
    ],
)
def test_invalid_input_raises_message(call, message):
    with pytest.raises(ValueError, match=message):
        call()
