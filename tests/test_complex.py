"""Complex Hermitian matrices in networks, estimators, files and runs."""

import numpy as np
import pytest
import torch
from sklearn.base import clone

from spdnet import SPDNet, SPDNetClassifier
from spdnet.adaptation import Recenter, Rescale
from spdnet.baselines import (
    CDL,
    LEML,
    RSR,
    SPDML,
    LogEuclideanClassifier,
    MinimumDistanceToMean,
    NearestNeighbor,
    SteinSVC,
)
from spdnet.covariance import regularize
from spdnet.data import clean, examine, load_dataset
from spdnet.linalg import symmetrize, vech
from spdnet.manifolds import METRICS, log_euclidean
from spdnet.models import MEMBERS, MultiBranchSPDNet, PortfolioNet
from spdnet.runs import RunFolder, Settings, TrainedModel, train
from spdnet.testing import assert_on_stiefel, assert_spd, check_layer
from tests.cases import (
    ILL_CONDITIONED,
    cross_spectra,
    random_matrix,
    random_spd,
    real_embedding,
    with_spectrum,
)

COMPLEX = torch.complex128
NETWORK_SETTINGS = [
    {},
    {"vectorize": "vech"},
    {"head": "mlp", "hidden": 6},
    {"head": "log_cholesky"},
    {"eps": "30%"},
    {"center": "log_euclidean", "norm": "log_euclidean"},
    {"dims": (5,)},
]


@pytest.mark.parametrize("settings", NETWORK_SETTINGS, ids=str)
@pytest.mark.parametrize("dtype", [torch.complex64, COMPLEX])
def test_networks(settings, dtype):
    torch.manual_seed(0)
    model = SPDNet(**{"dims": (5, 4, 3), "n_classes": 3, "dtype": dtype, **settings})
    model(random_spd(16, 5, seed=5, dtype=dtype))  # what a percentage has to see
    X = random_spd(4, 5, dtype=dtype)
    assert model.eval()(X).dtype == X.real.dtype
    assert model.classifier(model.features(X)).shape == (4, 3)
    for bimap in model.bimaps:
        assert_on_stiefel(bimap.weight)
    if dtype == COMPLEX:
        check_layer(model, X, spd=False, second=False)
    for wrong in (X.real, X.to(torch.complex64 if dtype == COMPLEX else COMPLEX)):
        with pytest.raises(TypeError, match=f"SPDNet: expected X with the dtype .*{dtype}"):
            model(wrong)


def test_features_of_a_network_without_bimaps():
    X = random_spd(2, 3, dtype=COMPLEX)
    flat = log_euclidean.coordinates(X)
    full, half = (SPDNet((3,), 2, vectorize=v, dtype=COMPLEX) for v in ("full", "vech"))
    entries = torch.cat([flat.real, flat.imag], -1).flatten(-2)
    torch.testing.assert_close(full.features(X), entries)
    torch.testing.assert_close(half.features(X), vech(flat))


def test_portfolio_of_real_matrices_in_complex_form():
    """The features of all members span the same space, up to imaginary parts, which are zero."""
    X, y = random_spd(30, 4), torch.arange(30) % 3
    model = PortfolioNet(4, 3, members="auto", n_samples=30, dtype=COMPLEX)
    model.fit_buffers(X.to(COMPLEX), y)
    features = model.maps["log"](model.center(X.to(COMPLEX)))
    real = PortfolioNet(4, 3, members="auto", n_samples=30, dtype=X.dtype)
    real.fit_buffers(X, y)
    expected = real.maps["log"](real.center(X))
    gaps, others = (torch.cdist(f, f) / f.square().mean().sqrt() for f in (features, expected))
    torch.testing.assert_close(gaps / gaps.mean(), others / others.mean())
    assert len(model.heads) == len(MEMBERS)
    assert model.train()(X.to(COMPLEX)).shape == (30, 3, len(MEMBERS))
    check_layer(PortfolioNet(4, 3, dtype=COMPLEX).eval(), X.to(COMPLEX), spd=False, gradients=False)


def test_models_of_real_matrices_refuse_complex_ones():
    with pytest.raises(TypeError, match="MultiBranchSPDNet: expected real matrices, got the dtype"):
        MultiBranchSPDNet((4, 3), 2, dtype=COMPLEX)
    X, y = (part.numpy() for part in cross_spectra(20))
    with pytest.raises(
        TypeError, match="SPDNetClassifier: expected X with real numbers, got dtype"
    ):
        SPDNetClassifier(model="multibranch").fit(X, y)


ESTIMATORS = [
    SPDNetClassifier(recipe="auto", epochs=5, random_state=0),
    SPDNetClassifier(dims=(4, 3), epochs=20, lr=0.05, random_state=0),
    SPDNetClassifier(recipe="auto", members=("log",), epochs=5, dtype="float32", random_state=0),
    LogEuclideanClassifier(),
    LogEuclideanClassifier(method="lda"),
    *(MinimumDistanceToMean(name) for name in METRICS),
    *(NearestNeighbor(name) for name in ("log_euclidean", "log_cholesky", "stein")),
    SteinSVC(),
    RSR(),
]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_estimators_find_the_phase(estimator):
    (X, y), (Z, classes) = (
        tuple(part.numpy() for part in cross_spectra(60, seed=seed)) for seed in range(2)
    )
    fitted = clone(estimator).fit(X, y)
    assert fitted.score(Z, classes) > 0.85
    assert len(fitted.predict(Z.real)) == 60  # a real matrix is Hermitian
    of_reals = clone(estimator).fit(X.real, y)
    assert of_reals.score(Z.real, classes) < 0.75
    with pytest.raises(TypeError, match="expected X with real numbers, got dtype complex128"):
        of_reals.predict(Z)


@pytest.mark.parametrize("estimator", [CDL(), LEML(), SPDML()], ids=repr)
def test_estimators_of_real_matrices_refuse_complex_ones(estimator):
    X, y = cross_spectra(20)
    with pytest.raises(TypeError, match="expected X with real numbers, got dtype complex128"):
        estimator.fit(X, y)


def test_domains():
    X, y = (part.numpy() for part in cross_spectra(40))
    domains = np.arange(40) // 20
    moved = Recenter().fit_transform(X, domains=domains)
    means = torch.from_numpy(np.stack([moved[:20], moved[20:]]))
    eye = torch.eye(4, dtype=COMPLEX).expand(2, 4, 4)
    torch.testing.assert_close(METRICS["affine_invariant"].mean(means), eye, atol=1e-8, rtol=0)
    assert Rescale().fit_transform(moved, domains=domains).dtype == np.complex128
    classifier = SPDNetClassifier(dims=(4, 3), epochs=2, random_state=0)
    classifier.fit(X, y, domains=domains)
    assert len(classifier.predict(X, domains=domains)) == 40
    with pytest.raises(TypeError, match="Recenter: expected means_ and X both real or both"):
        Recenter().fit(X, domains=domains).transform(X.real, domains=domains)


@pytest.mark.parametrize("mode", ["mean", "trace", "absolute", "shrinkage"])
def test_regularized_matrices_are_positive_definite(mode):
    Z = random_matrix(3, 4, 2, dtype=COMPLEX)
    C = symmetrize(Z @ Z.mH)
    X = regularize(C, 0.1, mode)
    assert_spd(X)
    R = regularize(real_embedding(C), 0.1 / (2 if mode == "trace" else 1), mode)
    torch.testing.assert_close(real_embedding(X), R)
    np.testing.assert_array_equal(regularize(C.numpy(), 0.1, mode), X.numpy())


def spoiled(X, change):
    X = X.copy()
    X[3] = change(X[3])
    return X


def test_examination_and_repair():
    X = random_spd(10, 4, dtype=COMPLEX).numpy()
    X[1] = with_spectrum(ILL_CONDITIONED, dtype=COMPLEX).numpy()
    assert len(examine(X).bad) == 0
    for fault, change in {
        "not Hermitian": lambda A: A + 1e-3j * np.abs(A).max() * np.eye(4),
        "not finite": lambda A: A * complex(0, np.nan),
        "indefinite": lambda A: -A,
        "singular": lambda A: np.outer(A[0].conj(), A[0]),
        "zero": lambda A: 0 * A,
    }.items():
        bad = spoiled(X, change)
        assert examine(bad).faults[fault].tolist() == [3]
        with pytest.raises(ValueError, match=f"1 {fault}: 3"):
            clean(bad)
        with pytest.raises(ValueError, match=r"SPDNetClassifier: expected .*X\[3\]"):
            SPDNetClassifier().fit(bad, np.arange(10) % 2)
    skew = spoiled(X, lambda A: A + 1e-3j * np.abs(A).max() * np.eye(4))
    repaired, kept, _ = clean(skew, "repair", dtype="float32")
    assert repaired.dtype == np.complex64
    np.testing.assert_allclose(repaired[0], X[0], rtol=1e-6)
    assert len(kept) == 10
    assert clean(X, dtype="float64")[0].dtype == np.complex128


@pytest.mark.parametrize("settings", [{"dims": (4, 3)}, {"recipe": "auto", "members": ("log",)}])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_run_on_a_file(tmp_path, settings, dtype):
    X, y = (part.numpy() for part in cross_spectra(60))
    np.savez(tmp_path / "phases.npz", X=X, y=y)
    assert load_dataset(str(tmp_path / "phases.npz")).X.dtype == np.complex128
    data = str(tmp_path / "phases.npz")
    run = Settings(data=data, epochs=10, dtype=dtype, class_weight="balanced", **settings)
    train(run, RunFolder(tmp_path / "run"))
    trained = TrainedModel.load(tmp_path / "run", device="cpu")
    assert trained.dtype == {"float64": "complex128", "float32": "complex64"}[dtype]
    labels = trained.predict(X)
    assert (labels == y.astype(str)).mean() > 0.8
    assert trained.predict(X.real).shape == (60,)
