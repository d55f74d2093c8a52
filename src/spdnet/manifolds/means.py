"""Weighted means: validation of the weights, and metrics with means by fixed-point iteration."""

from collections.abc import Sequence

import torch
from torch import Tensor

from spdnet._autograd import is_concrete, is_differentiated
from spdnet._checks import require_real, require_square, require_tensor
from spdnet._precision import in_float64, real_dtype
from spdnet._warnings import warn_user
from spdnet.linalg import cholesky
from spdnet.manifolds.metric import Metric

#: number of iterations if values are not available, as under vmap
_FIXED_ITERATIONS = 100


def normalized_weights(who: str, X: Tensor, weights: Tensor | None) -> Tensor:
    """Return weights ``(..., N)`` of matrices ``X (..., N, n, n)``, scaled to a sum of 1."""
    require_square(who, X)
    if X.ndim < 3 or X.shape[-3] == 0:
        raise ValueError(
            f"{who}: expected X of shape (..., N, n, n) with N >= 1 matrices to average, "
            f"got {tuple(X.shape)}; stack them along the third dimension from the end"
        )
    if weights is None:
        return X.real.new_ones(X.shape[-3]) / X.shape[-3]
    require_tensor(who, weights, "weights")
    require_real(who, weights, "weights")
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
    return (weights / total).to(real_dtype(X.dtype))


def _broadcast(a: Sequence[int], b: Sequence[int]) -> bool:
    shared = min(len(a), len(b))  # the compiler of torch 2.8 needs sequences of equal length
    last = zip(a[len(a) - shared :], b[len(b) - shared :], strict=True)
    return all(i == j or 1 in (i, j) for i, j in last)


class FixedPointMetric(Metric):
    """Base class of metrics whose mean is a fixed point of ``_step``."""

    def _step(self, X: Tensor, M: Tensor, w: Tensor) -> Tensor:
        """Improve the means ``M (..., n, n)``, given weights ``(..., N, 1, 1)``."""
        raise NotImplementedError

    @in_float64
    def mean(
        self,
        X: Tensor,
        weights: Tensor | None = None,
        *,
        tol: float = 1e-12,
        max_iter: int = 1000,
        check: bool = True,
    ) -> Tensor:
        """Compute the weighted Frechet mean by a fixed-point iteration.

        The iteration ends when it changes a matrix by at most ``tol`` of its size; a RuntimeWarning
        reports that ``max_iter`` iterations were not enough. Each mean of a batch stops on its own.
        The derivative is that of as many further steps, and converges as fast as the mean.
        """
        who = f"{self.name}.mean"
        w = normalized_weights(who, X, weights)[..., None, None]
        if check:
            cholesky(X.detach(), who=who)
        differentiated = is_differentiated(X) or is_differentiated(w)
        M = (w * X).sum(-3).detach()
        if not is_concrete(M) or M.numel() == 0:
            iterations = min(max_iter, _FIXED_ITERATIONS)
            with torch.no_grad():
                for _ in range(iterations):
                    M = self._step(X, M, w)
            for _ in range(iterations if differentiated else 0):
                M = self._step(X, M, w)
            return M
        with torch.no_grad():
            moving = torch.ones_like(M[..., :1, :1], dtype=torch.bool)
            steps = torch.zeros_like(moving, dtype=torch.long)
            for _ in range(max_iter):
                before, M = M, torch.where(moving, self._step(X, M, w), M)
                steps += moving
                size = M.abs().amax((-2, -1), keepdim=True)
                change = (M - before).abs().amax((-2, -1), keepdim=True) / size
                moving = moving & ~(change <= tol)
                if not moving.any():
                    break
        if moving.any():
            warn_user(
                f"{who}: not converged after {max_iter} iterations, the last of which changed the "
                f"matrix by {change.max():.1e} of its size; increase max_iter or tol",
            )
        for i in range(int(steps.max()) if differentiated else 0):
            M = torch.where(i < steps, self._step(X, M, w), M)
        return M
