r"""From signals, frames, skeletons and images to SPD matrices.

Observations are columns: signals are ``(..., channels, time)``, features of a video
``(..., features, frames)``. Every function takes a tensor or an array of any leading shape and
gives back the same kind and floating dtype; whole numbers and long doubles become float64.

>>> import numpy
>>> from spdnet import covariance
>>> signals = numpy.random.default_rng(0).normal(size=(10, 4, 200))
>>> covariance.estimate(signals, "ledoit_wolf").shape
(10, 4, 4)
"""

from spdnet.covariance.estimators import (
    ESTIMATORS,
    estimate,
    ledoit_wolf,
    oas,
    sample_covariance,
)
from spdnet.covariance.gaussian import gaussian_embedding
from spdnet.covariance.images import image_features, region_covariance
from spdnet.covariance.regularization import REGULARIZERS, correlation, regularize
from spdnet.covariance.segments import segment
from spdnet.covariance.skeletons import joint_covariance

__all__ = [
    "ESTIMATORS",
    "REGULARIZERS",
    "correlation",
    "estimate",
    "gaussian_embedding",
    "image_features",
    "joint_covariance",
    "ledoit_wolf",
    "oas",
    "region_covariance",
    "regularize",
    "sample_covariance",
    "segment",
]
