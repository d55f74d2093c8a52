"""Layers on SPD matrices."""

from spdnet.nn.batch_norm import SPDBatchNorm
from spdnet.nn.bimap import BiMap
from spdnet.nn.center import Center
from spdnet.nn.classifiers import SPDMLR, MinimumDistance
from spdnet.nn.complete import CompleteChannels
from spdnet.nn.domain_batch_norm import SPDDomainBatchNorm
from spdnet.nn.eig import ExpEig, LogEig, ReEig, SpectralActivation, Vech
from spdnet.nn.features import GaussianFeatures, SpectralFeatures
from spdnet.nn.pool import SPDPool
from spdnet.nn.residual import SPDResidual
from spdnet.nn.second_order import CovPool, MatrixSqrt

__all__ = [
    "SPDMLR",
    "BiMap",
    "Center",
    "CompleteChannels",
    "CovPool",
    "ExpEig",
    "GaussianFeatures",
    "LogEig",
    "MatrixSqrt",
    "MinimumDistance",
    "ReEig",
    "SPDBatchNorm",
    "SPDDomainBatchNorm",
    "SPDPool",
    "SPDResidual",
    "SpectralActivation",
    "SpectralFeatures",
    "Vech",
]
