"""Learning curves and ROC curves."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from spdnet._checks import require_choice, require_number
from spdnet.plots.style import BASELINE, INK, TRAIN, VAL, get_axes, styled, to_tensor, use_log_scale

_PARTS = {"train": "train", "val": "validation", "test": "test"}
_PART_COLORS = {"train": TRAIN, "val": VAL, "test": BASELINE}


@styled
def learning_curves(
    history: Sequence[Mapping[str, float]],
    measure: str = "loss",
    *,
    parts: Sequence[str] | None = None,
    best_epoch: int | None = None,
    label: str | None = None,
    ax: Axes | None = None,
    **line: Any,
) -> Axes:
    """Plot the loss or the accuracy over the epochs.

    Parameters
    ----------
    history : list of dict
        One row per epoch, with keys such as ``loss`` and ``val_loss``: ``history_`` of
        :class:`spdnet.SPDNetClassifier`, ``history`` of :class:`spdnet.training.Progress`, or
        ``metrics()`` of a run folder.
    measure : {"loss", "accuracy"}
        The axis of a positive loss is logarithmic.
    parts : sequence of {"train", "val", "test"}, optional
        Lines to draw; by default all in the history.
    best_epoch : int, optional
        Epoch to mark.
    label : str, optional
        Name of the training in the legend.
    ax : Axes, optional
    **line
        Properties of the matplotlib lines, such as ``color``.

    Examples
    --------
    >>> from spdnet import plots
    >>> history = [{"epoch": 1, "loss": 1.5, "val_loss": 1.6}, {"epoch": 2, "loss": 0.7,
    ...     "val_loss": 0.9}]
    >>> ax = plots.learning_curves(history, best_epoch=2)
    >>> [line.get_label() for line in ax.lines]
    ['train', 'validation', 'best epoch']
    """
    require_choice("learning_curves", "measure", measure, ("loss", "accuracy"))
    columns = _columns(history, measure, parts)
    ax = get_axes(ax)
    epochs = [row.get("epoch", i) for i, row in enumerate(history, 1)]
    for part, values in columns.items():
        name = _PARTS[part]
        if label is not None:
            name = f"{label}, {name}" if len(columns) > 1 else label
        marker = "o" if len(epochs) == 1 else None
        style = {"color": _PART_COLORS[part], "marker": marker, "label": name, **line}
        ax.plot(epochs, values, **style)
    if best_epoch is not None:
        ax.axvline(best_epoch, color=INK, lw=0.8, ls=":", label="best epoch")
    if measure == "loss" and min(map(min, columns.values())) > 0:
        use_log_scale(ax)
    ax.set(xlabel="epoch", ylabel=measure)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend()
    return ax


def _columns(
    history: Sequence[Mapping[str, float]], measure: str, parts: Sequence[str] | None
) -> dict[str, list[float]]:
    """Return the values over the epochs for each part."""
    keys = {"train": measure, "val": f"val_{measure}", "test": f"test_{measure}"}
    if not len(history):
        raise ValueError("learning_curves: expected one row per epoch, got none")
    if parts is None:
        parts = [part for part, key in keys.items() if key in history[0]] or ["train"]
    for part in parts:
        require_choice("learning_curves", "part", part, keys)
        missing = [i for i, row in enumerate(history) if keys[part] not in row]
        if missing:
            raise ValueError(
                f"learning_curves: expected {keys[part]!r} in every row of the history, got "
                f"{sorted(history[missing[0]])} in row {missing[0]}"
            )
    return {part: [float(row[keys[part]]) for row in history] for part in parts}


@styled
def roc(
    curve: Any,
    *,
    label: str | None = None,
    mark: float | None = 0.01,
    ax: Axes | None = None,
    **line: Any,
) -> Axes:
    """Plot the verification rate against the false acceptance rate on a logarithmic axis.

    Parameters
    ----------
    curve : Roc
        Result of :func:`spdnet.metrics.roc`, or a pair of false acceptance and verification rates.
    label : str, optional
        Name in the legend.
    mark : float or None
        False acceptance rate to mark by a line.
    ax : Axes, optional
    **line
        Properties of the matplotlib line, such as ``color``.

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
    ax = get_axes(ax)
    ax.plot(far, rate, **{"lw": 1.2, "label": label, **line})
    marks = [numpy.asarray(drawn.get_xdata()).tolist() for drawn in ax.lines]
    if mark is not None and [mark, mark] not in marks:  # once for several curves
        ax.axvline(mark, color=INK, lw=0.8, ls=":")
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.set(xlabel="false acceptance rate", ylabel="verification rate", ylim=(0, 1.02))
    if label is not None:
        ax.legend()
    return ax


def _rates(curve: Any) -> tuple[NDArray[numpy.float64], NDArray[numpy.float64]]:
    """Return the points of a curve with a positive false acceptance rate."""
    if len(curve) != 2 or numpy.shape(curve[0]) != numpy.shape(curve[1]):
        raise ValueError(
            "roc: expected a pair of false acceptance and verification rates of equal length, got "
            f"{type(curve).__name__}; compute it with spdnet.metrics.roc(scores, same)"
        )
    far, rate = (to_tensor("roc", values, "the rates").numpy() for values in curve)
    if far.ndim != 1 or not all(((v >= 0) & (v <= 1)).all() for v in (far, rate)):
        raise ValueError("roc: expected one-dimensional rates from 0 to 1, got others")
    return far[far > 0], rate[far > 0]
