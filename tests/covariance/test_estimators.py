import numpy as np
import pytest
import torch
from sklearn import covariance as theirs
from torch.autograd import gradcheck

from spdnet import covariance
from spdnet.testing import assert_spd, assert_symmetric

SIGNALS = np.random.default_rng(0).normal(size=(3, 2, 5, 40)) @ np.diag(np.linspace(0.5, 2, 40))
ROBUST = ("huber", "student_t", "tyler", "mcd")  # test_robust.py
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
    X = SIGNALS if estimator in ROBUST else FEW
    C = covariance.estimate(X, estimator)
    assert_spd(torch.from_numpy(C))
    raw = getattr(covariance, {"sample": "sample_covariance"}.get(estimator, estimator))(X)
    np.testing.assert_array_equal(covariance.estimate(X, estimator, mode="none"), raw)
    assert f'"{estimator}"' in covariance.estimate.__doc__


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


def test_estimate_keeps_array_type_and_dtype():
    for dtype in (np.float32, np.float64):
        assert covariance.estimate(FEW.astype(dtype)).dtype == dtype
        assert covariance.estimate(torch.from_numpy(FEW.astype(dtype))).numpy().dtype == dtype
    assert covariance.estimate([[1, 2, 4], [0, 1, 0]]).dtype == np.float64
    assert covariance.estimate(torch.tensor([[1, 2, 4], [0, 1, 0]])).dtype == torch.float64
    assert covariance.estimate(FEW.swapaxes(-1, -2)).shape == (4, 5, 5)


@pytest.mark.parametrize(
    "estimator", [name for name in covariance.ESTIMATORS if name not in ROBUST]
)
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
