"""Baselines with a scikit-learn interface: the methods of the paper's comparison, and others."""

from spdnet.baselines.cdl import CDL
from spdnet.baselines.deep_o2p import DeepO2PClassifier
from spdnet.baselines.expressionlets import ExpressionletClassifier
from spdnet.baselines.herml import HERML
from spdnet.baselines.leml import LEML
from spdnet.baselines.log_euclidean import LogEuclideanClassifier
from spdnet.baselines.neighbors import MinimumDistanceToMean, NearestNeighbor
from spdnet.baselines.sets import MeanFeatureVerifier
from spdnet.baselines.spdml import SPDML
from spdnet.baselines.stein_kernel import RSR, SteinSVC

__all__ = [
    "CDL",
    "HERML",
    "LEML",
    "RSR",
    "SPDML",
    "DeepO2PClassifier",
    "ExpressionletClassifier",
    "LogEuclideanClassifier",
    "MeanFeatureVerifier",
    "MinimumDistanceToMean",
    "NearestNeighbor",
    "SteinSVC",
]
