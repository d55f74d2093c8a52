"""Modules of the user's own through the trainer, the estimator, runs and the command line."""

import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from torch.nn.functional import cross_entropy

from spdnet import SPDNetClassifier
from spdnet.runs import RunFolder, Settings, TrainedModel, train
from spdnet.training import RECIPES, Trainer, checkpoint
from tests.own_model import CheckedNet, LogNet, OneOutput
from tests.training.test_loop import problem

PATH = "tests.own_model:LogNet"
RECIPE = RECIPES["fast"].changed(epochs=4, batch_size=8)


def net(cls=LogNet, *more):
    torch.manual_seed(0)
    return cls(5, 2, *more).double()


def losses(trainer):
    return [(row["loss"], row.get("val_loss")) for row in trainer.progress.history]


def test_the_trainer_takes_any_module():
    data = problem()
    trainers = []
    for _ in range(2):
        trainer = Trainer(net(), data, RECIPE, val=data)
        before = torch.get_rng_state()
        trainer.run()
        assert torch.equal(torch.get_rng_state(), before)
        torch.rand(3)  # the dropout depends on the seed alone
        trainers.append(trainer)
    assert losses(trainers[0]) == losses(trainers[1])
    assert losses(trainers[0])[-1] < losses(trainers[0])[0]
    checked = net(CheckedNet, 1e-4)
    Trainer(checked, data, RECIPE).run()
    assert set(checked.checked) == {False}


@pytest.mark.parametrize("batches", [5, 7])
def test_a_stop_between_batches_changes_nothing(batches):
    data = problem()
    whole = Trainer(net(), data, RECIPE, val=data)
    whole.run()
    first = Trainer(net(), data, RECIPE, val=data)
    first.run(should_stop=lambda: first.progress.step >= batches)
    assert not first.finished
    second = Trainer(net(), data, RECIPE, val=data)
    second.load_state_dict(pickle.loads(pickle.dumps(first.state_dict())))
    second.run()
    assert losses(second) == losses(whole)
    for a, b in zip(second.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_own_loss():
    data = problem()

    def twice(logits, y):
        return 2 * cross_entropy(logits, y, reduction="none")

    recipe = RECIPE.changed(lr=0.0, epochs=1)
    model = net().eval()
    model.dropout.p = 0.0
    plain = Trainer(model, data, recipe, val=data).run().history[0]
    own = Trainer(model, data, recipe, val=data, loss=twice).run().history[0]
    for name in ("loss", "val_loss"):
        assert own[name] == pytest.approx(2 * plain[name])
    with pytest.raises(ValueError, match=r"a loss for each sample.*reduction='none'"):
        Trainer(model, data, recipe, loss=cross_entropy).run()


def test_wrong_outputs():
    data = problem()
    with pytest.raises(ValueError, match=r"at least 2 logits for each sample, .* got 1"):
        Trainer(net(OneOutput), data, RECIPE).run()
    flat = torch.nn.Sequential(net(OneOutput), torch.nn.Flatten(0))
    with pytest.raises(ValueError, match=r"logits of shape \(8, n_classes\)"):
        Trainer(flat, data, RECIPE).run()
    with pytest.raises(ValueError, match="2 logits"):
        SPDNetClassifier(model=OneOutput, epochs=1, device="cpu").fit(data.X.numpy(), data.y)


@pytest.mark.parametrize("model", [LogNet, PATH])
def test_the_estimator(model):
    data = problem()
    X, y = data.X.numpy(), data.y.numpy()
    classifier = SPDNetClassifier(model=model, epochs=3, random_state=0, device="cpu")
    again = clone(classifier).fit(X, y)
    classifier.fit(X, y)
    assert type(classifier.model_) is LogNet
    assert (classifier.dims_, classifier.recipe_.network) == ((), "LogNet")
    assert classifier.get_params()["model"] is model
    expected = classifier.predict_proba(X)
    np.testing.assert_array_equal(again.predict_proba(X), expected)
    loaded = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(loaded.predict_proba(X), expected)
    search = GridSearchCV(classifier, {"lr": [0.01, 0.1]}, cv=2).fit(X, y)
    assert search.best_estimator_.score(X, y) > 0.4
    with pytest.raises(ValueError, match=r"a model with features\(\), got LogNet"):
        classifier.transform(X)


def test_a_local_class_and_its_hyperparameter():
    class Local(CheckedNet):
        pass

    data = problem()
    classifier = SPDNetClassifier(model=Local, eps=0.5, epochs=1, device="cpu")
    assert classifier.fit(data.X.numpy(), data.y).model_.eps == 0.5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dims": (5, 3)}, "expected no dims with model='tests.own_model:LogNet'"),
        ({"eps": 1e-4}, "expected no eps with model=.*has only ensemble"),
        ({"norm": "brooks"}, "expected no norm"),
        ({"model": CheckedNet, "head": "log_euclidean"}, "expected no head .* has only eps"),
        ({"model": "tests.own_model:Nothing"}, "a class 'Nothing' in 'tests.own_model', got none"),
        ({"model": "tests.nowhere:Net"}, "'tests.nowhere' cannot be imported"),
        ({"model": "tests.own_model:torch"}, "subclass of torch.nn.Module"),
        ({"model": "log net"}, "model to be one of 'portfolio', 'spdnet'"),
    ],
)
def test_options_that_it_does_not_have(settings, message):
    data = problem()
    classifier = SPDNetClassifier(**{"model": LogNet, "epochs": 1, "device": "cpu", **settings})
    with pytest.raises((ValueError, TypeError), match=message):
        classifier.fit(data.X.numpy(), data.y)


def files(folder, n=60):
    data = problem(n)
    np.savez(folder / "a.npz", X=data.X.numpy(), y=data.y.numpy())
    return str(folder / "a.npz")


def test_a_run_is_loaded_only_with_its_class(tmp_path):
    folder = RunFolder(tmp_path / "run")
    settings = Settings(data=files(tmp_path), model=PATH, epochs=2, device="cpu", baseline=False)
    found = train(settings, folder)
    assert (found.network, found.dims) == ("LogNet", ())
    assert folder.settings().make_recipe().model == PATH  # imports nothing
    with pytest.raises(ValueError, match=f"set --model {PATH}, or use TrainedModel.load"):
        TrainedModel.load(folder.path, device="cpu")
    with pytest.raises(ValueError, match="expected the model of the run"):
        TrainedModel.load(folder.path, device="cpu", model=CheckedNet)
    trained = TrainedModel.load(folder.path, device="cpu", model=LogNet)
    assert repr(trained) == "TrainedModel(LogNet, 2 classes, for matrices of 5 x 5)"
    assert trained.predict(problem().X.numpy()).shape == (40,)
    with pytest.raises(ValueError, match="expected no dims with model="):
        train(settings.changed(dims=(5, 3)), RunFolder(tmp_path / "other"))
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_the_command_line(tmp_path):
    """From the current folder, killed, resumed, evaluated."""
    shutil.copy(Path(__file__).parents[1] / "own_model.py", tmp_path / "mine.py")
    data = files(tmp_path, 400)
    flags = ["--model", "mine:LogNet", "--epochs", "30", "--device", "cpu", "--no-baseline"]
    source = Path(sys.modules["spdnet"].__file__).parents[1]
    env = {**os.environ, "PYTHONPATH": str(source)}

    def start(*arguments):
        command = [sys.executable, "-c", "from spdnet.cli import main; main()", *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, cwd=tmp_path, env=env, **pipes)

    def run(*arguments):
        process = start(*arguments)
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err

    code, out, err = run("train", data, *flags, "--out", "whole")
    assert code == 0, err
    assert "LogNet" in out
    killed = start("train", data, *flags, "--out", "run")
    metrics = tmp_path / "run" / "metrics.csv"
    for _ in range(3000):
        if metrics.exists() and metrics.read_text().count("\n") > 4:
            break
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    code, _, err = run("train", "--resume", "--out", "run")
    assert (code, "expected --model mine:LogNet with --resume" in err) == (2, True)
    code, _, err = run("train", "--resume", "--out", "run", "--model", "mine:LogNet")
    assert code == 0, err
    states = [
        checkpoint.load(tmp_path / name / "checkpoints" / "best.pt") for name in ("whole", "run")
    ]
    assert states[0]["epoch"] == states[1]["epoch"]
    for name, value in states[0]["model"].items():
        assert torch.equal(states[1]["model"][name], value)
    code, _, err = run("evaluate", "run", data)
    assert (code, "set --model mine:LogNet" in err) == (2, True)
    code, out, err = run("evaluate", "run", data, "--model", "mine:LogNet")
    assert code == 0, err
    assert "accuracy" in out
    code, _, err = run("predict", "run", data, "--model", "mine:LogNet", "--out", "p.csv")
    assert code == 0, err
    assert (tmp_path / "p.csv").read_text().count("\n") == 401
    code, _, err = run("report", "run")
    assert code == 0, err
    assert "LogNet" in (tmp_path / "run" / "report.html").read_text()
    code, _, err = run("train", data, *flags, "--eps", "0.1", "--out", "bad")
    assert code == 2
    assert "expected no eps with model='mine:LogNet'" in err


class LazyNet(torch.nn.Module):
    """Its weights have no shape before the first batch."""

    def __init__(self, n, n_classes):
        super().__init__()
        self.linear = torch.nn.LazyLinear(n_classes)

    def forward(self, X):
        return self.linear(X.flatten(1))


def test_lazy_modules_get_their_shapes():
    X, y = np.tile(np.eye(4), (8, 1, 1)), np.arange(8) % 2
    X[y == 1] *= 2
    classifier = SPDNetClassifier(model=LazyNet, epochs=2, random_state=0).fit(X, y)
    assert classifier.model_.linear.weight.shape == (2, 16)


def test_other_constructors_are_refused():
    X, y = np.tile(np.eye(4), (8, 1, 1)), np.arange(8) % 2
    with pytest.raises(TypeError, match=r"by Identity2\(n, n_classes\), got .* required"):
        SPDNetClassifier(model=Identity2, epochs=1).fit(X, y)


class Identity2(torch.nn.Module):
    """Its constructor has another parameter."""

    def __init__(self, n, n_classes, width):
        super().__init__()
