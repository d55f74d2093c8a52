"""Steps between SPD matrices and a classifier: domains, rank and outliers.

Domains are subjects, sessions or sites. Nothing here needs labels of new data.
"""

from spdnet.adaptation.balanced import BalancedRecenter
from spdnet.adaptation.conditioner import Conditioner
from spdnet.adaptation.domains import Recenter, Rescale
from spdnet.adaptation.outliers import Potato
from spdnet.adaptation.rank import find_rank
from spdnet.adaptation.subspace import Subspace

__all__ = [
    "BalancedRecenter",
    "Conditioner",
    "Potato",
    "Recenter",
    "Rescale",
    "Subspace",
    "find_rank",
]
