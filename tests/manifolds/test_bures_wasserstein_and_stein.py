import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import hessian, jacfwd, jacrev, vmap

from spdnet.linalg import sqrtm, symmetrize
from spdnet.manifolds import affine_invariant, bures_wasserstein, stein
from spdnet.testing import assert_spd, check_manifold
from tests.cases import (
    ILL_CONDITIONED,
    SPECTRA,
    every_dtype,
    random_spd,
    random_symmetric,
    with_spectrum,
)

both = pytest.mark.parametrize("metric", [bures_wasserstein, stein], ids=["bures", "stein"])
every_case = pytest.mark.parametrize("case", SPECTRA)


@every_dtype
@every_case
def test_bures_wasserstein_satisfies_check_manifold(case, dtype):
    X = with_spectrum(SPECTRA[case], dtype=dtype)
    n = X.shape[-1]
    lowest = torch.linalg.eigvalsh(X)[0]
    Y, V = random_spd(2, n, dtype=dtype), 0.2 * lowest * random_symmetric(2, n, seed=1, dtype=dtype)
    check_manifold(bures_wasserstein, X.expand(2, n, n), Y, V)


@every_dtype
@both
def test_distances_equal_definitions(metric, dtype):
    X, Y = random_spd(4, dtype=dtype), random_spd(4, seed=1, dtype=dtype)
    root = sqrtm(X)
    expected = {
        bures_wasserstein: (X + Y - 2 * sqrtm(symmetrize(root @ Y @ root))).trace(),
        stein: torch.logdet((X + Y) / 2) - torch.logdet(X @ Y) / 2,
    }[metric].real
    torch.testing.assert_close(metric.distance(X, Y) ** 2, expected)
    torch.testing.assert_close(metric.distance(Y, X) ** 2, expected)


@both
def test_distances_of_near_points_are_accurate(metric):
    X, V = random_spd(4), random_symmetric(4, seed=1)
    h = 1e-9
    if metric is bures_wasserstein:
        speed = metric.inner(X, V, V).sqrt()
    else:  # eight times the divergence is the affine-invariant metric, to second order
        speed = (affine_invariant.inner(X, V, V) / 8).sqrt()
    torch.testing.assert_close(metric.distance(X, X + h * V) / h, speed, rtol=1e-5, atol=0)


@both
def test_finite_gradients_at_coinciding_points(metric):
    X = torch.eye(3, dtype=torch.float64).requires_grad_()
    for Y in (X, X.detach()):
        (gradient,) = torch.autograd.grad(metric.distance(X, Y), X)
        assert gradient.isfinite().all()


@every_dtype
@every_case
def test_derivatives(case, dtype):
    X = with_spectrum(SPECTRA[case], dtype=dtype)
    n = X.shape[-1]
    Y, V = random_spd(n, dtype=dtype), 0.1 * random_symmetric(n, seed=1, dtype=dtype)
    functions = {
        "distance": lambda X, Y, V: bures_wasserstein.distance(X, Y),
        "geodesic": lambda X, Y, V: bures_wasserstein.geodesic(X, Y, 0.3),
        "exp": lambda X, Y, V: bures_wasserstein.exp(X, V),
        "log": lambda X, Y, V: bures_wasserstein.log(X, Y),
        "stein": lambda X, Y, V: stein.distance(X, Y),
    }
    inputs = [A.clone().requires_grad_() for A in (X, Y, V)]
    for f in functions.values():
        on_symmetric = lambda *args, f=f: f(*map(symmetrize, args))  # noqa: E731
        assert gradcheck(on_symmetric, inputs, check_forward_ad=True, fast_mode=True)
        if case == "generic":
            assert gradgradcheck(on_symmetric, inputs, fast_mode=True)


@both
def test_invariance(metric):
    """Both are invariant under rotations, Stein also under congruences."""
    X, Y = random_spd(4), random_spd(4, seed=1)
    A = random_symmetric(4, seed=2)
    Q = torch.linalg.qr(A)[0]
    for M in (Q,) if metric is bures_wasserstein else (Q, A):
        moved = [symmetrize(M @ Z @ M.mT) for Z in (X, Y)]
        torch.testing.assert_close(metric.distance(*moved), metric.distance(X, Y))


@both
def test_means(metric):
    X = random_spd(2, 5, 3)
    w = torch.tensor([1.0, 2.0, 3.0, 0.0, 1.0]).double()
    M = metric.mean(X, w)
    assert_spd(M)
    torch.testing.assert_close(metric.mean(X, 7 * w), M)
    torch.testing.assert_close(vmap(lambda X: metric.mean(X, w))(X), M)
    torch.testing.assert_close(metric.mean(X[:, :1]), X[:, 0])

    def spread(M):
        return (w * metric.distance(M[:, None], X) ** 2).sum(-1)

    for seed in range(5):
        assert (spread(M) < spread(M + 0.01 * random_symmetric(3, seed=seed))).all()


@both
def test_batched_means_are_independent(metric):
    scales = torch.logspace(0, 3, 5, dtype=torch.float64)[:, None, None]
    X = torch.stack([random_spd(5, 3), scales * random_spd(5, 3, seed=1)])
    weights = torch.rand(2, 5).double().requires_grad_()  # so that it is differentiated, too
    for w in (weights.detach(), weights):
        together = metric.mean(X, w)
        for i in range(2):
            assert torch.equal(together[i], metric.mean(X[i : i + 1], w[i : i + 1])[0])


def test_bures_wasserstein_mean_of_ill_conditioned_matrices():
    X = torch.stack([with_spectrum(ILL_CONDITIONED, seed=s) for s in range(3)])
    assert_spd(bures_wasserstein.mean(X))  # without a warning


@every_dtype
@both
def test_derivatives_of_means(metric, dtype):
    X, w = random_spd(3, 3, dtype=dtype), torch.tensor([1.0, 2.0, 3.0]).double()
    inputs = (X.clone().requires_grad_(), w.requires_grad_())

    def mean(X, w):
        return metric.mean(symmetrize(X), w)

    assert gradcheck(mean, inputs, check_forward_ad=True, fast_mode=True)
    assert gradgradcheck(mean, inputs, fast_mode=True)
    if dtype.is_complex:
        return
    J = jacrev(metric.mean)(X)
    torch.testing.assert_close(jacfwd(metric.mean)(X), J)
    E = random_symmetric(3)
    assert hessian(lambda X: (metric.mean(X) * E).sum())(X).isfinite().all()


@both
def test_mean_warns_when_not_converged(metric):
    with pytest.warns(RuntimeWarning, match="not converged after 2 iterations"):
        metric.mean(random_spd(4, 3), max_iter=2)


@both
def test_invalid_input_is_refused_and_float32_is_kept(metric):
    X = random_spd(3, 4)
    with pytest.raises(ValueError, match="positive"):
        metric.distance(X, -X)
    with pytest.raises(ValueError, match="positive"):
        metric.mean(-X)
    with pytest.raises(ValueError, match="4"):
        metric.distance(X, X[:, :3, :3])
    single = X.float()
    assert metric.distance(single, single).dtype == torch.float32
    assert metric.mean(single).dtype == torch.float32
    torch.testing.assert_close(metric.mean(single).double(), metric.mean(X), rtol=1e-5, atol=1e-5)


def test_geodesic_midpoint_equals_mean():
    X, Y = random_spd(2, 3)
    middle = bures_wasserstein.mean(torch.stack([X, Y]), torch.tensor([0.7, 0.3]).double())
    torch.testing.assert_close(bures_wasserstein.geodesic(X, Y, 0.3), middle)
