"""Divided differences compared with 120-digit arithmetic, at ties, near ties and far apart."""

import itertools
import math

import numpy as np
import pytest
import torch

from spdnet.linalg import Clamp, Exp, InvSqrt, Log, Power, ScalarFunction, Sigmoid, Softplus, Sqrt
from spdnet.linalg.scalar import ClampedExp
from tests import reference

POINTS = [1e-8, 1e-4, 1e-4 * (1 + 1e-15), 1e-3, 0.5, 1.0, 1 + 2**-50, 1 + 1e-7, 1.3, 2.0, 7.0, 50.0]
SMOOTH = [
    Log(),
    Exp(),
    Sqrt(),
    InvSqrt(),
    Power(0.3),
    Power(-1.0),
    Power(2.0),
    Power(-0.7),
    Softplus(0.5, 1.0),
    Softplus(1e-4, 1e4),
    Sigmoid(1.0),
]


def tensors(points):
    return [torch.tensor(c, dtype=torch.float64) for c in zip(*points, strict=True)]


@pytest.mark.parametrize("f", SMOOTH, ids=str)
def test_first_divided_difference(f):
    pairs = list(itertools.product(POINTS, repeat=2))
    expected = torch.tensor(
        [reference.divided_difference(f, *p) for p in pairs], dtype=torch.float64
    )
    torch.testing.assert_close(f.first(*tensors(pairs)), expected, rtol=2e-15, atol=0)


@pytest.mark.parametrize("f", SMOOTH, ids=str)
def test_second_divided_difference(f):
    triples = list(itertools.combinations_with_replacement(POINTS, 3))
    expected = torch.tensor(
        [reference.divided_difference(f, *t) for t in triples], dtype=torch.float64
    )
    # the tails and the inflection point of the sigmoids are zero but for rounding
    scale = {Softplus: 1e-12, Sigmoid: 1e-15}.get(type(f), 0.0)
    torch.testing.assert_close(f.second(*tensors(triples)), expected, rtol=5e-15, atol=scale)


@pytest.mark.parametrize("eps", [0.5, 1.0, 1.2])
def test_clamp(eps):
    f = Clamp(eps)
    points = [p for p in POINTS if p != eps]
    distinct2 = list(itertools.permutations(points, 2))
    distinct3 = list(itertools.permutations(points, 3))
    for order, sets in ((f.first, distinct2), (f.second, distinct3)):
        expected = torch.tensor(
            [reference.divided_difference(f, *t) for t in sets], dtype=torch.float64
        )
        torch.testing.assert_close(order(*tensors(sets)), expected, rtol=1e-14, atol=1e-30)
    s = torch.tensor([eps / 2, eps, 2 * eps], dtype=torch.float64)
    assert f.first(s, s).tolist() == [0, 1, 1]
    assert f.second(s, s, s).tolist() == [0, 0, 0]


@pytest.mark.parametrize("eps", [0.5, 1.2, 2.0, 20.0])
def test_clamped_exponential(eps):
    for f in (ClampedExp(eps), ClampedExp(torch.tensor(eps, dtype=torch.float64))):
        for order, k in ((f.first, 2), (f.second, 3)):
            sets = list(itertools.permutations(POINTS, k))
            expected = torch.tensor(
                [reference.divided_difference(ClampedExp(eps), *t) for t in sets],
                dtype=torch.float64,
            )
            torch.testing.assert_close(order(*tensors(sets)), expected, rtol=1e-14, atol=1e-30)
    corner = math.log(eps)
    s = torch.tensor([corner - 1, corner, corner + 1], dtype=torch.float64)
    torch.testing.assert_close(f.first(s, s), torch.tensor([0, eps, eps * math.e]).double())
    assert f.second(s, s, s)[0] == 0
    assert ClampedExp(0.0).first(s, s).tolist() == Exp().first(s, s).tolist()


def test_clamp_accepts_a_tensor_threshold():
    s = torch.tensor([0.1, 3.0])
    assert Clamp(torch.tensor(0.5)).value(s).tolist() == [0.5, 3.0]
    assert ClampedExp(torch.tensor(0.5)).value(s.log()).tolist() == [0.5, 3.0]


@pytest.mark.parametrize("f", [*SMOOTH, Clamp(0.5), ClampedExp(2.0)], ids=str)
def test_divided_differences_are_symmetric_in_arguments(f):
    rng = np.random.default_rng(0)
    a, b, c = tensors(rng.choice(POINTS, (50, 3)))
    torch.testing.assert_close(f.first(a, b), f.first(b, a), rtol=0, atol=0)
    for order in itertools.permutations((a, b, c)):
        torch.testing.assert_close(f.second(*order), f.second(a, b, c), rtol=1e-15, atol=0)


@pytest.mark.parametrize("f", [*SMOOTH, Clamp(0.5), ClampedExp(2.0)], ids=str)
def test_extreme_ratios_stay_finite_in_float32(f):
    s = torch.tensor([1e-37, 1e-20, 1e-3, 1.0, 60.0])
    if isinstance(f, (Power, InvSqrt)):
        s = s[2:]  # their derivatives leave the range of float32
    assert f.first(s[:, None], s).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logarithm_at_ties_neighbors_and_overflowing_ratios(dtype):
    lo = torch.tensor([1e-30, 1e-4, 1.0, 3.0, 1e30], dtype=dtype)
    torch.testing.assert_close(Log().first(lo, lo), 1 / lo, rtol=0, atol=0)
    neighbors = torch.nextafter(lo, 2 * lo)
    torch.testing.assert_close(Log().first(lo, neighbors), 1 / lo)
    big = torch.finfo(dtype).max / 2
    small = torch.tensor(torch.finfo(dtype).tiny * 4, dtype=dtype)
    expected = (math.log(big) - small.double().log()) / big
    found = Log().first(torch.tensor(big, dtype=dtype), small)
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=0)


def test_custom_function_names_missing_method():
    class Cube(ScalarFunction):
        pass

    s = torch.ones(())
    for call in (
        lambda: Cube().value(s),
        lambda: Cube().first(s, s),
        lambda: Cube().second(s, s, s),
    ):
        with pytest.raises(NotImplementedError, match=r"Cube .*define"):
            call()
