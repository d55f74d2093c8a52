import math
import warnings

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import hessian, jacfwd, jacrev, vmap

from spdnet.linalg import expm, logm, symmetrize
from spdnet.manifolds import (
    affine_invariant,
    bures_wasserstein,
    log_cholesky,
    log_euclidean,
    power_euclidean,
    stein,
)
from spdnet.testing import assert_spd, check_manifold
from tests.cases import (
    ILL_CONDITIONED,
    SPECTRA,
    every_dtype,
    random_spd,
    random_symmetric,
    real_embedding,
    with_spectrum,
)

MANIFOLDS = [log_euclidean, affine_invariant, log_cholesky]
every_manifold = pytest.mark.parametrize("manifold", MANIFOLDS, ids=lambda m: m.name)
every_case = pytest.mark.parametrize("case", SPECTRA)
#: metrics whose geometry the real embedding of complex matrices preserves
EMBEDDED = [log_euclidean, affine_invariant, bures_wasserstein, stein, power_euclidean]


@pytest.mark.parametrize("metric", EMBEDDED, ids=lambda m: m.name)
def test_real_embedding(metric):
    """It doubles the squared distances, as it doubles every eigenvalue, and commutes with means."""
    X, Y = (random_spd(3, 4, seed=s, dtype=torch.complex128) for s in range(2))
    R, S = real_embedding(X), real_embedding(Y)
    torch.testing.assert_close(metric.squared_distance(R, S), 2 * metric.squared_distance(X, Y))
    torch.testing.assert_close(metric.pairwise(R, S), 2 * metric.pairwise(X, Y))
    torch.testing.assert_close(metric.mean(R), real_embedding(metric.mean(X)))
    for verb, arguments in {"geodesic": (0.3,), "log": (), "transport": (X - Y,)}.items():
        if metric.has(verb):
            embedded = [real_embedding(a) if isinstance(a, torch.Tensor) else a for a in arguments]
            moved = getattr(metric, verb)(R, S, *embedded)
            torch.testing.assert_close(
                moved, real_embedding(getattr(metric, verb)(X, Y, *arguments))
            )


@pytest.mark.parametrize("metric", [*EMBEDDED, log_cholesky], ids=lambda m: m.name)
def test_real_matrices_as_complex_ones(metric):
    X, Y = random_spd(3, 4), random_spd(3, 4, seed=1)
    A, B = X.to(torch.complex128), Y.to(torch.complex128)
    torch.testing.assert_close(metric.squared_distance(A, B), metric.squared_distance(X, Y))
    torch.testing.assert_close(metric.pairwise(A), metric.pairwise(X))
    torch.testing.assert_close(metric.mean(A), metric.mean(X).to(A.dtype))
    for call in (metric.distance, metric.squared_distance, metric.pairwise):
        for pair in ((X, B), (A, Y)):
            with pytest.raises(TypeError, match="both real or both complex"):
                call(*pair)


@every_dtype
@every_manifold
@every_case
def test_satisfies_manifold_properties(manifold, case, dtype):
    X = with_spectrum(SPECTRA[case], dtype=dtype)
    n = X.shape[-1]
    Y, V = random_spd(2, n, dtype=dtype), 0.05 * random_symmetric(2, n, seed=1, dtype=dtype)
    check_manifold(manifold, X.expand(2, n, n), Y, V)
    check_manifold(manifold, Y, X.expand(2, n, n), V)


@every_dtype
@every_manifold
@every_case
def test_derivatives(manifold, case, dtype):
    X = with_spectrum(SPECTRA[case], dtype=dtype)
    n = X.shape[-1]
    Y, V = random_spd(n, dtype=dtype), random_symmetric(n, seed=1, dtype=dtype)
    functions = {
        "distance": lambda X, Y, V: manifold.distance(X, Y),
        "geodesic": lambda X, Y, V: manifold.geodesic(X, Y, 0.3),
        "exp": lambda X, Y, V: manifold.exp(X, V),
        "log": lambda X, Y, V: manifold.log(X, Y),
        "transport": lambda X, Y, V: manifold.transport(X, Y, V),
    }
    inputs = [A.clone().requires_grad_() for A in (X, Y, V)]
    for name, f in functions.items():
        on_symmetric = lambda *args, f=f: f(*map(symmetrize, args))  # noqa: E731
        assert gradcheck(on_symmetric, inputs, check_forward_ad=True, fast_mode=True)
        if manifold is log_euclidean and name in ("exp", "log", "transport"):
            with pytest.raises(NotImplementedError, match="third derivative"):
                gradgradcheck(on_symmetric, inputs, fast_mode=True)
        elif case in ("generic", "exact ties"):
            assert gradgradcheck(on_symmetric, inputs, fast_mode=True)


@every_manifold
def test_finite_gradients_at_coinciding_points(manifold):
    X = torch.eye(3, dtype=torch.float64).requires_grad_()
    for Y in (X, X.detach()):
        (gradient,) = torch.autograd.grad(manifold.distance(X, Y), X)
        assert gradient.isfinite().all()
    for f in (manifold.log, lambda A, B: manifold.geodesic(A, B, 0.5)):
        (gradient,) = torch.autograd.grad(f(X, X).sum(), X)
        assert gradient.isfinite().all()


@every_manifold
def test_geodesic_broadcasts_over_times(manifold):
    X, Y = random_spd(4, 3), random_spd(5, 3, seed=1)
    pairs = manifold.distance(X[:, None], Y)
    assert pairs.shape == (4, 5)
    torch.testing.assert_close(pairs[2, 3], manifold.distance(X[2], Y[3]))
    t = torch.linspace(0, 1, 4, dtype=torch.float64)
    path = manifold.geodesic(X[0], Y[0], t)
    torch.testing.assert_close(path[1], manifold.geodesic(X[0], Y[0], 1 / 3))
    torch.testing.assert_close(vmap(manifold.distance)(X, Y[:4]), manifold.distance(X, Y[:4]))


@every_dtype
def test_distances_equal_definitions(dtype):
    X, Y = random_spd(4, dtype=dtype), random_spd(4, seed=1, dtype=dtype)
    expected = torch.linalg.eigvals(torch.linalg.solve(X, Y)).real.log().norm()
    torch.testing.assert_close(affine_invariant.distance(X, Y), expected)
    torch.testing.assert_close(log_euclidean.distance(X, Y), (logm(X) - logm(Y)).norm())


@every_dtype
def test_affine_invariance(dtype):
    X, Y = random_spd(4, dtype=dtype), random_spd(4, seed=1, dtype=dtype)
    A = random_symmetric(4, seed=2, dtype=dtype)
    moved = [symmetrize(A @ Z @ A.mH) for Z in (X, Y)]
    torch.testing.assert_close(
        affine_invariant.distance(*moved), affine_invariant.distance(X, Y), rtol=1e-9, atol=0
    )


@every_manifold
def test_mean_of_commuting_matrices_is_geometric(manifold):
    X = torch.stack([torch.diag(d) for d in torch.tensor([[1.0, 4], [9, 1], [3, 2]]).double()])
    w = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    logs = X.diagonal(dim1=-2, dim2=-1).log()
    expected = torch.diag(((w / 6)[:, None] * logs).sum(0).exp())
    torch.testing.assert_close(manifold.mean(X, w), expected)
    torch.testing.assert_close(manifold.mean(X, 10 * w), expected)


@pytest.mark.parametrize("spread", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("n", [2, 6])
def test_affine_invariant_mean_converges(spread, n):
    X = expm(spread * random_symmetric(7, n))
    w = torch.arange(1.0, 8.0).double()
    M = affine_invariant.mean(X, w)
    assert_spd(M)
    pull = (w[:, None, None] / w.sum() * affine_invariant.log(M, X)).sum(0)
    assert affine_invariant.inner(M, pull, pull).sqrt() < 1e-8


@every_dtype
def test_affine_invariant_mean_of_ill_conditioned_matrices(dtype):
    X = torch.stack([with_spectrum(ILL_CONDITIONED, seed=s, dtype=dtype) for s in range(4)])
    M = affine_invariant.mean(X)  # without a warning
    assert_spd(M)


@every_dtype
@pytest.mark.parametrize("points", ["generic", "commuting", "equal"])
def test_derivatives_of_the_affine_invariant_mean(points, dtype):
    X = {
        "generic": random_spd(3, 3, dtype=dtype),
        "commuting": torch.diag_embed(torch.arange(1.0, 10).view(3, 3)).double(),
        "equal": torch.eye(3).double().repeat(3, 1, 1),
    }[points].to(dtype)
    w = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    inputs = (X.clone().requires_grad_(), w.requires_grad_())

    def mean(X, w):
        return affine_invariant.mean(symmetrize(X), w)

    assert gradcheck(mean, inputs, check_forward_ad=True, fast_mode=True)
    assert gradgradcheck(mean, inputs, fast_mode=True)


@every_manifold
def test_means_under_torch_func(manifold):
    X = random_spd(4, 3, 3)
    torch.testing.assert_close(vmap(manifold.mean)(X), manifold.mean(X))
    J = jacrev(manifold.mean)(X[0])
    torch.testing.assert_close(jacfwd(manifold.mean)(X[0]), J)
    torch.testing.assert_close(vmap(jacrev(manifold.mean))(X)[0], J)
    E = random_symmetric(3, 3)
    H = hessian(lambda X: (manifold.mean(X) * E).sum())(X[0])
    assert H.isfinite().all()


@every_manifold
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.complex64])
def test_lower_precisions(manifold, dtype):
    X, Y = random_spd(2, 3, dtype=dtype), random_spd(2, 3, seed=1, dtype=dtype)
    V = random_symmetric(2, 3, seed=2, dtype=dtype) / 8
    accurate = torch.promote_types(dtype, torch.float64)
    calls = {
        "inner": (X, V, V),
        "distance": (X, Y),
        "geodesic": (X, Y, 0.3),
        "exp": (X, V),
        "log": (X, Y),
        "transport": (X, Y, V),
        "mean": (X,),
    }
    for name, arguments in calls.items():
        f = getattr(manifold, name)
        exact = f(*(a.to(accurate) if isinstance(a, torch.Tensor) else a for a in arguments))
        got = f(*arguments)
        assert got.dtype == (X.real.dtype if name in ("inner", "distance") else dtype)
        tolerance = 30 * torch.finfo(dtype).eps * exact.abs().max().item()
        torch.testing.assert_close(got.to(exact.dtype), exact, rtol=0, atol=tolerance)


@pytest.mark.parametrize("condition", [1e3, 1e5])
def test_affine_invariant_distance_in_float32(condition):
    """The error is bounded by the rounding of the input."""
    spectrum = torch.logspace(0, -math.log10(condition), 6).tolist()
    for seed in range(5):
        X, Y = (with_spectrum(spectrum, seed=s).float() for s in (seed, seed + 100))
        got, exact = (
            affine_invariant.distance(A, B) for A, B in ((X, Y), (X.double(), Y.double()))
        )
        torch.testing.assert_close(got.double(), exact, rtol=1e-6, atol=0)


def test_extremely_ill_conditioned_points_are_refused_or_warned_about():
    X = torch.stack([with_spectrum([1e-15, 1e-8, 1e-3, 1.0], seed=s) for s in range(4)])
    with pytest.raises(ValueError, match=r"X\^\(-1/2\) Y X\^\(-1/2\)"):
        affine_invariant.distance(X[:, None], X)


def gradient_at(M, X, w=None):
    w = torch.ones(len(X), dtype=torch.float64) if w is None else w
    pull = (w[:, None, None] / w.sum() * affine_invariant.log(M, X, check=False)).sum(0)
    return affine_invariant.inner(M, pull, pull).sqrt()


@every_dtype
@pytest.mark.parametrize("decades", [9, 12, 14])
def test_means_of_very_ill_conditioned_matrices(decades, dtype):
    spectrum = torch.logspace(-decades, 0, 6).tolist()
    X = torch.stack([with_spectrum(spectrum, seed=s, dtype=dtype) for s in range(5)])
    assert gradient_at(affine_invariant.mean(X), X) < 1e-8  # without a warning


def test_mean_converges_with_one_ill_conditioned_matrix():
    X = random_spd(12, 4)
    X[0] = torch.diag(torch.tensor([1.0, 1.0, 1.0, 1e-15]))
    assert gradient_at(affine_invariant.mean(X), X) < 1e-8
    w = torch.ones(12, dtype=torch.float64)
    w[0] = 0  # no influence, not on the last bit
    assert torch.equal(affine_invariant.mean(X, w), affine_invariant.mean(X[1:]))


def test_derivative_with_respect_to_a_weight_of_zero():
    X, w = random_spd(3, 3), torch.tensor([1.0, 0.0, 2.0], dtype=torch.float64)
    J = jacrev(lambda w: affine_invariant.mean(X, w))(w)[..., 1]
    h = 1e-6
    bump = torch.tensor([0.0, h, 0.0], dtype=torch.float64)
    numeric = (affine_invariant.mean(X, w + bump, tol=1e-13) - affine_invariant.mean(X, w)) / h
    torch.testing.assert_close(J, numeric, rtol=1e-4, atol=1e-4)


def test_mean_of_singular_matrices_is_nan_with_warning():
    X = random_spd(3, 3)
    X[1] = torch.diag(torch.tensor([1.0, 1.0, 0.0]))
    with pytest.warns(RuntimeWarning, match="gradient is nan"):
        M = affine_invariant.mean(X, check=False)
    assert M.isnan().all()


@every_manifold
def test_mean_broadcasts_over_weights(manifold):
    X, w = random_spd(5, 3), torch.rand(4, 5, dtype=torch.float64)
    M = manifold.mean(X, w)
    assert M.shape == (4, 3, 3)
    torch.testing.assert_close(M[2], manifold.mean(X, w[2]))
    with pytest.raises(ValueError, match=r"broadcasts with the shape of X, \(2, 5, 3, 3\)"):
        manifold.mean(X.expand(2, 5, 3, 3), torch.ones(4, 5))


def test_weights_keep_the_dtype():
    X, w = random_spd(3, 3, dtype=torch.float32), torch.ones(3, dtype=torch.float64)
    for manifold in MANIFOLDS:
        assert manifold.mean(X, w).dtype == torch.float32


def test_derivative_of_the_log_euclidean_mean():
    inputs = (random_spd(3, 3).requires_grad_(), torch.rand(3).double().requires_grad_())
    assert gradcheck(lambda X, w: log_euclidean.mean(symmetrize(X), w), inputs)
    assert jacrev(log_euclidean.mean)(inputs[0].detach()).shape == (3, 3, 3, 3, 3)


@every_manifold
def test_batched_means_are_independent(manifold):
    X = torch.stack([random_spd(5, 3), expm(3 * random_symmetric(5, 3)), random_spd(5, 3, seed=1)])
    together = manifold.mean(X)
    for i in range(3):
        assert torch.equal(together[i], manifold.mean(X[i : i + 1])[0])


def test_mean_in_float32():
    X = random_spd(5, 4, dtype=torch.float32)
    M = affine_invariant.mean(X)
    assert M.dtype == torch.float32
    torch.testing.assert_close(M.double(), affine_invariant.mean(X.double()), rtol=1e-6, atol=1e-6)


def test_mean_warns_when_not_converged():
    X = expm(3 * random_symmetric(5, 3))
    with pytest.warns(RuntimeWarning, match=r"not converged after 1 iterations.*increase max_iter"):
        affine_invariant.mean(X, max_iter=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        affine_invariant.mean(X, max_iter=1, tol=100.0)
