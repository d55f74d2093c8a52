"""Scale of the training data, to detect new data in another unit."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from spdnet.training.data import DiskTensor

_CHUNK = 2**24  # bytes
_FAR = 3.0  # decades outside of the training range; centimeters and meters differ by 4 decades


@dataclass(frozen=True)
class InputScale:
    """Range of the mean variance of the training samples, as base-10 logarithms.

    The mean variance of a covariance matrix is its mean diagonal entry ``tr(X) / n``; that of a
    signal is its mean square. It changes with the unit of the recording: volts and microvolts
    differ by a factor of 1e12.

    Parameters
    ----------
    low, median, high : float
        Smallest, median and largest base-10 logarithm over the training samples.

    Examples
    --------
    >>> import torch
    >>> from spdnet.training import InputScale
    >>> X = torch.eye(3).repeat(4, 1, 1)
    >>> scale = InputScale.of(X)
    >>> scale.warning(2 * X) is None
    True
    >>> scale.warning(1e6 * X)[:66]
    'the scale of 4 of 4 samples differs from that of the training data'
    """

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, X: Tensor | DiskTensor, *, signals: bool = False) -> "InputScale":
        """Compute the scale of training samples, which are matrices or signals."""
        values = log_variance(X, signals)
        return cls(values.min().item(), values.median().item(), values.max().item())

    def warning(self, X: Tensor | DiskTensor, *, signals: bool = False) -> str | None:
        """Return a message if samples are far outside of the training range, else None."""
        return self.describe(log_variance(X, signals), signals=signals)

    def describe(self, values: Tensor, *, signals: bool = False) -> str | None:
        """Return the message of :meth:`warning` from the result of ``log_variance``."""
        far = values[(values < self.low - _FAR) | (values > self.high + _FAR)]
        if len(far) == 0:
            return None
        decades = far.median().item() - self.median
        kind = "mean square" if signals else "mean diagonal entry"
        return (
            f"the scale of {len(far)} of {len(values)} samples differs from that of the training "
            f"data by a factor of about {10 ** abs(decades):.2g} (their {kind} is "
            f"{'larger' if decades > 0 else 'smaller'}), and predictions for them are unreliable; "
            "check the unit: volts and microvolts differ by 1e6, and their covariances by 1e12"
        )


def log_variance(X: Tensor | DiskTensor, signals: bool) -> Tensor:
    """Compute the base-10 logarithm of the mean variance of each sample.

    Zero samples count as the smallest positive number.
    """
    parts, one = [], X.dtype.itemsize * math.prod(X.shape[1:])
    for part in X.split(max(1, _CHUNK // max(1, one))):
        part = part.detach()
        squares = (
            part.double().square() if signals else part.diagonal(dim1=-2, dim2=-1).real.double()
        )
        parts.append(squares.flatten(1).mean(-1).cpu())
    return torch.cat(parts).clamp_min(torch.finfo(torch.float64).tiny).log10()
