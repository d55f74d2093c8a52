"""Missing channels of symmetric matrices: their detection and replacement.

A channel is missing if its row and column are NaN, or zero, as in the covariance of a constant
signal. A row counts as zero if it is within the rounding error of the largest variance.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from spdnet._autograd import is_concrete
from spdnet.linalg.cholesky import cholesky
from spdnet.linalg.symmetric import symmetrize, trace

#: rounding unit of float32, the lowest precision in which covariances are computed
_FLOAT32_UNIT = torch.finfo(torch.float32).eps


def observed(who: str, X: Tensor, unit: float) -> Tensor:
    """Return which channels ``(..., n)`` are observed, for numbers with a rounding unit.

    Raise a ValueError if entries of observed channels are not finite.
    """
    mask, other = _masks(X, unit)
    if other.any():
        index = tuple(other.nonzero()[0].tolist())
        place = f"X[{', '.join(map(str, index[:-2]))}]" if X.ndim > 2 else "X"
        raise ValueError(
            f"{who}: expected finite entries, or NaN in the whole rows and columns of missing "
            f"channels, but {place} also has {X[index].item()} in row {index[-2]}, column "
            f"{index[-1]}; set both to NaN if the channel is missing, or drop the matrix"
        )
    return mask


def _masks(X: Tensor, unit: float) -> tuple[Tensor, Tensor]:
    """Return the observed channels, and the other entries that are not finite."""
    unknown = X.isnan()
    missing = unknown.all(-1)
    other = (unknown == both(~missing)) | X.isinf()
    # the mean of a constant signal, and so its covariance, has rounding errors
    unit = min(unit, _FLOAT32_UNIT) * X.shape[-1]
    known = X.abs().nan_to_num(nan=0.0)
    row, variance = known.amax(-1), known.diagonal(dim1=-2, dim2=-1)
    size = variance.amax(-1, keepdim=True)
    return ((row > unit * size) | (variance > unit**2 * size)) & ~missing, other


def require_some(who: str, mask: Tensor) -> None:
    """Raise a ValueError unless every mask ``(..., n)`` has an observed channel."""
    if not is_concrete(mask):
        return
    empty = (~mask.any(-1)).nonzero()
    if len(empty):
        index = ", ".join(map(str, empty[0].tolist()))
        raise ValueError(
            f"{who}: expected at least one observed channel in every matrix, but all of "
            f"X[{index}] are missing; {len(empty)} of {mask[..., 0].numel()} matrices are affected;"
            " drop them"
        )


class Filled(NamedTuple):
    """Matrices whose missing part is replaced, and their observed channels, None for all."""

    X: Tensor  #: shape (N, n, n)
    mask: Tensor | None = None  #: bool, shape (N, n)

    def hide(self, X: Tensor) -> Tensor:
        """Replace the missing part of ``X`` by NaN, in place."""
        if self.mask is None:
            return X
        return X.masked_fill_(~both(self.mask).to(X.device), torch.nan)


def fill(X: Tensor, unit: float) -> Filled:
    """Replace the missing part of matrices ``(N, n, n)`` so that they can be examined.

    Matrices without an observed channel, and those with other entries that are not finite, are
    left as they are. Matrices without missing channels are not copied.
    """
    variance = X.diagonal(dim1=-2, dim2=-1).abs()
    least = (min(unit, _FLOAT32_UNIT) * X.shape[-1]) ** 2 * variance.nan_to_num().amax(-1)
    some = (~(variance > least[:, None]).all(-1)).nonzero()[:, 0]
    if X.is_complex() or len(some) == 0:
        return Filled(X)
    own, other = _masks(X[some], unit)
    usable = own.any(-1) & ~own.all(-1) & ~other.flatten(1).any(-1)
    some, own = some[usable], own[usable]
    mask, X = torch.ones_like(variance, dtype=torch.bool), X.clone()
    mask[some] = own
    X[some] = fill_diagonal(X[some], own)
    return Filled(X, mask)


def both(rows: Tensor, columns: Tensor | None = None) -> Tensor:
    """Return the entries ``(..., n, n)`` in rows and columns of the channels ``(..., n)``."""
    return rows[..., :, None] & (rows if columns is None else columns)[..., None, :]


def fill_diagonal(X: Tensor, mask: Tensor) -> Tensor:
    """Replace the missing part by the mean observed variance times the identity.

    The result is SPD if and only if the observed part is, with the same extreme eigenvalues.
    """
    known = torch.where(both(mask), X, 0.0)
    variance = trace(known) / mask.sum(-1)
    return known + torch.diag_embed((~mask) * variance[..., None])


def has_missing(X: Tensor) -> bool:
    """Return whether a row of a matrix is NaN."""
    diagonals = X.diagonal(dim1=-2, dim2=-1).isnan()
    return bool(diagonals.any()) and bool(X.isnan().all(-1).any())


def describe_missing(X: Tensor) -> str:
    """Return the number of matrices ``(N, n, n)`` with NaN rows; empty if there are none."""
    missing = X.diagonal(dim1=-2, dim2=-1).isnan()
    if not missing.any():
        return ""
    removed = ", or removed if no training matrix has them" if missing.all(0).any() else ""
    what = f"{int(missing.any(-1).sum())} of {len(X)} matrices have missing channels"
    return f"{what}, which are estimated from the others{removed}"


def regression(mask: Tensor, M: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return the regression on the observed channels, and the covariance of its residuals.

    For Gaussian signals of covariance ``M (n, n)`` with observed channels ``mask (..., n)``. The
    rows of :math:`B = M_{ho} M_{oo}^{-1}` are those of the missing channels; the other rows are
    those of the identity. Both have the shape ``(..., n, n)``.
    """
    order = mask.int().argsort(dim=-1, descending=True, stable=True)  # the observed channels first
    o, back = mask.gather(-1, order), order.argsort(-1)
    L = cholesky(M[order[..., :, None], order[..., None, :]], check=False)
    L_oo = torch.where(both(o), L, 0) + torch.diag_embed((~o).to(L.dtype))
    B = torch.linalg.solve_triangular(L_oo, torch.where(both(~o, o), L, 0), upper=False, left=False)
    L_hh = torch.where(both(~o), L, 0)
    B = B + torch.diag_embed(o.to(L.dtype))
    return _rearranged(B, back), _rearranged(L_hh @ L_hh.mH, back)


def fill_in(X: Tensor, mask: Tensor, B: Tensor, residual: Tensor) -> Tensor:
    """Estimate the missing part of ``X (..., n, n)`` by :func:`regression`; the rest is kept."""
    known = both(mask)
    found = B @ torch.where(known, X, 0).to(B.dtype) @ B.mH + residual
    return torch.where(known, X, symmetrize(found).to(X.dtype))


def _rearranged(A: Tensor, order: Tensor) -> Tensor:
    rows = A.gather(-2, order[..., :, None].expand(A.shape))
    return rows.gather(-1, order[..., None, :].expand(A.shape))
