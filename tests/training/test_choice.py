"""Choice of the members of a portfolio."""

import numpy as np
import pytest
import torch

from spdnet import SPDNetClassifier
from spdnet.data.split import assign_folds
from spdnet.models import MEMBERS
from spdnet.training import RECIPES, Samples, choose_members
from spdnet.training.choice import FALLBACK, Choice
from tests.cases import random_spd

QUICK = RECIPES["auto"].changed(epochs=2)


def data(n=40, classes=2):
    y = torch.arange(n) % classes
    scale = 1 + y[:, None] * torch.linspace(0, 1, 3)
    return Samples(random_spd(n, 3) * scale[:, :, None] * scale[:, None, :], y)


def test_folds_are_blocks_of_each_class():
    fold, by_groups = assign_folds(np.array([0, 1] * 8))
    assert not by_groups
    assert fold.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]


def test_rare_classes_are_spread_over_the_folds():
    fold, _ = assign_folds(np.array([0] * 8 + [1] + [2] + [3] * 3))
    assert fold[8] != fold[9]
    assert len(set(fold[10:])) == 3


@pytest.mark.parametrize("n_groups", [2, 3, 9])
def test_folds_are_whole_groups(n_groups):
    groups = np.array([f"s{i % n_groups}" for i in range(36)])
    fold, by_groups = assign_folds(np.arange(36) % 2, groups)
    assert by_groups
    assert len(set(fold)) == min(4, n_groups)
    assert all(len(set(fold[groups == g])) == 1 for g in groups)


@pytest.mark.parametrize("groups", [["a"] * 8, range(8)])
def test_one_group_or_one_for_each_sample_is_none(groups):
    assert not assign_folds(np.arange(8) % 2, groups)[1]


def test_the_choice():
    counts = []
    choice = choose_members(QUICK, data(), 2, on_batch=lambda *count: counts.append(count))
    assert set(choice.accuracy) == set(MEMBERS)
    assert (choice.n_folds, choice.by_groups) == (4, False)
    assert counts[-1] == (8, 8)
    names = tuple(choice.accuracy)
    assert tuple(choice.loss) == names
    ranks = [
        sum(choice.accuracy[other] > choice.accuracy[name] for other in names)
        + sum(choice.loss[other] < choice.loss[name] for other in names)
        for name in names
    ]
    assert ranks == sorted(ranks)
    assert choice.members == tuple(choice.accuracy)[:4]
    one = choose_members(QUICK.changed(ensemble=1), data(), 2)
    assert one.members == choice.members[:1]
    again = choose_members(QUICK, data(), 2)
    assert (again.members, again.accuracy) == (choice.members, choice.accuracy)


def test_many_samples_hold_out_one_fold(monkeypatch):
    monkeypatch.setattr("spdnet.training.choice._MANY", 40)
    choice = choose_members(QUICK, data(), 2)
    assert choice.n_folds == 1
    assert "a held-out fold" in choice.describe()


def test_few_samples_are_not_split():
    choice = choose_members(QUICK, data(6), 2)
    assert (choice.members, choice.n_folds) == (FALLBACK, 0)
    assert "too few samples" in choice.describe()


def test_the_description_is_one_line():
    accuracy = {"log": 0.9, "linear": 0.89, "all": 0.7}
    choice = Choice(("log", "linear"), accuracy, dict.fromkeys(accuracy, 0.5), 4, True, 2.0)
    assert choice.describe() == (
        "chose log 90.0 %, linear 89.0 %: best 2 of 3 networks by accuracy and log loss in 4-fold "
        "cross-validation by groups within the training set (2.0 s)"
    )
    one = Choice(("log",), {"log": 0.9}, {"log": 0.5}, 2, True, 2.0)
    assert "in 2-fold cross-validation" in one.describe()


def test_the_classifier(capsys):
    samples = data(48, 3)
    X, y = samples.X.numpy(), samples.y.numpy()
    groups = np.arange(48) // 12
    model = SPDNetClassifier(epochs=2, random_state=0, verbose=2).fit(X, y, groups=groups)
    assert model.choice_.by_groups
    assert model.recipe_.members == model.choice_.members
    assert model.choice_.describe() in capsys.readouterr().out
    assert model.predict_proba(X).shape == (48, 3)
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1)
    assert model.transform(X).shape == (48, model.model_.n_features)


@pytest.mark.parametrize("option", [{"dims": (3, 2)}, {"norm": "brooks"}, {"eps": 1e-3}])
def test_an_option_of_spdnet_selects_spdnet(option):
    samples = data(12)
    model = SPDNetClassifier(epochs=1, **option).fit(samples.X.numpy(), samples.y.numpy())
    assert (model.recipe_.model, model.choice_) == ("spdnet", None)


def test_given_members_are_not_compared():
    samples = data(12)
    model = SPDNetClassifier(epochs=1, members=("all",), ensemble=2)
    model.fit(samples.X.numpy(), samples.y.numpy())
    assert (model.recipe_.members, model.choice_) == (("all",), None)
    assert len(model.model_.heads) == 2
