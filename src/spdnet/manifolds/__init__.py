"""Spaces and their geometry; the metrics of SPD matrices have the same verbs."""

from spdnet.manifolds import (
    affine_invariant,
    bures_wasserstein,
    log_cholesky,
    log_euclidean,
    stein,
    stiefel,
)

#: the metrics of SPD matrices by their names; all have a distance and a mean
SPD_METRICS = {
    "log_euclidean": log_euclidean,
    "affine_invariant": affine_invariant,
    "log_cholesky": log_cholesky,
    "bures_wasserstein": bures_wasserstein,
    "stein": stein,
}

__all__ = [
    "SPD_METRICS",
    "affine_invariant",
    "bures_wasserstein",
    "log_cholesky",
    "log_euclidean",
    "stein",
    "stiefel",
]
