import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spdnet.data import Dataset, hold_out, make_split, split


@given(
    counts=st.lists(st.integers(1, 30), min_size=1, max_size=8),
    fraction=st.floats(0.01, 0.99),
    seed=st.integers(0, 1000),
)
def test_every_class_keeps_a_member_and_its_share(counts, fraction, seed):
    y = np.repeat(np.arange(len(counts)), counts)
    held = hold_out(y, fraction, seed=seed)
    for c, count in enumerate(counts):
        taken = held[y == c].sum()
        assert taken < count
        assert abs(taken - fraction * count) <= 1
    room = sum(count - 1 for count in counts)
    assert held.sum() <= max(round(fraction * len(y)), 0)
    if min(counts) > 1 / min(fraction, 1 - fraction):
        assert held.sum() == round(fraction * len(y)) <= room
    np.testing.assert_array_equal(held, hold_out(y, fraction, seed=seed))


def test_size_and_seed():
    y = np.repeat(["a", "b", "c"], [50, 30, 20])
    held = hold_out(y, 0.25)
    assert held.sum() == 25
    assert not np.array_equal(held, hold_out(y, 0.25, seed=1))


def test_groups_stay_whole():
    rng = np.random.default_rng(0)
    y, groups = rng.integers(0, 4, 300), rng.integers(0, 20, 300)
    for fraction in (0.05, 0.2, 0.5):
        held = hold_out(y, fraction, groups=groups)
        assert not set(groups[held]) & set(groups[~held])
        assert set(y[~held]) == {0, 1, 2, 3}
        assert abs(held.mean() - fraction) < 0.1


def test_groups_that_cannot_be_divided():
    with pytest.raises(ValueError, match="got 2 groups for 2 classes; add groups, remove them"):
        hold_out([0, 0, 1, 1], 0.5, groups=["a", "a", "b", "b"])


@pytest.mark.parametrize("fraction", [0, 1, -0.1, float("nan")])
def test_fractions_outside_are_refused(fraction):
    with pytest.raises(ValueError, match="hold_out: expected fraction > 0 and < 1"):
        hold_out([0, 1], fraction)


def test_groups_of_another_length_are_refused():
    with pytest.raises(ValueError, match=r"groups of shape \(4,\), one for each of y, got \(3,\)"):
        hold_out([0, 0, 1, 1], 0.5, groups=[0, 1, 2])


def test_the_choice_of_groups_is_as_it_was():
    """Places that were drawn before the search was made faster."""
    rng = np.random.default_rng(0)
    y, groups = rng.integers(0, 3, 30), rng.integers(0, 9, 30)
    expected = {0: [5, 7, 8, 16, 17, 18, 19, 22, 29], 1: [0, 2, 3, 4, 6, 11, 12, 14, 24]}
    for seed, places in expected.items():
        assert np.flatnonzero(hold_out(y, 0.3, groups=groups, seed=seed)).tolist() == places


@pytest.mark.parametrize("sizes", [(70, 70, 70, 70), (70, 68, 71, 69)])
def test_seeds_draw_different_groups(sizes):
    """Also if the sizes of the groups differ a little, so that one choice is the closest."""
    groups = np.repeat(np.arange(4), sizes)
    y = np.random.default_rng(0).integers(0, 3, len(groups))
    drawn = {tuple(groups[hold_out(y, 0.5, groups=groups, seed=i)]) for i in range(12)}
    assert len(drawn) >= 4
    for held in drawn:
        assert 0.4 < len(held) / len(groups) <= 0.5


def test_small_parts_are_noted():
    X = np.zeros((40, 2, 2))
    few = make_split(Dataset(X[:12], np.arange(12) % 2), test=0.2)
    assert any("the part 'test' has 2 samples, so its accuracy" in note for note in few.notes)
    assert not make_split(Dataset(X, np.arange(40) % 2), test=0.3).notes


def test_work_grows_with_the_groups_not_with_their_square(monkeypatch):
    """Counted in sums over the table, which were taken for each group anew."""
    y, groups = np.arange(4000) % 50, np.arange(4000) // 4
    sums = []
    add = np.ndarray.sum

    class Counted(np.ndarray):
        def sum(self, *args, **kwargs):
            sums.append(self.shape)
            return add(np.asarray(self), *args, **kwargs)

    zeros = np.zeros
    monkeypatch.setattr(
        split.numpy, "zeros", lambda *args, **kwargs: zeros(*args, **kwargs).view(Counted)
    )
    hold_out(y, 0.2, groups=groups)
    assert sum(shape == (1000, 50) for shape in sums) <= 2
