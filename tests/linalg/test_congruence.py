import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import jacfwd, jacrev, jvp, vmap

from spdnet.linalg import congruence
from spdnet.testing import assert_symmetric
from tests.cases import every_dtype, random_matrix, random_spd, random_symmetric


@every_dtype
def test_congruence(dtype):
    X, W = random_spd(2, 4, dtype=dtype), random_matrix(4, 3, dtype=dtype)
    Y = congruence(X, W)
    assert_symmetric(Y)
    torch.testing.assert_close(Y, W.mH @ X @ W)
    inputs = (X.requires_grad_(), W.clone().requires_grad_())
    assert gradcheck(congruence, inputs, check_forward_ad=True)
    assert gradgradcheck(congruence, inputs, fast_mode=True)


def test_congruence_in_half_precision_and_under_autocast():
    X, W = random_spd(2, 4, dtype=torch.float32), torch.eye(4)[:, :3]
    expected = congruence(X, W)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(congruence(X, W), expected)
    half = congruence(X.bfloat16(), W.bfloat16())
    assert half.dtype == torch.bfloat16
    assert congruence(X.bfloat16(), W).dtype == torch.float32
    torch.testing.assert_close(half.float(), expected, rtol=0.02, atol=0.02)


def test_real_weights_of_complex_matrices_have_real_gradients():
    X, W = random_spd(2, 4, dtype=torch.complex128), random_matrix(4, 3).requires_grad_()
    Y = congruence(X, W)
    torch.testing.assert_close(Y, congruence(X, W.to(X.dtype)))
    assert torch.autograd.grad(Y.abs().sum(), W)[0].dtype == torch.float64


@every_dtype
@pytest.mark.parametrize("shapes", [((3, 5, 5), (5, 2)), ((5, 5), (5, 2)), ((2, 3, 5, 5), (5, 2))])
def test_gradients_equal_matrix_product(shapes, dtype):
    X, W = random_symmetric(*shapes[0][:-1], dtype=dtype), torch.randn(shapes[1], dtype=dtype)
    G = torch.randn(*shapes[0][:-2], 2, 2, dtype=dtype)

    def plain(X, W):
        return _sym(W.mH @ X @ W)

    got, expected = (
        torch.autograd.grad(f(X.requires_grad_(), W.requires_grad_()), (X, W), G)
        for f in (congruence, plain)
    )
    torch.testing.assert_close(got, expected)


@every_dtype
def test_congruence_under_torch_func_and_compile(dtype):
    torch.compiler.reset()
    X, W = random_symmetric(3, 5, dtype=dtype), torch.randn(5, 2, dtype=dtype)
    many = torch.stack([W, 2 * W])
    torch.testing.assert_close(vmap(congruence, (None, 0))(X, many)[1], 4 * congruence(X, W))
    torch.testing.assert_close(vmap(congruence, (0, None))(X, W), congruence(X, W))
    direction = torch.randn_like(W)
    _, change = jvp(lambda W: congruence(X, W), (W,), (direction,))
    torch.testing.assert_close(change, 2 * _sym(direction.mH @ X @ W))
    step = torch.compile(congruence, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(step(X, W.clone().requires_grad_()), congruence(X, W))


def test_jacobians_of_the_weight_agree():
    X, W = random_symmetric(3, 5), random_matrix(5, 2)
    each = vmap(jacrev(lambda X, W: congruence(X[None], W)[0], argnums=1), (0, None))(X, W)
    torch.testing.assert_close(each, jacfwd(lambda W: congruence(X, W))(W), rtol=1e-12, atol=1e-12)


def _sym(Y):
    return (Y + Y.mH) / 2
