import mpmath
import pytest
import torch
from torch.nn.functional import cross_entropy

from spdnet.linalg import expm, logm, powm, symmetrize
from spdnet.manifolds import METRICS, MetricNames, bures_wasserstein
from spdnet.nn import SPDMLR, MinimumDistance
from spdnet.testing import check_layer
from tests.cases import random_spd, random_symmetric, with_spectrum

X = random_spd(4, 3)
LAYERS = {
    **{metric: lambda metric=metric: SPDMLR(3, 2, metric) for metric in MetricNames("logits")},
    "trace": lambda: SPDMLR(3, 2, beta=-0.3, alpha=2.0),
    "affine trace": lambda: SPDMLR(3, 2, "affine_invariant", beta=0.5, power=0.5),
    "Euclidean trace": lambda: SPDMLR(3, 2, "power_euclidean", beta=1 / 3, power=0.5),
    "log-Cholesky of roots": lambda: SPDMLR(3, 2, "log_cholesky", power=0.5),
    "Bures of powers": lambda: SPDMLR(3, 2, "bures_wasserstein", power=0.25),
    **{f"nearest {m}": lambda m=m: MinimumDistance(3, 2, m) for m in METRICS},
}
every_layer = pytest.mark.parametrize("name", LAYERS)


def make(name):
    torch.manual_seed(0)
    layer = LAYERS[name]().double()
    torch.nn.init.normal_(layer.points, std=0.5)
    return layer


@every_layer
def test_satisfies_layer_properties(name):
    check_layer(make(name), X[:2], spd=False, second="bures" not in name.lower())


@pytest.mark.parametrize("metric", ["log_euclidean", "affine_invariant", "log_cholesky"])
def test_logits_equal_definition(metric):
    """Inner product of the logarithm and the normal transported from the identity."""
    layer, manifold = make(metric), METRICS[metric]
    P, A = expm(symmetrize(layer.points)), symmetrize(layer.normals)
    eye = torch.eye(3, dtype=torch.float64)
    normal = manifold.transport(eye, P, A)
    expected = manifold.inner(P, manifold.log(P, X[:, None]), normal)
    torch.testing.assert_close(layer(X), expected)


def test_bures_wasserstein_logits_equal_definition():
    layer = make("bures_wasserstein")
    P, A = expm(symmetrize(layer.points)), symmetrize(layer.normals)
    L = torch.linalg.cholesky(P)
    expected = bures_wasserstein.inner(P, bures_wasserstein.log(P, X[:, None]), L @ A @ L.mT)
    torch.testing.assert_close(layer(X), expected)


def test_log_euclidean_logits_are_linear_in_logarithm():
    layer = make("trace")
    S, A = symmetrize(layer.points), symmetrize(layer.normals)
    T = logm(X)[:, None] - S
    trace = T.diagonal(dim1=-2, dim2=-1).sum(-1) * A.diagonal(dim1=-2, dim2=-1).sum(-1)
    torch.testing.assert_close(layer(X), 2 * (T * A).sum((-2, -1)) - 0.3 * trace)


def test_euclidean_logits_with_small_power_are_log_euclidean():
    small = SPDMLR(3, 2, "power_euclidean", power=1e-6, dtype=torch.float64)
    limit = SPDMLR(3, 2, dtype=torch.float64)
    limit.load_state_dict(small.state_dict())
    torch.testing.assert_close(small(X), limit(X), rtol=1e-4, atol=1e-4)


def test_power_applies_to_the_matrix():
    one = make("affine trace")
    P = expm(symmetrize(one.points))
    whitened = powm(P, -0.25)[None] @ powm(X, 0.5)[:, None] @ powm(P, -0.25)
    T, A = logm(symmetrize(whitened)), symmetrize(one.normals)
    trace = T.diagonal(dim1=-2, dim2=-1).sum(-1) * A.diagonal(dim1=-2, dim2=-1).sum(-1)
    torch.testing.assert_close(one(X), 2 * ((T * A).sum((-2, -1)) + 0.5 * trace))


@pytest.mark.parametrize("metric", METRICS)
def test_nearest_mean(metric):
    torch.manual_seed(0)
    X = torch.cat([random_spd(6, 3), 5 * random_spd(6, 3, seed=1)])
    y = torch.arange(12) // 6
    layer = MinimumDistance(3, 2, metric, dtype=torch.float64).fit(X, y)
    M = torch.stack([METRICS[metric].mean(X[y == k]) for k in range(2)])
    torch.testing.assert_close(expm(symmetrize(layer.points)), M)
    torch.testing.assert_close(layer(X), -(METRICS[metric].distance(X[:, None], M) ** 2))


@every_layer
def test_trains(name):
    layer = make(name)
    X = torch.cat([random_spd(8, 3), expm(-logm(random_spd(8, 3, seed=1)))])
    y = torch.arange(16) // 8
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = cross_entropy(layer(X), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.75 * losses[0]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"metric": "stein"}, "metric"),
        ({"power": 0.0}, "power"),
        ({"power": 2.0}, "power"),
        ({"alpha": 0.0}, "alpha"),
        ({"beta": -0.5}, "beta"),
        ({"beta": 0.5, "metric": "log_cholesky"}, "beta"),
    ],
)
def test_invalid_settings_raise_message(settings, text):
    with pytest.raises(ValueError, match=text):
        SPDMLR(3, 2, **settings)


def test_initial_normals_have_standard_deviation_of_released_code():
    """They are uniform between -sqrt(6) / n and sqrt(6) / n, on and off the diagonal."""
    torch.manual_seed(0)
    A = symmetrize(SPDMLR(20, 200, dtype=torch.float64).normals.detach())
    deviation = 2**0.5 / 20
    assert A.diagonal(dim1=-2, dim2=-1).std() == pytest.approx(deviation, rel=0.05)
    rows, cols = torch.tril_indices(20, 20, -1)
    assert A[:, rows, cols].std() == pytest.approx(deviation, rel=0.02)
    assert A.abs().max() <= 6**0.5 / 20


def test_invalid_input_raises_message():
    for name in LAYERS:
        with pytest.raises(ValueError, match="positive"):
            make(name)(-X)
    with pytest.raises(ValueError, match="metric"):
        MinimumDistance(3, 2, "euclidean")
    layer = MinimumDistance(3, 2, dtype=torch.float64)
    for y in ([0, 0, 0, 0], [0, 1, 2, 1], [0, 1]):
        with pytest.raises(ValueError, match="each class at least once"):
            layer.fit(X, torch.tensor(y))


def exact_logit(X, S, A, E):
    """``<log(exp(-S/2) X exp(-S/2)), A>`` and its derivative in direction ``E`` with 60 digits."""
    with mpmath.workdps(60):
        X, S, A, E = (mpmath.matrix(Z.tolist()) for Z in (X, S, A, E))
        s, V = mpmath.eigsy(S)
        W = V * mpmath.diag([mpmath.exp(-x / 2) for x in s]) * V.T

        def logit(X):
            s, U = mpmath.eigsy(W * X * W)
            return sum(mpmath.log(x) * (U[:, i].T * A * U[:, i])[0] for i, x in enumerate(s))

        h = mpmath.mpf(10) ** -25
        return float(logit(X)), float((logit(X + h * E) - logit(X - h * E)) / (2 * h))


@pytest.mark.parametrize("spectrum", ["generic", "tie", "near tie"])
@pytest.mark.parametrize(
    ("condition", "dtype"),
    [(c, torch.float64) for c in (1e2, 1e6, 1e9, 1e12)]
    + [(c, torch.float32) for c in (1e2, 1e5, 1e6)],
)
def test_affine_invariant_logits_of_ill_conditioned_matrices(condition, dtype, spectrum):
    """Compare with 60 digits; the error is bounded by the rounding of the input."""
    gap = {"generic": 0.5, "tie": 0.0, "near tie": 1e-9}[spectrum]
    low = 1 / condition
    X = with_spectrum([low, low * (1 + gap), 1e-1, 1.0], dtype=dtype)
    S, A = (3 * random_symmetric(4, seed=1)).to(dtype), random_symmetric(4, seed=2).to(dtype)
    E = X * random_symmetric(4, seed=3).to(dtype)
    layer = SPDMLR(4, 1, "affine_invariant", dtype=dtype)
    with torch.no_grad():
        layer.points[0], layer.normals[0] = S, A
    logit, slope = torch.func.jvp(lambda X: layer(X)[0], (X,), (E,))
    (gradient,) = torch.autograd.grad(layer(X.requires_grad_())[0], X)
    expected = exact_logit(X, S, A, E)
    # forming and factoring the matrix in float64 leaves an error of its condition number
    bound = 4 * torch.finfo(dtype).eps + 8 * torch.finfo(torch.float64).eps * condition
    assert logit.item() == pytest.approx(expected[0], rel=bound)
    scale = (gradient * E).abs().sum().item()
    assert abs(slope.item() - expected[1]) < 8 * bound * scale
    assert abs((gradient * E).sum().item() - expected[1]) < 8 * bound * scale


@pytest.mark.parametrize(
    ("condition", "dtype"), [(1e6, torch.float32), (1e10, torch.float64), (1e12, torch.float64)]
)
@pytest.mark.parametrize("power", [1.0, 0.5])
def test_affine_invariant_logits_are_finite(condition, dtype, power):
    """At a point with the inverse spectrum the product has the square of the condition number."""
    X = with_spectrum([1 / condition, 1e-4, 1e-2, 1.0])
    layer = SPDMLR(4, 1, "affine_invariant", power=power, dtype=dtype)
    with torch.no_grad():
        layer.points[0] = -logm(X)
        layer.normals[0] = torch.eye(4)
    X = X.to(dtype).requires_grad_()
    logit = layer(X)
    # the trace of the logarithm does not depend on how the two matrices lie to each other
    expected = torch.logdet(X.double()).item() - layer.points[0].double().trace().item()
    rounding = 64 * torch.finfo(torch.float64).eps * condition + 4 * torch.finfo(dtype).eps
    assert logit.item() == pytest.approx(expected, rel=rounding)
    logit.sum().backward()
    assert X.grad.isfinite().all()
    assert layer.points.grad.isfinite().all()


def test_affine_invariant_second_derivatives_at_ties():
    layer = make("affine_invariant")
    tied = with_spectrum([1e-3, 1e-3, 1.0])
    free = [p.detach().requires_grad_() for p in (layer.points, layer.normals)]
    names = ("points", "normals")

    def logits(X, *free):
        parameters = dict(zip(names, free, strict=True))
        return torch.func.functional_call(layer, parameters, (symmetrize(X),), {"check": False})

    inputs = (tied.requires_grad_(), *free)
    assert torch.autograd.gradcheck(logits, inputs, eps=1e-8, atol=1e-4, rtol=1e-4)
    assert torch.autograd.gradgradcheck(
        logits, inputs, eps=1e-7, atol=1e-2, rtol=1e-3, fast_mode=True
    )
