"""Adaptation of SPD matrices to domains, such as subjects, sessions or sites, and to their rank."""

from spdnet.adaptation.balanced import BalancedRecenter
from spdnet.adaptation.conditioner import Conditioner
from spdnet.adaptation.domains import Recenter, Rescale
from spdnet.adaptation.rank import find_rank
from spdnet.adaptation.subspace import Subspace

__all__ = ["BalancedRecenter", "Conditioner", "Recenter", "Rescale", "Subspace", "find_rank"]
