"""Training: recipes, the training loop, checkpoints."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from spdnet.models.spdnet import choose_dims
    from spdnet.training import checkpoint
    from spdnet.training.data import DiskTensor, Samples
    from spdnet.training.device import make_fabric
    from spdnet.training.evaluation import evaluate
    from spdnet.training.graphs import GraphedStep
    from spdnet.training.loop import Trainer
    from spdnet.training.network import build, make_network
    from spdnet.training.progress import Progress
    from spdnet.training.recipe import RECIPES, Recipe
    from spdnet.training.scale import InputScale

__all__ = [
    "RECIPES",
    "DiskTensor",
    "Fabric",
    "GraphedStep",
    "InputScale",
    "Progress",
    "Recipe",
    "Samples",
    "Trainer",
    "build",
    "checkpoint",
    "choose_dims",
    "evaluate",
    "make_fabric",
    "make_network",
]

_HOMES = {
    "lightning_fabric": ("Fabric",),
    "spdnet.models.spdnet": ("choose_dims",),
    "spdnet.training.checkpoint": (),
    "spdnet.training.data": ("DiskTensor", "Samples"),
    "spdnet.training.device": ("make_fabric",),
    "spdnet.training.evaluation": ("evaluate",),
    "spdnet.training.graphs": ("GraphedStep",),
    "spdnet.training.loop": ("Trainer",),
    "spdnet.training.network": ("build", "make_network"),
    "spdnet.training.progress": ("Progress",),
    "spdnet.training.recipe": ("RECIPES", "Recipe"),
    "spdnet.training.scale": ("InputScale",),
    "spdnet.training.seed": (),
}


def __getattr__(name: str) -> Any:
    # loaded on first use: Fabric takes a second to import
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
        if home == f"spdnet.training.{name}":
            return import_module(home)
    raise AttributeError(f"module 'spdnet.training' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
