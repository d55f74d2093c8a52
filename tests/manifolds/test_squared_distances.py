"""Squared distances of ill-conditioned and of coinciding points."""

import mpmath
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import hessian, jacfwd, jacrev, vmap

from spdnet.linalg import symmetrize
from spdnet.manifolds import METRICS, affine_invariant, stein
from tests.cases import SPECTRA, random_spd, random_symmetric, with_spectrum

every_metric = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
pencils = pytest.mark.parametrize("metric", [affine_invariant, stein], ids=["affine", "stein"])


def low_rank(seed, eps, n=6, r=3):
    A = torch.randn(n, r, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    X = A @ A.mT
    return symmetrize(X / X.trace() + eps * torch.eye(n, dtype=torch.float64))


def exactly(X):
    return mpmath.matrix(X.tolist())


def mapped(A, f):
    s, U = mpmath.eigsy(A)
    return U * mpmath.diag([f(v) for v in s]) * U.T


def seen(X, Y):
    """Compute ``X^(-1/2) Y X^(-1/2)``."""
    W = mapped(X, lambda v: 1 / mpmath.sqrt(v))
    Z = W * Y * W
    return (Z + Z.T) / 2


def rounded(A):
    return torch.tensor([[float(a) for a in row] for row in A.tolist()], dtype=torch.float64)


def reference(metric, X, Y):
    with mpmath.workdps(60):
        logs = [mpmath.log(v) for v in mpmath.eigsy(seen(exactly(X), exactly(Y)))[0]]
        if metric is affine_invariant:
            return float(sum(x**2 for x in logs))
        return float(sum(mpmath.log(mpmath.cosh(x / 2)) for x in logs))


def gradients(metric, X, Y):
    """Compute both gradients with mpmath."""
    s, U = mpmath.eigsy(seen(X, Y))
    V = mapped(X, lambda v: 1 / mpmath.sqrt(v)) * U
    if metric is affine_invariant:
        slope = [2 * mpmath.log(v) for v in s]
    else:
        slope = [mpmath.tanh(mpmath.log(v) / 2) / 2 for v in s]
    at_Y = [g / v for g, v in zip(slope, s, strict=True)]
    return -V * mpmath.diag(slope) * V.T, V * mpmath.diag(at_Y) * V.T


def curvature(metric, X, Y, E, F):
    """Compute the second derivative in direction ``E, F`` by 60-digit differences."""
    with mpmath.workdps(60):
        h = mpmath.mpf("1e-20")
        X, Y, E, F = map(exactly, (X, Y, E, F))
        ahead = gradients(metric, X + h * E, Y + h * F)
        behind = gradients(metric, X - h * E, Y - h * F)
        return [rounded((a - b) / (2 * h)) for a, b in zip(ahead, behind, strict=True)]


def relative(got, expected):
    return ((got - expected).norm() / expected.norm()).item()


@pencils
@pytest.mark.parametrize(("eps", "tolerance"), [(1e-4, 1e-12), (1e-8, 1e-8), (1e-9, 1e-7)])
def test_low_rank_points_match_60_digit_reference(metric, eps, tolerance):
    for seed in range(3):
        X, Y = low_rank(2 * seed, eps), low_rank(2 * seed + 1, eps)
        expected = reference(metric, X, Y)
        assert metric.squared_distance(X, Y).item() == pytest.approx(expected, rel=tolerance)
        assert metric.distance(X, Y).item() == pytest.approx(expected**0.5, rel=tolerance)
        inputs = [Z.clone().requires_grad_() for Z in (X, Y)]
        got = torch.autograd.grad(metric.squared_distance(*inputs), inputs)
        with mpmath.workdps(60):
            exact = gradients(metric, exactly(X), exactly(Y))
        for a, b in zip(got, exact, strict=True):
            assert relative(a, rounded(b)) < 100 * tolerance


@pencils
@pytest.mark.parametrize("pair", ["scaled", "coinciding", "ties", "tied to each other", "1e8"])
def test_second_derivatives_match_60_digit_reference(metric, pair):
    eye, tied = torch.eye(4, dtype=torch.float64), with_spectrum([0.5, 0.5, 2.0, 2.0])
    X, Y = {
        "scaled": (2 * eye, eye),
        "coinciding": (tied, tied),
        "ties": (tied, with_spectrum([1.0, 1.0, 3.0, 3.0], seed=1)),
        "tied to each other": (tied, 2 * tied),
        "1e8": (low_rank(0, 1e-8, 4, 2), low_rank(1, 1e-8, 4, 2)),
    }[pair]
    E, F = random_symmetric(4, seed=2), random_symmetric(4, seed=3)
    inputs = [Z.clone().requires_grad_() for Z in (X, Y)]
    first = torch.autograd.grad(metric.squared_distance(*inputs), inputs, create_graph=True)
    got = torch.autograd.grad(first, inputs, [E, F])
    for a, b in zip(got, curvature(metric, X, Y, E, F), strict=True):
        assert relative(a, b) < (1e-6 if pair == "1e8" else 1e-12)


@every_metric
@pytest.mark.parametrize("case", SPECTRA)
def test_satisfies_manifold_properties(metric, case):
    X = with_spectrum(SPECTRA[case])
    n = X.shape[-1]
    Y = random_spd(n)
    close = torch.testing.assert_close
    close(metric.squared_distance(X, Y), metric.distance(X, Y) ** 2)
    close(metric.squared_distance(X, Y), metric.squared_distance(Y, X))
    close(metric.squared_distance(X, X), torch.zeros((), dtype=torch.float64), atol=1e-20, rtol=0)
    for pair in ((X, Y), (X, X), (X, 2 * X)):
        inputs = [Z.clone().requires_grad_() for Z in pair]

        def on_symmetric(A, B):
            return metric.squared_distance(symmetrize(A), symmetrize(B))

        assert gradcheck(on_symmetric, inputs, check_forward_ad=True, fast_mode=True)
        assert gradgradcheck(on_symmetric, inputs, check_fwd_over_rev=True, fast_mode=True)


@every_metric
def test_hessian_at_coinciding_points(metric):
    """It is twice the metric, or a quarter of it for the Stein divergence."""
    X = random_spd(3)
    H = hessian(lambda A: metric.squared_distance(symmetrize(A), X))(X)
    for seed in range(3):
        V = random_symmetric(3, seed=seed)
        got = torch.einsum("ijkl,ij,kl->", H, V, V)
        if metric is stein:
            expected = affine_invariant.inner(X, V, V) / 4
        else:
            expected = 2 * metric.inner(X, V, V)
        torch.testing.assert_close(got, expected)


@pencils
def test_squared_distance_under_transforms_broadcast_and_compile(metric):
    X, Y = random_spd(4, 3), random_spd(5, 3, seed=1)
    f = metric.squared_distance
    pairs = f(X[:, None], Y)
    assert pairs.shape == (4, 5)
    torch.testing.assert_close(pairs[2, 3], f(X[2], Y[3]))
    torch.testing.assert_close(vmap(f)(X, Y[:4]), f(X, Y[:4]))
    torch.testing.assert_close(jacrev(f)(X[0], Y[0]), jacfwd(f)(X[0], Y[0]))
    H = vmap(hessian(f))(X, Y[:4])
    torch.testing.assert_close(H[1], jacrev(jacrev(f))(X[1], Y[1]))
    compiled = torch.compile(f, backend="aot_eager")
    inputs = [Z.clone().requires_grad_() for Z in (X, Y[:4])]
    value = compiled(*inputs, check=False)
    torch.testing.assert_close(value, f(*inputs))
    got, expected = (torch.autograd.grad(v.sum(), inputs) for v in (value, f(*inputs)))
    torch.testing.assert_close(got, expected)


@pencils
def test_third_derivative_is_refused(metric):
    X, Y = random_spd(3).requires_grad_(), random_spd(3, seed=1)
    (G,) = torch.autograd.grad(metric.squared_distance(X, Y), X, create_graph=True)
    (H,) = torch.autograd.grad(G.sum(), X, create_graph=True)
    with pytest.raises(NotImplementedError, match="third derivative"):
        torch.autograd.grad(H.sum(), X)


@pencils
def test_distant_and_unchecked_points(metric):
    eye = torch.eye(2, dtype=torch.float64)
    big = metric.squared_distance(1e-150 * eye, 1e150 * eye)
    assert big.isfinite()
    X = (1e-150 * eye).requires_grad_()
    (G,) = torch.autograd.grad(metric.squared_distance(X, eye), X)
    assert G.isfinite().all()
    assert metric.squared_distance(eye, -eye, check=False).isnan()


def test_geodesics_of_ill_conditioned_points():
    for eps, tolerance in ((1e-8, 1e-7), (1e-9, 1e-6)):
        X, Y = low_rank(0, eps), low_rank(1, eps)
        with mpmath.workdps(60):
            root = mapped(exactly(X), mpmath.sqrt)
            Z = seen(exactly(X), exactly(Y))
            middle = rounded(root * mapped(Z, mpmath.sqrt) * root)
            towards = rounded(root * mapped(Z, mpmath.log) * root)
        assert relative(affine_invariant.geodesic(X, Y, 0.5), middle) < tolerance
        assert relative(affine_invariant.geodesic(X, Y, 1.0), Y) < tolerance
        assert relative(affine_invariant.log(X, Y), towards) < tolerance
        assert relative(affine_invariant.exp(X, affine_invariant.log(X, Y)), Y) < 10 * tolerance


def test_derivative_of_a_geodesic_with_respect_to_time():
    X, Y = random_spd(2, 3), random_spd(2, 3, seed=1)
    t = torch.tensor([0.3, 0.8], dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda t: affine_invariant.geodesic(X, Y, t), t, check_forward_ad=True)
    assert gradgradcheck(lambda t: affine_invariant.geodesic(X, Y, t), t, fast_mode=True)


def test_keywords_and_half_precision():
    X, Y = random_spd(2, 3, dtype=torch.float32), random_spd(2, 3, seed=1, dtype=torch.float32)
    for metric in METRICS.values():
        got = metric.distance(X=X, Y=Y)
        assert got.dtype == torch.float32
        torch.testing.assert_close(got, metric.distance(X, Y))
        weights = torch.tensor([1.0, 2.0])
        torch.testing.assert_close(metric.mean(X=X, weights=weights), metric.mean(X, weights))
