"""The look of all pictures, and what they are drawn on."""

from collections.abc import Callable
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
#: of classes, in their order; the first three are those of the reports
COLORS = [TRAIN, VAL, BASELINE, "#059669", "#7c3aed", "#0891b2", "#dc2626", "#65a30d"]
COLORS += ["#475569", "#92400e"]
#: settings of matplotlib that make the look
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
    "text.parse_math": False,  # a class may be called $1$
}

_P = ParamSpec("_P")
_R = TypeVar("_R")


def in_style(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Draw with the settings of :data:`STYLE`, and leave the user's as they were."""

    @wraps(function)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with matplotlib.rc_context(STYLE):
            return function(*args, **kwargs)

    return wrapped


@in_style
def panels(
    rows: int = 1,
    columns: int = 1,
    *,
    size: tuple[float, float] | None = None,
    projection: str | None = None,
) -> NDArray[Any]:
    """New axes side by side, in the look of the reports.

    Parameters
    ----------
    rows, columns : int
    size : (float, float), optional
        Width and height of the whole figure in inches.
    projection : str, optional
        ``"3d"`` for :func:`cone`.

    Returns
    -------
    array of Axes, shape (rows * columns,)
        Row by row.

    Examples
    --------
    >>> from spdnet import plots
    >>> left, right = plots.panels(1, 2)
    >>> left.figure is right.figure
    True
    """
    from matplotlib import pyplot  # only here: drawing on given axes does not need it

    _, grid = pyplot.subplots(
        rows,
        columns,
        figsize=(4.8 * columns, 3.4 * rows) if size is None else size,
        squeeze=False,
        subplot_kw={"projection": projection},
    )
    for ax in grid.flat:
        ax.tick_params(colors=INK, grid_color=GRID)  # ticks are made later, by other settings
    return grid.ravel()


def axes(ax: Axes | None, size: tuple[float, float] | None = None) -> Axes:
    """Those that are given, or new ones."""
    return panels(size=size)[0] if ax is None else ax


def logarithmic(ax: Axes) -> None:
    """A logarithmic axis whose numbers are plain text."""
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    subs = (1.0, 2.0, 5.0) if high < 100 * low else (1.0,)
    ax.yaxis.set_major_locator(LogLocator(subs=subs, numticks=8))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def tensor_of(who: str, X: Any, name: str) -> torch.Tensor:
    """In float64 on the CPU, without its history."""
    try:
        found = X.detach() if isinstance(X, torch.Tensor) else torch.from_numpy(numpy.array(X))
        if found.is_complex() or found.numel() == 0:
            raise TypeError
    except (TypeError, ValueError):
        kind = f"shape {tuple(X.shape)}" if hasattr(X, "shape") else type(X).__name__
        raise TypeError(f"{who}: expected {name} to be real numbers, got {kind}") from None
    return found.to("cpu", torch.float64)
