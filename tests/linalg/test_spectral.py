"""Properties of spectral maps for all functions and test matrices."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import hessian, jacfwd, jacrev, jvp, vmap

from spdnet.linalg import (
    Clamp,
    Exp,
    InvSqrt,
    Log,
    Power,
    ScalarFunction,
    Sigmoid,
    Softplus,
    Sqrt,
    clamp_eig,
    expm,
    invsqrtm,
    logm,
    powm,
    spectral_derivative,
    spectral_map,
    sqrtm,
    symmetrize,
)
from spdnet.linalg.scalar import ClampedExp
from spdnet.testing import assert_spd, assert_symmetric
from tests import reference
from tests.cases import (
    BATCH_SHAPES,
    ILL_CONDITIONED,
    SPECTRA,
    every_dtype,
    random_spd,
    random_symmetric,
    real_embedding,
    with_spectrum,
)

FUNCTIONS = [
    Log(),
    Exp(),
    Sqrt(),
    InvSqrt(),
    Power(0.3),
    Power(-1.0),
    Clamp(0.7),
    ClampedExp(1.8),
    Softplus(0.7, 2.0),
    Sigmoid(1.5),
]
every_function = pytest.mark.parametrize("f", FUNCTIONS, ids=str)
every_case = pytest.mark.parametrize("case", SPECTRA)


def on_symmetric_part(f):
    return lambda X: spectral_map(symmetrize(X), f)


@every_dtype
@every_function
@every_case
def test_value(f, case, dtype):
    X = with_spectrum(SPECTRA[case], dtype=dtype)
    Y = spectral_map(X, f)
    assert_symmetric(Y)
    torch.testing.assert_close(Y, reference.to_tensor(reference.spectral_map(X, f)).to(dtype))


@every_dtype
@every_function
@every_case
def test_first_derivative(f, case, dtype):
    X = with_spectrum(SPECTRA[case], dtype=dtype).requires_grad_()
    assert gradcheck(on_symmetric_part(f), X, check_forward_ad=True, check_batched_grad=True)


@every_dtype
@every_function
@every_case
def test_second_derivative(f, case, dtype):
    X = with_spectrum(SPECTRA[case], dtype=dtype).requires_grad_()
    assert gradgradcheck(
        on_symmetric_part(f), X, check_fwd_over_rev=True, check_rev_over_rev=True, fast_mode=True
    )


@every_dtype
@every_function
def test_ill_conditioned(f, dtype):
    """Compare with 120 digits at condition number 1e8 with tied smallest eigenvalues."""
    X = with_spectrum(ILL_CONDITIONED, dtype=dtype)
    G, V = X * random_symmetric(4, seed=1), X * random_symmetric(4, seed=2)
    _, second = jvp(lambda X: spectral_derivative(X, G, f), (X,), (V,))
    pairs = [
        (spectral_map(X, f), reference.to_tensor(reference.spectral_map(X, f))),
        (spectral_derivative(X, G, f), reference.spectral_derivative(X, G, f)),
        (second, reference.spectral_second_derivative(X, G, V, f)),
    ]
    for got, exact in pairs:
        # the solver's 1e-16 times the condition, and some
        torch.testing.assert_close(got, exact, rtol=0, atol=1e-7 * exact.abs().max().item())


@every_function
def test_ill_conditioned_against_differences(f):
    """Run gradcheck and gradgradcheck with a step below the smallest eigenvalue."""
    X = with_spectrum(ILL_CONDITIONED).requires_grad_()
    first, second = jacrev(on_symmetric_part(f))(X), hessian(on_symmetric_part(f))(X)
    step = {"eps": 1e-9, "rtol": 1e-3}
    assert gradcheck(on_symmetric_part(f), X, atol=1e-3 * first.abs().max().item(), **step)
    size = max(second.abs().max().item(), first.abs().max().item())
    assert gradgradcheck(on_symmetric_part(f), X, atol=1e-3 * size, **step, fast_mode=True)


@every_function
def test_hessian_in_every_mode(f):
    X = with_spectrum(SPECTRA["exact ties"])

    def loss(X):
        return spectral_map(X, f).sin().sum()

    expected = hessian(loss)(X)
    for outer in (jacfwd, jacrev):
        for inner in (jacfwd, jacrev):
            torch.testing.assert_close(outer(inner(loss))(X), expected)
    assert expected.isfinite().all()


@every_dtype
@every_function
def test_torch_func(f, dtype):
    cases = [c for c in SPECTRA if c != "one by one"]
    X = torch.stack([with_spectrum(SPECTRA[c], dtype=dtype) for c in cases])

    def function(X):
        return spectral_map(X, f)

    Y = function(X)
    torch.testing.assert_close(vmap(function)(X), Y)
    torch.testing.assert_close(vmap(vmap(function))(X[None])[0], Y)
    torch.testing.assert_close(
        vmap(function, in_dims=2, out_dims=2)(X.movedim(0, 2)).movedim(2, 0), Y
    )
    E = random_symmetric(*X.shape[:-1], dtype=dtype)
    _, D = jvp(function, (X,), (E,))
    torch.testing.assert_close(D, spectral_derivative(X, E, f))
    if dtype.is_complex:  # jacrev is that of a holomorphic function
        return
    J = vmap(jacrev(function))(X)
    torch.testing.assert_close(torch.einsum("bijkl,bkl->bij", J, E), D)


@every_function
def test_third_derivative_is_refused(f):
    X = with_spectrum(SPECTRA["generic"])

    def loss(X):
        return spectral_map(X, f).sum()

    for third in (jacrev(hessian(loss)), jacfwd(hessian(loss)), jacrev(jacrev(jacrev(loss)))):
        with pytest.raises(NotImplementedError, match="third derivative"):
            third(X)


@every_function
def test_second_derivative_with_constant_upstream_gradient(f):
    X = with_spectrum(SPECTRA["generic"]).requires_grad_()
    G = random_symmetric(4)
    (first,) = torch.autograd.grad(spectral_map(X, f), X, G, create_graph=True)
    (second,) = torch.autograd.grad(first, X, G)
    expected = torch.einsum("ijkl,kl->ij", hessian(lambda X: (spectral_map(X, f) * G).sum())(X), G)
    torch.testing.assert_close(second, expected)


@every_function
@pytest.mark.parametrize("n", [1, 3, 8, 17, 50])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_result_is_independent_of_other_matrices_in_batch(f, n, dtype):
    """Output and gradient are bitwise equal for any other matrices.

    At another place, or in a batch of another size, the BLAS may order its sums differently.
    """
    X = random_spd(6, n, dtype=dtype)
    mates = random_spd(6, n, seed=1, dtype=dtype) * 1e4
    G = random_symmetric(n, seed=2).to(dtype)
    expected = output_and_gradient(f, X, G)[:, 2]
    for batch, place in ((mates.clone(), 2), (mates.clone(), 5), (mates[:1].clone(), 0)):
        batch[place] = X[2]
        got = output_and_gradient(f, batch, G)[:, place]
        if place == 2:
            assert torch.equal(got, expected)
        else:
            tolerance = 1e4 * torch.finfo(dtype).eps * expected.abs().max().item()
            torch.testing.assert_close(got, expected, rtol=0, atol=tolerance)


def output_and_gradient(f, X, G):
    if isinstance(f, Exp):
        X = X * 1e-3
    X = X.clone().requires_grad_()
    Y = spectral_map(X, f)
    return torch.stack([Y.detach(), torch.autograd.grad(Y, X, G.expand_as(Y))[0]])


@pytest.mark.parametrize("top", [1e-2, 1.0, 100.0])
def test_float32_log_with_half_the_eigenvalues_tied(top):
    n = 40
    X = with_spectrum([1e-3] * (n // 2) + torch.linspace(2e-3, top, n // 2).tolist())
    X, G = X.float(), random_symmetric(n).float()
    grads = []
    for x in (X, X.double()):
        x.requires_grad_()
        grads.append(torch.autograd.grad(logm(x), x, G.to(x.dtype))[0].double())
    error = (grads[0] - grads[1]).norm() / grads[1].norm()
    assert error < 2e-6
    values = (logm(X).double() - logm(X.double())).norm() / logm(X.double()).norm()
    assert values < 1e-6


@every_function
@pytest.mark.parametrize("batch", BATCH_SHAPES)
def test_leading_shapes(f, batch):
    X = random_spd(*batch, 3)
    Y = spectral_map(X.requires_grad_(), f)
    assert Y.shape == X.shape
    Y.sum().backward()
    assert X.grad.shape == X.shape


@every_function
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.complex64])
def test_lower_precisions(f, dtype):
    X = with_spectrum(SPECTRA["generic"], dtype=dtype).requires_grad_()
    exact = X.detach().to(torch.promote_types(dtype, torch.float64)).requires_grad_()
    Y, expected = spectral_map(X, f), spectral_map(exact, f)
    Y.abs().float().square().sum().backward()
    expected.abs().square().sum().backward()
    assert Y.dtype == X.grad.dtype == dtype
    # a solver's error is about eps n |X| in every eigenvalue
    tolerance = torch.finfo(dtype).eps * 4 * X.detach().abs().max().item()
    for got, wanted in ((Y, expected), (X.grad, exact.grad)):
        size = wanted.abs().max().item()
        torch.testing.assert_close(got.to(wanted.dtype), wanted, rtol=0, atol=tolerance * size)


@every_function
def test_real_embedding(f):
    """A spectral map commutes with the embedding of complex matrices in real ones."""
    X, E = random_spd(3, 5, dtype=torch.complex128), random_symmetric(3, 5, dtype=torch.complex128)
    R, D = real_embedding(X), real_embedding(E)
    torch.testing.assert_close(real_embedding(spectral_map(X, f)), spectral_map(R, f))
    torch.testing.assert_close(
        real_embedding(spectral_derivative(X, E, f)), spectral_derivative(R, D, f)
    )


def test_directions_have_the_kind_of_the_matrix():
    X = random_spd(3)
    with pytest.raises(TypeError, match="expected X and E both real or both complex"):
        spectral_derivative(X, X.to(torch.complex128), Log())


@every_function
def test_autocast_keeps_precision(f):
    X = random_spd(3, 5, dtype=torch.float32).requires_grad_()

    def run():
        Y = spectral_map(X, f)
        return Y, torch.autograd.grad(Y.square().sum(), X)[0]

    plain = run()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        lowered = run()
    for a, b in zip(plain, lowered, strict=True):
        assert a.dtype == b.dtype == torch.float32
        assert torch.equal(a, b)


@every_dtype
@every_function
def test_compiles_in_one_graph(f, dtype):
    torch.compiler.reset()
    X = random_spd(3, 4, dtype=dtype).requires_grad_()

    def function(X):
        return spectral_map(X, f)

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    Y, expected = compiled(X), function(X)
    torch.testing.assert_close(Y, expected)
    torch.testing.assert_close(
        torch.autograd.grad(Y.real.sin().sum(), X),
        torch.autograd.grad(expected.real.sin().sum(), X),
    )


def test_asymmetric_parts_of_input_and_gradient_are_ignored():
    X, E = with_spectrum(SPECTRA["generic"]), random_symmetric(4)
    skew = torch.triu(torch.ones(4, 4, dtype=torch.float64), 1)
    skew = skew - skew.mT
    torch.testing.assert_close(logm(X + skew, check=False), logm(X))
    torch.testing.assert_close(
        spectral_derivative(X, E + skew, Log()), spectral_derivative(X, E, Log())
    )


def test_derivative_broadcasts():
    X, E = random_spd(3), random_symmetric(5, 3)
    out = spectral_derivative(X, E, Log())
    torch.testing.assert_close(out[2], spectral_derivative(X, E[2], Log()))
    assert gradcheck(
        lambda X, E: spectral_derivative(symmetrize(X), E, Log()),
        (X.requires_grad_(), E.requires_grad_()),
    )
    assert vmap(lambda E: spectral_derivative(X.detach(), E, Log()))(E).shape == (5, 3, 3)


@every_dtype
def test_named_functions(dtype):
    X, eye = random_spd(2, 4, dtype=dtype), torch.eye(4, dtype=dtype).expand(2, 4, 4)
    assert_spd(expm(X))
    torch.testing.assert_close(expm(logm(X)), X)
    torch.testing.assert_close(sqrtm(X) @ sqrtm(X), X)
    torch.testing.assert_close(invsqrtm(X) @ sqrtm(X), eye)
    torch.testing.assert_close(powm(X, 3), X @ X @ X)
    torch.testing.assert_close(powm(X, -1), torch.linalg.inv(X))
    torch.testing.assert_close(powm(X, 0), eye)
    torch.testing.assert_close(clamp_eig(X, 1e-6), X)
    assert torch.linalg.eigvalsh(clamp_eig(X, 0.5)).min() > 0.5 - 1e-12
    assert torch.linalg.eigvalsh(clamp_eig(-X, torch.tensor(0.5))).min() > 0.5 - 1e-12


def test_tensor_threshold_applies_per_matrix():
    X = random_spd(3, 2, 4)
    eps = torch.tensor([0.1, 0.5, 2.0], dtype=torch.float64)
    Y = clamp_eig(X, eps)
    for i in range(3):
        torch.testing.assert_close(Y[i], clamp_eig(X[i], eps[i].item()))
    torch.testing.assert_close(vmap(clamp_eig)(X, eps), Y)
    every = vmap(clamp_eig, in_dims=(None, 0))(X[0], eps)
    torch.testing.assert_close(every[2], clamp_eig(X[0], 2.0))
    gradient = vmap(jacrev(clamp_eig))(X[:, 0], eps)
    torch.testing.assert_close(gradient[1], jacrev(clamp_eig)(X[1, 0], 0.5))


def test_second_derivative_with_threshold_per_matrix():
    X, G = random_spd(3, 2, 4), random_symmetric(3, 2, 4)
    eps = torch.tensor([0.1, 0.5, 2.0], dtype=torch.float64)

    def second(X, eps, G):
        X = X.clone().requires_grad_()
        (first,) = torch.autograd.grad(clamp_eig(X, eps), X, G, create_graph=True)
        return torch.autograd.grad(first, X, G)[0]

    expected = torch.stack([second(X[i], eps[i], G[i]) for i in range(3)])
    torch.testing.assert_close(second(X, eps, G), expected)
    hessians = vmap(hessian(lambda X, eps: clamp_eig(X, eps).sin().sum()))(X, eps)
    alone = hessian(lambda X: clamp_eig(X, 0.5).sin().sum())(X[1])
    torch.testing.assert_close(hessians[1], alone)


@pytest.mark.parametrize("f", [Log(), Clamp(1.0)], ids=str)
def test_second_derivative_of_many_matrices_in_chunks(f):
    n = 40  # 2**22 // 40**3 = 65 matrices at a time
    X, G = random_spd(70, n), random_symmetric(n)
    _, together = jvp(lambda X: spectral_derivative(X, G, f), (X,), (G.expand_as(X),))
    _, alone = jvp(lambda X: spectral_derivative(X, G, f), (X[68],), (G,))
    torch.testing.assert_close(together[68], alone)


def test_threshold_modified_in_place_after_forward_raises():
    X, eps = random_spd(4).requires_grad_(), torch.tensor(1.0, dtype=torch.float64)
    Y = clamp_eig(X, eps)
    eps.fill_(0.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        Y.sum().backward()


def test_sigmoid_hessian_of_indefinite_matrix_is_finite():
    X = with_spectrum([-100.0, 0.0, 90.0])
    H = hessian(lambda X: spectral_map(X, Sigmoid(100.0)).sum())(X)
    assert H.isfinite().all()


def test_fake_tensors_skip_validation():
    with torch._subclasses.FakeTensorMode():
        assert logm(torch.empty(2, 3, 3)).shape == (2, 3, 3)


def test_second_derivative_of_large_matrices_in_chunks():
    """The coefficients do not fit in one chunk."""
    n = 80
    X, G, V = random_spd(n), random_symmetric(n, seed=1), random_symmetric(n, seed=2)
    _, second = jvp(lambda X: spectral_derivative(X, G, Exp()), (X,), (V,))
    h = 1e-5
    up, down = (spectral_derivative(X + t * V, G, Exp()) for t in (h, -h))
    torch.testing.assert_close(second, (up - down) / (2 * h), rtol=1e-6, atol=1e-6)


def test_custom_scalar_function():
    class Square(ScalarFunction):
        def value(self, s):
            return s**2

        def first(self, a, b):
            return a + b

    X = random_spd(3).requires_grad_()
    torch.testing.assert_close(spectral_map(X, Square()), X @ X)
    assert gradcheck(on_symmetric_part(Square()), X)
    with pytest.raises(NotImplementedError, match="Square has no second derivative"):
        hessian(lambda X: spectral_map(X, Square()).sum())(X)
