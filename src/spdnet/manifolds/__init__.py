"""Spaces and their geometry, the same verbs in each."""

from spdnet.manifolds import affine_invariant, log_euclidean, stiefel

__all__ = ["affine_invariant", "log_euclidean", "stiefel"]
