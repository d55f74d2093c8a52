import pytest
import torch
from torch import nn

from spdnet.linalg import expm, logm
from spdnet.manifolds import affine_invariant, bures_wasserstein, log_cholesky, log_euclidean
from spdnet.nn import BiMap, ReEig, SPDResidual
from spdnet.testing import check_layer
from tests.cases import random_spd

X = random_spd(2, 3)
GEODESICS = {
    "log_euclidean": log_euclidean,
    "affine_invariant": affine_invariant,
    "log_cholesky": log_cholesky,
    "bures_wasserstein": bures_wasserstein,
}


def make(**settings):
    torch.manual_seed(0)
    layer = SPDResidual(
        nn.Sequential(BiMap(3, 3, dtype=torch.float64), ReEig(0.1)), **settings
    ).double()
    if hasattr(layer, "position"):
        nn.init.constant_(layer.position, -0.8)
    return layer


@pytest.mark.parametrize("metric", [None, *GEODESICS])
def test_satisfies_layer_properties(metric):
    settings = {} if metric is None else {"kind": "geodesic", "metric": metric}
    check_layer(make(**settings), X)


def test_residual_equals_definition():
    layer = make()
    torch.testing.assert_close(layer(X), expm(logm(X) + logm(layer.block(X))))
    for metric, manifold in GEODESICS.items():
        layer = make(kind="geodesic", metric=metric)
        t = torch.sigmoid(layer.position)
        torch.testing.assert_close(layer(X), manifold.geodesic(X, layer.block(X), t))


def test_residual_of_identity_block():
    same = SPDResidual(nn.Identity(), "geodesic", "affine_invariant", dtype=torch.float64)
    torch.testing.assert_close(same(X), X)
    torch.testing.assert_close(SPDResidual(nn.Identity())(X), X @ X)


def test_invalid_input_is_refused():
    with pytest.raises(ValueError, match="kind"):
        SPDResidual(nn.Identity(), "sum")
    with pytest.raises(ValueError, match="metric"):
        SPDResidual(nn.Identity(), "geodesic", "stein")
    with pytest.raises(ValueError, match="geodesic"):
        SPDResidual(nn.Identity(), "log", "log_cholesky")
    with pytest.raises(ValueError, match="shape"):
        SPDResidual(BiMap(3, 2).double())(X)
    with pytest.raises(ValueError, match="positive"):
        SPDResidual(nn.Identity())(-X)
