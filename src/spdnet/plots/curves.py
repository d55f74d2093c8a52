"""What happens over the epochs."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from spdnet._checks import (
    require_choice,
)
from spdnet.plots.style import (
    BASELINE,
    INK,
    TRAIN,
    VAL,
    axes,
    in_style,
    logarithmic,
)

_PARTS = {"train": "train", "val": "validation", "test": "test"}
_PART_COLORS = {"train": TRAIN, "val": VAL, "test": BASELINE}


@in_style
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
    """Loss or accuracy over the epochs.

    Parameters
    ----------
    history : list of dict
        A row for each epoch: ``history_`` of :class:`spdnet.SPDNetClassifier`, ``history`` of
        :class:`spdnet.training.Progress`, ``metrics()`` of a run folder, or your own, with ``loss``
        and the like.
    measure : {"loss", "accuracy"}
        A loss that is always positive has a logarithmic axis.
    parts : sequence of {"train", "val", "test"}, optional
        Lines to draw; those that the history has, when not given.
    best_epoch : int, optional
        Mark it.
    label : str, optional
        Names the training, to tell several on the same axes apart.
    ax : Axes, optional
    **line
        Of matplotlib's lines, such as ``color``.

    Returns
    -------
    Axes

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
    ax = axes(ax)
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
        logarithmic(ax)
    ax.set(xlabel="epoch", ylabel=measure)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend()
    return ax


def _columns(
    history: Sequence[Mapping[str, float]], measure: str, parts: Sequence[str] | None
) -> dict[str, list[float]]:
    """Values over the epochs, by part."""
    keys = {"train": measure, "val": f"val_{measure}", "test": f"test_{measure}"}
    if not len(history):
        raise ValueError("learning_curves: expected a row for each epoch, got none")
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
