"""Principal components of frames: fewer numbers a frame, before covariances."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy
import scipy.linalg
from numpy.typing import NDArray

from spdnet.data.errors import DataError


@dataclass(frozen=True)
class Projection:
    """Principal components: frames become ``(frames - mean) components^T``.

    Parameters
    ----------
    mean : array, shape (d,)
    components : array, shape (k, d)
        Orthonormal rows, the direction of the largest variance first.
    """

    mean: NDArray[Any]
    components: NDArray[Any]

    def __call__(self, frames: NDArray[Any]) -> NDArray[Any]:
        """Frames of shape (T, d) to shape (T, k)."""
        if frames.ndim != 2 or frames.shape[1] != len(self.mean):
            raise ValueError(
                f"Projection: expected frames of shape (T, {len(self.mean)}), got {frames.shape}; "
                "use features of the kind that it was fitted to"
            )
        return (frames - self.mean) @ self.components.T


def fit_pca(sequences: Iterable[NDArray[Any]], n_components: int) -> Projection:
    """Principal components of the frames of all sequences, which are read once, one by one.

    The scatters of ``n`` and ``m`` frames whose means differ by ``delta`` merge to their sum and
    ``n m / (n + m) delta delta^T``. In each component the entry of largest magnitude is positive.

    Parameters
    ----------
    sequences : iterable of array, shape (T_i, d)
        Memory grows with ``d^2``: some thousand features at most.
    n_components : int
        At most the number of directions in which frames vary, which is below that of frames.

    Raises
    ------
    DataError
    """
    if n_components < 1:
        raise ValueError(f"fit_pca: expected n_components of at least 1, got {n_components}")
    n, mean, scatter = 0, numpy.zeros(0), numpy.zeros((0, 0))
    for i, sequence in enumerate(sequences):
        frames = numpy.asarray(sequence, dtype=numpy.float64)
        if i == 0 and frames.ndim == 2:
            mean, scatter = numpy.zeros(frames.shape[1]), numpy.zeros((frames.shape[1],) * 2)
        if frames.ndim != 2 or frames.shape[1] != len(mean) or not numpy.isfinite(frames).all():
            raise DataError(
                f"fit_pca: expected finite frames of shape (T, {len(mean) or 'd'}), got "
                f"{frames.shape} in sequence {i}, or NaN or infinity there"
            )
        if m := len(frames):
            delta = frames.mean(0) - mean
            between = numpy.sqrt(n * m / (n + m)) * delta
            rows = numpy.vstack([frames - frames.mean(0), between])
            scatter += rows.T @ rows
            mean = mean + delta * (m / (n + m))
            n += m
    d, k, rank, eps = len(mean), n_components, 0, numpy.finfo(numpy.float64).eps
    if d and n:
        values, vectors = scipy.linalg.eigh(scatter, subset_by_index=(max(d - k, 0), d - 1))
        rounding = eps * (n + d) * (values[-1] + eps * n * (mean @ mean))
        rank = int((values > rounding).sum())
    if rank < k:
        raise DataError(
            f"fit_pca: expected frames that vary in at least n_components={k} directions, got {n} "
            f"frames of length {d} that vary in {rank}; ask for fewer components"
        )
    components = vectors.T[::-1]
    largest = numpy.take_along_axis(components, numpy.abs(components).argmax(1)[:, None], 1)
    return Projection(mean, components * numpy.sign(largest))
