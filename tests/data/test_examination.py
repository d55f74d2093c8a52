import numpy as np
import pytest
import torch

from spdnet.data import clean, examine, load_digits_spd
from spdnet.linalg.validate import find_faults, rounding_unit
from spdnet.testing import assert_spd
from tests.cases import random_spd, with_spectrum


def matrices(dtype=np.float64):
    X = random_spd(8, 4).numpy()
    X[1, 0, 0] = np.nan
    X[2, 3, 3] = np.inf
    X[3] = 0
    X[4, 0, 1] += 0.01
    X[5] = with_spectrum([-1.0, 1.0, 2.0, 3.0]).numpy()
    X[6] = with_spectrum([0.0, 1.0, 2.0, 3.0]).numpy()
    return X.astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_fault_is_found_by_index(dtype):
    found = examine(matrices(dtype))
    assert {k: v.tolist() for k, v in found.faults.items()} == {
        "not finite": [1, 2],
        "zero": [3],
        "too small": [],
        "asymmetric": [4],
        "not Hermitian": [],
        "indefinite": [5],
        "singular": [6],
    }
    assert found.bad.tolist() == [1, 2, 3, 4, 5, 6]
    assert np.isfinite(found.conditions).tolist() == [True] + [False] * 6 + [True]
    assert (
        str(found)
        == "2 not finite: 1, 2; 1 zero: 3; 1 asymmetric: 4; 1 indefinite: 5; 1 singular: 6"
    )


def test_good_matrices():
    X, _ = load_digits_spd()
    found = examine(X)
    assert len(found.bad) == 0
    assert str(found) == "no fault"
    np.testing.assert_allclose(found.conditions[:5], np.linalg.cond(X[:5]), rtol=1e-6)
    same, kept, report = clean(X)
    assert same is X
    assert len(kept) == len(X)
    assert report == ""


def test_many_indices_are_cut_short():
    assert str(examine(np.zeros((20, 2, 2)))).endswith("9, ...")


def test_all_of_them_bad_and_none_at_all():
    assert len(examine(np.full((3, 2, 2), np.nan)).bad) == 3
    assert len(examine(np.empty((0, 2, 2))).bad) == 0


def test_drop():
    X, kept, report = clean(matrices(), "drop")
    assert kept.tolist() == [0, 7]
    assert_spd(torch.from_numpy(X))
    assert report.startswith("dropped 6 of 8 matrices (2 not finite: 1, 2; ")
    with pytest.raises(ValueError, match="some SPD matrices to keep"):
        clean(np.zeros((2, 3, 3)), "drop")


def test_repair():
    X = matrices()[[0, 4, 6, 7]]
    mended, kept, report = clean(X, "repair")
    assert kept.tolist() == [0, 1, 2, 3]
    assert_spd(torch.from_numpy(mended))
    np.testing.assert_array_equal(mended[[0, 3]], X[[0, 3]])
    assert report == "repaired 2 of 4 matrices (1 asymmetric: 1; 1 singular: 2)"
    assert np.array_equal(X, matrices()[[0, 4, 6, 7]])  # the input stays as it was
    with pytest.raises(ValueError, match=r"1 zero: 3; .*choose 'drop'"):
        clean(matrices(), "repair")


def test_refuse():
    with pytest.raises(
        ValueError, match=r"6 of 8 that are not \(2 not finite: 1, 2; .*choose 'drop' \(--bad\)$"
    ):
        clean(matrices())
    with pytest.raises(ValueError, match="bad to be one of"):
        clean(matrices(), "ignore")
    with pytest.raises(ValueError, match=r"shape \(N, n, n\), got \(4, 4\)"):
        examine(np.eye(4))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_quick_look_finds_the_same_faults(dtype):
    """Of matrices of every condition, and around the edge of what counts as singular."""
    unit = np.finfo(dtype).eps
    lows = [*np.geomspace(1e-18, 1, 60), *(unit * np.linspace(0.5, 80, 60)), 0.0, -unit, -1e-3]
    spectra = [with_spectrum([low, 0.3, 0.7, 1.0]).numpy() for low in lows]
    X = np.concatenate([matrices(dtype), np.array(spectra, dtype=dtype)])
    pieces, settings = (
        [torch.from_numpy(X).double()],
        {"unit": rounding_unit(X.dtype), "dtype": torch.float64},
    )
    quick = find_faults(pieces, len(X), **settings).code
    exact = find_faults(pieces, len(X), **settings, spectra=True).code
    assert quick.tolist() == exact.tolist()
    assert 0 < (exact == -1).sum() < len(X)
    whole = np.eye(3, dtype=np.int64)[None]
    assert len(examine(whole).bad) == 0
    assert clean(whole)[0] is whole


def ending(X, remedy="refuse"):
    with pytest.raises(ValueError, match="that are not") as found:
        clean(X, remedy)
    return str(found.value)


def test_the_remedy_that_helps_is_named_with_its_option():
    good = np.stack([np.eye(3)] * 3)

    def with_one(bad):
        return np.concatenate([good, bad[None]])

    skew = np.eye(3)
    skew[0, 1] = 0.1
    flat = np.ones((3, 3))
    assert ending(with_one(flat)).endswith("choose 'drop' or 'repair' (--bad)")
    assert ending(with_one(skew)).endswith("choose 'drop' or 'repair' (--bad)")
    for beyond in (np.full((3, 3), np.nan), np.zeros((3, 3)), -np.eye(3)):
        assert ending(with_one(beyond)).endswith("choose 'drop' (--bad)")
        assert ending(with_one(beyond), "repair").endswith("choose 'drop' (--bad)")
        assert ending(beyond[None]).endswith("fix the code that computed them")
    assert ending(flat[None]).endswith("choose 'repair' (--bad)")


def test_square_signals_are_recognised():
    X = np.random.default_rng(0).normal(size=(5, 4, 4))
    assert ending(X).endswith("as many samples as channels, set signals (--signals)")
    assert "choose" not in ending(X)
    one = np.concatenate([np.stack([np.eye(4)] * 5), X[:1]])
    assert ending(one).endswith("choose 'drop' (--bad)")  # one bad matrix, not signals
