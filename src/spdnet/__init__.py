"""Deep learning on symmetric positive definite matrices."""

from importlib.metadata import version

from spdnet import linalg, manifolds, models, nn, optim
from spdnet.models import SPDNet

__version__ = version("spdnet")

__all__ = ["SPDNet", "__version__", "linalg", "manifolds", "models", "nn", "optim"]
