import numpy as np
import pytest
import torch
from torch.testing import assert_close

from spdnet.data import StoreWriter, open_stored
from spdnet.training import RECIPES, DiskTensor, Samples, Trainer, build
from spdnet.training.data import read_ahead
from tests.cases import random_spd

X = random_spd(40, 5)
Y = torch.arange(40) % 3


@pytest.fixture
def stored(tmp_path):
    with StoreWriter(tmp_path / "a.npz", {}) as writer:
        writer.add("all", X.numpy(), y="a")
        return DiskTensor(open_stored(writer.finish({})))


def test_it_reads_like_a_tensor(stored):
    assert stored.shape == (40, 5, 5)
    assert stored.dtype == torch.float64
    assert len(stored) == 40
    index = torch.tensor([7, 1, 1])
    assert_close(stored[index], X[index])
    assert_close(stored[3:9], X[3:9])
    assert_close(stored[Y == 1], X[Y == 1])
    assert_close(stored.take(index)[:], X[index])
    assert_close(torch.cat(list(stored.split(7))), X)
    assert stored.to("cpu")[:1].device.type == "cpu"


def test_parts_stay_on_disk(stored):
    data = Samples(stored, Y, torch.rand(40), Y % 2)
    part = data.take(torch.arange(0, 40, 2))
    assert isinstance(part.X, DiskTensor)
    batch = part[torch.tensor([1, 3])]
    assert isinstance(batch.X, torch.Tensor)
    assert_close(batch.X, X[[2, 6]])
    assert_close(batch.y, Y[[2, 6]])
    assert_close(batch.weight, data.weight[[2, 6]])
    memory = Samples(X, Y).take(torch.arange(3))
    assert_close(memory.X, X[:3])


@pytest.mark.parametrize("center", ["log_euclidean", None])
def test_training_from_disk_is_that_from_memory(stored, center):
    recipe = RECIPES["fast"].changed(epochs=3, batch_size=7, center=center or "none")
    found = []
    for data in (Samples(X, Y), Samples(stored, Y)):
        model = build(recipe, (5, 4, 3), 3, data)
        trainer = Trainer(model, data, recipe, val=data.take(torch.arange(9)), test=data)
        rows = trainer.run().history
        kept = ("loss", "accuracy", "val_loss", "test_loss", "test_accuracy")
        found.append([[row[k] for k in kept] for row in rows])
    np.testing.assert_allclose(found[0], found[1], rtol=0 if center is None else 1e-10)


def test_the_centre_of_parts_is_that_of_all(stored, monkeypatch):
    monkeypatch.setattr("spdnet.models.model._CHUNK", 9)
    weight = torch.rand(40, dtype=torch.float64)
    weight[:9] = 0  # a whole part that counts nothing
    recipe = RECIPES["fast"]
    model = build(recipe, (5, 3), 3, Samples(X, Y, weight))
    expected = model.center.mean
    model.fit_buffers(stored, weight=weight)
    assert_close(model.center.mean, expected)
    other = build(recipe.changed(center="affine_invariant"), (5, 3), 3, Samples(X, Y))
    with pytest.raises(ValueError, match="log_euclidean"):
        other.fit_buffers(stored)


def test_reading_ahead_gives_every_batch_in_turn(stored):
    batches = torch.randperm(40).split(6)
    for data in (Samples(X, Y), Samples(stored, Y)):
        seen = list(read_ahead(data, batches))
        assert len(seen) == len(batches)
        for batch, part in zip(batches, seen, strict=True):
            assert_close(part.X, X[batch])
            assert_close(part.y, Y[batch])
    assert list(read_ahead(Samples(stored, Y), [])) == []


def test_the_test_part_decides_nothing():
    recipe = RECIPES["fast"].changed(epochs=4)
    data = Samples(X[:30], Y[:30])
    states = []
    for test in (None, Samples(X[30:], Y[30:])):
        trainer = Trainer(build(recipe, (5, 3), 3, data), data, recipe, test=test)
        trainer.run()
        states.append(trainer.model.state_dict())
    assert_close(states[0], states[1], rtol=0, atol=0)
    assert "test_accuracy" in trainer.progress.history[0]
