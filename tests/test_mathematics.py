"""Numerical tests of the statements in docs/mathematics.md and docs/concepts.md."""

import pytest
import torch

from spdnet import SPDNet
from spdnet.linalg import (
    Clamp,
    Log,
    clamp_eig,
    congruence,
    expm,
    logm,
    spectral_derivative,
    spectral_map,
    symmetrize,
)
from spdnet.manifolds import affine_invariant, log_euclidean, stiefel
from spdnet.manifolds.stiefel import StiefelParameter
from spdnet.nn import ReEig
from spdnet.optim import RiemannianSGD

EPS = 0.6
#: by layer: the library's function, f and its derivative
FUNCTIONS = {
    "ReEig": (Clamp(EPS), lambda s: s.clamp(min=EPS), lambda s: (s > EPS).double()),
    "LogEig": (Log(), torch.log, torch.reciprocal),
}


def randn(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def spd(n, seed=0):
    """Return a matrix with distinct eigenvalues on both sides of EPS."""
    Q = torch.linalg.qr(randn(n, n, seed=seed)).Q
    s = torch.linspace(0.25, 1.75, n, dtype=torch.float64)
    return symmetrize(Q @ torch.diag(s) @ Q.mT)


def orthonormal(*size, seed=7):
    generator = torch.Generator().manual_seed(seed)
    return stiefel.random_point(*size, dtype=torch.float64, generator=generator)


def direction(n, seed=1):
    return symmetrize(randn(n, n, seed=seed))


def slope(function, X, E, h=3e-4):
    """Compute the directional derivative by a finite difference of fourth order."""
    near = function(X + h * E) - function(X - h * E)
    far = function(X + 2 * h * E) - function(X - 2 * h * E)
    return (8 * near - far) / (12 * h)


def assert_same(got, expected, tolerance=1e-8):
    """Compare with a tolerance relative to the norm of the expected value."""
    assert (got - expected).norm() < tolerance * expected.norm()


def assert_differs(got, expected):
    """Check that the relative difference is more than 5 %."""
    assert (got - expected).norm() > 0.05 * expected.norm()


def inverse_gaps(s):
    """Compute P of Eq. 14, with 0 at ties, as in the released code."""
    gaps = s[:, None] - s[None, :]
    return torch.where(gaps == 0, 0.0, 1 / torch.where(gaps == 0, 1.0, gaps))


def gradient_15(s, U, G, f, df, form):
    """Compute both terms of Eq. 15 with the derivatives of Eqs. 16 and 17, or 19 and 20."""
    dU = 2 * symmetrize(G) @ U @ torch.diag(f(s))
    dS = torch.diag(df(s)) @ U.mT @ symmetrize(G) @ U
    PT = inverse_gaps(s).mT
    first = {
        "printed": 2 * PT * symmetrize(U.mT @ dU),
        "no factor": PT * symmetrize(U.mT @ dU),
        "sym outside, factor 2": 2 * symmetrize(PT * (U.mT @ dU)),
        "corrected": symmetrize(PT * (U.mT @ dU)),
    }[form]
    return U @ first @ U.mT, U @ torch.diag(dS.diagonal()) @ U.mT


def test_eq_9_bimap_gradients():
    X, W, G = spd(7), orthonormal(7, 4), randn(4, 4, seed=2)
    V, E = randn(7, 4, seed=3), direction(7)
    dW, dX = 2 * X @ W @ symmetrize(G), W @ symmetrize(G) @ W.mT
    assert_same((dW * V).sum(), slope(lambda W: (G * (W.mT @ X @ W)).sum(), W, V))
    assert_same((dX * E).sum(), slope(lambda X: (G * (W.mT @ X @ W)).sum(), X, E))
    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
    ours = torch.autograd.grad(congruence(x[None], w), (x, w), G[None])
    torch.testing.assert_close(ours, (dX, dW))
    # the printed form omits sym and is valid for symmetric G only
    assert_differs((2 * X @ W @ G * V).sum(), (dW * V).sum())


def test_eq_12_as_printed_is_too_large_by_a_factor_of_2():
    X, E = spd(6), direction(6)
    s, U = torch.linalg.eigh(X)

    def eigenvectors(X):
        V = torch.linalg.eigh(X).eigenvectors
        return V * torch.sign((V * U).sum(0))

    truth = slope(eigenvectors, X, E)
    M, PT = U.mT @ E @ U, inverse_gaps(s).mT
    printed, corrected = 2 * U @ (PT * symmetrize(M)), U @ (PT * M)
    assert_same(corrected, truth)
    assert_same(printed, 2 * truth)


def test_eq_13_eigenvalue_derivatives():
    X, E = spd(6), direction(6)
    U = torch.linalg.eigh(X).eigenvectors
    assert_same((U.mT @ E @ U).diagonal(), slope(torch.linalg.eigvalsh, X, E))


@pytest.mark.parametrize("layer", FUNCTIONS)
def test_eq_15_corrected_form_is_the_derivative(layer):
    """The printed form, and forms with one of the two corrections, are not."""
    function, f, df = FUNCTIONS[layer]
    X, E, G = spd(6), direction(6), randn(6, 6, seed=4)
    s, U = torch.linalg.eigh(X)
    truth = slope(lambda X: (G * spectral_map(X, function)).sum(), X, E)
    for form in ("printed", "no factor", "sym outside, factor 2"):
        assert_differs((sum(gradient_15(s, U, G, f, df, form)) * E).sum(), truth)
    corrected = sum(gradient_15(s, U, G, f, df, "corrected"))
    assert_same((corrected * E).sum(), truth)
    assert_same(spectral_derivative(X, symmetrize(G), function), corrected, 1e-12)


@pytest.mark.parametrize("layer", FUNCTIONS)
def test_eq_15_first_term_as_printed_is_skew_symmetric(layer):
    _, f, df = FUNCTIONS[layer]
    s, U = torch.linalg.eigh(spd(6))
    first, _ = gradient_15(s, U, randn(6, 6, seed=4), f, df, "printed")
    assert first.norm() > 0.1
    torch.testing.assert_close(first, -first.mT)


@pytest.mark.parametrize("layer", FUNCTIONS)
def test_eqs_16_to_20_partial_derivatives(layer):
    """U and S are treated as independent variables."""
    _, f, df = FUNCTIONS[layer]
    s, U = torch.linalg.eigh(spd(6))
    G, V, t = randn(6, 6, seed=4), randn(6, 6, seed=5), randn(6, seed=6)
    dU = 2 * symmetrize(G) @ U @ torch.diag(f(s))
    dS = torch.diag(df(s)) @ U.mT @ symmetrize(G) @ U
    by_U = slope(lambda U: (G * (U @ torch.diag(f(s)) @ U.mT)).sum(), U, V)
    by_s = slope(lambda s: (G * (U @ torch.diag(f(s)) @ U.mT)).sum(), s, t)
    assert_same((dU * V).sum(), by_U)
    assert_same((dS.diagonal() * t).sum(), by_s)


def test_gradient_at_ties_is_correct_and_differs_from_zero_p():
    v, G, E = torch.arange(6, dtype=torch.float64), randn(6, 6, seed=4), direction(6)
    X = torch.eye(6, dtype=torch.float64) + torch.outer(v, v) / 20
    s, U = torch.linalg.eigh(X)
    s[:5] = 1.0
    truth = slope(lambda X: (G * logm(X)).sum(), X, E)
    assert_same((spectral_derivative(X, symmetrize(G), Log()) * E).sum(), truth)
    zeroed = sum(gradient_15(s, U, G, torch.log, torch.reciprocal, "corrected"))
    assert_differs((zeroed * E).sum(), truth)


def test_reeig_derivative_at_threshold_is_1():
    """torch.clamp and the released code agree; Eq. 18 gives 0."""
    X = torch.diag(torch.tensor([EPS, 2.0], dtype=torch.float64)).requires_grad_()
    ReEig(EPS)(X).trace().backward()
    torch.testing.assert_close(X.grad, torch.eye(2, dtype=torch.float64))
    x = torch.tensor(EPS, requires_grad=True)
    x.clamp(min=EPS).backward()
    assert x.grad == 1


@pytest.mark.parametrize("layer", FUNCTIONS)
def test_second_derivatives_agree(layer):
    """Compare autograd, finite differences and the sum over second divided differences."""
    function = FUNCTIONS[layer][0]
    X, V, G = spd(6), direction(6), randn(6, 6, seed=4)
    truth = slope(lambda X: spectral_derivative(X, symmetrize(G), function), X, V)
    point = X.clone().requires_grad_()
    loss = (G * spectral_map(point, function)).sum()
    (gradient,) = torch.autograd.grad(loss, point, create_graph=True)
    (second,) = torch.autograd.grad((gradient * V).sum(), point)
    assert_same(second, truth)
    s, U = torch.linalg.eigh(X)
    c = function.second(s[:, None, None], s[None, :, None], s[None, None, :])  # axes i, k, j
    g, v = U.mT @ symmetrize(G) @ U, U.mT @ V @ U
    M = torch.einsum("ikj,ik,kj->ij", c, g, v) + torch.einsum("ikj,ik,kj->ij", c, v, g)
    assert_same(U @ M @ U.mT, truth)


def test_spectral_functions_commute_with_rotations():
    X, Q = spd(6), orthonormal(6, 6)
    for function, _, _ in FUNCTIONS.values():
        torch.testing.assert_close(
            spectral_map(congruence(X, Q), function), congruence(spectral_map(X, function), Q)
        )


def test_eq_7_as_printed_is_the_grassmann_gradient():
    W, G = orthonormal(7, 4), randn(7, 4, seed=2)
    skew = (W.mT @ G - G.mT @ W) / 2
    printed = (G.mT - G.mT @ W @ W.mT).mT  # W and the gradient of the paper are W^T and G^T
    for metric, c in (("grassmann", 0), ("embedded", 1), ("canonical", 2)):
        ours = stiefel.riemannian_gradient(W, G, metric)
        torch.testing.assert_close(ours, printed + c * W @ skew)
        torch.testing.assert_close(W.mT @ ours, -ours.mT @ W, atol=1e-14, rtol=0)
    assert_differs(printed, stiefel.riemannian_gradient(W, G))
    # the part that Eq. 7 subtracts is not normal to the manifold
    assert stiefel.project_tangent(W, G - printed).norm() > 0.1


@pytest.mark.parametrize("method", stiefel.RETRACTIONS)
def test_retractions_are_first_order(method):
    W = orthonormal(7, 4)
    V = stiefel.project_tangent(W, randn(7, 4, seed=2))
    errors = [(stiefel.retract(W, t * V, method) - W - t * V).norm() for t in (1e-2, 1e-3)]
    assert 80 < errors[0] / errors[1] < 125
    torch.testing.assert_close(stiefel.retract(W, 0 * V, method), W)


def test_polar_retraction_has_normal_acceleration():
    W = orthonormal(7, 4)
    V = stiefel.project_tangent(W, randn(7, 4, seed=2))
    there, back = (stiefel.retract(W, t * V, "polar") for t in (1e-3, -1e-3))
    assert_same((there - 2 * W + back) / 1e-6, -W @ V.mT @ V, 1e-4)


def test_cayley_retraction_equals_its_formula():
    W = orthonormal(7, 4)
    V = stiefel.project_tangent(W, randn(7, 4, seed=2))
    eye = torch.eye(7, dtype=torch.float64)
    P = eye - W @ W.mT / 2
    A = P @ V @ W.mT - W @ V.mT @ P
    torch.testing.assert_close(A @ W, V)
    moved = torch.linalg.solve(eye - A / 2, (eye + A / 2) @ W)
    torch.testing.assert_close(stiefel.retract(W, V, "cayley"), moved)


@pytest.mark.parametrize("metric", ["embedded", "grassmann"])
def test_sgd_transports_momentum_and_skips_weight_decay(metric):
    X, W = spd(7), orthonormal(7, 4)
    weight = StiefelParameter(W.clone())
    optimizer = RiemannianSGD([weight], lr=0.1, momentum=0.9, weight_decay=0.5, metric=metric)
    m = torch.zeros_like(W)
    for _ in range(3):
        weight.grad = 2 * X @ weight.detach() * torch.arange(1, 5)
        gradient = stiefel.riemannian_gradient(W, weight.grad, metric)
        optimizer.step()
        m = 0.9 * m + gradient
        W = stiefel.retract(W, -0.1 * m)
        part = W.mT @ m
        m = m - W @ (part if metric == "grassmann" else symmetrize(part))
    torch.testing.assert_close(weight.detach(), W)
    torch.testing.assert_close(optimizer.state[weight]["momentum_buffer"], m)


def test_bimap_eigenvalues_interlace():
    X = spd(9)
    W = orthonormal(50, 9, 5)
    s = torch.linalg.eigvalsh(X).flip(-1)
    t = torch.linalg.eigvalsh(congruence(X, W)).flip(-1)
    assert (t <= s[:5] + 1e-14).all()
    assert (t >= s[4:] - 1e-14).all()
    assert ((t < s[:5] - 0.01) & (t > s[4:] + 0.01)).any()


def test_later_reeigs_receive_no_eigenvalues_below_threshold():
    """Only the first ReEig clamps eigenvalues, except for rounding errors."""
    torch.manual_seed(0)
    X = torch.stack([spd(12, seed) for seed in range(8)])
    model = SPDNet((12, 10, 8, 6, 4), 3, eps=EPS, dtype=torch.float64)
    low = []
    with torch.no_grad():
        for bimap, reeig in zip(model.bimaps, model.reeigs, strict=False):
            X = bimap(X)
            low.append(int((torch.linalg.eigvalsh(X) < EPS - 1e-14).sum()))
            X = reeig(X)
    assert low[0] > 0
    assert low[1:] == [0, 0]


def test_only_the_first_reeig_changes_the_output():
    torch.manual_seed(0)
    X = torch.stack([spd(12, seed) for seed in range(8)])
    model = SPDNet((12, 10, 8, 6, 4), 3, eps=EPS, dtype=torch.float64)
    before = model(X)
    for i in range(1, len(model.reeigs)):
        model.reeigs[i] = _Identity()
    torch.testing.assert_close(model(X), before)
    model.reeigs[0] = _Identity()
    assert_differs(model(X), before)


class _Identity(torch.nn.Module):
    """Replacement for a ReEig layer."""

    def forward(self, X, check=None, above=False):
        return X


def test_determinant_swells_on_straight_paths_only():
    A = torch.diag(torch.tensor([4.0, 0.25], dtype=torch.float64))
    Q = orthonormal(2, 2)
    B = 3 * congruence(A, Q)
    for t in (0.25, 0.5, 0.75):
        even = A.det() ** (1 - t) * B.det() ** t
        assert ((1 - t) * A + t * B).det() > 1.05 * even
        for metric in (log_euclidean, affine_invariant):
            torch.testing.assert_close(metric.geodesic(A, B, t).det(), even)


def test_straight_line_leaves_the_cone():
    A = torch.diag(torch.tensor([4.0, 0.25], dtype=torch.float64))
    B = A.flip(0, 1)
    assert torch.linalg.eigvalsh(B + 0.5 * (B - A)).min() < 0
    assert torch.linalg.eigvalsh(log_euclidean.geodesic(A, B, 1.5)).min() > 0


def test_logarithm_does_not_commute_with_bimap():
    X, W = spd(8), orthonormal(8, 4)
    gap = logm(congruence(X, W)) - congruence(logm(X), W)
    assert gap.norm() > 0.1
    assert torch.linalg.eigvalsh(gap).min() > -1e-14  # the logarithm is operator concave
    U = torch.linalg.eigh(X).eigenvectors[:, :4] @ orthonormal(4, 4)
    gap = logm(congruence(X, U)) - congruence(logm(X), U)
    torch.testing.assert_close(gap, torch.zeros_like(gap), atol=1e-13, rtol=0)


def test_2x2_bimap_rotates_the_cone_by_twice_the_angle():
    angle = torch.tensor(0.3, dtype=torch.float64)
    c, s = angle.cos(), angle.sin()
    W = torch.stack([torch.stack([c, -s]), torch.stack([s, c])])
    X = torch.diag(torch.tensor([3.0, 1.0], dtype=torch.float64))
    Y = congruence(X, W)
    torch.testing.assert_close(Y.trace(), X.trace())
    torch.testing.assert_close((Y[0, 0] - Y[1, 1]) / 2, (2 * angle).cos())
    torch.testing.assert_close(Y[0, 1], -(2 * angle).sin())


def test_reeig_maps_to_the_cone_shifted_by_eps():
    X = torch.diag(torch.tensor([3.0, 0.2], dtype=torch.float64))
    step = clamp_eig(X, EPS) - X
    up, in_ = step.trace() / 2, (step[1, 1] - step[0, 0]) / 2
    torch.testing.assert_close(up, in_)  # equal steps upward and inward
    assert torch.linalg.eigvalsh(clamp_eig(X, EPS)).min() == EPS


def test_log_euclidean_distance_to_identity_is_the_log_radius():
    E = torch.tensor([[0.6, 0.8], [0.8, -0.6]], dtype=torch.float64)
    for r in (0.5, 1.0, 2.0):
        X = expm(r * E)
        torch.testing.assert_close(X.det(), torch.ones_like(X.det()))
        distance = log_euclidean.distance(torch.eye(2, dtype=torch.float64), X)
        torch.testing.assert_close(distance, torch.tensor(2**0.5 * r, dtype=torch.float64))
