import copy

import pytest
import torch
from torch.nn.functional import cross_entropy

from spdnet import SPDNet
from spdnet.linalg import expm, logm
from spdnet.models import MultiBranchSPDNet
from spdnet.nn import SPDBatchNorm
from spdnet.optim import RiemannianAdam
from spdnet.testing import assert_on_stiefel, check_layer
from tests.cases import random_spd

X, y = random_spd(9, 6), torch.arange(9) % 3
SETTINGS = [
    {},
    {"pool": "max"},
    {"pool": "weighted"},
    {"pool": "frechet"},
    {"metric": "log_cholesky", "n_branches": 2},
    {"center": "log_euclidean", "norm": "log_cholesky", "head": "log_euclidean"},
    {"head": "mlp", "hidden": 8},
]
every_setting = pytest.mark.parametrize("settings", SETTINGS, ids=str)


def make(settings=None, dims=(6, 4, 3)):
    torch.manual_seed(0)
    return MultiBranchSPDNet(dims, 3, dtype=torch.float64, **(settings or {}))


@every_setting
def test_laws_in_evaluation(settings):
    model = make(settings)
    model(X)
    check_layer(model.eval(), X[:2], spd=False, second=False)


@every_setting
def test_trains_and_starts_anew(settings):
    model = make(settings)
    optimizer = RiemannianAdam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = cross_entropy(model(X), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    assert_on_stiefel(model.branches.weight)
    trained = copy.deepcopy(model.state_dict())
    model.reset_parameters()
    for name, value in model.state_dict().items():
        if name.endswith(("weight", "scores", "running_mean")):
            assert not torch.equal(value, trained[name]), name


def test_by_its_formula():
    model = make()
    parts = [W.mT @ X @ W for W in model.branches.weight[:, 0]]
    assert all(torch.linalg.eigvalsh(part).min() > 1e-4 for part in parts)
    pooled = expm(sum(map(logm, parts)) / 4)
    torch.testing.assert_close(model(X), model.trunk(pooled))
    torch.testing.assert_close(model.features(X), model.trunk.features(pooled))


def test_one_branch_is_an_spdnet():
    model = make({"n_branches": 1})
    plain = SPDNet((6, 4, 3), 3, dtype=torch.float64)
    with torch.no_grad():
        plain.bimaps[0].weight.copy_(model.branches.weight[0, 0])
        plain.bimaps[1].weight.copy_(model.trunk.bimaps[0].weight)
        plain.classifier.weight.copy_(model.trunk.classifier.weight)
    torch.testing.assert_close(model(X), plain(X))


@pytest.mark.parametrize("dims", [(6, 4), (6, 4, 3)])
def test_a_norm_follows_every_bimap(dims):
    model = make({"norm": "brooks"}, dims)
    norms = [m for m in model.modules() if isinstance(m, SPDBatchNorm)]
    assert [norm.n for norm in norms] == list(dims[1:])
    with pytest.raises(ValueError, match="norm"):
        make({"norm": "batch"})
    with pytest.raises(ValueError, match="BiMap"):
        SPDNet((6,), 3, norm="brooks")


def test_bad_input():
    with pytest.raises(ValueError, match="branches"):
        make(dims=(6,))
    with pytest.raises(ValueError, match="n_branches"):
        make({"n_branches": 0})
    with pytest.raises(ValueError, match=r"MultiBranchSPDNet.*6"):
        make()(random_spd(2, 5))
    with pytest.raises(ValueError, match=r"MultiBranchSPDNet.*positive"):
        make()(-X)
    assert make()(-X, check=False).shape == (9, 3)
