"""Statistics of domains, such as subjects, sessions or sites: adaptation to them, and outliers."""

from spdnet.adaptation.domains import Recenter, Rescale
from spdnet.adaptation.outliers import Potato

__all__ = ["Potato", "Recenter", "Rescale"]
