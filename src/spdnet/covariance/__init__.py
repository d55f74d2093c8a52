"""SPD matrices from signals, frames, skeletons and images.

Observations are columns: signals are ``(..., channels, time)``, features of a video
``(..., features, frames)``. Every function accepts a tensor or an array with any leading shape and
returns the same type and floating dtype; integers and long doubles become float64.
"""

from spdnet.covariance.descriptors import (
    gaussian_embedding,
    image_features,
    joint_covariance,
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
