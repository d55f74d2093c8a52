"""The checks of spdnet.testing detect faulty layers and manifolds."""

import pytest
import torch

from spdnet.linalg import ScalarFunction, spectral_map, symmetrize
from spdnet.manifolds import affine_invariant, log_euclidean
from spdnet.manifolds.stiefel import StiefelParameter
from spdnet.nn import BiMap, ReEig
from spdnet.testing import (
    assert_on_stiefel,
    assert_spd,
    assert_symmetric,
    assert_tangent,
    check_layer,
    check_manifold,
)
from tests.cases import random_spd, random_symmetric


class Wrong(torch.nn.Module):
    """A layer that violates one property."""

    def __init__(self, fault):
        super().__init__()
        self.fault = fault
        if fault == "stiefel":
            self.weight = StiefelParameter(2 * torch.eye(3))

    def forward(self, X):
        return {
            "indefinite": lambda: -X,
            "asymmetric": lambda: X.triu(),
            "nan": lambda: X / 0 * 0,
            "mates": lambda: X / (1 + X.abs().sum()),
            "shape": lambda: X.reshape(-1, 3, 3),
            "first": lambda: X + (X * X).detach(),
            "second": lambda: spectral_map(X, WrongSecond(), check=False),
            "stiefel": lambda: X,
        }[self.fault]()


class WrongSecond(ScalarFunction):
    def value(self, s):
        return s**3

    def first(self, a, b):
        return a * a + a * b + b * b

    def second(self, a, b, c):
        return a + b + c + 1


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("indefinite", "positive eigenvalues"),
        ("asymmetric", "exactly symmetric"),
        ("nan", "finite"),
        ("mates", "depends on the others of its batch|not close"),
        ("shape", "not match|empty batch"),
        ("first", "first derivative"),
        ("second", "second derivative"),
        ("stiefel", "W"),
    ],
)
def test_check_layer_detects_fault(fault, message):
    with pytest.raises(AssertionError, match=message):
        check_layer(Wrong(fault), random_spd(2, 3))


def test_check_layer_can_skip_checks():
    X = random_spd(2, 3)
    check_layer(Wrong("first"), X, gradients=False)
    check_layer(Wrong("second"), X, second=False)
    check_layer(Wrong("indefinite"), X, spd=False)


def test_check_layer_leaves_layer_unchanged():
    layer = BiMap(3, 2)
    check_layer(layer, random_spd(2, 3))
    assert layer.weight.dtype == torch.float32
    check_layer(ReEig(0.5), random_spd(2, 3))


def test_check_manifold_detects_inconsistent_metric():
    class Mixed:
        inner, distance, geodesic = (
            staticmethod(getattr(log_euclidean, name)) for name in ("inner", "distance", "geodesic")
        )
        exp, log, transport, mean = (
            staticmethod(getattr(affine_invariant, name))
            for name in ("exp", "log", "transport", "mean")
        )

    X, Y = random_spd(2, 3), random_spd(2, 3, seed=1)
    V = 0.1 * random_symmetric(2, 3)
    check_manifold(log_euclidean, X, Y, V)
    with pytest.raises(AssertionError):
        check_manifold(Mixed, X, Y, V)


def test_assertions():
    assert_spd(torch.empty(0, 3, 3))
    for X in (-torch.eye(2), torch.ones(2, 2).triu(), torch.full((2, 2), float("nan"))):
        with pytest.raises(AssertionError):
            assert_spd(X)
    assert_symmetric(symmetrize(torch.randn(3, 3)))
    W = torch.eye(3, 2)
    assert_on_stiefel(W)
    assert_on_stiefel(W * 1.01, tol=0.1)
    with pytest.raises(AssertionError, match="W"):
        assert_on_stiefel(W * 1.01)
    assert_tangent(W, torch.zeros(3, 2))
    with pytest.raises(AssertionError, match="skew"):
        assert_tangent(W, W)
