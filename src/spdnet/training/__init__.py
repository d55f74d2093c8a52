"""Training: recipes, the loop, checkpoints."""

from lightning_fabric import Fabric

from spdnet.training import checkpoint
from spdnet.training.data import DiskTensor, LabelledMatrices
from spdnet.training.device import make_fabric
from spdnet.training.graphs import GraphedStep
from spdnet.training.loop import Progress, Trainer, build, evaluate
from spdnet.training.network import Network, make_network
from spdnet.training.recipe import RECIPES, Recipe, choose_dims

__all__ = [
    "RECIPES",
    "DiskTensor",
    "Fabric",
    "GraphedStep",
    "LabelledMatrices",
    "Network",
    "Progress",
    "Recipe",
    "Trainer",
    "build",
    "checkpoint",
    "choose_dims",
    "evaluate",
    "make_fabric",
    "make_network",
]
