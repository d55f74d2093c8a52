"""Principal components of frames."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy
import scipy.linalg
from numpy.typing import NDArray

from spdnet.data.errors import DataError


@dataclass(frozen=True)
class Projection:
    """Projection ``(frames - mean) components^T`` with orthonormal components ``(k, d)``."""

    mean: NDArray[Any]
    components: NDArray[Any]

    def __call__(self, frames: NDArray[Any]) -> NDArray[Any]:
        """Project frames ``(T, d)`` to ``(T, k)``."""
        if frames.ndim != 2 or frames.shape[1] != len(self.mean):
            raise ValueError(
                f"Projection: expected frames of shape (T, {len(self.mean)}), got {frames.shape}; "
                "use the same kind of features as in fit_pca"
            )
        return (frames - self.mean) @ self.components.T


def fit_pca(sequences: Iterable[NDArray[Any]], n_components: int) -> Projection:
    """Fit principal components to the frames of all sequences in one pass.

    The scatter matrices of ``n`` and ``m`` frames whose means differ by ``delta`` are merged by
    adding ``n m / (n + m) delta delta^T``. The largest entry of each component is positive.

    Parameters
    ----------
    sequences : iterable of array, shape (T_i, d)
        Memory grows with ``d^2``: a few thousand features at most.
    n_components : int
        At most the rank of the centered frames.
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
