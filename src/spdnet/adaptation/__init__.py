"""Steps between SPD matrices and a classifier: missing channels, rank, domains and outliers.

Domains are subjects, sessions or sites. Nothing here needs labels of new data.
"""

from spdnet.adaptation.balanced import BalancedRecenter
from spdnet.adaptation.completion import Completion, complete
from spdnet.adaptation.conditioner import Conditioner
from spdnet.adaptation.domains import Recenter, Rescale
from spdnet.adaptation.mean import masked_mean
from spdnet.adaptation.missing import align_channels, observed_channels
from spdnet.adaptation.outliers import Potato
from spdnet.adaptation.rank import find_rank
from spdnet.adaptation.subspace import Subspace

__all__ = [
    "BalancedRecenter",
    "Completion",
    "Conditioner",
    "Potato",
    "Recenter",
    "Rescale",
    "Subspace",
    "align_channels",
    "complete",
    "find_rank",
    "masked_mean",
    "observed_channels",
]
