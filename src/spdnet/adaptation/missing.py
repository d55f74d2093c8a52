"""Missing channels: which are missing, validation of the rest, and channels by name."""

from collections.abc import Sequence
from typing import Any

import numpy
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from spdnet._checks import as_array, did_you_mean, require_square
from spdnet._inputs import checked_matrices, numbers
from spdnet.covariance.arrays import accept_arrays
from spdnet.linalg.symmetric import trace
from spdnet.linalg.validate import as_float64

#: covariances are not computed in lower precision
_FLOAT32_UNIT = torch.finfo(torch.float32).eps


@accept_arrays
def observed_channels(X: Tensor) -> Tensor:
    """Return which channels of symmetric matrices are observed.

    A channel is missing if its row and column are NaN, or zero, as in the covariance of a constant
    signal. Zero means that the amplitude is within the rounding error of the largest one.

    Parameters
    ----------
    X : Tensor or array, shape (..., n, n)

    Returns
    -------
    Tensor or array of bool, shape (..., n)

    Examples
    --------
    >>> import numpy
    >>> from spdnet.adaptation import observed_channels
    >>> X = [[2.0, numpy.nan, 0.0], [numpy.nan, numpy.nan, numpy.nan], [0.0, numpy.nan, 0.0]]
    >>> observed_channels(X)
    array([ True, False, False])
    """
    require_square("observed_channels", X)
    return observed("observed_channels", X, torch.finfo(X.dtype).eps)


def observed(who: str, X: Tensor, unit: float) -> Tensor:
    """Return the mask of :func:`observed_channels` for numbers with a rounding unit."""
    unknown = X.isnan()
    gone = unknown.all(-1)
    other = (unknown != either(gone)) | X.isinf()
    if other.any():
        index = tuple(other.nonzero()[0].tolist())
        place = f"X[{', '.join(map(str, index[:-2]))}]" if X.ndim > 2 else "X"
        raise ValueError(
            f"{who}: expected finite entries, or NaN in the whole rows and columns of missing "
            f"channels, but {place} also has {X[index].item()} in row {index[-2]}, column "
            f"{index[-1]}; set both to NaN if the channel is missing, or drop the matrix"
        )
    # the mean of a constant signal, and so its covariance, has rounding errors
    unit = min(unit, _FLOAT32_UNIT) * X.shape[-1]
    known = X.abs().nan_to_num(nan=0.0)
    row, variance = known.amax(-1), known.diagonal(dim1=-2, dim2=-1)
    size = variance.amax(-1, keepdim=True)
    return ((row > unit * size) | (variance > unit**2 * size)) & ~gone


def either(channels: Tensor) -> Tensor:
    """Return the entries ``(..., n, n)`` in a row or a column of the channels ``(..., n)``."""
    return channels[..., :, None] | channels[..., None, :]


def fill_diagonal(X: Tensor, mask: Tensor) -> Tensor:
    """Replace the missing part by the mean observed variance times the identity.

    The result is SPD if and only if the observed part is, with the same extreme eigenvalues.
    """
    known = torch.where(either(~mask), 0.0, X)
    variance = trace(known) / mask.sum(-1)
    return known + torch.diag_embed((~mask) * variance[..., None])


def has_missing(X: ArrayLike) -> bool:
    """Return whether a row of a matrix is NaN."""
    if isinstance(X, Tensor):
        diagonals = X.diagonal(dim1=-2, dim2=-1).isnan()
        return bool(diagonals.any()) and bool(X.isnan().all(-1).any())
    values = as_array("X", X)
    if values.ndim < 2 or values.dtype.kind != "f":
        return False
    diagonals = numpy.isnan(numpy.diagonal(values, axis1=-2, axis2=-1))
    return bool(diagonals.any() and numpy.isnan(values).all(-1).any())


def checked_partial(
    who: str,
    X: Any,
    *,
    n: int | None = None,
    dtype: torch.dtype = torch.float64,
    device: torch.device,
) -> Tensor:
    """Return matrices with NaN in missing channels, SPD and exactly symmetric in the others."""
    values, unit = numbers(who, X, "(n_matrices, n, n)")
    as_given = as_float64(values, torch.device("cpu"))
    require_square(who, as_given, n=n)
    mask = observed(who, as_given, unit)
    require_some(who, mask)
    if not mask.all():
        filled = fill_diagonal(as_given, mask).numpy()
        X = filled.astype(values.dtype) if values.dtype.kind == "f" else filled
    found = checked_matrices(who, X, n=n, dtype=dtype, device=device)
    return found.masked_fill_(either(~mask).to(device), torch.nan)


def require_some(who: str, mask: Tensor) -> None:
    """Raise a ValueError unless every matrix has an observed channel."""
    empty = (~mask.any(-1)).nonzero()
    if len(empty):
        raise ValueError(
            f"{who}: expected at least one observed channel in every matrix, but all of "
            f"X[{int(empty[0])}] are missing; {len(empty)} of {len(mask)} matrices are affected; "
            "drop them"
        )


@accept_arrays
def align_channels(
    X: Tensor, channels: Sequence[str], reference: Sequence[str], *, drop: bool = False
) -> Tensor:
    """Arrange the channels of matrices like those of a reference montage.

    Channels of the reference that ``X`` does not have become NaN rows and columns:
    :class:`Completion` estimates them. Names are compared exactly.

    Parameters
    ----------
    X : Tensor or array, shape (..., k, k)
        Symmetric matrices.
    channels : sequence of k str
        Names of their channels.
    reference : sequence of n str
        Names of the channels of the result, in this order.
    drop : bool
        Drop channels that are not in the reference, instead of raising a ValueError.

    Returns
    -------
    Tensor or array, shape (..., n, n)

    Examples
    --------
    >>> from spdnet.adaptation import align_channels
    >>> align_channels([[1.0, 0.5], [0.5, 2.0]], ["Cz", "C3"], ["C3", "C4", "Cz"])
    array([[2. , nan, 0.5],
           [nan, nan, nan],
           [0.5, nan, 1. ]])
    """
    require_square("align_channels", X)
    own, wanted = _names("channels", channels, X.shape[-1]), _names("reference", reference)
    unknown = sorted(own.keys() - wanted.keys())
    if unknown and not drop:
        hint = did_you_mean(unknown[0], wanted)
        raise ValueError(
            f"align_channels: expected channels of the reference, got others: "
            f"{', '.join(map(repr, unknown))}{hint}; rename them, or pass drop=True to drop them"
        )
    if len(unknown) == len(own):
        raise ValueError(
            "align_channels: expected channels of the reference, got none of them: "
            f"{', '.join(map(repr, own))}"
        )
    shared = [name for name in wanted if name in own]
    source, target = ([index[name] for name in shared] for index in (own, wanted))
    aligned = X.new_full((*X.shape[:-2], len(wanted), len(wanted)), torch.nan)
    rows, columns = torch.tensor(target)[:, None], torch.tensor(target)
    aligned[..., rows, columns] = X[..., source, :][..., source]
    return aligned


def _names(argument: str, names: Sequence[str], n: int | None = None) -> dict[str, int]:
    """Return the position of each name."""
    found = {name: i for i, name in enumerate(names)}
    if isinstance(names, str) or len(found) != len(names) or n not in (None, len(found)):
        count = "distinct names" if n is None else f"{n} distinct names, one for each channel"
        raise ValueError(
            f"align_channels: expected {argument} to be {count}, got {len(names)}: {names!r}"
        )
    return found
