"""Learning curves, ROC curves and spectra."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy
import torch
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from spdnet._checks import require_choice, require_number, require_square
from spdnet.linalg.validate import require_symmetric
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
        False acceptance rate to mark with a line.
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
    if len(curve) != 2 or numpy.shape(curve[0]) != numpy.shape(curve[1]):
        raise ValueError(
            "roc: expected a pair of false acceptance and verification rates of equal length, got "
            f"{type(curve).__name__}; compute it with spdnet.metrics.roc(scores, same)"
        )
    far, rate = (to_tensor("roc", values, "the rates").numpy() for values in curve)
    if far.ndim != 1 or not all(((v >= 0) & (v <= 1)).all() for v in (far, rate)):
        raise ValueError("roc: expected one-dimensional rates from 0 to 1, got other values")
    if mark is not None:
        require_number("roc", "mark", mark, above=0, at_most=1)
    ax = get_axes(ax)
    ax.plot(far[far > 0], rate[far > 0], **{"lw": 1.2, "label": label, **line})
    marks = [numpy.asarray(drawn.get_xdata()).tolist() for drawn in ax.lines]
    if mark is not None and [mark, mark] not in marks:  # only once for several curves
        ax.axvline(mark, color=INK, lw=0.8, ls=":")
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.set(xlabel="false acceptance rate", ylabel="verification rate", ylim=(0, 1.02))
    if label is not None:
        ax.legend()
    return ax


@styled
def spectra(
    X: Any,
    *,
    label: str | None = None,
    color: str = TRAIN,
    log: bool | None = None,
    ax: Axes | None = None,
) -> Axes:
    r"""Plot the sorted eigenvalues :math:`\lambda_1 \ge \lambda_2 \ge \ldots` of many matrices.

    The line is the median over the matrices; the band contains 90 percent of them.

    Parameters
    ----------
    X : array or Tensor, shape (..., n, n)
        Symmetric matrices, or a dict with ``low``, ``median`` and ``high``, as in the results of a
        run.
    label : str, optional
        Name in the legend.
    color : str
    log : bool, optional
        Use a logarithmic axis; by default if the band is positive.
    ax : Axes, optional

    Examples
    --------
    >>> import numpy
    >>> from spdnet import plots
    >>> ax = plots.spectra([numpy.diag([1.0, 4.0]), numpy.diag([3.0, 2.0])])
    >>> ax.lines[0].get_ydata().tolist()
    [3.5, 1.5]
    """
    keys = ("low", "median", "high")
    if not isinstance(X, Mapping):
        matrices = to_tensor("spectra", X, "X")
        require_square("spectra", matrices)
        require_symmetric("spectra", matrices)
        s = torch.linalg.eigvalsh(matrices).flip(-1).reshape(-1, matrices.shape[-1])
        low, middle, high = numpy.quantile(s.numpy(), (0.05, 0.5, 0.95), axis=0)
    elif set(keys) <= set(X):
        low, middle, high = (numpy.asarray(X[key], dtype=numpy.float64) for key in keys)
    else:
        raise ValueError(
            f"spectra: expected matrices, or a dict with {', '.join(keys)}, got {sorted(X)}"
        )
    ax = get_axes(ax)
    index = numpy.arange(1, len(middle) + 1)
    ax.fill_between(index, low, high, color=color, alpha=0.2, lw=0)
    ax.plot(index, middle, marker="o" if len(index) == 1 else None, color=color, label=label)
    if log or (log is None and bool((low > 0).all())):
        use_log_scale(ax)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    ax.set(xlabel="index", ylabel="eigenvalue")
    if label is not None:
        ax.legend()
    return ax
