"""Networks."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spdnet.models.branches import MultiBranchSPDNet
    from spdnet.models.conv import ConvSPDNet, O2PNet, SmallConvNet
    from spdnet.models.model import Model
    from spdnet.models.named import SPDNetBN, SPDNetLieBN, SPDNetMLR
    from spdnet.models.registry import MODELS
    from spdnet.models.signals import SignalNet
    from spdnet.models.spdnet import SPDNet
    from spdnet.models.tsmnet import TSMNet

__all__ = [
    "MODELS",
    "ConvSPDNet",
    "Model",
    "MultiBranchSPDNet",
    "O2PNet",
    "SPDNet",
    "SPDNetBN",
    "SPDNetLieBN",
    "SPDNetMLR",
    "SignalNet",
    "SmallConvNet",
    "TSMNet",
]

_FILES = {
    "branches": ("MultiBranchSPDNet",),
    "conv": ("ConvSPDNet", "O2PNet", "SmallConvNet"),
    "model": ("Model",),
    "named": ("SPDNetBN", "SPDNetLieBN", "SPDNetMLR"),
    "registry": ("MODELS",),
    "signals": ("SignalNet",),
    "spdnet": ("SPDNet",),
    "tsmnet": ("TSMNet",),
}


def __getattr__(name: str) -> Any:
    # loaded on first use: the command line reads the registry without importing torch
    for file, names in _FILES.items():
        if name == file or name in names:
            module = import_module(f"spdnet.models.{file}")
            return module if name == file else getattr(module, name)
    raise AttributeError(f"module 'spdnet.models' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
