"""Networks."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spdnet.models.branches import MultiBranchSPDNet
    from spdnet.models.conv import ConvSPDNet, O2PNet, SmallConvNet
    from spdnet.models.ensemble import Ensemble
    from spdnet.models.members import MEMBERS
    from spdnet.models.model import Model
    from spdnet.models.named import SPDNetBN, SPDNetLieBN, SPDNetMLR
    from spdnet.models.portfolio import PortfolioNet
    from spdnet.models.registry import MODELS
    from spdnet.models.signals import SignalNet
    from spdnet.models.spdnet import SPDNet
    from spdnet.models.tsmnet import TSMNet

__all__ = [
    "MEMBERS",
    "MODELS",
    "ConvSPDNet",
    "Ensemble",
    "Model",
    "MultiBranchSPDNet",
    "O2PNet",
    "PortfolioNet",
    "SPDNet",
    "SPDNetBN",
    "SPDNetLieBN",
    "SPDNetMLR",
    "SignalNet",
    "SmallConvNet",
    "TSMNet",
]

_FILES = (
    "registry",
    "members",
    "model",
    "spdnet",
    "portfolio",
    "ensemble",
    "branches",
    "conv",
    "named",
    "tsmnet",
    "signals",
)


def __getattr__(name: str) -> Any:
    # load on first access: the command line reads the registry without importing torch
    for file in _FILES if name in __all__ else ():
        module = import_module(f"spdnet.models.{file}")
        if hasattr(module, name):
            return getattr(module, name)
    if name in _FILES:
        return import_module(f"spdnet.models.{name}")
    raise AttributeError(f"module 'spdnet.models' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
