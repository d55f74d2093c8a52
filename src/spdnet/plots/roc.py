"""How well pairs are verified."""

from typing import Any

import numpy
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from spdnet._checks import (
    require_number,
)
from spdnet.plots.style import INK, axes, in_style, tensor_of


@in_style
def roc(
    curve: Any,
    *,
    label: str | None = None,
    mark: float | None = 0.01,
    ax: Axes | None = None,
    **line: Any,
) -> Axes:
    """Verification rate against false acceptance rate, which has a logarithmic axis.

    Parameters
    ----------
    curve : Roc
        Of :func:`spdnet.metrics.roc`, or another pair of false acceptance and verification rates.
    label : str, optional
        Name in the legend.
    mark : float or None
        A false acceptance rate to draw a line at.
    ax : Axes, optional
    **line
        Of matplotlib's lines, such as ``color``.

    Returns
    -------
    Axes

    Examples
    --------
    >>> from spdnet import metrics, plots
    >>> curve = metrics.roc([0.9, 0.8, 0.7, 0.1], [True, False, True, False])
    >>> plots.roc(curve, label="cosine").get_xscale()
    'log'
    """
    far, rate = _rates(curve)
    if mark is not None:
        require_number("roc", "mark", mark, above=0, at_most=1)
    ax = axes(ax)
    ax.plot(far, rate, **{"lw": 1.2, "label": label, **line})
    marks = [numpy.asarray(drawn.get_xdata()).tolist() for drawn in ax.lines]
    if mark is not None and [mark, mark] not in marks:  # once, however many curves there are
        ax.axvline(mark, color=INK, lw=0.8, ls=":")
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.set(xlabel="false acceptance rate", ylabel="verification rate", ylim=(0, 1.02))
    if label is not None:
        ax.legend()
    return ax


def _rates(curve: Any) -> tuple[NDArray[numpy.float64], NDArray[numpy.float64]]:
    """The points of a curve, but for those at a rate of 0, which a logarithmic axis has not."""
    if len(curve) != 2 or numpy.shape(curve[0]) != numpy.shape(curve[1]):
        raise ValueError(
            "roc: expected a pair of false acceptance and verification rates of one length, got "
            f"{type(curve).__name__}; make it with spdnet.metrics.roc(scores, same)"
        )
    far, rate = (tensor_of("roc", values, "the rates").numpy() for values in curve)
    if far.ndim != 1 or not all(((v >= 0) & (v <= 1)).all() for v in (far, rate)):
        raise ValueError("roc: expected rates from 0 to 1 in a row, got others")
    return far[far > 0], rate[far > 0]
