import pytest
import torch

from spdnet.optim import RiemannianAdam, RiemannianSGD
from spdnet.training import RECIPES, choose_dims


def test_the_papers_recipe():
    paper = RECIPES["paper"]
    assert (paper.optimizer, paper.lr, paper.batch_size, paper.eps) == ("sgd", 0.01, 30, 1e-4)
    assert (paper.momentum, paper.weight_decay, paper.center) == (0, 0, None)
    assert paper.label_smoothing == 0
    assert paper.schedule == "constant"
    assert not paper.bias


def test_changed():
    recipe = RECIPES["fast"].changed(lr=0.5, epochs=None)
    assert (recipe.lr, recipe.epochs) == (0.5, RECIPES["fast"].epochs)
    assert recipe.changed(center="none").center is None
    assert recipe.changed(center=None).center == recipe.center
    assert recipe.changed(center="affine_invariant").center == "affine_invariant"
    normed = recipe.changed(norm="brooks", head="log_cholesky", model="multibranch")
    assert normed.network == "MultiBranchSPDNet, norm brooks, head log_cholesky"
    assert normed.changed(norm="none").norm is None
    with pytest.raises(ValueError, match="tsmnet"):
        normed.changed(model="tsmnet")
    deep = recipe.changed(head="mlp", hidden=64, dropout=0.0, log=False)
    assert (deep.hidden, deep.dropout, deep.network) == (64, 0.0, "SPDNet, head mlp, no LogEig")
    assert recipe.changed(model="tsmnet").hidden == recipe.hidden


def test_optimizers():
    weight = torch.nn.Parameter(torch.zeros(2))
    adam = RECIPES["fast"].changed(weight_decay=0.1).make_optimizer([weight])
    assert type(adam) is RiemannianAdam
    assert adam.defaults["weight_decay"] == 0.1
    sgd = RECIPES["paper"].changed(momentum=0.9).make_optimizer([weight])
    assert type(sgd) is RiemannianSGD
    assert sgd.defaults["momentum"] == 0.9


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer": "lbfgs"}, "optimizer to be one of 'adam', 'sgd', got 'lbfgs'"),
        ({"lr": -1.0}, "lr >= 0"),
        ({"schedule": "steps"}, "schedule to be one of"),
        ({"batch_size": 0}, "batch_size >= 1"),
        ({"epochs": 0}, "epochs >= 1"),
        ({"eps": "x"}, "eps to be a number"),
        ({"center": "mean"}, "center to be one of"),
        ({"momentum": 0.9}, "momentum = 0 with optimizer='adam'"),
        ({"weight_decay": -1}, "weight_decay >= 0"),
        ({"hidden": 0}, "hidden >= 1"),
        ({"dropout": 1.0}, "dropout >= 0 and < 1"),
        ({"hidden": 64}, "no hidden with head='linear', got hidden=64; .* choose head='mlp'"),
        ({"dropout": 0, "head": "log_cholesky"}, "no dropout with head='log_cholesky'"),
        ({"hidden": 64, "model": "tsmnet"}, "no hidden with model='tsmnet'"),
        ({"head": "mlp", "model": "tsmnet"}, "no head with model='tsmnet'"),
        ({"head": "log_cholesky", "log": False}, "head='linear' or 'mlp' without LogEig"),
    ],
)
def test_messages(settings, message):
    with pytest.raises(ValueError, match=message):
        RECIPES["fast"].changed(**settings)


def test_unknown_settings():
    with pytest.raises(TypeError, match="rate"):
        RECIPES["fast"].changed(rate=1)


@pytest.mark.parametrize("n", [1, 2, 17, 64, 65, 93, 400])
def test_dims_never_grow(n):
    dims = choose_dims(n)
    assert dims[0] == n
    assert list(dims) == sorted(dims, reverse=True)
    assert dims[-1] == min(n, 64)
