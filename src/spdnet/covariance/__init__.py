"""SPD matrices from signals, frames, skeletons and images.

Observations are columns: signals are ``(..., channels, time)``, features of a video
``(..., features, frames)``. Every function accepts a tensor or an array with any leading shape and
returns the same type and floating dtype; integers and long doubles become float64.

:class:`Covariances`, :class:`ERPCovariances` and :class:`XdawnCovariances` are scikit-learn
transformers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from spdnet.covariance.descriptors import (
    gaussian_embedding,
    image_features,
    joint_covariance,
    lagged,
    region_covariance,
    segment,
)
from spdnet.covariance.estimators import (
    ESTIMATORS,
    REGULARIZERS,
    correlation,
    estimate,
    ledoit_wolf,
    oas,
    regularize,
    sample_covariance,
)
from spdnet.covariance.robust import huber, mcd, student_t, tyler
from spdnet.covariance.spectra import coherence, cross_spectrum

if TYPE_CHECKING:
    from spdnet.covariance.erp import ERPCovariances, XdawnCovariances
    from spdnet.covariance.transformers import Covariances

__all__ = [
    "ESTIMATORS",
    "REGULARIZERS",
    "Covariances",
    "ERPCovariances",
    "XdawnCovariances",
    "coherence",
    "correlation",
    "cross_spectrum",
    "estimate",
    "gaussian_embedding",
    "huber",
    "image_features",
    "joint_covariance",
    "lagged",
    "ledoit_wolf",
    "mcd",
    "oas",
    "region_covariance",
    "regularize",
    "sample_covariance",
    "segment",
    "student_t",
    "tyler",
]


_MODULE_OF = {"Covariances": "transformers", "ERPCovariances": "erp", "XdawnCovariances": "erp"}


def __getattr__(name: str) -> Any:
    # load on first access, because these modules import scikit-learn
    if name in _MODULE_OF:
        return getattr(import_module(f"spdnet.covariance.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module 'spdnet.covariance' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
