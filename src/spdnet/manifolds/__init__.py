"""The Stiefel manifold and the metrics of SPD matrices.

Each metric is one object whose methods are the operations of its geometry. The order of the
imports is the order of the names in :data:`METRICS`.
"""

# ruff: noqa: I001
from spdnet.manifolds import stiefel
from spdnet.manifolds.flat import FlatMetric
from spdnet.manifolds.metric import METRICS, Metric, MetricNames, get_metric, register_metric
from spdnet.manifolds.log_euclidean import log_euclidean
from spdnet.manifolds.affine_invariant import affine_invariant
from spdnet.manifolds.log_cholesky import log_cholesky
from spdnet.manifolds.power_euclidean import power_euclidean
from spdnet.manifolds.bures_wasserstein import bures_wasserstein
from spdnet.manifolds.stein import stein

__all__ = [
    "METRICS",
    "FlatMetric",
    "Metric",
    "MetricNames",
    "affine_invariant",
    "bures_wasserstein",
    "get_metric",
    "log_cholesky",
    "log_euclidean",
    "power_euclidean",
    "register_metric",
    "stein",
    "stiefel",
]
