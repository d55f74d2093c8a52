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
    """Apply ``step`` until it changes the matrix by no more than ``tol`` of its size.

    The derivative is that of as many applications at the end, which converge to it as fast as the
    mean itself did.
    """
    look = is_concrete(start) and start.numel() > 0
    with torch.no_grad():
        M, change = start.detach(), torch.tensor(torch.inf)
        n = 0
        while n < (max_iter if look else min(max_iter, _BLIND)):
            n += 1
            before, M = M, step(M)
            if look:
                change = ((M - before).abs().amax((-2, -1)) / M.abs().amax((-2, -1))).max()
                if change <= tol:
                    break
    if look and not change <= tol:
        warnings.warn(
            f"{who}: not converged after {max_iter} iterations, the last of which changed the "
            f"matrix by {change:.1e} of its size; raise max_iter or tol",
            RuntimeWarning,
            stacklevel=4,
        )
    for _ in range(n if differentiated else 0):
        M = step(M)
    return M
