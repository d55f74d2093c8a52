"""Spaces and their geometry; the metrics of SPD matrices have the same verbs."""

from spdnet.manifolds import affine_invariant, log_euclidean, stiefel

__all__ = ["affine_invariant", "log_euclidean", "stiefel"]
