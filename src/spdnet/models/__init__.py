"""Networks."""

from spdnet.models.spdnet import SPDNet

__all__ = ["SPDNet"]
