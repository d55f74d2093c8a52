from dataclasses import replace

import numpy as np
import pytest

from spdnet.data import Dataset, Preprocessing, StoredArray, make_split, open_stored, prepare
from tests.cases import random_spd

X = random_spd(12, 3).numpy()


def test_classes_are_in_the_order_of_the_labels():
    data = Dataset(X, np.array([10, 9, 2] * 4))
    assert data.classes == ["2", "9", "10"]
    assert data.codes.tolist() == [2, 1, 0] * 4
    assert Dataset(X, np.array(["10", "9", "2"] * 4)).classes == ["10", "2", "9"]
    assert Dataset(X, np.array([1.0, 0.0] * 6)).classes == ["0", "1"]
    assert Dataset(X).classes == []
    with pytest.raises(ValueError, match="expected class labels in y, got real"):
        Dataset(X, np.array([0.5, 1.0] * 6))
    with pytest.raises(ValueError, match="expected labels y, got none"):
        make_split(Dataset(X))


def test_columns_have_one_value_for_each_sample():
    with pytest.raises(ValueError, match=r"groups of shape \(12,\), one for each of X, got \(3,\)"):
        Dataset(X, groups=np.arange(3))


def test_taking_samples_keeps_classes_and_positions(tmp_path):
    np.savez(tmp_path / "a.npz", X=X)
    data = Dataset(open_stored(tmp_path / "a.npz"), np.arange(12) % 3, groups=np.arange(12))
    part = data.take(np.array([3, 0])).take(np.array([0]))
    assert isinstance(part.X, StoredArray)
    assert (part.index.tolist(), part.groups.tolist(), part.codes.tolist()) == ([3], [3], [0])
    assert part.classes == ["0", "1", "2"]
    np.testing.assert_array_equal(part.X[:], X[3:4])


def test_digests_are_those_of_the_file_contents():
    data = Dataset(X, np.arange(12) % 2, groups=np.arange(12))
    ready = prepare(data, Preprocessing(False, 3, "sample", 1e-3), "refuse", "float32")
    assert ready.X.dtype == np.float32
    assert (ready.digest, ready.inputs_digest) == (data.digest, data.inputs_digest)
    assert ready.take(np.arange(3)).digest == data.digest
    assert Dataset(X, np.arange(12) % 2).digest != data.digest
    assert Dataset(X).inputs_digest == data.inputs_digest
    assert data.take(np.arange(3)).digest != data.digest


def test_groups_as_codes():
    data = Dataset(X, groups=np.array([1, 2, 7] * 4))
    assert data.group_codes(["2", "1"])[:3].tolist() == [1, 0, 2]
    assert Dataset(X).group_codes(["2", "1"]).tolist() == [2] * 12


def test_a_split_in_the_data_counts_before_a_random_one():
    y = np.arange(12) % 2
    named = Dataset(X, y, np.array(["train"] * 8 + ["test"] * 4))
    split = make_split(named, test=0.5, val=0.25)
    assert split.parts["test"].tolist() == [8, 9, 10, 11]
    assert (len(split.parts["train"]), len(split.parts["val"])) == (6, 2)
    assert (split.scored, split.drawn, split.chance) == ("test", False, 0.5)
    drawn = make_split(replace(named, split=None), test=0.5)
    assert drawn.drawn
    assert len(drawn.parts["test"]) == 6
    with pytest.raises(ValueError, match="me: expected at least two classes to train on, got only"):
        make_split(replace(named, split=np.where(y == 0, "train", "test")), who="me")
