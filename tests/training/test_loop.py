import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from spdnet import SPDNet
from spdnet.models import MEMBERS
from spdnet.testing import assert_on_stiefel
from spdnet.training import RECIPES, Samples, Trainer, build, evaluate
from spdnet.training.evaluation import weighted_losses
from spdnet.training.loop import batches
from spdnet.training.progress import describe_epoch
from tests.cases import random_spd

QUICK = RECIPES["fast"].changed(epochs=6, batch_size=8)


def problem(n=40, dtype=torch.float64):
    """Two classes that differ in the scale of some coordinates."""
    y = torch.arange(n) % 2
    scale = torch.ones(n, 5, dtype=dtype)
    scale[y == 1, :3] = 3
    X = random_spd(n, 5, dtype=dtype) * scale[:, :, None] * scale[:, None, :]
    return Samples(X, y)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_learns(name, dtype):
    data = problem(dtype=dtype)
    recipe = RECIPES[name].changed(epochs=60, lr=0.1)
    model = build(recipe, (5, 4, 3), 2, data)
    progress = Trainer(model, data, recipe).run()
    assert progress.epoch == progress.best_epoch == 60
    assert progress.history[-1]["loss"] < progress.history[0]["loss"]
    assert evaluate(model, data)[1] > (0.9 if recipe.optimizer == "adam" else 0.8)
    assert {p.dtype for p in model.parameters()} == {dtype}
    if name == "auto":
        assert_all_members_learn(data, recipe)
    else:
        assert len(model.bimaps) == 2
        for bimap in model.bimaps:
            assert_on_stiefel(bimap.weight)


def assert_all_members_learn(data, recipe):
    model = build(recipe, (), 2, data)
    before = [head.linear.weight.clone() for head in model.heads]
    Trainer(model, data, recipe).run()
    assert len(before) == len(MEMBERS)
    with torch.no_grad():
        right = model.eval().outputs(data.X).argmax(1) == data.y[:, None]
    assert (right.double().mean(0) > 0.8).all()
    for head, weight in zip(model.heads, before, strict=True):
        assert not torch.equal(head.linear.weight, weight)


def test_build_takes_the_settings_of_the_recipe():
    data = problem()
    for name in ("fast", "paper"):
        model = build(RECIPES[name].changed(eps="10%"), (5, 4, 3), 2, data)
        assert (model.classifier.bias is not None) == (name == "fast")
        assert (model.center is not None) == (name == "fast")
        assert model.reeigs[0].eps == "10%"


def test_build_centres_follows_the_seed_and_leaves_the_generator():
    data = problem()
    before = torch.get_rng_state()
    a, b, c = (build(QUICK, (5, 3), 2, data, seed=s) for s in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(a.bimaps[0].weight, b.bimaps[0].weight)
    assert not torch.equal(a.bimaps[0].weight, c.bimaps[0].weight)
    torch.testing.assert_close(a.center(a.center.mean), torch.eye(5).double())
    assert build(RECIPES["paper"], (5, 3), 2, data).center is None


def test_repeatable():
    data = problem()
    runs = []
    for seed in (0, 0, 1):
        model = build(QUICK, (5, 3), 2, data)
        progress = Trainer(model, data, QUICK, seed=seed).run()
        runs.append([row["loss"] for row in progress.history])
    assert runs[0] == runs[1] != runs[2]


def test_batches_are_a_permutation_decided_by_seed_and_epoch():
    first = list(batches(10, 3, seed=1, epoch=2))
    assert [len(b) for b in first] == [3, 3, 3, 1]
    assert torch.cat(first).sort().values.tolist() == list(range(10))
    assert all(map(torch.equal, first, batches(10, 3, seed=1, epoch=2)))
    assert not torch.equal(torch.cat(first), torch.cat(list(batches(10, 3, seed=1, epoch=3))))


def test_validation_keeps_the_best_epoch_and_patience_stops():
    data = problem(60)
    train, val = data[torch.arange(30)], data[torch.arange(30, 60)]
    recipe = QUICK.changed(epochs=60, lr=0.3)
    model = build(recipe, (5, 4), 2, train)
    progress = Trainer(model, train, recipe, val=val, patience=5).run()
    losses = [row["val_loss"] for row in progress.history]
    assert progress.best_epoch == losses.index(min(losses)) + 1
    assert progress.epoch == progress.best_epoch + 5 < 60
    assert evaluate(model, val)[0] == pytest.approx(min(losses))
    assert all(0 <= row["val_accuracy"] <= 1 for row in progress.history)


def test_learning_rate_schedules():
    data = problem()
    for schedule in ("cosine", "constant"):
        recipe = QUICK.changed(schedule=schedule)
        progress = Trainer(build(recipe, (5, 3), 2, data), data, recipe).run()
        rates = [row["lr"] for row in progress.history]
        if schedule == "cosine":
            assert rates == sorted(rates, reverse=True)
            assert rates[-1] < 0.01 * rates[0]
        else:
            assert set(rates) == {recipe.lr}


def losses_of(logits, data, **settings):
    return weighted_losses(logits, data.y, data.weight, **settings)


def test_weights():
    data = problem()
    logits = torch.randn(40, 2, dtype=torch.float64)
    ones = Samples(data.X, data.y, torch.ones(40, dtype=torch.float64))
    torch.testing.assert_close(losses_of(logits, ones), losses_of(logits, data))
    half = torch.arange(40) < 20
    some = Samples(data.X, data.y, 2 * half.double())
    chosen = data[torch.arange(20)]
    torch.testing.assert_close(
        losses_of(logits, some).mean(), losses_of(logits[:20], chosen).mean()
    )


def test_evaluation_counts_every_matrix_once_and_changes_nothing():
    data = problem(41)
    model = build(QUICK, (5, 3), 2, data).train()
    state = copy.deepcopy(model.state_dict())
    results = {evaluate(model, data, batch_size=size) for size in (7, 41, 100)}
    assert max(r[0] for r in results) == pytest.approx(min(r[0] for r in results))
    assert len({r[1] for r in results}) == 1
    assert model.training
    assert all(torch.equal(state[k], v) for k, v in model.state_dict().items())


def test_a_loss_that_is_not_finite_stops_with_the_place():
    data = problem()
    model = SPDNet((5, 3), 2, dtype=torch.float64)
    with torch.no_grad():
        model.classifier.weight.fill_(float("nan"))
    with pytest.raises(FloatingPointError, match=r"got nan in epoch 1, batch 1 \(matrices .*lower"):
        Trainer(model, data, RECIPES["paper"]).run()
    with pytest.raises(FloatingPointError, match=r"matrices 1\d\d, .*lower"):
        Trainer(model, data, RECIPES["paper"], index=torch.arange(100, 140)).run()


def test_a_matrix_that_cannot_be_decomposed_stops_with_the_place():
    data = problem()
    data.X[5, 0, 0] = float("inf")
    model = SPDNet((5, 3), 2, dtype=torch.float64)
    with pytest.raises(FloatingPointError, match=r"in epoch 1, batch \d \(matrices .*5"):
        Trainer(model, data, RECIPES["paper"].changed(batch_size=8)).run()


def test_label_smoothing():
    data = problem()
    logits = torch.randn(40, 2, dtype=torch.float64)
    expected = torch.nn.functional.cross_entropy(logits, data.y, label_smoothing=0.1)
    torch.testing.assert_close(losses_of(logits, data, label_smoothing=0.1).mean(), expected)
    losses = []
    for smoothing in (0.0, 0.1):
        recipe = QUICK.changed(label_smoothing=smoothing)
        losses.append(
            Trainer(build(recipe, (5, 3), 2, data), data, recipe).run().history[0]["loss"]
        )
    assert losses[0] != losses[1]


def test_losses_of_the_history_are_without_smoothing():
    """So that training and validation can be drawn on one axis."""
    data = problem()
    for smoothing in (0.0, 0.3):
        recipe = QUICK.changed(label_smoothing=smoothing, lr=0.0, epochs=1, batch_size=7)
        row = Trainer(build(recipe, (5, 3), 2, data), data, recipe, val=data).run().history[0]
        assert row["loss"] == pytest.approx(row["val_loss"], rel=1e-12)


def test_threads_build_the_network_of_their_seed():
    data = problem()
    expected = [build(QUICK, (5, 3), 2, data, seed=s).bimaps[0].weight for s in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for i, model in enumerate(
            pool.map(lambda i: build(QUICK, (5, 3), 2, data, seed=i % 4), range(200))
        ):
            assert torch.equal(model.bimaps[0].weight, expected[i % 4])


def test_on_epoch_and_describe():
    data = problem()
    seen = []
    Trainer(
        build(QUICK, (5, 3), 2, data),
        data,
        QUICK,
        val=data,
    ).run(lambda trainer: seen.append(describe_epoch(trainer.progress.history[-1])))
    assert len(seen) == 6
    assert seen[0].startswith("epoch    1  loss")
    assert "validation" in seen[0]
