"""Means that are the fixed point of a contraction."""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from spdnet._autograd import is_concrete

#: iterations where values cannot be looked at, as under vmap
_BLIND = 100


def fixed_point(
    who: str,
    step: Callable[[Tensor], Tensor],
    start: Tensor,
    *,
    tol: float,
    max_iter: int,
    differentiated: bool,
) -> Tensor:
    """Apply ``step`` until it changes each matrix by no more than ``tol`` of its size.

    A matrix that has arrived stays, however long others of the batch take. The derivative is that
    of as many applications at the end, which converge to it as fast as the mean itself did.
    """
    if not is_concrete(start) or start.numel() == 0:
        with torch.no_grad():
            M = start.detach()
            for _ in range(min(max_iter, _BLIND)):
                M = step(M)
        for _ in range(min(max_iter, _BLIND) if differentiated else 0):
            M = step(M)
        return M
    with torch.no_grad():
        M = start.detach()
        moving = torch.ones_like(M[..., :1, :1], dtype=torch.bool)
        steps = torch.zeros_like(moving, dtype=torch.long)
        for _ in range(max_iter):
            before, M = M, torch.where(moving, step(M), M)
            steps += moving
            size = M.abs().amax((-2, -1), keepdim=True)
            change = (M - before).abs().amax((-2, -1), keepdim=True) / size
            moving = moving & ~(change <= tol)
            if not moving.any():
                break
    if moving.any():
        warnings.warn(
            f"{who}: not converged after {max_iter} iterations, the last of which changed the "
            f"matrix by {change.max():.1e} of its size; raise max_iter or tol",
            RuntimeWarning,
            stacklevel=4,
        )
    for i in range(int(steps.max()) if differentiated else 0):
        M = torch.where(i < steps, step(M), M)
    return M
