"""Registry of models by name.

This module imports no third-party libraries, so that help texts are fast.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Entry:
    """Module and class of a model, and a verb phrase for help texts."""

    path: str
    note: str = ""


#: models by name
MODELS = {
    "portfolio": Entry(
        "spdnet.models.portfolio:PortfolioNet", "averages small networks on spectral features"
    ),
    "spdnet": Entry("spdnet.models.spdnet:SPDNet"),
    "multibranch": Entry("spdnet.models.branches:MultiBranchSPDNet"),
    "tsmnet": Entry("spdnet.models.tsmnet:TSMNet", "takes signals instead of matrices"),
}
_imported: dict[str, type] = {}  # classes that are not registered, by path


def import_model(model: str | type) -> str:
    """Return the name of a model, after importing ``"package.module:Class"``."""
    from torch.nn import Module

    if isinstance(model, str) and model in MODELS:
        return model
    path = model if isinstance(model, str) else f"{model.__module__}:{model.__qualname__}"
    cls = _load(path) if isinstance(model, str) else model
    if not (isinstance(cls, type) and issubclass(cls, Module)):
        raise TypeError(f"model: expected a subclass of torch.nn.Module, got {path}")
    for name, entry in MODELS.items():
        if entry.path == path:
            return name
    _imported[path] = cls
    return path


def is_registered(name: Any) -> bool:
    """Return whether a name is that of a registered model."""
    return isinstance(name, str) and name in MODELS


def find_model(name: str) -> Any:
    """Return the class of a registered model, or of one that was imported before.

    Nothing else is imported: the name may come from a file.
    """
    if name in MODELS:
        return _load(MODELS[name].path)
    if name not in _imported:
        raise ValueError(
            f"model: expected the class of the model, got none; files do not import code on their "
            f"own: set --model {name}, or model= in Python"
        )
    return _imported[name]


def class_name(name: str) -> str:
    """Return the name of the class of a model without importing it."""
    return (MODELS[name].path if name in MODELS else name).rpartition(":")[2]


def names_with(trait: str, value: Any) -> str:
    """List the registered models that have a trait, such as ``model='tsmnet'``, for messages."""
    from spdnet.models.model import get_trait

    names = [name for name in MODELS if get_trait(find_model(name), trait) == value]
    return " or ".join(f"model={name!r}" for name in names)


def _load(path: str) -> Any:
    module, _, names = path.partition(":")
    try:
        found: Any = import_module(module)
    except ImportError as error:
        raise ValueError(
            f"model: expected package.module:Class, but {module!r} cannot be imported: {error}"
        ) from error
    for name in names.split("."):
        found = getattr(found, name, None)
    if found is None:
        raise ValueError(f"model: expected a class {names!r} in {module!r}, got none")
    return found
