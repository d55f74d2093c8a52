"""Points colored by class: the cone of 2 by 2 matrices, and an embedding of features."""

from typing import Any

import numpy
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from spdnet._checks import require_square
from spdnet.linalg import Log, spectral_map, vech
from spdnet.linalg.validate import require_positive_semidefinite
from spdnet.plots.style import (
    INK,
    MAX_LABELED_CLASSES,
    get_axes,
    panels,
    split_by_class,
    styled,
    to_tensor,
)


@styled
def cone(X: Any, y: Any = None, *, ax: Any = None) -> Any:
    r"""Plot 2 by 2 matrices as points in the cone of SPD matrices.

    .. math:: \begin{pmatrix} a & b \\ b & c \end{pmatrix} \mapsto
        \bigl( \tfrac{a - c}{2}, \; b, \; \tfrac{a + c}{2} \bigr)

    The height is the mean of the eigenvalues; the distance from the axis is half their difference.
    The axis contains the multiples of the identity, and the boundary :math:`a c = b^2` the singular
    matrices.

    Parameters
    ----------
    X : array or Tensor, shape (n, 2, 2) or (stages, n, 2, 2)
        Positive semidefinite matrices. With stages, for example before and after a layer, a path
        leads from the first stage (ring) to the last (dot).
    y : array or Tensor, shape (n,), optional
        Classes, shown as colors.
    ax : Axes, optional
        Axes with ``projection="3d"``.

    Examples
    --------
    >>> from spdnet import plots
    >>> ax = plots.cone([[[3.0, 1.0], [1.0, 2.0]], [[1.0, 0.0], [0.0, 1.0]]], ["wide", "round"])
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['round', 'wide']
    """
    matrices = to_tensor("cone", X, "X")
    require_square("cone", matrices, n=2)
    require_positive_semidefinite("cone", matrices)
    if matrices.ndim not in (3, 4):
        raise ValueError(
            f"cone: expected X of shape (n, 2, 2) or (stages, n, 2, 2), got {tuple(matrices.shape)}"
        )
    stages = matrices.reshape(-1, *matrices.shape[-3:]).numpy()  # (stages, n, 2, 2)
    a, b, c = stages[..., 0, 0], stages[..., 0, 1], stages[..., 1, 1]
    points = numpy.stack([(a - c) / 2, b, (a + c) / 2])  # (3, stages, n)
    groups = list(split_by_class("cone", y, points.shape[-1]))
    if ax is None:
        ax = panels(size=(5.4, 4.2), projection="3d")[0]
    elif getattr(ax, "name", None) != "3d":
        raise ValueError(
            "cone: expected ax with three dimensions, got two; create it with "
            "plots.panels(projection='3d')"
        )
    _draw_cone(ax, float(points[2].max()))
    for name, chosen, color in groups:
        if len(stages) > 1:
            for i in numpy.flatnonzero(chosen):
                ax.plot(*points[:, :, i], color=color, lw=0.8, alpha=0.5)
            first = points[:, 0, chosen]
            ax.scatter(*first, s=14, facecolors="white", edgecolors=color, depthshade=False)
        ax.scatter(*points[:, -1, chosen], s=14, color=color, label=name, depthshade=False)
    ax.set(xlabel="(a - c) / 2", ylabel="b", zlabel="(a + c) / 2")
    if y is not None and len(groups) <= MAX_LABELED_CLASSES:
        ax.legend(loc="upper left")
    return ax


def _draw_cone(ax: Any, top: float) -> None:
    """Draw the boundary up to a height, and the axis."""
    angle = numpy.linspace(0, 2 * numpy.pi, 73)
    height = 1.05 * top * numpy.linspace(0, 1, 5)[:, None]
    u, v, w = height * numpy.cos(angle), height * numpy.sin(angle), height + 0 * angle
    ax.plot_surface(u, v, w, color="#94a3b8", alpha=0.1, lw=0, shade=False)
    for ring in range(1, len(height)):
        ax.plot(u[ring], v[ring], w[ring], color="#94a3b8", lw=0.6, alpha=0.6)
    ax.plot([0, 0], [0, 0], [0, w[-1, 0]], color=INK, lw=0.8, ls=":")
    for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
        axis.set_pane_color("white")
        axis.set_major_locator(MaxNLocator(4))
    ax.set_box_aspect((1, 1, 0.8), zoom=1.05)
    ax.view_init(elev=16, azim=-55)


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
    found = to_tensor("embedding", features, "features")
    if found.ndim == 3:
        found = vech(spectral_map(found, Log(), who="embedding", name="features"))
    elif found.ndim != 2 or not found.isfinite().all():
        raise ValueError(
            "embedding: expected finite features (n, d), or SPD matrices (n, m, m), got "
            f"{tuple(found.shape)}{'' if found.isfinite().all() else ' with NaN or infinity'}"
        )
    vectors = found.numpy()
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
