"""Missing channels: their detection, validation of the others, and channels by name."""

from collections.abc import Sequence
from typing import Any, Self

import numpy
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from torch import Tensor

from spdnet._checks import did_you_mean, require_square
from spdnet._inputs import CPU, as_tensor, examine_matrices, numeric_array
from spdnet.covariance.arrays import accept_arrays
from spdnet.linalg.missing import observed, require_some
from spdnet.linalg.validate import as_float64


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


def checked_partial(who: str, X: Any, n: int | None = None) -> Tensor:
    """Return matrices with NaN in missing channels, SPD and exactly symmetric in the others."""
    examined = examine_matrices(who, X, n=n, partial=True)
    if examined.are_faulty:
        values, unit = numeric_array(who, X, "(n_matrices, n, n)")
        require_some(who, observed(who, as_float64(values, CPU), unit))  # names the entry
        examined.require(definite=True)
    return examined.X


class KnownChannels(BaseEstimator):  # type: ignore[misc]
    """Remove channels that are missing in all training matrices."""

    kept_: NDArray[numpy.int64]
    n_features_in_: int

    def fit_tensor(self, X: Tensor) -> Self:
        """Find the channels that are not NaN in all matrices ``(N, n, n)``."""
        there = (~X.diagonal(dim1=-2, dim2=-1).isnan()).any(0)
        self.kept_, self.n_features_in_ = there.nonzero()[:, 0].cpu().numpy(), len(there)
        return self

    def transform_tensor(self, X: Tensor) -> Tensor:
        """Remove their rows and columns from matrices ``(N, n, n)``."""
        kept = as_tensor(self.kept_).to(X.device)
        return X[:, kept[:, None], kept]

    @property
    def rank_(self) -> int:
        """Number of channels that are left."""
        return len(self.kept_)

    def describe(self, names: Sequence[str] | None = None) -> str:
        """Return a note that names the removed channels; empty if there are none."""
        dropped = sorted({*range(self.n_features_in_)} - {*self.kept_.tolist()})
        if not dropped:
            return ""
        which = ", ".join(str(i if names is None else names[i]) for i in dropped)
        one = len(dropped) == 1
        return (
            f"channel{'' if one else 's'} {which} {'is' if one else 'are'} missing in all training "
            f"matrices, and {'is' if one else 'are'} removed"
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
