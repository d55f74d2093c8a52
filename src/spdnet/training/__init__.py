"""Training: recipes, the loop, checkpoints."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from spdnet.training import checkpoint
    from spdnet.training.data import DiskTensor, LabelledMatrices
    from spdnet.training.device import make_fabric
    from spdnet.training.graphs import GraphedStep
    from spdnet.training.loop import Progress, Trainer, build, evaluate
    from spdnet.training.network import Network, make_network
    from spdnet.training.recipe import RECIPES, Recipe, choose_dims
    from spdnet.training.scale import InputScale

__all__ = [
    "RECIPES",
    "DiskTensor",
    "Fabric",
    "GraphedStep",
    "InputScale",
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

_HOMES = {
    "lightning_fabric": ("Fabric",),
    "spdnet.training.data": ("DiskTensor", "LabelledMatrices"),
    "spdnet.training.device": ("make_fabric",),
    "spdnet.training.graphs": ("GraphedStep",),
    "spdnet.training.loop": ("Progress", "Trainer", "build", "evaluate"),
    "spdnet.training.network": ("Network", "make_network"),
    "spdnet.training.recipe": ("RECIPES", "Recipe", "choose_dims"),
    "spdnet.training.scale": ("InputScale",),
}


def __getattr__(name: str) -> Any:
    # when it is first asked for: who only wants a device does not wait for Fabric
    if name in (
        "checkpoint",
        "data",
        "device",
        "graphs",
        "loop",
        "network",
        "recipe",
        "scale",
        "seed",
    ):
        return import_module(f"spdnet.training.{name}")
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'spdnet.training' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
