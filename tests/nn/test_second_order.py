import pytest
import torch
from torch.autograd import gradcheck

from spdnet.covariance import gaussian_embedding
from spdnet.linalg import sqrtm
from spdnet.nn import CovPool, MatrixSqrt
from spdnet.testing import assert_spd, check_layer
from tests.cases import SPECTRA, random_spd, with_spectrum


@pytest.mark.parametrize("case", SPECTRA)
@pytest.mark.parametrize("method", ["eig", "newton_schulz"])
def test_matrix_sqrt_satisfies_layer_properties(method, case):
    X = with_spectrum(SPECTRA[case])
    if method == "newton_schulz" and case not in ("generic", "exact ties", "identity"):
        X = X + torch.eye(len(X), dtype=X.dtype)  # finite differences need a few digits
    check_layer(MatrixSqrt(method), torch.stack([X, random_spd(len(X))]))


def test_newton_schulz_converges_from_below():
    X = with_spectrum(torch.linspace(1, 32, 16).tolist())
    errors = []
    for iterations in (1, 3, 5, 7, 10, 12):
        Y = MatrixSqrt("newton_schulz", iterations=iterations)(X)
        assert (torch.linalg.eigvalsh(sqrtm(X) - Y) > -1e-6).all()
        errors.append(float((Y - sqrtm(X)).norm() / sqrtm(X).norm()))
    assert errors == sorted(errors, reverse=True)
    assert errors[2] > 0.01  # five iterations are not all, on purpose
    assert errors[-1] < 1e-6


@pytest.mark.parametrize("shape", [(3, 5, 20), (3, 5, 4, 5)])
def test_pooling_equals_definition(shape):
    X = torch.randn(shape, dtype=torch.float64)
    flat = X.flatten(2)
    ridge = lambda C: C + 1e-3 * C.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None] * torch.eye(5)  # noqa: E731
    centered = flat - flat.mean(-1, keepdim=True)
    torch.testing.assert_close(CovPool()(X), ridge(centered @ centered.mT / 20))
    torch.testing.assert_close(CovPool("second")(X), ridge(flat @ flat.mT / 20))
    torch.testing.assert_close(
        CovPool("second", reg=0.5, mode="absolute")(X), flat @ flat.mT / 20 + 0.5 * torch.eye(5)
    )
    expected = gaussian_embedding(flat, reg=1e-3, mode="mean")
    torch.testing.assert_close(CovPool("gaussian")(X), expected)


@pytest.mark.parametrize("kind", ["centered", "second", "gaussian"])
def test_pooling_is_spd_and_differentiable(kind):
    X = torch.randn(
        2, 4, 2, 1, dtype=torch.float64, requires_grad=True
    )  # fewer places than features
    layer = CovPool(kind)
    assert_spd(layer(X).detach())
    assert gradcheck(layer, X, fast_mode=True)
    assert layer(X[:0]).shape[0] == 0
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(X.detach().float()).dtype == torch.float32
        assert layer(X.detach().bfloat16()).dtype == torch.float32
    assert kind in repr(layer)


def test_invalid_input_is_refused():
    with pytest.raises(ValueError, match="kind"):
        CovPool("third")
    with pytest.raises(ValueError, match="reg"):
        CovPool(reg=-1.0)
    with pytest.raises(ValueError, match="mode"):
        CovPool(mode="some")
    with pytest.raises(ValueError, match="feature maps"):
        CovPool()(torch.randn(4, 5))
    with pytest.raises(ValueError, match="method"):
        MatrixSqrt("cholesky")
    with pytest.raises(ValueError, match="iterations"):
        MatrixSqrt("newton_schulz", iterations=0)
    for method in ("eig", "newton_schulz"):
        with pytest.raises(ValueError, match="positive"):
            MatrixSqrt(method)(-random_spd(2, 3))


def test_newton_schulz_of_singular_covariances():
    """With fewer positions than features, the root and its gradient are finite."""
    features = torch.randn(3, 6, 4, dtype=torch.float64, requires_grad=True)
    C = features @ features.mT  # rank 4 of 6
    Y = MatrixSqrt("newton_schulz", iterations=25)(C)
    torch.testing.assert_close(Y @ Y, C, rtol=1e-6, atol=1e-6)
    assert gradcheck(lambda F: MatrixSqrt("newton_schulz")(F @ F.mT), features, fast_mode=True)
    (gradient,) = torch.autograd.grad(Y.sum(), features)
    assert gradient.isfinite().all()


def test_newton_schulz_uses_no_eigendecomposition(monkeypatch):
    X = random_spd(2, 4)
    expected = MatrixSqrt("newton_schulz")(X, check=False)
    for name in ("eigh", "eigvalsh", "svd", "svdvals", "cholesky", "cholesky_ex"):
        monkeypatch.delattr(torch.linalg, name)
    monkeypatch.delattr("spdnet.linalg.spectral.constant_eigh")
    torch.testing.assert_close(MatrixSqrt("newton_schulz")(X), expected)


@pytest.mark.parametrize(
    ("X", "text"),
    [
        (torch.zeros(2, 3, 3), "positive trace"),
        (torch.full((3, 3), torch.nan), "finite"),
        (torch.eye(3).roll(1, 0), "symmetric"),
    ],
)
def test_newton_schulz_refuses_invalid_input(X, text):
    with pytest.raises(ValueError, match=text):
        MatrixSqrt("newton_schulz")(X)
