import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spdnet.linalg.missing import both, describe_missing, fill, has_missing, observed
from tests.cases import random_spd

UNIT = torch.finfo(torch.float64).eps


@settings(max_examples=40)
@given(st.integers(1, 6), st.integers(0, 2**16), st.booleans())
def test_fill_agrees_with_observed_and_keeps_extreme_eigenvalues(n, seed, as_zero):
    generator = torch.Generator().manual_seed(seed)
    C = random_spd(5, n, seed=seed)
    mask = torch.rand(5, n, generator=generator) < 0.6
    mask[~mask.any(-1)] = True
    X = C.masked_fill(~both(mask), 0.0 if as_zero else torch.nan)
    filled = fill(X, UNIT)
    found = torch.ones_like(mask) if filled.mask is None else filled.mask
    torch.testing.assert_close(found, mask)
    torch.testing.assert_close(observed("test", X, UNIT), mask)
    for own, whole, made in zip(mask, C, filled.X, strict=True):
        ends = torch.linalg.eigvalsh(whole[own][:, own])[[0, -1]]
        torch.testing.assert_close(torch.linalg.eigvalsh(made)[[0, -1]], ends)
    hidden = filled.hide(filled.X.clone())
    torch.testing.assert_close(hidden.isnan(), ~both(mask))
    assert has_missing(hidden) == bool((~mask).any())


def test_matrices_without_missing_channels_are_not_copied():
    X = random_spd(3, 4)
    assert fill(X, UNIT).X is X
    assert fill(X, UNIT).mask is None
    assert describe_missing(X) == ""


def test_matrices_with_other_faults_are_left_as_they_are():
    X = random_spd(5, 3)
    X[0] = torch.nan
    X[1] = 0
    X[2, 0, 0] = torch.nan
    X[3, 1], X[3, :, 1], X[3, 0, 2] = torch.nan, torch.nan, torch.inf
    X[4, 1] = X[4, :, 1] = torch.nan
    filled = fill(X, UNIT)
    torch.testing.assert_close(filled.X[:4], X[:4], equal_nan=True)
    assert filled.mask.tolist() == [[True] * 3] * 4 + [[True, False, True]]
