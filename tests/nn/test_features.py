"""Spectral features."""

import pytest
import torch

from spdnet.linalg import logm, symmetrize, vech
from spdnet.nn import GaussianFeatures, SpectralFeatures
from tests.cases import (
    ILL_CONDITIONED,
    SPECTRA,
    every_dtype,
    random_matrix,
    random_spd,
    with_spectrum,
)


@pytest.mark.parametrize("name", ["log", "sqrt", "invsqrt"])
@pytest.mark.parametrize("n", [1, 4])
def test_features_have_mean_0_and_variance_1(n, name):
    X = random_spd(50, n)
    features = SpectralFeatures(n, name, dtype=torch.float64).fit(X)(X)
    assert features.shape == (50, n * (n + 1) // 2)
    torch.testing.assert_close(features.mean(0), torch.zeros_like(features[0]))
    torch.testing.assert_close(features.square().mean(), features.new_tensor(1.0))


@pytest.mark.parametrize("n_samples", [7, 50])
def test_distances_are_log_euclidean_up_to_one_factor(n_samples):
    X = random_spd(n_samples, 5)
    layer = SpectralFeatures(5, n_samples=n_samples, dtype=torch.float64).fit(X)
    assert layer.n_features == min(n_samples, 15)
    expected = torch.pdist(vech(logm(X)))
    torch.testing.assert_close(torch.pdist(layer(X)) / layer.scale, expected)


@pytest.mark.parametrize("fails", [False, True])
def test_basis_is_orthonormal_and_spans_the_data(monkeypatch, fails):
    X = random_spd(8, 6)
    X[5] = X[2]  # dependent
    if fails:
        failed = torch.ones((), dtype=torch.int32)
        monkeypatch.setattr(torch.linalg, "cholesky_ex", lambda A: (A, failed))
    layer = SpectralFeatures(6, n_samples=8, dtype=torch.float64).fit(X)
    basis = layer.basis.double()
    s = torch.linalg.svdvals(basis)
    torch.testing.assert_close(s[:6], torch.ones(6).double(), atol=1e-5, rtol=0)
    assert s.max() < 1 + 1e-5
    entries = vech(layer.rotation.mT @ logm(X) @ layer.rotation)
    entries = entries - entries.mean(0)
    torch.testing.assert_close(entries @ basis @ basis.mT, entries, atol=1e-5, rtol=1e-5)


def test_large_matrices_are_reduced_to_the_directions_that_vary_most(monkeypatch):
    monkeypatch.setattr("spdnet.nn.features.LARGEST_BASIS", 10**5)
    n, d = 100, 96
    X = torch.eye(n, dtype=torch.float64).repeat(30, 1, 1)
    X[:, 3:5, 3:5] = random_spd(30, 2)
    layer = SpectralFeatures(n, n_samples=30, dtype=torch.float64).fit(X)
    assert layer.rotation.shape == (n, d)
    assert layer(X).shape == (30, 30)
    torch.testing.assert_close(torch.pdist(layer(X)) / layer.scale, torch.pdist(vech(logm(X))))


@pytest.mark.parametrize(("n_samples", "size"), [(828, 200), (1747, 138), (4096, 96), (None, 96)])
def test_few_large_matrices_are_not_reduced(n_samples, size):
    layer = SpectralFeatures(200, n_samples=n_samples, device="meta")
    assert layer.rotation.shape == (200, size)
    assert layer.basis.numel() <= 2**24 or size == 96


def test_a_result_does_not_depend_on_the_batch():
    X = random_spd(20, 4)
    layer = SpectralFeatures(4, n_samples=9, dtype=torch.float64).fit(X[:9])
    torch.testing.assert_close(layer(X)[3], layer(X[3]))
    assert layer(X[:0]).shape == (0, 9)
    assert layer(X.reshape(4, 5, 4, 4)).shape == (4, 5, 9)


@pytest.mark.parametrize("name", ["log", "sqrt", "invsqrt"])
@pytest.mark.parametrize("values", [*SPECTRA.values(), ILL_CONDITIONED])
def test_gradients(values, name):
    X = with_spectrum(values)
    layer = SpectralFeatures(len(values), name, dtype=torch.float64)
    Y = X.clone().requires_grad_()
    assert torch.autograd.grad(layer(Y).sum(), Y)[0].isfinite().all()
    if values is not ILL_CONDITIONED:
        assert torch.autograd.gradcheck(lambda A: layer((A + A.mT) / 2, check=False), Y)


def test_equal_matrices():
    X = torch.eye(3).repeat(5, 1, 1)
    assert (SpectralFeatures(3).fit(X)(X).abs() < 1e-5).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_inner_products_of_gaussian_features_are_the_kernel(dtype):
    x = torch.randn(40, 5, dtype=dtype, generator=torch.Generator().manual_seed(0))
    layer = GaussianFeatures(5, 40, gamma=2.0, dtype=dtype).fit(x)
    features = layer(x) / 40**0.5
    expected = torch.exp(-2 / 5 * torch.cdist(x, x).square())
    torch.testing.assert_close(features @ features.T, expected, atol=3e-4, rtol=0)
    assert layer(1e3 * x.sign()).abs().max() == 0  # far from all centers
    tight = 1e-4 if dtype == torch.float32 else 1e-11
    torch.testing.assert_close(layer(x[3]), layer(x)[3], atol=tight, rtol=tight)


def test_gaussian_features_of_repeated_vectors_are_finite():
    x = torch.ones(30, 3).double()
    assert GaussianFeatures(3, 30, dtype=torch.float64).fit(x)(x).isfinite().all()
    few = GaussianFeatures(3, 7, dtype=torch.float64).fit(torch.randn(30, 3).double())
    assert few(x).shape == (30, 7)
    many = GaussianFeatures(3, 60, dtype=torch.float64).fit(torch.randn(30, 3).double())
    assert many(x).isfinite().all()


def test_reduction_finds_the_directions_in_which_classes_differ():
    """Classes differ in two of six directions; all others vary more, but alike in all classes."""
    torch.manual_seed(0)
    y = torch.arange(300) % 3
    Q = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64)).Q
    logs = torch.randn(300, 6, dtype=torch.float64)
    logs[:, :2] = 0.1 * logs[:, :2] + torch.tensor([[2.0, 0], [0, 2.0], [-2.0, -2.0]])[y]
    X = Q @ torch.diag_embed(logs.exp()) @ Q.mT
    layer = SpectralFeatures(6, n_reduced=2, dtype=torch.float64).fit(X, y)
    V = layer.reduction
    torch.testing.assert_close(V.mT @ V, torch.eye(2, dtype=torch.float64))
    torch.testing.assert_close(V @ V.mT, Q[:, :2] @ Q[:, :2].mT, atol=0.1, rtol=0)
    assert layer(X).shape == (300, 3)
    assert "n_reduced=2" in repr(layer)
    assert SpectralFeatures(6, n_reduced=2).fit(X.float())(X.float()).isfinite().all()


@every_dtype
@pytest.mark.parametrize("settings", [{}, {"n_samples": 9}, {"n_reduced": 3}, {"map": "sqrt"}])
def test_features_do_not_depend_on_the_coordinates(dtype, settings):
    X, y = random_spd(40, 6, dtype=dtype), torch.arange(40) % 3
    X[y == 0, 0, 0] *= 2
    Q = torch.linalg.qr(random_matrix(6, 6, dtype=dtype)).Q
    found = []
    for Y in (X, symmetrize(Q.mH @ X @ Q)):
        torch.manual_seed(0)
        found.append(SpectralFeatures(6, dtype=dtype, **settings).fit(Y, y)(Y))
    torch.testing.assert_close(*found, rtol=1e-8, atol=1e-8)


def test_errors():
    with pytest.raises(ValueError, match="gamma > 0"):
        GaussianFeatures(2, 9, gamma=0.0)
    with pytest.raises(ValueError, match=r"SpectralFeatures.*'log'.*'cube'"):
        SpectralFeatures(3, "cube")
    with pytest.raises(ValueError, match="expected n_reduced <= 3, got 4"):
        SpectralFeatures(3, n_reduced=4)
    with pytest.raises(ValueError, match="at least 5 matrices to fit the basis, got 4"):
        SpectralFeatures(4, n_samples=5).fit(random_spd(4, 4, dtype=torch.float32))
    with pytest.raises(ValueError, match="symmetric"):
        SpectralFeatures(2)(torch.tensor([[1.0, 0.5], [0.0, 1.0]]))
