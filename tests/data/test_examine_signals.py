import numpy as np
import pytest

from spdnet import covariance
from spdnet.data import Dataset, examination, examine
from spdnet.data.examination import examine_signals
from spdnet.data.summary import counted, describe


def signals(n=6, d=5, t=40):
    return np.random.default_rng(0).normal(size=(n, d, t))


def plain(where):
    return {key: places.tolist() for key, places in where.items()}


@pytest.mark.parametrize("piece", [1, 2**24])
def test_every_fault_is_found_by_index(monkeypatch, piece):
    monkeypatch.setattr(examination, "_PIECE", piece)
    X = signals()
    X[1, 2, 7] = np.nan
    X[4, 0, 0] = np.inf
    X[:, 3], X[3, 1] = 2.5, np.nan
    X[2, 4], X[5, 1], X[5, 4] = X[2, 0], X[5, 0], X[5, 0]
    found = examine_signals(X)
    assert plain(found.not_finite) == {0: [4], 2: [1]}
    assert plain(found.missing) == {1: [3], 3: [0, 1, 2, 3, 4, 5]}
    assert plain(found.equal) == {(0, 1): [5], (0, 4): [2, 5]}
    assert found.covariances.faults["not finite"].tolist() == [1, 4]
    assert plain(found.covariances.missing) == {1: [3], 3: [0, 2, 3, 5]}
    expected = examine(covariance.estimate(X[[0, 2, 5]][:, [0, 1, 2, 4]]))
    np.testing.assert_allclose(found.covariances.conditions[[0, 2, 5]], expected.conditions)


def test_good_signals_none_and_silence():
    found = examine_signals(signals())
    assert (found.not_finite, found.missing, found.equal) == ({}, {}, {})
    assert len(found.covariances.bad) == 0
    assert len(examine_signals(signals(0)).covariances.conditions) == 0
    silent = examine_signals(np.zeros((2, 3, 10)))
    assert plain(silent.missing) == {k: [0, 1] for k in range(3)}
    assert silent.equal == {}
    assert silent.covariances.faults["zero"].tolist() == [0, 1]
    assert examine_signals(signals(t=1)).covariances.faults["not finite"].tolist() == [*range(6)]


def test_equal_sums_are_not_equal_channels():
    X = signals(1, 2, 4)
    X[0, 1] = X[0, 0, ::-1]
    X[0] = np.round(X[0] * 4)
    assert examine_signals(X).equal == {}


def test_lines_for_people():
    X = signals()
    X[:, 3], X[1, 0, 0] = 0, np.nan
    X[:, 4] = X[:, 2]
    data = Dataset(X, np.zeros(6, dtype=int), groups=np.ones(6), notes=("a thing",))
    shown = describe(data, examine_signals(X))
    for line in (
        "5 channels, 40 samples each: covariances will be 5 x 5",
        "1 class, 6 each (most frequent: 100.0 %)",
        "1 group",
        "not finite: 1 signal of 6: 1",
        "  channel 0 in 1: 1",
        "  drop these signals (--bad drop), or correct them in the file; 'repair' does not fix "
        "these",
        "missing channels (NaN, flat): 1 channel of 5, in 6 of 6 signals",
        "  channel 3 in all",
        "  those that are missing in all are removed in training",
        "  channels 2 and 4 in all",
        "note: a thing",
    ):
        assert line in shown
    assert any(line.startswith("condition numbers of the covariances: ") for line in shown)
    bad = np.full((1, 2, 3), np.nan)
    bad[0, :, 0] = 0
    shown = describe(Dataset(bad), examine_signals(bad))
    assert "  correct them in the file; 'repair' does not fix these" in shown


def test_short_and_silent_signals():
    short = signals(2, 5, 5)
    shown = "\n".join(describe(Dataset(short), examine_signals(short)))
    assert "2 signals" in shown  # though they are square
    assert "not more time points than channels" in shown
    assert "--estimator oas" in shown
    silent = np.zeros((1, 2, 9))
    assert "zero: 1 signal of 1: 0" in describe(Dataset(silent), examine_signals(silent))


def test_singular_covariances_name_options():
    X = signals(3, 4, 50)
    X[:, 0] *= 1e9
    found = examine_signals(X, reg=0)
    found.covariances.faults["singular"] = np.array([2])
    shown = describe(Dataset(X), found)
    assert "covariances that are singular: 1 of 3: 2" in shown
    assert "  use a larger --reg, or --estimator oas" in shown


def test_counts():
    things = [(1, "class"), (2, "class"), (1, "matrix"), (3, "matrix"), (0, "group")]
    assert [counted(*thing) for thing in things] == [
        "1 class",
        "2 classes",
        "1 matrix",
        "3 matrices",
        "0 groups",
    ]


def test_equal_channels_of_equal_sums():
    rows = [[1, -1, 2, -2], [3, -3, 1, -1], [5, -5, 1, -1], [1, -1, 2, -2]]
    assert list(examine_signals(np.array([rows], dtype=float)).equal) == [(0, 3)]


def test_signals_too_large_for_a_covariance():
    signals = np.random.default_rng(0).normal(size=(4, 3, 20))
    signals[1] *= 1e200
    found = examine_signals(signals)
    assert found.covariances.faults["not finite"].tolist() == [1]
    lines = describe(Dataset(signals, np.arange(4) % 2), found)
    assert any(line.startswith("too large for a covariance: 1") for line in lines)


def test_a_robust_estimator_names_the_signal_without_an_estimate():
    X = signals()
    X[3, 1] = X[3, 0]
    with pytest.raises(ValueError, match=r"tyler: .*X\[3\] the channels are lin.*ledoit_wolf$"):
        examination.covariances_of(X, "tyler", 1e-3)
    X[1, 2, 7] = np.nan
    with pytest.raises(ValueError, match=r"tyler: .*X\[2\] the.*; X are the 5 finite signals"):
        examination.covariances_of(X, "tyler", 1e-3)
    found = examination.covariances_of(np.delete(X, 3, 0), "tyler", 0.0)
    np.testing.assert_allclose(found[2], covariance.tyler(X[2]), rtol=1e-9, atol=1e-12)
    assert np.isnan(found[1]).all()
