"""The head ``mlp``."""

import pickle

import pytest
import torch
from torch.nn.functional import linear, relu

from spdnet import SPDNet
from spdnet.models import MultiBranchSPDNet, SPDNetMLR
from spdnet.models.model import get_trait
from spdnet.training import RECIPES, Samples, Trainer, build
from tests.cases import random_spd
from tests.training.test_loop import problem


def make(dtype=torch.float64, **settings):
    torch.manual_seed(0)
    return SPDNet((5, 4, 3), 2, **{"head": "mlp", "hidden": 6, "dtype": dtype, **settings})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (4,), (2, 3)])
@pytest.mark.parametrize("training", [True, False])
def test_leading_shapes(shape, training, dtype):
    model = make(dtype).train(training)
    X = random_spd(*shape, 5, dtype=dtype)
    logits = model(X)
    assert (logits.shape, logits.dtype) == ((*shape, 2), dtype)
    assert model.features(X).shape == (*shape, model.n_features)
    assert all(buffer.isfinite().all() for buffer in model.buffers())


def test_by_its_formula():
    model, X = make(dropout=0.0), random_spd(2, 4, 5)

    def normalized(Y):
        return (Y - Y.mean(0)) / (Y.var(0, unbiased=False) + 1e-5).sqrt()

    first, last = model.classifier[1], model.classifier[5]
    assert first.bias is None
    hidden = relu(normalized(linear(normalized(model.features(X).flatten(0, 1)), first.weight)))
    logits = linear(hidden, last.weight, last.bias).unflatten(0, (2, 4))
    torch.testing.assert_close(model(X), logits)
    assert not torch.allclose(model.eval()(X), logits)


def test_features():
    assert make().n_features == 9
    assert make(vectorize="vech").n_features == 6
    model, X = make(log=False), random_spd(4, 5)
    assert model.logeig is None
    (first, second), (reeig,) = model.bimaps, model.reeigs
    torch.testing.assert_close(model.features(X), second(reeig(first(X))).flatten(-2))


def test_a_single_sample_is_normalized_by_the_running_statistics():
    model, X = make(dropout=0.0), random_spd(8, 5)
    model(X)
    before = [buffer.clone() for buffer in model.buffers()]
    logits = model(X[:1])
    torch.testing.assert_close(logits, model.eval()(X[:1]))
    assert all(map(torch.equal, model.buffers(), before))
    logits.sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_reset_parameters():
    model, fresh = make(), make().classifier.state_dict()
    with torch.no_grad():
        for value in model.classifier.state_dict().values():
            value.add_(1)
    model.reset_parameters()
    for name, value in model.classifier.state_dict().items():
        is_drawn = name in ("1.weight", "5.weight", "5.bias")
        assert torch.equal(value, fresh[name]) is not is_drawn
        assert not torch.equal(value, fresh[name] + 1)


def test_traits():
    assert make().is_random
    assert MultiBranchSPDNet((5, 4), 2, head="mlp").is_random
    assert pickle.loads(pickle.dumps(make())).is_random
    for model in (SPDNet, make(head="linear"), MultiBranchSPDNet((5, 4), 2)):
        assert not get_trait(model, "is_random")
    assert not {"head", "hidden", "dropout"} & set(SPDNetMLR.hyperparameters)


def test_on_the_meta_device():
    model = make(device="meta")
    assert model(torch.empty(4, 5, 5, device="meta", dtype=torch.float64)).shape == (4, 2)
    model = model.to_empty(device="cpu")
    model.reset_parameters()
    assert model(random_spd(4, 5)).isfinite().all()


@pytest.mark.parametrize("head", ["mlp", "linear"])
@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"hidden": 0}, ValueError, "SPDNet: expected hidden >= 1, got 0"),
        ({"hidden": (8, 8)}, TypeError, "SPDNet: expected hidden to be an integer"),
        ({"dropout": 1}, ValueError, "SPDNet: expected dropout >= 0 and < 1 and finite, got 1"),
        ({"dropout": -0.1}, ValueError, "dropout >= 0"),
        ({"dropout": "half"}, TypeError, "dropout to be a number"),
    ],
)
def test_bad_settings(head, settings, error, message):
    with pytest.raises(error, match=message):
        make(head=head, **settings)


RECIPE = RECIPES["fast"].changed(epochs=3, batch_size=8, head="mlp", hidden=6)


@pytest.mark.parametrize("steps", [5, 8])
@pytest.mark.parametrize("model", ["spdnet", "multibranch"])
def test_a_stop_between_batches_changes_nothing(steps, model):
    """33 samples leave a last batch of one."""
    data, recipe = problem(33), RECIPE.changed(model=model)

    def trainer():
        return Trainer(build(recipe, (5, 4, 3), 2, data), data, recipe, val=data)

    whole, first, second = trainer(), trainer(), trainer()
    whole.run()
    first.run(should_stop=lambda: first.progress.step >= steps)
    torch.rand(3)  # the dropout depends on the seed alone
    second.load_state_dict(pickle.loads(pickle.dumps(first.state_dict())))
    second.run()
    for name, value in whole.model.state_dict().items():
        assert torch.equal(second.model.state_dict()[name], value)
    losses = [[row["loss"] for row in t.progress.history] for t in (second, whole)]
    assert losses[0] == losses[1]


def test_learns_what_is_not_linear():
    """The class is the sign of a product of two entries of the logarithm."""
    torch.manual_seed(0)
    logs = torch.randn(400, 2, 2, dtype=torch.float64)
    X = torch.linalg.matrix_exp(logs + logs.mT)
    y = (logs[:, 0, 0] * logs[:, 1, 1] > 0).long()
    scores = {}
    for head in ("linear", "mlp"):
        recipe = RECIPES["fast"].changed(head=head, epochs=30)
        data = Samples(X, y)
        model = build(recipe, (2,), 2, data)
        scores[head] = Trainer(model, data, recipe, val=data).run().history[-1]["val_accuracy"]
    assert scores["linear"] < 0.65
    assert scores["mlp"] > 0.9
