"""Ensembles of networks."""

import copy
import json

import pytest
import torch
from typer.testing import CliRunner

from spdnet import SPDNet, SPDNetClassifier
from spdnet.cli import app
from spdnet.models import Ensemble
from spdnet.training import RECIPES, Samples, Trainer, build, make_network
from tests.cases import random_spd
from tests.runs.test_train import file_of


def test_probabilities_are_averaged():
    model, X = Ensemble(SPDNet((4, 3), 2, dtype=torch.float64) for _ in range(3)), random_spd(6, 4)
    expected = torch.stack([net(X).softmax(-1) for net in model.networks]).mean(0)
    torch.testing.assert_close(model.eval()(X).exp(), expected)
    assert model.train()(X).shape == (6, 2, 3)
    assert model.features(X).shape == (6, 3 * model.networks[0].n_features)
    exported = torch.export.export(model.eval(), (X,)).module()
    torch.testing.assert_close(exported(X), model(X))
    with pytest.raises(ValueError, match="at least one network"):
        Ensemble([])


@pytest.mark.parametrize("settings", [{}, {"norm": "log_euclidean"}, {"optimizer": "sgd"}])
def test_networks_train_as_if_they_were_alone(settings):
    X, y = random_spd(24, 4), torch.arange(24) % 3
    one = RECIPES["fast"].changed(epochs=3, batch_size=8, **settings)
    model = build(one.changed(ensemble=2), (4, 3), 3, Samples(X, y))
    first, second = model.networks
    assert not torch.equal(first.bimaps[0].weight, second.bimaps[0].weight)
    alone = copy.deepcopy(second)
    Trainer(model, Samples(X, y), one.changed(ensemble=2)).run()
    Trainer(alone, Samples(X, y), one).run()
    torch.testing.assert_close(second.state_dict(), alone.state_dict())


def test_domains():
    recipe = RECIPES["fast"].changed(model="tsmnet", ensemble=2)
    model = make_network(recipe, 3, 2, n_domains=2)
    X, domain = torch.randn(6, 3, 128), torch.arange(6) % 2
    assert model.uses_domains
    assert model.takes == "signals"
    assert model(X, domain).shape == (6, 2, 2)
    adapted = model.eval().adapt(X, domain + 2)
    assert adapted(X, domain + 2).shape == (6, 2)


def test_recipes():
    assert RECIPES["auto"].changed(model="spdnet").ensemble == 1
    assert RECIPES["fast"].changed(ensemble=4).changed(lr=0.1).ensemble == 4
    assert RECIPES["fast"].changed(ensemble=4, norm="brooks").network == (
        "SPDNet, norm brooks, 4 networks"
    )


def test_the_classifier_and_the_command_line(tmp_path):
    X, y = random_spd(24, 4).numpy(), [0, 1, 2] * 8
    model = SPDNetClassifier(recipe="fast", ensemble=2, epochs=1, validation_fraction=None)
    assert len(model.fit(X, y).model_.networks) == 2
    assert model.transform(X).shape == (24, model.model_.features(torch.from_numpy(X)).shape[1])
    out = tmp_path / "run"
    data = str(file_of(tmp_path))
    command = ["train", data, "--recipe", "fast", "--ensemble", 2, "--epochs", 1]
    done = CliRunner().invoke(app, [str(a) for a in (*command, "--device", "cpu", "--out", out)])
    assert done.exit_code == 0, done.output
    assert "SPDNet, 2 networks" in done.output
    assert json.loads((out / "results.json").read_text())
    done = CliRunner().invoke(app, ["evaluate", str(out), data])
    assert done.exit_code == 0, done.output
