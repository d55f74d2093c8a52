"""Two-dimensional embedding of features."""

from typing import Any

import numpy
from matplotlib.axes import Axes
from numpy.typing import NDArray

from spdnet.linalg import Log, spectral_map, vech
from spdnet.plots.style import MAX_LABELED_CLASSES, get_axes, split_by_class, styled, to_tensor


@styled
def embedding(features: Any, y: Any = None, *, ax: Axes | None = None) -> Axes:
    """Plot the first two principal components of features, colored by class.

    The axis labels show the explained variance.

    Parameters
    ----------
    features : array or Tensor, shape (n, d) or (n, m, m)
        Vectors, for example from ``transform`` of :class:`spdnet.SPDNetClassifier`, or SPD
        matrices, which are compared in the log-Euclidean metric.
    y : array or Tensor, shape (n,), optional
        Classes; at most 25 are shown in the legend.
    ax : Axes, optional

    Examples
    --------
    >>> from spdnet import plots
    >>> ax = plots.embedding([[0.0, 0.0], [3.0, 0.0], [0.0, 1.0], [3.0, 1.0]], [0, 1, 0, 1])
    >>> ax.get_xlabel()
    'first component, 90 %'
    """
    vectors = _vectors(features)
    groups = list(split_by_class("embedding", y, len(vectors)))
    centered = vectors - vectors.mean(0)
    U, s, Vh = numpy.linalg.svd(centered, full_matrices=False)
    # the sign of a singular vector is arbitrary
    sign = numpy.sign(Vh[numpy.arange(len(Vh)), numpy.abs(Vh).argmax(1)])
    plane = numpy.zeros((len(vectors), 2))
    plane[:, : len(s)] = (U * s * sign)[:, :2]
    variance = numpy.zeros(2)
    variance[: len(s)] = (s**2 / max(float((s**2).sum()), numpy.finfo(float).tiny))[:2]
    ax = get_axes(ax)
    for name, chosen, color in groups:
        first, second = plane[chosen].T
        ax.scatter(first, second, s=12, color=color, alpha=0.7, lw=0, label=name)
    shares = [f"{100 * share:.0f} %" for share in variance]
    ax.set(xlabel=f"first component, {shares[0]}", ylabel=f"second component, {shares[1]}")
    if y is not None and len(groups) <= MAX_LABELED_CLASSES:
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), ncols=1 + (len(groups) > 13))
    return ax


def _vectors(features: Any) -> NDArray[numpy.float64]:
    """Return the features ``(n, d)``; for matrices, the entries of their logarithms."""
    found = to_tensor("embedding", features, "features")
    if found.ndim == 3:
        return vech(spectral_map(found, Log(), who="embedding", name="features")).numpy()
    if found.ndim != 2 or not found.isfinite().all():
        raise ValueError(
            "embedding: expected finite features (n, d), or SPD matrices (n, m, m), got "
            f"{tuple(found.shape)}{'' if found.isfinite().all() else ' with NaN or infinity'}"
        )
    return found.numpy()
