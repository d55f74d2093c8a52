"""Deep learning on symmetric positive definite matrices."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spdnet import (
        adaptation,
        baselines,
        covariance,
        data,
        estimator,
        linalg,
        manifolds,
        metrics,
        models,
        nn,
        optim,
        paper,
        plots,
        runs,
        testing,
        training,
    )
    from spdnet.estimator import SPDNetClassifier
    from spdnet.models import SPDNet

    __version__: str

__all__ = [
    "SPDNet",
    "SPDNetClassifier",
    "__version__",
    "adaptation",
    "baselines",
    "covariance",
    "data",
    "estimator",
    "linalg",
    "manifolds",
    "metrics",
    "models",
    "nn",
    "optim",
    "paper",
    "plots",
    "runs",
    "testing",
    "training",
]

_MODULE_OF = {"SPDNet": "spdnet.models", "SPDNetClassifier": "spdnet.estimator"}


def __getattr__(name: str) -> Any:
    # load each package on first access, because torch, scikit-learn and others are slow to import
    if name == "__version__":
        return import_module("importlib.metadata").version("spdnet")
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    if name in __all__:
        return import_module(f"spdnet.{name}")
    raise AttributeError(f"module 'spdnet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
