"""Style, axes and class labels of the plots."""

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import matplotlib
import numpy
import torch
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from numpy.typing import NDArray

TRAIN, VAL, BASELINE = "#2563eb", "#db2777", "#d97706"
INK, GRID = "#334155", "#e2e8f0"
#: colors of the classes
COLORS = [TRAIN, VAL, BASELINE, "#059669", "#7c3aed", "#0891b2", "#dc2626", "#65a30d"]
COLORS += ["#475569", "#92400e"]
#: matplotlib settings of all plots
STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#94a3b8",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "axes.axisbelow": True,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "text.parse_math": False,  # the name of a class may be $1$
}

#: largest number of classes with a legend and labels
MAX_LABELED_CLASSES = 25
_MAX_LENGTH = 16
_P = ParamSpec("_P")
_R = TypeVar("_R")


def styled(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Draw with the settings of :data:`STYLE`, without changing the global settings."""

    @wraps(function)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with matplotlib.rc_context(STYLE):
            return function(*args, **kwargs)

    return wrapped


@styled
def panels(
    rows: int = 1,
    columns: int = 1,
    *,
    size: tuple[float, float] | None = None,
    projection: str | None = None,
) -> NDArray[Any]:
    """Create a grid of axes in the style of the reports.

    Parameters
    ----------
    rows, columns : int
    size : (float, float), optional
        Width and height of the figure in inches.
    projection : str, optional
        ``"3d"`` for :func:`cone`.

    Returns
    -------
    array of Axes, shape (rows * columns,)

    Examples
    --------
    >>> from spdnet import plots
    >>> left, right = plots.panels(1, 2)
    >>> left = plots.learning_curves([{"loss": 2.0}, {"loss": 0.5}], ax=left)
    >>> right = plots.confusion([[8, 2], [1, 9]], ["calm", "moving"], ax=right)
    """
    from matplotlib import pyplot  # not needed to draw on given axes

    size = (4.8 * columns, 3.4 * rows) if size is None else size
    kind = {"projection": projection}
    _, grid = pyplot.subplots(rows, columns, figsize=size, squeeze=False, subplot_kw=kind)
    for ax in grid.flat:
        ax.tick_params(colors=INK, grid_color=GRID)  # ticks that are created later
    return grid.ravel()


def get_axes(ax: Axes | None, size: tuple[float, float] | None = None) -> Axes:
    """Return the given axes, or new ones."""
    return panels(size=size)[0] if ax is None else ax


def use_log_scale(ax: Axes) -> None:
    """Make the y axis logarithmic, with plain numbers."""
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    subs = (1.0, 2.0, 5.0) if high < 100 * low else (1.0,)
    ax.yaxis.set_major_locator(LogLocator(subs=subs, numticks=8))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def to_tensor(who: str, X: Any, name: str) -> torch.Tensor:
    """Convert to a detached float64 tensor on the CPU."""
    try:
        found = X.detach() if isinstance(X, torch.Tensor) else torch.from_numpy(numpy.array(X))
        if found.is_complex() or found.numel() == 0:
            raise TypeError
    except (TypeError, ValueError):
        kind = f"shape {tuple(X.shape)}" if hasattr(X, "shape") else type(X).__name__
        raise TypeError(f"{who}: expected {name} to be real numbers, got {kind}") from None
    return found.to("cpu", torch.float64)


def split_by_class(who: str, y: Any, n: int) -> Iterator[tuple[str | None, NDArray[Any], Any]]:
    """Yield the name, mask and color of each class; without ``y``, one class without a name."""
    if y is None:
        yield None, numpy.ones(n, dtype=bool), TRAIN
        return
    labels = to_labels(who, "y", y)
    if len(labels) != n:
        raise ValueError(f"{who}: expected one class for each of {n} points, got {len(labels)}")
    classes = sorted_unique(labels)
    many = matplotlib.colormaps["viridis"](numpy.linspace(0, 0.95, len(classes)))
    for i, name in enumerate(classes):
        color = COLORS[i] if len(classes) <= len(COLORS) else many[i]
        yield shorten(str(name)), numpy.array([label == name for label in labels]), color


def to_labels(who: str, name: str, y: Any) -> list[Any]:
    """Convert labels to a list of plain values."""
    labels = y.tolist() if hasattr(y, "tolist") else list(y)
    if not isinstance(labels, list) or any(isinstance(label, list) for label in labels):
        raise ValueError(
            f"{who}: expected {name} to be one-dimensional labels, got shape {numpy.shape(y)}"
        )
    return labels


def sorted_unique(labels: Sequence[Any]) -> list[Any]:
    """Return the distinct labels, sorted if possible."""
    found = list(dict.fromkeys(labels))
    try:
        return sorted(found)
    except TypeError:
        return found


def shorten(name: str) -> str:
    """Shorten a long name in the middle."""
    if len(name) > _MAX_LENGTH:
        name = f"{name[: _MAX_LENGTH - 7]}…{name[-6:]}"
    # matplotlib omits labels that start with an underscore
    return f" {name}" if name.startswith("_") else name
