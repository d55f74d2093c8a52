"""Deep learning on symmetric positive definite matrices."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from spdnet import covariance, linalg, manifolds, models, nn, optim
from spdnet.models import SPDNet

if TYPE_CHECKING:
    from spdnet.estimator import SPDNetClassifier

__version__ = version("spdnet")

__all__ = [
    "SPDNet",
    "SPDNetClassifier",
    "__version__",
    "covariance",
    "linalg",
    "manifolds",
    "models",
    "nn",
    "optim",
]


def __getattr__(name: str) -> Any:
    # scikit-learn is loaded when it is needed, not with the library
    if name == "SPDNetClassifier":
        return import_module("spdnet.estimator").SPDNetClassifier
    if name in ("datasets", "estimator", "testing", "training"):
        return import_module(f"spdnet.{name}")
    raise AttributeError(f"module 'spdnet' has no attribute {name!r}")
