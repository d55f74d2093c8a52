"""Spaces and their geometry; the metrics of SPD matrices have the same verbs."""

from spdnet.manifolds import (
    affine_invariant,
    bures_wasserstein,
    log_cholesky,
    log_euclidean,
    stein,
    stiefel,
)

__all__ = [
    "affine_invariant",
    "bures_wasserstein",
    "log_cholesky",
    "log_euclidean",
    "stein",
    "stiefel",
]
