"""Layers for several matrices per sample."""

import pytest
import torch

from spdnet.linalg import expm, logm
from spdnet.manifolds import METRICS, affine_invariant, bures_wasserstein, log_cholesky, stein
from spdnet.nn import BiMap, SPDPool
from spdnet.optim import RiemannianAdam, RiemannianSGD
from spdnet.testing import assert_on_stiefel, assert_spd, check_layer
from tests.cases import random_spd

X = random_spd(2, 3, 4)

LAYERS = {
    "BiMap": lambda: BiMap(4, 2, in_channels=3, out_channels=2),
    "BiMap to one": lambda: BiMap(4, 3, in_channels=3, out_channels=1),
    "authors' BiMap": lambda: BiMap(4, 3, in_channels=3, out_channels=2, init="authors"),
    "mean": lambda: SPDPool(),
    "max": lambda: SPDPool(kind="max"),
    "weighted": lambda: weighted("log_euclidean"),
    "weighted log-Cholesky": lambda: weighted("log_cholesky"),
    "frechet": lambda: SPDPool(kind="frechet"),
    "pairs in time": lambda: SPDPool("time", size=2),
    "all in time": lambda: SPDPool("time"),
    "maxima in time": lambda: SPDPool("time", "max", size=2),
    "blocks": lambda: SPDPool("blocks"),
    "maxima in blocks": lambda: SPDPool("blocks", "max", size=4),
}
every_layer = pytest.mark.parametrize("name", LAYERS)


def weighted(metric):
    layer = SPDPool(kind="weighted", metric=metric, n_items=3)
    torch.nn.init.normal_(layer.scores)
    return layer


def make(name):
    torch.manual_seed(0)
    return LAYERS[name]()


@every_layer
def test_satisfies_layer_properties(name):
    check_layer(make(name), X, second=name != "frechet")


@every_layer
def test_compiles_and_exports(name):
    if name == "frechet":
        pytest.skip("an iteration that looks at its values")
    torch.compiler.reset()
    layer = make(name).double()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(X), layer(X))
    program = torch.export.export(layer, (X,))
    torch.testing.assert_close(program.module()(X), layer(X))


def test_bimap_channels_equal_definition():
    layer = BiMap(4, 2, in_channels=3, out_channels=5, dtype=torch.float64)
    assert layer.weight.shape == (5, 3, 4, 2)
    expected = torch.einsum("oiac,biad,oide->boce", layer.weight, X, layer.weight)
    torch.testing.assert_close(layer(X), expected)
    one = BiMap(4, 2, in_channels=1, out_channels=1, dtype=torch.float64)
    plain = BiMap(4, 2, dtype=torch.float64)
    plain.weight.data.copy_(one.weight[0, 0])
    torch.testing.assert_close(one(X[:, :1])[:, 0], plain(X[:, 0]))
    assert "in_channels=3, out_channels=5" in repr(layer)


@pytest.mark.parametrize("optimizer", [RiemannianSGD, RiemannianAdam])
def test_channel_weights_stay_on_manifold(optimizer):
    layer = BiMap(4, 2, in_channels=3, out_channels=5, dtype=torch.float64)
    optimizer = optimizer(layer.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        logm(layer(X)).square().sum().backward()
        before = layer.weight.detach().clone()
        optimizer.step()
        assert not torch.allclose(layer.weight, before)
        assert_on_stiefel(layer.weight)


def test_pooling_equals_definition():
    L = logm(X)
    torch.testing.assert_close(SPDPool()(X), expm(L.mean(1)))
    det = torch.linalg.det(X).log().mean(1).exp()
    torch.testing.assert_close(torch.linalg.det(SPDPool()(X)), det)  # the geometric mean
    torch.testing.assert_close(SPDPool(kind="max")(X), expm(L.amax(1)))
    layer = weighted("log_euclidean").double()
    w = layer.scores.softmax(0)
    torch.testing.assert_close(layer(X), expm((w[:, None, None] * L).sum(1)))
    P = torch.tensor([[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]]).double()
    torch.testing.assert_close(SPDPool("blocks")(X), expm(P @ L @ P.mT))
    for metric in (affine_invariant, bures_wasserstein, log_cholesky, stein):
        torch.testing.assert_close(SPDPool(metric=metric.name)(X), metric.mean(X))
    torch.testing.assert_close(SPDPool(kind="frechet")(X), affine_invariant.mean(X))


def test_pool_weights_are_initially_equal():
    layer = SPDPool(kind="weighted", n_items=3, dtype=torch.float64)
    torch.testing.assert_close(layer(X), SPDPool()(X))


def test_pooling_over_time_windows():
    sequence = random_spd(2, 7, 4)
    pooled = SPDPool("time", size=3)(sequence)
    assert pooled.shape == (2, 2, 4, 4)  # the seventh is left over
    torch.testing.assert_close(pooled[:, 1], SPDPool()(sequence[:, 3:6]))
    assert_spd(SPDPool("time")(sequence))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"over": "space"}, "over"),
        ({"kind": "median"}, "kind"),
        ({"metric": "euclidean"}, "metric"),
        ({"kind": "weighted"}, "n_items"),
        ({"n_items": 3}, "n_items"),
        ({"kind": "max", "metric": "stein"}, "log_euclidean"),
        ({"over": "blocks", "kind": "frechet"}, "log_euclidean"),
        ({"over": "blocks", "kind": "weighted", "n_items": 2}, "mean or max"),
        ({"size": 2}, "no size"),
        ({"over": "time", "size": 0}, "size"),
    ],
)
def test_invalid_settings_raise_message(settings, text):
    with pytest.raises((ValueError, TypeError), match=text):
        SPDPool(**settings)


def test_input_with_wrong_shape_is_refused():
    for channels in ({"in_channels": 3}, {"out_channels": 2}):
        with pytest.raises(ValueError, match="or neither"):
            BiMap(4, 2, **channels)
    with pytest.raises(ValueError, match="3 matrices for each sample"):
        BiMap(4, 2, in_channels=3, out_channels=1).double()(X[:, :2])
    with pytest.raises(ValueError, match=r"X\[\.\.\., None"):
        BiMap(4, 2, in_channels=1, out_channels=1).double()(X[0])
    with pytest.raises(ValueError, match="at least 4"):
        SPDPool("time", size=4)(X)
    with pytest.raises(ValueError, match="pool"):
        SPDPool()(X[0, 0])
    with pytest.raises(ValueError, match="multiple of 3"):
        SPDPool("blocks", size=3)(X)
    with pytest.raises(ValueError, match="positive"):
        SPDPool()(-X)
    for metric in METRICS:
        with pytest.raises(ValueError, match="positive"):
            SPDPool(metric=metric)(-X)
