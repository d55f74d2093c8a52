"""Adaptation of SPD matrices to domains, such as subjects, and to missing channels."""

from spdnet.adaptation.completion import Completion, complete
from spdnet.adaptation.domains import Recenter, Rescale
from spdnet.adaptation.mean import masked_mean
from spdnet.adaptation.missing import align_channels, observed_channels

__all__ = [
    "Completion",
    "Recenter",
    "Rescale",
    "align_channels",
    "complete",
    "masked_mean",
    "observed_channels",
]
