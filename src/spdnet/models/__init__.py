"""Networks."""

from spdnet.models.conv import ConvSPDNet, O2PNet, SmallConvNet
from spdnet.models.named import SPDNetBN, SPDNetLieBN, SPDNetMLR
from spdnet.models.spdnet import SPDNet

__all__ = [
    "ConvSPDNet",
    "O2PNet",
    "SPDNet",
    "SPDNetBN",
    "SPDNetLieBN",
    "SPDNetMLR",
    "SmallConvNet",
]
