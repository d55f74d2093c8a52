import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import jacfwd, jacrev, vmap

from spdnet.linalg import lyapunov, symmetrize
from tests.cases import SPECTRA, every_dtype, random_spd, random_symmetric, with_spectrum


@every_dtype
@pytest.mark.parametrize("case", SPECTRA)
def test_lyapunov_solves_equation(case, dtype):
    X = with_spectrum(SPECTRA[case], dtype=dtype)
    V = random_symmetric(X.shape[-1], dtype=dtype)
    S = lyapunov(X, V)
    torch.testing.assert_close(S @ X + X @ S, V)
    assert torch.equal(S, S.mH)
    inputs = [A.clone().requires_grad_() for A in (X, V)]

    def function(X, V):
        return lyapunov(symmetrize(X), V)

    assert gradcheck(function, inputs, check_forward_ad=True)
    assert gradgradcheck(function, inputs, fast_mode=True)


def test_broadcasting_and_torch_func():
    X, V = random_spd(4, 1, 3), random_symmetric(5, 3)
    S = lyapunov(X, V)
    assert S.shape == (4, 5, 3, 3)
    torch.testing.assert_close(S[2, 3], lyapunov(X[2, 0], V[3]))
    torch.testing.assert_close(vmap(lyapunov, in_dims=(0, None))(X[:, 0], V[0]), S[:, 0])
    J = jacrev(lyapunov)(X[0, 0], V[0])
    torch.testing.assert_close(jacfwd(lyapunov)(X[0, 0], V[0]), J)


def test_invalid_input_is_refused():
    X = random_spd(3)
    with pytest.raises(ValueError, match="positive"):
        lyapunov(-X, X)
    with pytest.raises(ValueError, match=r"V .*3"):
        lyapunov(X, X[:2, :2])
    with pytest.raises(TypeError, match="X and V both real or both complex"):
        lyapunov(X, X.to(torch.complex128))


def test_compiles():
    X, V = random_spd(3, 4), random_symmetric(3, 4, seed=1)
    gradients = []
    for solve in (lyapunov, torch.compile(lyapunov, fullgraph=True, backend="aot_eager")):
        points = X.clone().requires_grad_(), V.clone().requires_grad_()
        gradients.append(torch.autograd.grad(solve(*points).square().sum(), points))
    torch.testing.assert_close(*gradients)
