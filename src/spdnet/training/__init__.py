"""Training: recipes, choice of networks, training loop, and checkpoints."""

from spdnet.models.spdnet import choose_dims
from spdnet.training import checkpoint
from spdnet.training.choice import Choice, choose_members
from spdnet.training.data import DiskTensor, Samples
from spdnet.training.device import make_fabric
from spdnet.training.evaluation import evaluate
from spdnet.training.loop import Trainer
from spdnet.training.many import train_many
from spdnet.training.network import build, make_network
from spdnet.training.progress import Progress
from spdnet.training.recipe import RECIPES, Recipe
from spdnet.training.scale import InputScale

__all__ = [
    "RECIPES",
    "Choice",
    "DiskTensor",
    "InputScale",
    "Progress",
    "Recipe",
    "Samples",
    "Trainer",
    "build",
    "checkpoint",
    "choose_dims",
    "choose_members",
    "evaluate",
    "make_fabric",
    "make_network",
    "train_many",
]
