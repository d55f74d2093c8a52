import copy
import math
import pickle

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from spdnet.linalg.cholesky import diagonal_signs
from spdnet.manifolds import log_cholesky, stiefel
from spdnet.manifolds.stiefel import METRICS, RETRACTIONS, StiefelParameter
from spdnet.testing import assert_on_stiefel, assert_tangent
from tests.cases import every_dtype, random_matrix

SHAPES = [(5, 3), (4, 4), (6, 1), (1, 1), (2, 3, 7, 2), (0, 4, 2)]


def point_and_tangent(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    W = stiefel.random_point(*shape, generator=generator, dtype=dtype)
    V = torch.randn(shape, generator=generator, dtype=dtype)
    return W, stiefel.project_tangent(W, V)


def slope(error, steps):
    """Return the exponent p of ``error(t) ~ t ** p`` between two steps."""
    a, b = (error(t).abs().max().item() for t in steps)
    return (math.log(a) - math.log(b)) / (math.log(steps[0]) - math.log(steps[1]))


@every_dtype
@pytest.mark.parametrize("shape", SHAPES)
def test_random_point(shape, dtype):
    W = stiefel.random_point(*shape, dtype=dtype)
    assert W.shape == shape
    assert_on_stiefel(W)


def test_random_point_is_uniform_and_reproducible():
    torch.manual_seed(0)
    points = stiefel.random_point(4000, 3, 2)
    torch.testing.assert_close(points.mean(0), torch.zeros(3, 2), atol=0.04, rtol=0)
    torch.testing.assert_close(
        points.square().mean(0), torch.full((3, 2), 1 / 3), atol=0.03, rtol=0
    )
    a, b = stiefel.random_point(5, 2), stiefel.random_point(5, 2)
    assert not torch.equal(a, b)
    seeds = [torch.Generator().manual_seed(7) for _ in range(2)]
    assert torch.equal(*(stiefel.random_point(5, 2, generator=g) for g in seeds))


@every_dtype
@pytest.mark.parametrize("shape", SHAPES)
def test_project(shape, dtype):
    W, _ = point_and_tangent(*shape, dtype=dtype)
    torch.testing.assert_close(stiefel.project(W), W)
    A = W + 0.3 * random_matrix(*shape, seed=1, dtype=dtype)
    P = stiefel.project(A)
    assert_on_stiefel(P)
    # the nearest point: what is left over has no tangent part
    residual = stiefel.project_tangent(P, A - P)
    torch.testing.assert_close(residual, torch.zeros_like(residual))


@every_dtype
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("shape", SHAPES)
def test_riemannian_gradient_is_tangent_and_represents_the_differential(metric, shape, dtype):
    W, V = point_and_tangent(*shape, dtype=dtype)
    G = random_matrix(*shape, seed=2, dtype=dtype)
    R = stiefel.riemannian_gradient(W, G, metric)
    if W.numel():
        assert_tangent(W, R)
    if metric == "grassmann":  # horizontal vectors only
        V = V - W @ (W.mH @ V)
        torch.testing.assert_close(W.mH @ R, torch.zeros_like(W.mH @ R))
    differential = (G.conj() * V).sum((-2, -1)).real
    torch.testing.assert_close(stiefel.inner(W, R, V, metric), differential)


@every_dtype
@pytest.mark.parametrize("method", RETRACTIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_retraction_stays_on_manifold_and_is_first_order(method, shape, dtype):
    W, V = point_and_tangent(*shape, dtype=dtype)
    torch.testing.assert_close(stiefel.retract(W, torch.zeros_like(V), method), W)
    for size in (1e-3, 1.0, 100.0):
        assert_on_stiefel(stiefel.retract(W, size * V, method))
    if W.numel() and V.abs().max() > 1e-12:

        def departure(t):
            return stiefel.retract(W, t * V, method) - W - t * V

        assert slope(departure, (1e-2, 1e-3)) == pytest.approx(2, abs=0.05)


@every_dtype
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("method", RETRACTIONS)
def test_taylor_slope(metric, method, dtype):
    """f(R(t V)) = f(W) + t <grad, V> + O(t^2)."""
    W, V = point_and_tangent(6, 3, dtype=dtype)
    if metric == "grassmann":
        V = V - W @ (W.mH @ V)
    A = random_matrix(6, 6, seed=3, dtype=dtype)

    def f(W):
        return (W.mH @ A @ W @ torch.diag(torch.arange(1.0, 4.0)).to(dtype)).real.sin().sum()

    gradient = stiefel.riemannian_gradient(W, torch.func.grad(f)(W), metric)
    first = stiefel.inner(W, gradient, V, metric)

    def remainder(t):
        return f(stiefel.retract(W, t * V, method)) - f(W) - t * first

    assert slope(remainder, (1e-3, 1e-4)) == pytest.approx(2, abs=0.05)


@every_dtype
def test_cayley_and_polar_retractions_equal_definitions(dtype):
    W, V = point_and_tangent(6, 2, dtype=dtype)
    eye = torch.eye(6, dtype=dtype)
    P = eye - W @ W.mH / 2
    A = P @ V @ W.mH - W @ V.mH @ P
    expected = torch.linalg.solve(eye - A / 2, (eye + A / 2) @ W)
    torch.testing.assert_close(stiefel.retract(W, V, "cayley"), expected)
    gram = torch.eye(2, dtype=dtype) + V.mH @ V
    root = torch.linalg.inv(torch.linalg.cholesky(gram)).mH
    polar = stiefel.retract(W, V, "polar")
    torch.testing.assert_close(polar @ polar.mH, (W + V) @ root @ root.mH @ (W + V).mH)
    symmetric = polar.mH @ (W + V)
    torch.testing.assert_close(symmetric, symmetric.mH)


@every_dtype
@pytest.mark.parametrize("method", RETRACTIONS)
def test_retractions_are_differentiable_at_the_point_itself(method, dtype):
    W, V = point_and_tangent(5, 3, dtype=dtype)
    for U in (torch.zeros_like(V), V):
        inputs = (W.clone().requires_grad_(), U.clone().requires_grad_())
        assert gradcheck(lambda W, V: stiefel.retract(W, V, method), inputs)


def test_project_is_twice_differentiable_on_the_manifold():
    W = point_and_tangent(5, 3)[0].requires_grad_()
    assert gradcheck(stiefel.project, W)
    assert gradgradcheck(stiefel.project, W, fast_mode=True)


@every_dtype
def test_qr_has_a_positive_diagonal(dtype):
    W, V = point_and_tangent(5, 3, dtype=dtype)
    R = stiefel.retract(W, V, "qr").mH @ (W + V)
    assert (R.diagonal().real > 0).all()
    torch.testing.assert_close(R, R.triu())
    phases = torch.tensor([1, 1j, -1]) if dtype.is_complex else torch.tensor([1.0, -1, 1])
    R = torch.triu(torch.ones(3, 3, dtype=dtype)) * phases.to(dtype)[:, None]
    torch.testing.assert_close(diagonal_signs(R), phases.to(dtype), check_dtype=False)


@pytest.mark.parametrize("method", RETRACTIONS)
def test_retraction_is_batched(method):
    W, V = point_and_tangent(2, 3, 5, 2)
    batched = stiefel.retract(W, V, method)
    torch.testing.assert_close(batched[1, 2], stiefel.retract(W[1, 2], V[1, 2], method))


@pytest.mark.parametrize("method", RETRACTIONS)
def test_retraction_corrects_point_off_manifold(method):
    W, V = point_and_tangent(6, 3)
    assert_on_stiefel(stiefel.retract(W + 0.01 * torch.ones_like(W), V, method))


def test_autocast_keeps_precision():
    W, V = (x.float() for x in point_and_tangent(6, 3))
    calls = [lambda m=m: stiefel.riemannian_gradient(W, V, m) for m in METRICS]
    calls += [lambda: stiefel.project_tangent(W, V), lambda: stiefel.transport(W, W, V)]
    calls += [lambda m=m: stiefel.inner(W, V, V, m) for m in METRICS]
    calls += [lambda m=m: stiefel.retract(W, V, m) for m in RETRACTIONS]
    for call in calls:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            lowered = call()
        assert torch.equal(lowered, call())


def test_random_point_takes_a_shape():
    assert stiefel.random_point((2, 5, 3)).shape == (2, 5, 3)


def test_transport():
    W, V = point_and_tangent(5, 3)
    target, _ = point_and_tangent(5, 3, seed=1)
    for metric in METRICS:
        assert_tangent(target, stiefel.transport(W, target, V, metric))
    horizontal = target.mT @ stiefel.transport(W, target, V, "grassmann")
    torch.testing.assert_close(horizontal, torch.zeros_like(horizontal))
    torch.testing.assert_close(stiefel.transport(W, W, V), V)


@pytest.mark.parametrize("method", RETRACTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_half_precision_is_orthonormal_up_to_rounding(method, dtype):
    W, V = point_and_tangent(40, 20)
    moved = stiefel.retract(W.to(dtype), V.to(dtype), method)
    assert moved.dtype == dtype
    assert_on_stiefel(moved, tol=10 * torch.finfo(dtype).eps)


def test_stiefel_parameter_survives_copy_and_pickle():
    p = StiefelParameter(stiefel.random_point(4, 2), requires_grad=False)
    for q in (copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        assert type(q) is StiefelParameter
        assert torch.equal(p, q)
        assert not q.requires_grad
    assert type(p.detach()) is torch.Tensor


def test_parameters_accept_documented_keywords():
    W, V = stiefel.random_point(4, 2), torch.randn(4, 2)
    target = stiefel.random_point(4, 2)
    calls = {
        "project_tangent": {"W": W, "V": V},
        "inner": {"W": W, "U": V, "V": V},
        "riemannian_gradient": {"W": W, "G": V},
        "transport": {"W": W, "target": target, "V": V},
        "retract": {"W": W, "V": V},
        "project": {"A": V},
    }
    for name, arguments in calls.items():
        f = getattr(stiefel, name)
        assert torch.equal(f(**arguments), f(*arguments.values()))
    C = torch.randn(3, 3).tril()
    assert torch.equal(log_cholesky.from_coordinates(C=C), log_cholesky.from_coordinates(C))
