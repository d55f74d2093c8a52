"""Networks."""

from spdnet.models.branches import MultiBranchSPDNet
from spdnet.models.conv import ConvSPDNet, O2PNet, SmallConvNet
from spdnet.models.named import SPDNetBN, SPDNetLieBN, SPDNetMLR
from spdnet.models.signals import SignalNet
from spdnet.models.spdnet import SPDNet
from spdnet.models.tsmnet import TSMNet

__all__ = [
    "ConvSPDNet",
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
