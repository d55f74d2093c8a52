"""Property-based tests with random matrices, including tied eigenvalues."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spdnet.linalg import (
    clamp_eig,
    expm,
    invsqrtm,
    logm,
    powm,
    sqrtm,
    symmetrize,
    unvech,
    vech,
)
from spdnet.manifolds import affine_invariant, log_euclidean, stiefel
from spdnet.nn import BiMap, LogEig, ReEig
from spdnet.testing import assert_on_stiefel, assert_spd, assert_symmetric
from tests.cases import with_spectrum

#: few distinct values, so that ties are frequent
eigenvalues = st.sampled_from([1e-3, 0.1, 0.1 + 1e-9, 1.0, 1.0 + 1e-15, 2.5, 40.0])
seeds = st.integers(0, 2**16)


@st.composite
def spd(draw, max_size=6):
    values = draw(st.lists(eigenvalues, min_size=1, max_size=max_size))
    return with_spectrum(values, seed=draw(seeds))


@st.composite
def spd_pair(draw):
    n = draw(st.integers(1, 5))
    lists = st.lists(eigenvalues, min_size=n, max_size=n)
    return tuple(with_spectrum(draw(lists), seed=draw(seeds)) for _ in range(2))


def close(a, b, tol=1e-9):
    torch.testing.assert_close(a, b, rtol=tol, atol=tol * max(1.0, b.abs().max().item()))


@given(spd())
def test_inverse_functions_round_trip(X):
    close(expm(logm(X)), X)
    close(powm(sqrtm(X), 2.0), X)
    close(powm(invsqrtm(X), -2.0), X)
    close(unvech(vech(X)), X)


@given(spd(), st.floats(-2, 2), st.floats(-1, 1))
def test_exponents_of_powers_add(X, p, q):
    close(symmetrize(powm(X, p) @ powm(X, q)), powm(X, p + q), 1e-7)


@given(spd())
def test_log_determinant_equals_trace_of_log(X):
    close(logm(X).trace(), torch.linalg.slogdet(X).logabsdet)


@given(spd(), st.floats(1e-4, 10))
def test_clamp_eig_is_idempotent(X, eps):
    Y = clamp_eig(X, eps)
    close(clamp_eig(Y, eps), Y)
    assert torch.linalg.eigvalsh(Y).min() >= eps * (1 - 1e-9)
    assert torch.linalg.eigvalsh(Y - X).min() > -1e-9 * X.abs().max()


@given(spd(), st.floats(1e-4, 10))
def test_gradients_are_finite_and_symmetric(X, eps):
    X.requires_grad_()
    G = torch.linspace(-1, 1, X.numel(), dtype=X.dtype).view(X.shape)
    for Y in (logm(X), sqrtm(X), invsqrtm(X), clamp_eig(X, eps), expm(X)):
        assert_symmetric(torch.autograd.grad(Y, X, G)[0])


@given(spd(), st.floats(1e-4, 10))
def test_clamp_eig_gradient_norm_does_not_increase(X, eps):
    """The divided differences of max(eps, s) lie in [0, 1]."""
    X.requires_grad_()
    G = symmetrize(torch.linspace(-1, 1, X.numel(), dtype=X.dtype).view(X.shape))
    (gradient,) = torch.autograd.grad(clamp_eig(X, eps), X, G)
    assert gradient.norm() <= G.norm() * (1 + 1e-12)


@given(spd(), seeds)
def test_layers_preserve_spd_matrices(X, seed):
    torch.manual_seed(seed)
    n = X.shape[-1]
    Y = BiMap(n, max(1, n - 1), dtype=X.dtype)(X)
    assert_spd(Y)
    Z = ReEig(eps=0.5)(Y)
    assert_spd(Z)
    assert_symmetric(LogEig()(Z))


@given(spd_pair(), st.floats(0, 1))
@settings(max_examples=50)
def test_geodesic_distance_is_proportional_to_t(pair, t):
    X, Y = pair
    for manifold in (log_euclidean, affine_invariant):
        d, point = manifold.distance(X, Y), manifold.geodesic(X, Y, t)
        assert_spd(point)
        close(manifold.distance(X, point), t * d, 1e-6)
        close(manifold.exp(X, manifold.log(X, Y)), Y, 1e-6)


@given(spd_pair())
@settings(max_examples=50)
def test_mean_of_two_points_is_the_geodesic_midpoint(pair):
    both = torch.stack(pair)
    for manifold in (log_euclidean, affine_invariant):
        close(manifold.mean(both), manifold.geodesic(*pair, 0.5), 1e-6)


@given(st.integers(1, 6), st.integers(0, 5), seeds, st.sampled_from(stiefel.RETRACTIONS))
def test_retraction_stays_on_the_stiefel_manifold(k, extra, seed, method):
    generator = torch.Generator().manual_seed(seed)
    W = stiefel.random_point(k + extra, k, generator=generator, dtype=torch.float64)
    V = stiefel.project_tangent(W, torch.randn(W.shape, generator=generator, dtype=torch.float64))
    assert_on_stiefel(stiefel.retract(W, 10 * V, method))
