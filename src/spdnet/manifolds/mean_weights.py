"""The weights of a weighted mean."""

from collections.abc import Sequence

from torch import Tensor

from spdnet._autograd import is_concrete
from spdnet._checks import require_square, require_tensor


def normalized_weights(who: str, X: Tensor, weights: Tensor | None) -> Tensor:
    """Weights ``(..., N)`` of the matrices ``X (..., N, n, n)``, scaled to sum 1."""
    require_square(who, X)
    if X.ndim < 3 or X.shape[-3] == 0:
        raise ValueError(
            f"{who}: expected X of shape (..., N, n, n) with N >= 1 matrices to average, "
            f"got {tuple(X.shape)}; stack them along the third dimension from the end"
        )
    if weights is None:
        return X.new_ones(X.shape[-3]) / X.shape[-3]
    require_tensor(who, weights, "weights")
    if weights.shape[-1:] != X.shape[-3:-2] or not _broadcast(weights.shape[:-1], X.shape[:-3]):
        raise ValueError(
            f"{who}: expected weights of shape (..., {X.shape[-3]}), one for each matrix, "
            f"that broadcasts with the shape of X, {tuple(X.shape)}, got {tuple(weights.shape)}"
        )
    total = weights.sum(-1, keepdim=True)
    valid = weights.isfinite().all() & (weights >= 0).all() & (total > 0).all()
    if is_concrete(weights) and not valid:
        raise ValueError(
            f"{who}: expected weights that are finite, not negative and not all zero, "
            f"got values from {weights.min().item():.3g} to {weights.max().item():.3g}"
        )
    return (weights / total).to(X.dtype)


def _broadcast(a: Sequence[int], b: Sequence[int]) -> bool:
    pairs = zip(reversed(a), reversed(b), strict=False)
    return all(i == j or 1 in (i, j) for i, j in pairs)
