import numpy as np
import pytest
import torch
from scipy import signal
from torch.autograd import gradcheck

from spdnet import covariance
from spdnet.covariance import coherence, cross_spectrum
from spdnet.testing import assert_spd

FS = 100
EVERY_FREQUENCY = [(0, FS)]


@pytest.fixture
def X(rng):
    noise = rng.normal(size=(2, 3, 1000))
    noise[:, 1, 2:] += noise[:, 0, :-2]  # follows by two steps
    return noise - noise.mean(-1, keepdims=True)


def test_cross_spectrum_equals_scipy(X):
    for window, overlap in ((50, 0.5), (51, 0.0)):
        f = np.arange(window // 2 + 1) * FS / window
        bins = [(v - 1e-9, v + 1e-9) for v in f]
        S = cross_spectrum(X, bins, FS, window=window, overlap=overlap)
        assert S.shape == (2, len(f), 3, 3)
        settings = {"nperseg": window, "noverlap": int(overlap * window), "detrend": False}
        for i, j in np.ndindex(3, 3):  # scipy conjugates the first
            _, P = signal.csd(X[:, j], X[:, i], fs=FS, **settings)
            np.testing.assert_allclose(S[..., i, j], P * FS / window, atol=1e-15)


def test_bands_add_up_to_the_covariance_of_windows(X):
    S = cross_spectrum(X, [(0, 10), (10, 33), (33, FS)], FS, window=100)
    np.testing.assert_array_equal(S, S.conj().swapaxes(-1, -2))
    windows = np.lib.stride_tricks.sliding_window_view(X, 100, -1)[..., ::50, :]
    taper = signal.get_window("hann", 100)
    tapered = np.moveaxis(windows * taper, -3, -2).reshape(2, -1, 3, 100)
    expected = (tapered @ tapered.swapaxes(-1, -2)).mean(1) / (taper**2).sum()
    np.testing.assert_allclose(S.sum(1).real, expected, atol=1e-14)
    np.testing.assert_allclose(
        cross_spectrum(X, EVERY_FREQUENCY, FS, window=100)[:, 0].real, expected
    )


def test_real_part_is_the_covariance_of_filtered_signals(rng):
    X = rng.normal(size=(3, 3)) @ rng.normal(size=(3, 50_000))
    filtered = signal.sosfiltfilt(signal.butter(8, (8, 20), "bandpass", fs=FS, output="sos"), X)
    S = cross_spectrum(X + 7, [(8, 20)], FS)[0].real
    np.testing.assert_allclose(S, np.cov(filtered), rtol=0.1, atol=0.05)
    assert_spd(torch.from_numpy(S))


def test_rank(X):
    def rank(S):
        return np.linalg.matrix_rank(S, tol=1e-10)

    wide = np.random.default_rng(0).normal(size=(8, 128))
    one = [(10, 10.5)]  # one frequency and one window
    S = cross_spectrum(wide, one, 128)[0]
    assert (rank(S), rank(S.real)) == (1, 2)
    np.testing.assert_allclose(coherence(wide, one, 128), 1)
    assert rank(coherence(wide, [(10, 11.5)], 128)[0]) == 4  # 2 frequencies: rank 2 * 2
    K = coherence(wide, [(10, 12.5)], 128)[0]
    assert rank(K) == 8  # 3 * 3 > 8
    assert_spd(torch.from_numpy(covariance.regularize(S.real)))


def test_coherence_equals_scipy(X):
    f = np.arange(1, 26) * FS / 50
    K = coherence(X, [(v - 1e-9, v + 1e-9) for v in f], FS, window=50)
    for i, j in np.ndindex(3, 3):
        _, expected = signal.coherence(X[:, i], X[:, j], fs=FS, nperseg=50, detrend=False)
        np.testing.assert_allclose(K[..., i, j], expected[:, 1:], atol=1e-12)


def test_coherence_is_positive_semidefinite_and_has_no_units(X):
    K = coherence(X, [(5, 15), (15, 40)], FS)
    assert K.dtype == np.float64
    np.testing.assert_allclose(np.diagonal(K, axis1=-2, axis2=-1), 1)
    assert np.linalg.eigvalsh(K).min() > -1e-15
    scaled = coherence(np.array([1e-12, 1.0, 1e6])[:, None] * X, [(5, 15), (15, 40)], FS)
    np.testing.assert_allclose(scaled, K, atol=1e-12)


@pytest.mark.parametrize("unit", [1e-13, 1e12])
def test_coherence_in_single_precision_has_no_units(X, unit):
    found = coherence((unit * X).astype("float32"), [(5, 20)], FS)
    np.testing.assert_allclose(found, coherence(X, [(5, 20)], FS), rtol=0, atol=1e-5)
    np.testing.assert_array_equal(found[:, 0].diagonal(axis1=-2, axis2=-1), 1)


def test_batch_may_be_empty(X):
    assert cross_spectrum(X[:0], [(5, 20), (20, 30)], FS).shape == (0, 2, 3, 3)
    assert coherence(X[:0], [(5, 20)], FS).shape == (0, 1, 3, 3)


def test_coherence_of_a_constant_channel_raises_message(X):
    X[1, 2] = 0.1  # its mean has a rounding error
    with pytest.raises(ValueError, match=r"none of channel 2 in \(5, 20\)"):
        coherence(X, [(5, 20)], FS)


def test_dtypes_and_derivative(X):
    bands = [(5, 15)]
    assert cross_spectrum(X.astype(np.float32), bands, FS).dtype == np.complex64
    half = torch.from_numpy(X).bfloat16()
    assert cross_spectrum(half, bands, FS).dtype == torch.complex64
    assert coherence(half, bands, FS).dtype == torch.bfloat16
    short = torch.from_numpy(X[0, :, :24]).requires_grad_()
    for function in (cross_spectrum, coherence):
        assert gradcheck(lambda x, f=function: f(x, [(0.1, 0.4)], window=8), short, fast_mode=True)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X: coherence(X, [(5, 5.1)], FS), r"coherence: .*multiple of .*0.78125 up to 50"),
        (lambda X: cross_spectrum(X, [(60, 70)], FS), r"none in \(60, 70\)"),
        (lambda X: cross_spectrum(X, []), "cross_spectrum: expected at least one band"),
        (lambda X: cross_spectrum(X, [(0, 1)], window=2000), "window from 2 to 1000"),
        (lambda X: cross_spectrum(X, [(0, 1)], window=1), "window from 2"),
        (lambda X: cross_spectrum(X, [(0, 1)], overlap=1), "overlap >= 0 and < 1"),
        (lambda X: cross_spectrum(X, [(0, 1)], 0), "fs > 0"),
        (lambda X: coherence(0 * X, [(0, 10)], FS), r"coherence: .*channel 0 in \(0, 10\)"),
        (lambda X: cross_spectrum(X[0, 0], [(0, 1)]), r"cross_spectrum: expected X of shape"),
    ],
)
def test_invalid_input_raises_message(X, call, message):
    with pytest.raises(ValueError, match=message):
        call(X)
