"""One description of each option, and everything that is derived from it."""

import inspect
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from spdnet import SPDNet, SPDNetClassifier, covariance
from spdnet.data import Descriptor, clean
from spdnet.options.commands import BuildCommand
from spdnet.options.estimator import HYPERPARAMETERS
from spdnet.options.kinds import Choice
from spdnet.options.option import options
from spdnet.options.run import DataOptions, RunOptions
from spdnet.paper import Reproduction
from spdnet.runs import Comparison, Settings
from spdnet.runs.settings import from_mapping, read_toml
from spdnet.training import RECIPES, Recipe
from tests.cases import random_spd

RUN = options(RunOptions)


def test_the_parameters_of_the_estimator_are_the_hyperparameters():
    parameters = inspect.signature(SPDNetClassifier).parameters
    names = list(parameters)
    first = names.index("recipe") + 1
    assert names[first : first + len(HYPERPARAMETERS)] == list(HYPERPARAMETERS)
    assert all(parameters[name].default is None for name in HYPERPARAMETERS)
    shared = {name: RUN[name].default for name in ("recipe", "device", "dtype")}
    assert {name: parameters[name].default for name in shared} == shared


@pytest.mark.parametrize("cls", [Recipe, Settings, Comparison, Reproduction, Descriptor])
def test_docstrings_describe_every_field(cls):
    for name in inspect.signature(cls).parameters:
        assert re.search(rf"^{name} : ", cls.__doc__, re.M), name
    assert "{options}" not in cls.__doc__


def test_the_docstring_of_the_estimator_describes_every_parameter():
    for name in SPDNetClassifier().get_params():
        assert re.search(rf"^{name} : ", SPDNetClassifier.__doc__, re.M), name
    assert "Default: 60, paper 500." in SPDNetClassifier.__doc__


def test_choices_are_those_of_the_functions_that_take_them():
    """The description imports no torch, so that it has to repeat the names."""

    def accepted(call):
        with pytest.raises(ValueError, match="to be one of") as caught:
            call()
        return re.findall(r"'(\w+)'", str(caught.value).partition(", got")[0])

    X = random_spd(3, 2).numpy()
    found = {
        "center": accepted(lambda: SPDNet((2,), 2, center="?")),
        "norm": accepted(lambda: SPDNet((2,), 2, norm="?")),
        "head": accepted(lambda: SPDNet((2,), 2, head="?")),
        "estimator": accepted(lambda: covariance.estimate(X, estimator="?")),
        "bad": accepted(lambda: clean(X, "?")),
        "recipe": list(RECIPES),
    }
    assert {name: list(RUN[name].kind.choices) for name in found} == found
    modes = accepted(lambda: covariance.regularize(X, mode="?"))
    assert list(options(BuildCommand)["mode"].kind.choices) == modes


def test_the_table_of_the_documentation_has_every_setting():
    path = Path(__file__).parent.parent / "docs" / "commands.py"
    table = runpy.run_path(str(path))["settings_table"]()
    assert re.findall(r"^\| `(\w+)` \|", table, re.M) == list(RUN)
    assert "| `epochs` | 60, paper 500 | Number of passes over the training data. |" in table
    assert "_made/settings.md" in (path.parent / "guide" / "settings.md").read_text("utf-8")


def test_the_help_names_every_choice():
    for name, found in RUN.items():
        assert found.help[0].isupper() or name == "data"
        if isinstance(found.kind, Choice):
            assert all(choice in found.text() for choice in found.kind.names), name


def test_commands_share_the_checks():
    assert set(options(DataOptions)) < set(options(Comparison))
    for make in (
        lambda **more: Settings(data="digits", **more),
        lambda **more: Comparison(data="digits", **more),
        lambda **more: Reproduction(experiment="afew", **more),
    ):
        with pytest.raises(ValueError, match="expected seed to be an integer from 0"):
            make(seed=-1)
        with pytest.raises(ValueError, match="expected epochs >= 1, got 0"):
            make(epochs=0)
        with pytest.raises(TypeError, match="expected device to be text, got 0"):
            make(device=0)
        assert make(seed=3, epochs=2, device="cpu").epochs == 2
    with pytest.raises(ValueError, match="test_size > 0 and < 1"):
        Comparison(data="digits", test_size=0.0)
    with pytest.raises(ValueError, match="did you mean 'oas'"):
        Comparison(data="digits", estimator="oasis")


def test_the_two_test_fractions():
    assert Settings(data="digits").fractions(named_parts=False)["test"] == 0.2
    assert Comparison(data="digits").test_size == 0.5


def test_a_settings_file_holds_every_character(tmp_path):
    path = tmp_path / "settings.toml"
    for data in ("a\x7f.npz", "a\t\n\"'\\.npz", "ü\u2028"):
        path.write_text(Settings(data=data).to_toml(), encoding="utf-8", newline="")
        assert from_mapping(read_toml(path), "a file").data == data


ONE_OF_EACH = """
from dataclasses import dataclass
from spdnet.models import registry

registry.MODELS["noisenet"] = registry.Entry("__main__:NoiseNet", "has noise")

from spdnet.options import recipe
from spdnet.options.kinds import Number
from spdnet.options.option import NETWORK, hyperparameter

@dataclass(frozen=True, kw_only=True)
class RecipeOptions(recipe.RecipeOptions):
    noise: float = hyperparameter(
        Number(at_least=0, below=1), "Probability of noise",
        default=0.0, recipes={"paper": 0.5}, panel=NETWORK,
    )

recipe.RecipeOptions = RecipeOptions  # before anything is derived from it

import inspect, runpy, sys, tomllib
from typer.testing import CliRunner
from spdnet.cli import app

def call(*arguments):
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "100"})

text = " ".join(call("train", "--help").output.replace("│", " ").split())
assert "--noise <float> Probability of noise. [default: 0, paper 0.5]" in text, text
assert "multibranch, tsmnet, noisenet or package.module:Class." in text, text
assert "noisenet has noise." in text, text
assert "torch" not in sys.modules

import torch

class NoiseNet(torch.nn.Module):
    hyperparameters = ("noise",)

    def __init__(self, n, n_classes, noise):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Dropout(noise), torch.nn.Linear(n * n, n_classes)
        )

    def forward(self, X):
        return self.layers(X)

from spdnet import SPDNetClassifier
from spdnet.runs.settings import Settings, from_mapping
from spdnet.training import RECIPES, make_network

assert inspect.signature(SPDNetClassifier).parameters["noise"].default is None
assert "noise : float, optional\\n    Probability of noise." in SPDNetClassifier.__doc__
assert (RECIPES["fast"].noise, RECIPES["paper"].noise) == (0.0, 0.5)
settings = Settings(data="digits", model="noisenet", noise=0.25)
written = tomllib.loads(settings.to_toml())
assert (written["model"], written["noise"]) == ("noisenet", 0.25)
made = from_mapping(written, "a file").make_recipe()
assert (made.noise, made.network) == (0.25, "NoiseNet")
assert make_network(made, 5, 3).layers[1].p == 0.25
table = runpy.run_path("docs/commands.py")["settings_table"]()
assert "| `noise` | 0, paper 0.5 | Probability of noise. |" in table
assert "noisenet" in table
refused = call("train", "digits", "--model", "noisenet", "--noise", "2")
assert refused.exit_code == 2
assert "train: expected noise >= 0 and < 1 and finite, got 2.0" in refused.stderr
refused = call("train", "digits", "--noise", "0.5")
assert "expected no noise with model='spdnet', which has only dims, norm" in refused.stderr
refused = call("train", "digits", "--model", "noisenet", "--eps", "0.1")
assert "expected no eps with model='noisenet', which has only noise" in refused.stderr
try:
    from_mapping({"data": "digits", "nosie": 0.1}, "a file")
except ValueError as error:
    assert "did you mean 'noise'?" in str(error)
else:
    raise AssertionError

X = torch.eye(4).repeat(12, 1, 1).numpy() * (1 + torch.arange(12).numpy()[:, None, None])
y = torch.arange(12).numpy() // 6
classifier = SPDNetClassifier(model="noisenet", noise=0.1, epochs=2, device="cpu").fit(X, y)
assert type(classifier.model_) is NoiseNet
assert classifier.predict(X).shape == (12,)
"""


def test_a_model_is_one_line_and_a_hyperparameter_one_field():
    folder = Path(__file__).parent.parent
    run = subprocess.run(
        [sys.executable, "-c", ONE_OF_EACH], capture_output=True, text=True, cwd=folder
    )
    assert run.returncode == 0, run.stderr
