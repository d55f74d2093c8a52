import copy
import pickle
import warnings

import pytest
import torch
from torch import nn

from spdnet import SPDNet
from spdnet.manifolds.stiefel import StiefelParameter, random_point
from spdnet.models import MultiBranchSPDNet
from spdnet.nn import BiMap
from spdnet.optim import RiemannianAdam, RiemannianSGD
from tests.cases import random_spd

MESSAGE = (
    r"BiMap\(in_features=6, out_features=4\): expected a weight W with orthonormal columns, got "
    r"\|\|W\^T W - I\|\| = .*use spdnet.optim.RiemannianSGD or RiemannianAdam"
)


def train(model, optimizer, steps, dtype=torch.float64):
    X, y = random_spd(8, 6, dtype=dtype), torch.arange(8) % 3
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(X).float(), y).backward()
        optimizer.step()


def make(dtype=torch.float64, **settings):
    torch.manual_seed(0)
    return SPDNet((6, 4, 4), 3, dtype=dtype, **settings)


def call(layer, X, times):
    for _ in range(times):
        layer(X, check=False)


def warned(model, optimizer, steps, **settings):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        train(model, optimizer, steps, **settings)
    return [str(w.message) for w in found]


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda p: torch.optim.Adam(p, lr=0.01),
        lambda p: torch.optim.AdamW(p, lr=0.01),
        lambda p: torch.optim.SGD(p, lr=0.5),
    ],
)
def test_torch_optimizer_warns_once_per_layer(optimizer):
    model = make()
    messages = warned(model, optimizer(model.parameters()), 40)
    assert len(messages) == 2
    assert sum("in_features=6, out_features=4" in m for m in messages) == 1
    assert sum("in_features=4, out_features=4" in m for m in messages) == 1


def test_warning_message_and_location():
    layer = BiMap(6, 4)
    with torch.no_grad():
        layer.weight.mul_(1.5)
    with pytest.warns(RuntimeWarning, match=MESSAGE):
        layer(torch.eye(6))
    layer(torch.eye(6))  # told once


def test_multibranch_network_warns_once():
    model = MultiBranchSPDNet((6, 4), 3, dtype=torch.float64)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    assert len(warned(model, optimizer, 20)) == 1


def test_late_drift_warns():
    layer = BiMap(6, 4)
    call(layer, torch.eye(6), 500)
    with torch.no_grad():
        layer.weight.mul_(1.5)
    with pytest.warns(RuntimeWarning, match=MESSAGE):
        call(layer, torch.eye(6), 100)


@pytest.mark.parametrize("optimizer", [RiemannianSGD, RiemannianAdam])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_riemannian_optimizers_do_not_warn(optimizer, dtype):
    model = make(dtype)
    train(model, optimizer(model.parameters(), lr=0.1), 40, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rounding_and_copies_do_not_warn(dtype):
    """Convert layers of many shapes to float64 and back."""
    for n, k in ((2, 2), (6, 1), (200, 3), (150, 150)):
        layer = BiMap(n, k, dtype=torch.float64).to(dtype)
        X = torch.eye(n, dtype=dtype)
        layer(X)
        copy.deepcopy(layer)(X)
        pickle.loads(pickle.dumps(layer))(X)
        twin = BiMap(n, k, dtype=torch.float64)
        twin.load_state_dict(layer.state_dict())
        twin(X.double())
        layer.double()(X.double())


def test_evaluation_and_transforms_skip_the_check():
    layer = BiMap(6, 4, dtype=torch.float64)
    layer.weight = StiefelParameter(2 * layer.weight.detach())
    X = random_spd(3, 6)
    torch.compile(layer, fullgraph=True, backend="aot_eager")(X)
    torch.export.export(layer, (X,))
    weights = torch.stack([random_point(6, 4, dtype=torch.float64)] * 2) * 2
    torch.func.vmap(lambda W: torch.func.functional_call(layer, {"weight": W}, X))(weights)
    layer.eval()(X)
    with pytest.warns(RuntimeWarning, match=MESSAGE):
        call(layer.train(), X, 3)
