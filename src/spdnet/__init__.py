"""Deep learning on symmetric positive definite matrices."""

from importlib.metadata import version

from spdnet import covariance, linalg, manifolds, models, nn, optim
from spdnet.models import SPDNet

__version__ = version("spdnet")

__all__ = ["SPDNet", "__version__", "covariance", "linalg", "manifolds", "models", "nn", "optim"]
