import pickle

import pytest
import torch

from spdnet.training import RECIPES, Samples, Trainer, build, choose_members, many, train_many
from tests.cases import random_spd
from tests.training.test_choice import QUICK


def trainer(seed, model="spdnet", **changes):
    X, y = random_spd(20, 5), torch.arange(20) % 2
    X[y == 1] *= 2
    recipe = RECIPES["fast"].changed(**{"model": model, "epochs": 3, "batch_size": 6, **changes})
    data = Samples(X, y)
    model = build(recipe, (5, 3), 2, data, seed=seed)
    return Trainer(model, data, recipe, val=data.take(torch.arange(6)), seed=seed)


def require_equal(found, expected):
    torch.testing.assert_close(found.model.state_dict(), expected.model.state_dict())
    for row, other in zip(found.progress.history, expected.progress.history, strict=True):
        for name in row.keys() - {"seconds"}:
            assert row[name] == pytest.approx(other[name], rel=1e-12)


@pytest.fixture
def at_once(monkeypatch):
    """Start the processes after the first batch."""
    monkeypatch.setattr(many, "_MEASURED", 0.0)
    monkeypatch.setattr(many, "_SHORT", 0.0)


@pytest.mark.parametrize(
    "changes", [{}, {"head": "mlp", "dropout": 0.5}, {"optimizer": "sgd", "lr": 0.02}]
)
def test_a_trainer_can_be_pickled_within_an_epoch(changes):
    straight, stopped = trainer(1, **changes), trainer(1, **changes)
    straight.run()
    counts = iter(range(100))
    stopped.run(should_stop=lambda: next(counts) == 5)
    assert stopped.progress.partial is not None
    copy = pickle.loads(pickle.dumps(stopped))
    copy.run()
    assert [row["loss"] for row in copy.progress.history] == [
        row["loss"] for row in straight.progress.history
    ]
    torch.testing.assert_close(copy.model.state_dict(), straight.model.state_dict(), rtol=0, atol=0)


def test_each_ends_as_it_would_alone(at_once):
    settings = [{"lr": 0.01}, {"head": "mlp", "dropout": 0.3}, {"model": "multibranch"}, {}]
    alone = [trainer(i, **changes) for i, changes in enumerate(settings)]
    for one in alone:
        one.run()
    for jobs in (1, 2):
        together, counts = [trainer(i, **changes) for i, changes in enumerate(settings)], []
        found = train_many(together, jobs=jobs, on_batch=lambda *count: counts.append(count))  # noqa: B023
        assert [progress.epoch for progress in found] == [3] * 4
        assert counts[-1] == (48, 48)
        assert counts == sorted(counts)
        assert (len(counts) == 48) == (jobs == 1)  # the batches of other processes are not seen
        for one, expected in zip(together, alone, strict=True):
            require_equal(one, expected)


@pytest.mark.slow
def test_an_error_of_one_process_ends_all(at_once):
    def fails(logits, y):
        raise FloatingPointError("expected a finite loss, got nan")

    trainers = [trainer(i) for i in range(4)]
    trainers[-1].loss = fails  # the first that is given to another process
    with pytest.raises(FloatingPointError, match="expected a finite loss, got nan in epoch 1"):
        train_many(trainers, jobs=2)
    assert train_many([trainer(0), trainer(1)], jobs=2)[1].epoch == 3  # new processes


@pytest.mark.slow
def test_an_interrupt_ends_all_processes(at_once):
    def interrupt(done, total):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_many([trainer(i, epochs=1000) for i in range(4)], jobs=3, on_batch=interrupt)


@pytest.mark.slow
def test_the_choice_does_not_depend_on_the_number_of_processes(at_once):
    X, y = random_spd(40, 5), torch.arange(40) % 2
    X[y == 1] *= 2
    one, two = (choose_members(QUICK, Samples(X, y), 2, jobs=jobs) for jobs in (1, 2))
    assert one.members == two.members
    assert one.accuracy == two.accuracy
    assert one.loss == pytest.approx(two.loss, rel=1e-12)


def test_a_single_network_uses_all_threads(monkeypatch):
    seen, run = [], Trainer.run
    monkeypatch.setattr(
        Trainer, "run", lambda *a, **k: (seen.append(torch.get_num_threads()), run(*a, **k))
    )
    before = torch.get_num_threads()
    train_many([trainer(0)], jobs=4)
    train_many([trainer(0), trainer(1)], jobs=4)
    assert seen == [before, 1, 1]


def test_invalid_numbers_of_processes_are_refused():
    with pytest.raises(ValueError, match="jobs"):
        train_many([trainer(0)], jobs=0)
    assert train_many([]) == []
