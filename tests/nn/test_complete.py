import copy

import pytest
import torch
from torch.func import jacrev, vmap

from spdnet import SPDNet
from spdnet.adaptation import complete, masked_mean
from spdnet.nn import CompleteChannels
from spdnet.optim import RiemannianAdam
from spdnet.testing import assert_spd
from tests.adaptation.test_mean import partial
from tests.cases import ILL_CONDITIONED, SPECTRA, random_spd, with_spectrum


def layer_and_mask(n=5, seed=0):
    """Return a layer, and masks of 4 matrices: no missing channel, one, two, all but one."""
    layer = CompleteChannels(n, dtype=torch.float64).set_mean(random_spd(n, seed=seed))
    mask = torch.ones(4, n, dtype=torch.bool)
    mask[1, 2] = mask[2, [0, 3]] = False
    mask[3, 1:] = False
    return layer, mask


def hidden(X, mask):
    return X.masked_fill(~(mask[..., :, None] & mask[..., None, :]), torch.nan)


def test_equals_the_completion_of_the_transformer():
    X = partial(20, 5, most=3)
    mask = ~X.diagonal(dim1=-2, dim2=-1).isnan()
    M = masked_mean(X)
    layer = CompleteChannels(5, dtype=torch.float64).set_mean(M)
    torch.testing.assert_close(layer(X), complete(X, mask, M))
    torch.testing.assert_close(layer(X, mask), layer(X), rtol=0, atol=0)
    torch.testing.assert_close(layer(X.nan_to_num(7.0), mask), layer(X), rtol=0, atol=0)


@pytest.mark.parametrize("case", SPECTRA)
def test_complete_matrices_are_unchanged(case):
    X = with_spectrum(SPECTRA[case])
    layer = CompleteChannels(X.shape[-1], dtype=torch.float64)
    torch.testing.assert_close(layer(X), X, rtol=0, atol=0)
    layer.set_mean(random_spd(X.shape[-1], seed=2))
    torch.testing.assert_close(layer(X), X, rtol=0, atol=0)


def test_result_is_spd_and_does_not_depend_on_the_batch():
    layer, mask = layer_and_mask()
    X = hidden(random_spd(4, 5, seed=1), mask)
    Y = layer(X)
    assert_spd(Y)
    for i in range(4):
        torch.testing.assert_close(layer(X[i]), Y[i], rtol=1e-14, atol=1e-15)
    torch.testing.assert_close(layer(X.reshape(2, 2, 5, 5)), Y.reshape(2, 2, 5, 5))
    assert layer(X[:0]).shape == (0, 5, 5)


def test_ill_conditioned_means_complete_to_themselves():
    M = with_spectrum(ILL_CONDITIONED)
    layer = CompleteChannels(len(M), dtype=torch.float64).set_mean(M)
    for i in range(len(M)):
        mask = torch.arange(len(M)) != i
        torch.testing.assert_close(layer(M, mask), M, rtol=1e-7, atol=0)


def test_derivatives_and_transforms():
    layer, mask = layer_and_mask()
    X = random_spd(4, 5, seed=1).requires_grad_()

    def function(X):  # on symmetric matrices, which the layer expects
        return layer((X + X.mT) / 2, mask)

    assert torch.autograd.gradcheck(function, X, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(function, X)
    torch.testing.assert_close(vmap(layer)(X, mask), layer(X, mask))
    J = vmap(jacrev(layer))(X, mask)
    assert J[1, :, :, 2].abs().max() == 0  # missing entries have no effect
    with_nan = hidden(X.detach(), mask).requires_grad_()
    (G,) = torch.autograd.grad(layer(with_nan).sum(), with_nan)
    assert G.isfinite().all()


def test_compiles_and_exports():
    torch.compiler.reset()
    layer, mask = layer_and_mask()
    X = random_spd(4, 5, seed=1)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(X, mask), layer(X, mask))
    program = torch.export.export(layer, (X, mask))
    torch.testing.assert_close(program.module()(X, mask), layer(X, mask))


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.complex128])
def test_other_types(dtype):
    layer = CompleteChannels(4, dtype=dtype).set_mean(random_spd(4, dtype=dtype))
    X, mask = random_spd(3, 4, seed=1, dtype=dtype), torch.tensor([True, False, True, True])
    Y = layer(X, mask.expand(3, 4))
    assert Y.dtype == dtype
    wide = torch.complex128 if dtype.is_complex else torch.float64
    exact = CompleteChannels(4, dtype=wide).set_mean(layer.mean.to(wide))
    expected = exact(X.to(wide), mask.expand(3, 4))
    torch.testing.assert_close(Y.to(wide), expected, rtol=1e-5, atol=1e-5)


def test_state():
    layer, mask = layer_and_mask()
    X = random_spd(4, 5, seed=1)
    twin = CompleteChannels(5, dtype=torch.float64)
    twin.load_state_dict(layer.state_dict())
    torch.testing.assert_close(twin(X, mask), layer(X, mask), rtol=0, atol=0)
    torch.testing.assert_close(copy.deepcopy(layer)(X, mask), layer(X, mask), rtol=0, atol=0)
    layer.reset_parameters()
    assert torch.equal(layer.mean, torch.eye(5).double())
    assert repr(layer) == "CompleteChannels(5)"


def test_network_trains_and_predicts_with_missing_channels():
    torch.manual_seed(0)
    X, y = random_spd(40, 5), torch.arange(40) % 2
    X[y == 1, 0] *= 2
    X[y == 1, :, 0] *= 2
    X += 0.1 * torch.eye(5).double()
    mask = torch.rand(40, 5) > 0.2
    mask[~mask.any(1)] = True
    X = hidden(X, mask)
    model = torch.nn.Sequential(
        CompleteChannels(5, dtype=torch.float64).set_mean(masked_mean(X)),
        SPDNet((5, 4), 2, dtype=torch.float64),
    )
    optimizer = RiemannianAdam(model.parameters(), lr=0.05)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(X), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    assert model.eval()(X).isfinite().all()


def test_errors():
    layer, mask = layer_and_mask()
    X = random_spd(4, 5)
    with pytest.raises(ValueError, match=r"CompleteChannels: expected a mask of type bool"):
        layer(X, mask.double())
    with pytest.raises(ValueError, match=r"shape \(4, 5\), got .*\(4, 4\)"):
        layer(X, mask[:, :4])
    with pytest.raises(ValueError, match="symmetric"):
        layer(X.triu(), mask)
    some = X.clone()
    some[1, 0, 3] = torch.nan  # a part of a channel
    with pytest.raises(ValueError, match=r"X\[1\]"):
        layer(some)
    with pytest.raises(ValueError, match="set_mean"):
        layer.set_mean(-torch.eye(5).double())
    with pytest.raises(TypeError, match="both real or both complex"):
        layer.set_mean(torch.eye(5, dtype=torch.complex128))
    with pytest.raises(ValueError, match="at least one observed channel"):
        layer(X, torch.zeros_like(mask))
