"""Fixed-point iteration of M-estimators of covariance."""

from collections.abc import Callable

import torch
from torch import Tensor

from spdnet.linalg import symmetrize
from spdnet.linalg.cholesky import whiten
from spdnet.linalg.validate import UNIT, singular_ratio

#: largest deviation of a fixed point, in whitened coordinates
TOLERANCE = 1e-10
MAX_STEPS = 1000
#: weights ``u`` of the covariance, and those of the center, which sum to 1, for ``d (..., T)``
Weights = Callable[[Tensor], tuple[Tensor, Tensor]]


def starting_point(who: str, X: Tensor) -> tuple[Tensor, Tensor]:
    """Return an observation near the medians, and the factor of a covariance of directions."""
    p, T = X.shape[-2:]
    if p >= T:
        raise ValueError(
            f"{who}: expected X with more observations than channels, got {T} observations of {p} "
            "channels; use a shrinkage estimator such as ledoit_wolf"
        )
    # differences of observations have the linear dependencies of the channels
    near = (X - X.median(-1, keepdim=True).values).square().sum(-2, keepdim=True).argmin(-1)
    center = X.take_along_dim(near[..., None], -1)
    Z = X - center
    size = Z.square().sum(-2, keepdim=True)
    directions = torch.where(size > 0, Z / torch.where(size > 0, size, 1.0).sqrt(), 0.0)
    S = symmetrize(directions @ directions.mT) / T
    # that of the correlations does not depend on the units of the channels
    scale = S.diagonal(dim1=-2, dim2=-1).rsqrt()
    R = S * scale[..., None, :] * scale[..., :, None]
    require_estimable(who, has_full_rank(R), X, "the channels are linearly dependent")
    median = torch.where(size > 0, size, torch.nan).nanmedian(-1, keepdim=True).values
    return center, torch.linalg.cholesky(S * median)


def fixed_point(who: str, X: Tensor, center: Tensor, L: Tensor, weigh: Weights) -> Tensor:
    """Iterate each signal until it converges; return the Cholesky factors."""
    batch, (p, T) = X.shape[:-2], X.shape[-2:]
    flat, center, first = X.reshape(-1, p, T), center.reshape(-1, p, 1), L.reshape(-1, p, p)
    L = first
    eye = torch.eye(p, dtype=X.dtype, device=X.device)
    rest = torch.arange(len(flat), device=X.device)
    failed = torch.zeros(len(flat), dtype=torch.bool, device=X.device)
    for _ in range(MAX_STEPS):
        if len(rest) == 0 or failed.any():
            break
        m, K = center[rest], L[rest]
        W = whitened(K, flat[rest] - m)
        u, v = weigh(W.square().sum(-2))
        # in these coordinates, the solution is at zero with the identity
        M = symmetrize((W * u[..., None, :]) @ W.mT) / T
        shift = W @ v[..., None]
        step, info = torch.linalg.cholesky_ex(M)
        center = center.index_copy(0, rest, m + K @ shift)
        L = L.index_copy(0, rest, K @ step)
        failed[rest] = info != 0
        error = torch.maximum((M - eye).abs().amax(-1), shift.abs()[..., 0]).amax(-1)
        rest = rest[~(error <= TOLERANCE)]
    else:
        failed[rest] = True
    failed |= ~has_full_rank(whiten(first, L @ L.mT))
    reason = "the iteration does not converge, because too many observations lie in a subspace"
    require_estimable(who, ~failed.reshape(batch), X, reason)
    return L.reshape(*batch, p, p)


def has_full_rank(C: Tensor) -> Tensor:
    """Return whether the smallest eigenvalue exceeds rounding errors."""
    finite = C.isfinite().all(-1).all(-1)
    s = torch.linalg.eigvalsh(torch.where(finite[..., None, None], C.detach(), 0.0))
    return s[..., 0] > singular_ratio(C.shape[-1], UNIT) * s[..., -1]


def require_estimable(who: str, valid: Tensor, X: Tensor, reason: str) -> None:
    """Raise a ValueError that names the first signal without an estimate."""
    if valid.all():
        return
    index = tuple((~valid).nonzero()[0].tolist()) if valid.ndim else ()
    place = f"X[{', '.join(map(str, index))}]" if index else "X"
    raise ValueError(
        f"{who}: expected signals that determine a robust covariance, but in {place} {reason}; "
        "remove channels, give longer signals, or use another estimator such as ledoit_wolf"
    )


def whitened(L: Tensor, Z: Tensor) -> Tensor:
    """Return the observations in coordinates in which ``L L^T`` is the identity."""
    return torch.linalg.solve_triangular(L, Z, upper=False)
