"""Adaptation of SPD matrices to domains, such as subjects, sessions or sites, without labels."""

from spdnet.adaptation.balanced import BalancedRecenter
from spdnet.adaptation.domains import Recenter, Rescale

__all__ = ["BalancedRecenter", "Recenter", "Rescale"]
