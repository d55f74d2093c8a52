"""Portfolios of small networks."""

import copy
import pickle

import pytest
import torch
from torch.nn.functional import cross_entropy

from spdnet.linalg import congruence, logm
from spdnet.models import MEMBERS, PortfolioNet
from spdnet.models.members import FEATURES
from spdnet.nn.features import MAPS
from spdnet.training import RECIPES, Samples, Trainer, build
from spdnet.training.evaluation import weighted_losses
from tests.cases import random_spd


def make(members=("log", "linear"), dtype=torch.float64, **settings):
    torch.manual_seed(0)
    settings = {"n_samples": 30} | settings
    model = PortfolioNet(4, 3, members=members, dtype=dtype, **settings)
    model.fit_buffers(random_spd(30, 4, dtype=dtype), torch.arange(30) % 3)
    return model.eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (4,), (2, 3)])
def test_leading_shapes(shape, dtype):
    model, X = make(tuple(MEMBERS), dtype=dtype), random_spd(*shape, 4, dtype=dtype)
    assert (model(X).shape, model(X).dtype) == ((*shape, 3), dtype)
    assert model.features(X).shape == (*shape, model.n_features)
    assert model.train()(X).shape == (*shape, 3, len(MEMBERS))


def test_probabilities_are_averaged():
    model, X = make(tuple(MEMBERS)), random_spd(6, 4)
    for p in model.parameters():
        torch.nn.init.normal_(p)
    expected = torch.stack([head(model.stem(X)).softmax(-1) for head in model.heads]).mean(0)
    torch.testing.assert_close(model(X).exp(), expected)
    torch.testing.assert_close(model(model.stem(X), stem=False), model(X))


def test_an_ensemble_repeats_the_members_with_other_weights():
    model = make(("log", "all"), ensemble=3)
    assert [head.member for head in model.heads] == [MEMBERS["log"], MEMBERS["all"]] * 2
    assert not torch.equal(model.heads[0].linear.weight, model.heads[2].linear.weight)


def test_members_train_as_if_they_were_alone():
    X, y = random_spd(24, 4), torch.arange(24) % 3
    recipe = RECIPES["auto"].changed(epochs=3, batch_size=8, center="none", n_samples=24)
    both = recipe.changed(members=("linear", "linear"), ensemble=1)
    model = build(both, (), 3, Samples(X, y))
    alone = PortfolioNet(4, 3, members=("linear",), n_samples=24, center=None, dtype=X.dtype)
    alone.maps.load_state_dict(model.maps.state_dict())
    alone.heads[0].load_state_dict(model.heads[1].state_dict())
    Trainer(model, Samples(X, y), both).run()
    Trainer(alone, Samples(X, y), both.changed(members=("linear",))).run()
    torch.testing.assert_close(model.heads[1].state_dict(), alone.heads[0].state_dict())


def test_the_linear_member_is_ridge_regression_on_features_of_norm_1():
    X, y = random_spd(40, 3), torch.arange(40) % 2
    recipe = RECIPES["auto"].changed(
        members=("linear",), ensemble=1, epochs=600, batch_size=40, label_smoothing=0.0
    )
    model = build(recipe, (), 2, Samples(X, y))
    Trainer(model, Samples(X, y), recipe).run()
    features = model.stem(X)
    weight = (model.heads[0].linear.weight * features.square().sum(1).mean().sqrt()).detach()
    weight = weight.requires_grad_()
    unit = features / features.square().sum(1).mean().sqrt()
    loss = cross_entropy(unit @ weight.T + model.heads[0].linear.bias.detach(), y)
    loss = loss + MEMBERS["linear"].penalty / 2 * weight.square().sum()
    gradient = torch.autograd.grad(loss, weight)[0]
    assert gradient.abs().max() < 1e-4


def test_the_kernel_member_takes_gaussian_features_of_square_roots():
    model, X = make(("sqrt-kernel", "log"), ensemble=4), random_spd(6, 4)
    assert len(model.kernels) == 1
    weight = torch.nn.init.normal_(model.heads[0].linear.weight)
    expected = model.kernels[0](model.maps["sqrt"](model.center(X))) @ weight.T
    torch.testing.assert_close(model.outputs(X)[..., 0], expected)


def test_the_reduced_member_takes_logarithms_after_a_bimap():
    model, X = make(("reduced", "log")), random_spd(6, 4)
    features = model.maps["reduced"]
    assert features.reduction.shape == (4, 1)
    expected = features.scale * (
        logm(congruence(model.center(X), features.reduction)) - features.mean
    )
    torch.testing.assert_close(model.stem(X)[:, -1:], expected[..., 0])


def test_each_member_has_its_label_smoothing():
    X, y = random_spd(24, 4), torch.arange(24) % 3
    recipe = RECIPES["auto"].changed(epochs=2, n_samples=24, label_smoothing=0.2)
    both = recipe.changed(members=("all", "all-hard"), ensemble=1)
    model = build(both, (), 3, Samples(X, y))
    assert model.smoothing == (1.0, 0.0)
    outputs = model.train()(X)
    expected = [
        cross_entropy(outputs[..., i], y, reduction="none", label_smoothing=smoothing)
        for i, smoothing in enumerate((0.2, 0.0))
    ]
    found = weighted_losses(
        outputs, y, label_smoothing=Trainer(model, Samples(X, y), both)._smoothing
    )
    torch.testing.assert_close(found, sum(expected))


def test_the_stem_is_computed_once(monkeypatch):
    X, y = random_spd(20, 4), torch.arange(20) % 2
    recipe = RECIPES["auto"].changed(members=("log",), epochs=3, n_samples=20)
    model = build(recipe, (), 2, Samples(X, y))
    calls, stem = [], model.stem
    monkeypatch.setattr(model, "stem", lambda X, check=None: calls.append(len(X)) or stem(X))
    Trainer(model, Samples(X, y), recipe, val=Samples(X[:5], y[:5])).run()
    assert calls == [20, 5]


def test_copies():
    members = ("log", "linear", "sqrt-kernel", "log-kernel", "norm-dropout-80", "reduced")
    model, X = make(members, n_samples=7), random_spd(5, 4)
    torch.testing.assert_close(copy.deepcopy(model)(X), model(X))
    torch.testing.assert_close(pickle.loads(pickle.dumps(model))(X), model(X))
    other = PortfolioNet(4, 3, members=members, n_samples=7, dtype=torch.float64).eval()
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(other(X), model(X))
    exported = torch.export.export(model, (X,)).module()
    torch.testing.assert_close(exported(X), model(X))


def test_members_have_known_maps():
    assert {name for name, _ in FEATURES.values()} == set(MAPS)
    assert all(set(member.maps) <= set(FEATURES) for member in MEMBERS.values())
    assert all(len(member.maps) == 1 for member in MEMBERS.values() if member.gamma is not None)


def test_errors():
    with pytest.raises(ValueError, match=r"members.*'cube'"):
        PortfolioNet(4, 3, members=("cube",))
    with pytest.raises(ValueError, match="expected names of members, got 'log'"):
        PortfolioNet(4, 3, members="log")
    with pytest.raises(ValueError, match="positive definite"):
        make()(torch.zeros(2, 4, 4, dtype=torch.float64))
    with pytest.raises(ValueError, match="no norm with model='portfolio'"):
        RECIPES["auto"].changed(norm="brooks")
