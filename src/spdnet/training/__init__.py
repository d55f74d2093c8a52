"""Training: recipes and the loop."""

from spdnet.training.loop import LabelledMatrices, Progress, build, evaluate, fit
from spdnet.training.recipe import RECIPES, Recipe, choose_dims

__all__ = [
    "RECIPES",
    "LabelledMatrices",
    "Progress",
    "Recipe",
    "build",
    "choose_dims",
    "evaluate",
    "fit",
]
