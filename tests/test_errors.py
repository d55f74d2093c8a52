"""Error messages name the caller, the expectation, the actual input and a remedy."""

import sys

import numpy as np
import pytest
import torch
from torch import nn

from spdnet import SPDNet, linalg
from spdnet.data import load_dataset, read
from spdnet.linalg import (
    cholesky,
    clamp_eig,
    eigh,
    expm,
    logm,
    powm,
    spectral_derivative,
    unvech,
    vech,
)
from spdnet.manifolds import affine_invariant, log_euclidean, stiefel
from spdnet.nn import BiMap, ExpEig, LogEig, ReEig, SpectralActivation, Vech
from spdnet.optim import RiemannianAdam, RiemannianSGD

eye = torch.eye(3)
batch = eye.repeat(4, 1, 1)


def broken(value):
    X = batch.clone()
    X[2, 0, 1] = value
    return X


nan, inf, asymmetric = broken(float("nan")), broken(float("inf")), broken(0.5)
indefinite = batch.clone()
indefinite[1] = torch.diag(torch.tensor([1.0, 2.0, -0.5]))
singular = batch.clone()
singular[3, 0, 0] = 0.0
zeros = torch.zeros(4, 3, 3)
nan_in_channel = torch.stack([batch, batch])
nan_in_channel[1, 3, 2, 2] = float("nan")
weight = nn.Parameter(torch.zeros(2))
W = stiefel.random_point(4, 2)

SHAPE = r"expected X of shape \(..., "
CASES = {
    # shapes and types
    "not a tensor": (
        lambda: logm(np.eye(3)),
        TypeError,
        "logm: .*torch.Tensor, got numpy.ndarray.*as_tensor",
    ),
    "a list": (lambda: LogEig()([[1.0]]), TypeError, "LogEig: .*torch.Tensor, got list"),
    "vector": (lambda: logm(torch.ones(3)), ValueError, rf"logm: {SHAPE}n, n\), got \(3,\)"),
    "not square": (
        lambda: expm(torch.ones(2, 3)),
        ValueError,
        rf"expm: {SHAPE}n, n\), got \(2, 3\)",
    ),
    "no rows": (
        lambda: eigh(torch.ones(5, 0, 0)),
        ValueError,
        rf"eigh: {SHAPE}n, n\), got \(5, 0, 0\)",
    ),
    "wrong size": (
        lambda: BiMap(5, 3)(batch),
        ValueError,
        rf"BiMap: {SHAPE}5, 5\), got \(4, 3, 3\)",
    ),
    "wrong size of the net": (
        lambda: SPDNet((5, 3), 2)(batch),
        ValueError,
        rf"SPDNet: {SHAPE}5, 5\)",
    ),
    "integers": (
        lambda: LogEig()(batch.long()),
        TypeError,
        r"LogEig: .*floating.*int64.*X.to\(torch.float64",
    ),
    "complex vector": (
        lambda: unvech(torch.ones(3).cfloat()),
        TypeError,
        "unvech: .*real floating dtype, got torch.complex64",
    ),
    "integers in bimap": (lambda: BiMap(3, 2)(batch.long()), TypeError, "BiMap: .*floating.*int64"),
    "integers in the net": (
        lambda: SPDNet((3, 2), 2)(batch.long()),
        TypeError,
        "SPDNet: .*floating or complex dtype, got torch.int64",
    ),
    "another dtype in the net": (
        lambda: SPDNet((3,), 2)(batch.double()),
        TypeError,
        "SPDNet: .*weights, torch.float32, got torch.float64",
    ),
    "integers in vech": (lambda: vech(batch.long()), TypeError, "vech: .*floating"),
    "integers in unvech": (
        lambda: unvech(torch.arange(3)),
        TypeError,
        "unvech: expected v .*floating",
    ),
    "not a function": (
        lambda: linalg.spectral_map(eye, "log"),
        TypeError,
        r"spectral_map: expected f to be a ScalarFunction such as spdnet.linalg.Log\(\), got 'log'",
    ),
    "a list as direction": (
        lambda: spectral_derivative(eye, [1.0], linalg.Log()),
        TypeError,
        "spectral_derivative: expected E to be a torch.Tensor, got list",
    ),
    "a list as tangent": (
        lambda: affine_invariant.exp(eye, [1.0]),
        TypeError,
        "affine_invariant.exp: expected V to be a torch.Tensor, got list",
    ),
    "tangent, log-Euclidean": (
        lambda: log_euclidean.exp(eye, torch.ones(2, 2)),
        ValueError,
        r"log_euclidean.exp: expected V of shape \(..., 3, 3\), got \(2, 2\)",
    ),
    "tangent, inner": (
        lambda: affine_invariant.inner(eye, eye, torch.ones(2, 2)),
        ValueError,
        "affine_invariant.inner: expected V of shape",
    ),
    "nan in a tangent": (
        lambda: affine_invariant.exp(batch, nan),
        ValueError,
        r"affine_invariant.exp: .*V\[2\] contains NaN",
    ),
    "nan in a direction": (
        lambda: log_euclidean.transport(batch, batch, nan),
        ValueError,
        r"log_euclidean.transport: .*V\[2\] contains NaN",
    ),
    "nan in eigh": (lambda: eigh(nan), ValueError, r"eigh: .*X\[2\] contains NaN"),
    "list of weights": (
        lambda: log_euclidean.mean(batch, [1, 1, 1, 1]),
        TypeError,
        "log_euclidean.mean: expected weights to be a torch.Tensor, got list",
    ),
    "another dtype": (
        lambda: BiMap(3, 2)(batch.double()),
        TypeError,
        r"BiMap: .*weights, torch.float32, got torch.float64; use X.to\(torch.float32\)",
    ),
    "vech of a vector": (lambda: Vech()(torch.ones(3)), ValueError, "vech: expected X of shape"),
    "unvech length": (
        lambda: unvech(torch.ones(2, 4)),
        ValueError,
        r"unvech: .*\(n \+ 1\) / 2.*got \(2, 4\)",
    ),
    "unvech scalar": (lambda: unvech(torch.tensor(1.0)), ValueError, r"unvech: .*got \(\)"),
    "direction": (
        lambda: spectral_derivative(eye, torch.ones(2, 2), linalg.Log()),
        ValueError,
        r"spectral_derivative: expected E of shape \(..., 3, 3\), got \(2, 2\)",
    ),
    # values
    "nan": (
        lambda: LogEig()(nan),
        ValueError,
        r"LogEig: .*finite.*X\[2\] contains NaN.*1 of 4 matrices",
    ),
    "nan in a channel": (
        lambda: ReEig()(nan_in_channel),
        ValueError,
        r"ReEig: .*X\[1, 3\] contains NaN",
    ),
    "nan in one matrix": (
        lambda: expm(nan[2]),
        ValueError,
        "expm: .*but X contains NaN or infinity; drop",
    ),
    "infinity": (lambda: BiMap(3, 2)(inf), ValueError, r"BiMap: .*X\[2\] contains NaN or infinity"),
    "nan in the net": (
        lambda: SPDNet((3, 2), 2)(nan),
        ValueError,
        r"SPDNet: .*X\[2\] contains NaN",
    ),
    "nan in percent": (lambda: ReEig("5%")(nan), ValueError, r"ReEig: .*X\[2\] contains NaN"),
    "asymmetric": (
        lambda: LogEig()(asymmetric),
        ValueError,
        r"LogEig: .*symmetric.*X\[2\] is not symmetric \(.* 0.5\).*symmetrize",
    ),
    "asymmetric in bimap": (
        lambda: BiMap(3, 2)(asymmetric),
        ValueError,
        r"X\[2\] is not symmetric",
    ),
    "asymmetric in exp": (
        lambda: ExpEig()(asymmetric),
        ValueError,
        r"ExpEig: .*X\[2\] is not symmetric",
    ),
    "asymmetric in the net": (
        lambda: SPDNet((3, 2), 2)(asymmetric),
        ValueError,
        "SPDNet: .*symmetric",
    ),
    "asymmetric activation": (
        lambda: SpectralActivation()(asymmetric),
        ValueError,
        "SpectralActivation: .*symmetric",
    ),
    "indefinite": (
        lambda: LogEig()(indefinite),
        ValueError,
        r"LogEig: .*X\[1\] is not positive definite \(eigenvalues from -0.5 to 2\).*regularize",
    ),
    "singular": (lambda: LogEig()(singular), ValueError, r"X\[3\] is not positive definite"),
    "zero matrix": (lambda: logm(torch.zeros(3, 3)), ValueError, "logm: .*not positive definite"),
    "indefinite in the net": (
        lambda: SPDNet((3, 2), 2)(indefinite),
        ValueError,
        r"SPDNet: .*X\[1\] is not positive semi-definite \(eigenvalues from -0.5 to 2\)",
    ),
    "indefinite power": (lambda: powm(indefinite, 0.5), ValueError, r"powm: .*X\[1\]"),
    "indefinite cholesky": (lambda: cholesky(indefinite), ValueError, r"cholesky: .*X\[1\].*-0.5"),
    "second argument": (
        lambda: affine_invariant.distance(batch, indefinite),
        ValueError,
        r"affine_invariant.distance: .*Y\[1\] is not positive definite",
    ),
    "second argument, log-Euclidean": (
        lambda: log_euclidean.distance(batch, indefinite),
        ValueError,
        r"log_euclidean.distance: .*Y\[1\] is not positive definite",
    ),
    "mean of indefinite": (
        lambda: affine_invariant.mean(indefinite),
        ValueError,
        r"mean: .*X\[1\]",
    ),
    "sizes of two points": (
        lambda: affine_invariant.log(eye, torch.eye(2)),
        ValueError,
        r"affine_invariant.log: expected Y of shape \(..., 3, 3\), got \(2, 2\)",
    ),
    "mean of one matrix": (
        lambda: log_euclidean.mean(eye),
        ValueError,
        r"\(..., N, n, n\).*got \(3, 3\)",
    ),
    "mean of nothing": (lambda: affine_invariant.mean(batch[:0]), ValueError, "N >= 1.*stack"),
    "number of weights": (
        lambda: log_euclidean.mean(batch, torch.ones(3)),
        ValueError,
        r"log_euclidean.mean: expected weights of shape \(..., 4\).*got \(3,\)",
    ),
    "negative weights": (
        lambda: affine_invariant.mean(batch, torch.tensor([1.0, 1, 1, -1])),
        ValueError,
        "not negative.*from -1 to 1",
    ),
    "zero weights": (lambda: log_euclidean.mean(batch, torch.zeros(4)), ValueError, "not all zero"),
    "tol": (lambda: affine_invariant.mean(batch, tol=0), ValueError, "expected tol > 0"),
    "max_iter": (
        lambda: affine_invariant.mean(batch, max_iter=0),
        ValueError,
        "expected max_iter >= 1",
    ),
    # construction
    "growing bimap": (
        lambda: BiMap(3, 5),
        ValueError,
        "BiMap: .*non-increasing sizes, got 3 -> 5.*orthonormal",
    ),
    "empty bimap": (lambda: BiMap(3, 0), ValueError, "BiMap: .*>= 1, got 0"),
    "float bimap": (lambda: BiMap(3.0, 2), TypeError, "BiMap: .*integer, got 3.0"),
    "bimap init": (
        lambda: BiMap(3, 2, init="random"),
        ValueError,
        "'uniform', 'authors', got 'random'",
    ),
    "growing dims": (
        lambda: SPDNet((9, 4, 5), 3),
        ValueError,
        r"SPDNet: .*non-increasing sizes, got 4 -> 5 in dims \(9, 4, 5\)",
    ),
    "zero dims": (lambda: SPDNet((9, 0), 3), ValueError, r"SPDNet: expected dims\[1\] >= 1, got 0"),
    "no dims": (
        lambda: SPDNet((), 3),
        TypeError,
        r"SPDNet: .*sequence.*\(93, 70, 50, 30\), got \(\)",
    ),
    "dims a number": (lambda: SPDNet(9, 3), TypeError, "SPDNet: .*sequence of matrix sizes.*got 9"),
    "no classes": (lambda: SPDNet((9,), 0), ValueError, "SPDNet: expected n_classes >= 1, got 0"),
    "eps without a ReEig": (lambda: SPDNet((9,), 3, eps="junk"), ValueError, "SPDNet: .*'junk'"),
    "init without a BiMap": (lambda: SPDNet((9,), 3, init="junk"), ValueError, "SPDNet: .*init"),
    "vectorize": (
        lambda: SPDNet((9,), 3, vectorize="all"),
        ValueError,
        "'full', 'vech', got 'all'",
    ),
    "eps below zero": (lambda: ReEig(-1.0), ValueError, "ReEig: expected eps >= 0.*got -1.0"),
    "eps negative": (
        lambda: SPDNet((9, 5, 3), 3, eps=-1e-4),
        ValueError,
        "expected eps >= 0.*-0.0001",
    ),
    "eps nan": (lambda: ReEig(float("nan")), ValueError, "expected eps >= 0.*got nan"),
    "eps word": (lambda: ReEig("small"), ValueError, "percentage between 0% and 100%.*'small'"),
    "eps no percent": (lambda: ReEig("0.1"), ValueError, "percentage.*'0.1'"),
    "eps too much": (lambda: ReEig("100%"), ValueError, "percentage.*'100%'"),
    "eps type": (lambda: ReEig(None), TypeError, "expected eps to be a number, got None"),
    "momentum of eps": (lambda: ReEig("5%", momentum=0), ValueError, "expected momentum > 0"),
    "too much momentum": (lambda: ReEig("5%", momentum=2), ValueError, "momentum > 0 and <= 1"),
    "kind": (lambda: SpectralActivation("relu"), ValueError, "'softplus', 'sigmoid', got 'relu'"),
    "beta": (lambda: SpectralActivation(beta=0), ValueError, "expected beta > 0 and finite, got 0"),
    "power": (
        lambda: powm(eye, float("inf")),
        ValueError,
        "powm: expected p to be finite, got inf",
    ),
    "power type": (lambda: powm(eye, "2"), TypeError, "powm: expected p to be a number, got '2'"),
    "threshold for each eigenvalue": (
        lambda: clamp_eig(batch[:3], torch.ones(3, 3)),
        ValueError,
        r"clamp_eig: expected eps with the leading shape of X, \(3,\).*got \(3, 3\)",
    ),
    "nan in thresholds": (
        lambda: clamp_eig(batch, torch.tensor([1.0, 1, float("nan"), 1])),
        ValueError,
        r"clamp_eig: .*eps\[2\] contains NaN",
    ),
    "threshold": (lambda: clamp_eig(eye, float("nan")), ValueError, "clamp_eig: expected eps"),
    # Stiefel manifold and optimizers
    "wide point": (lambda: stiefel.random_point(2, 3), ValueError, r"n >= k >= 1, got \(2, 3\)"),
    "one dimension": (lambda: stiefel.random_point(3), ValueError, "random_point: .*n, k"),
    "integer point": (
        lambda: stiefel.project(torch.ones(3, 2).long()),
        TypeError,
        "project: .*floating",
    ),
    "metric": (
        lambda: stiefel.riemannian_gradient(W, W, "euclid"),
        ValueError,
        "metric.*got 'euclid'",
    ),
    "retraction": (
        lambda: stiefel.retract(W, W, "exp"),
        ValueError,
        "'qr', 'polar', 'cayley', got 'exp'",
    ),
    "shapes": (
        lambda: stiefel.retract(W, W.mT),
        ValueError,
        r"expected V .*\(4, 2\), got \(2, 4\)",
    ),
    "lr": (
        lambda: RiemannianSGD([weight], lr=-0.1),
        ValueError,
        "RiemannianSGD: expected lr >= 0.*-0.1",
    ),
    "lr of adam": (
        lambda: RiemannianAdam([weight], lr=-0.1),
        ValueError,
        "RiemannianAdam: expected lr",
    ),
    "lr of a group": (
        lambda: RiemannianSGD([{"params": [weight], "lr": -1.0}], lr=0.1),
        ValueError,
        "RiemannianSGD: expected lr >= 0 and finite, got -1.0",
    ),
    "momentum": (
        lambda: RiemannianSGD([weight], 0.1, momentum=-1),
        ValueError,
        "expected momentum >= 0",
    ),
    "decay": (
        lambda: RiemannianAdam([weight], weight_decay=-1),
        ValueError,
        "expected weight_decay >= 0",
    ),
    "nesterov": (
        lambda: RiemannianSGD([weight], nesterov=True),
        ValueError,
        "momentum > 0.*nesterov",
    ),
    "betas": (
        lambda: RiemannianAdam([weight], betas=(0.9, 1.0)),
        ValueError,
        r"betas\[1\] >= 0 and < 1 and finite, got 1.0",
    ),
    "one beta": (
        lambda: RiemannianAdam([weight], betas=(0.9,)),
        TypeError,
        "betas .*two|betas .*pair",
    ),
    "betas a number": (lambda: RiemannianAdam([weight], betas=0.9), TypeError, "betas .*got 0.9"),
    "lr a tensor": (lambda: RiemannianSGD([weight], lr=torch.tensor(-1.0)), ValueError, "lr >= 0"),
    "integer retraction": (
        lambda: stiefel.retract(torch.eye(3, 2).long(), torch.eye(3, 2).long()),
        TypeError,
        "retract: .*floating",
    ),
    "inner shapes": (lambda: stiefel.inner(W, W, W.mT), ValueError, "inner: expected V"),
    "transport metric": (
        lambda: stiefel.transport(W, W, W, "flat"),
        ValueError,
        "transport: .*metric",
    ),
    "optimizer metric": (
        lambda: RiemannianSGD([weight], metric="flat"),
        ValueError,
        "metric.*'flat'",
    ),
    "optimizer retraction": (
        lambda: RiemannianAdam([weight], retraction="exp"),
        ValueError,
        "RiemannianAdam: expected retraction.*'exp'",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_invalid_input_raises_message(case):
    call, kind, pattern = CASES[case]
    with pytest.raises(kind, match=pattern):
        call()


def test_check_false_accepts_asymmetric_input_in_layers():
    for layer in (LogEig(), ReEig(), ExpEig(), SpectralActivation(), BiMap(3, 2)):
        assert layer(asymmetric, check=False).isfinite().all()
        layer.check = False
        assert layer(asymmetric).isfinite().all()
    for layer in (LogEig(check=False), BiMap(3, 2, check=False), ReEig("10%", check=False)):
        assert layer(asymmetric).isfinite().all()
    assert logm(asymmetric, check=False).isfinite().all()
    model = SPDNet((3, 2), 2)
    assert model(asymmetric, check=False).isfinite().all()
    assert SPDNet((3, 2), 2, check=False)(asymmetric).isfinite().all()
    with pytest.raises(ValueError, match="symmetric"):
        SPDNet((3, 2), 2, check=False)(asymmetric, check=True)


def test_network_with_check_false_never_inspects_values(monkeypatch):
    """A training step makes no validation pass over the data."""
    inspected = []
    for name in ("linalg.validate", "linalg.cholesky", "nn.eig"):
        module = sys.modules[f"spdnet.{name}"]
        monkeypatch.setattr(module, "is_concrete", lambda X: inspected.append(1) or True)
    for eps in (1e-4, "10%"):
        model = SPDNet((3, 3, 2), 2, eps=eps)
        model(batch, check=False).sum().backward()
    assert not inspected
    model(batch)
    assert inspected


@pytest.mark.parametrize("manifold", [log_euclidean, affine_invariant])
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("distance", (asymmetric, batch)),
        ("geodesic", (batch, asymmetric, 0.5)),
        ("exp", (asymmetric, zeros)),
        ("log", (asymmetric, batch)),
        ("transport", (asymmetric, batch, zeros)),
        ("inner", (asymmetric, zeros, zeros)),
        ("mean", (asymmetric,)),
    ],
)
def test_check_false_accepts_asymmetric_input_in_manifolds(manifold, name, arguments):
    call = getattr(manifold, name)
    with pytest.raises(ValueError, match="not symmetric"):
        call(*arguments)
    assert call(*arguments, check=False).isfinite().all()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        *((name, ()) for name in ("logm", "expm", "sqrtm", "invsqrtm", "cholesky", "eigh")),
        ("powm", (0.5,)),
        ("clamp_eig", (0.5,)),
    ],
)
def test_check_false_accepts_asymmetric_input_in_functions(name, arguments):
    f = getattr(linalg, name)
    with pytest.raises(ValueError, match=f"{name}: .*not symmetric"):
        f(asymmetric, *arguments)
    found = f(asymmetric, *arguments, check=False)
    assert arguments == () or found.isfinite().all()


def test_numpy_scalars_are_accepted():
    model = SPDNet(np.array([6, 4, 3]), np.int64(2), eps=np.float32(0.1))
    assert model.dims == (6, 4, 3)
    BiMap(np.int32(4), np.int64(2))
    RiemannianSGD(model.parameters(), lr=np.float32(0.1))


def test_asymmetry_from_rounding_is_accepted():
    for dtype in (torch.float32, torch.float64):
        A = torch.randn(20, 8, 30, dtype=dtype)
        X = A @ A.mT / 30
        X = X + X * torch.randn(X.shape).sign().to(dtype) * 4 * torch.finfo(dtype).eps
        SPDNet((8, 4), 2, dtype=dtype)(X)


def test_network_accepts_semidefinite_input():
    A = torch.randn(5, 8, 4, dtype=torch.float64)
    X = A @ A.mT  # rank 4
    assert SPDNet((8, 6, 3), 2, dtype=torch.float64)(X).isfinite().all()
    with pytest.raises(ValueError, match=r"LogEig: .*not positive definite"):
        SPDNet((8,), 2, dtype=torch.float64)(torch.zeros(1, 8, 8, dtype=torch.float64))


def test_matrices_must_be_in_the_last_two_dimensions():
    with pytest.raises(ValueError, match=r"got \(3, 3, 4\)"):
        vech(torch.ones(3, 3, 4))


def test_error_suggests_the_closest_name(tmp_path):
    with pytest.raises(ValueError, match=r"got 'qrr'; did you mean 'qr'\?"):
        RiemannianSGD([W], lr=0.1, retraction="qrr")
    with pytest.raises(ValueError, match=r"got 'something else'$"):
        RiemannianSGD([W], lr=0.1, retraction="something else")
    with pytest.raises(FileNotFoundError, match=r"at digts, got none; did you mean 'digits'\?"):
        load_dataset("digts")
    np.savez(tmp_path / "recordings.npz", X=np.eye(2)[None], y=[0])
    with pytest.raises(FileNotFoundError, match=r"got none; did you mean 'recordings.npz'\?"):
        read(tmp_path / "recording.npz")
    with pytest.raises(FileNotFoundError, match=r"got none$"):
        read(tmp_path / "nowhere" / "a.npz")
