"""Confusion matrix."""

from collections.abc import Sequence
from typing import Any

import numpy
from matplotlib.axes import Axes
from numpy.typing import NDArray

from spdnet.plots.style import (
    INK,
    MAX_LABELED_CLASSES,
    get_axes,
    shorten,
    sorted_unique,
    styled,
    to_labels,
    to_tensor,
)


@styled
def confusion(
    counts: Any = None,
    classes: Sequence[Any] | None = None,
    *,
    y_true: Any = None,
    y_pred: Any = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot a confusion matrix: true classes in rows, predicted classes in columns.

    The shade is the fraction within the row.

    Parameters
    ----------
    counts : array or Tensor, shape (n, n), optional
    classes : sequence, optional
        Names of the classes; for labels, also their order. By default the indices, or the sorted
        labels. More than 25 classes are drawn without text.
    y_true, y_pred : sequences, optional
        Labels to count, instead of ``counts``.
    ax : Axes, optional

    Examples
    --------
    >>> from spdnet import plots
    >>> ax = plots.confusion(y_true=["a", "a", "b"], y_pred=["a", "b", "b"])
    >>> ax.images[0].get_array().tolist()
    [[0.5, 0.5], [0.0, 1.0]]
    """
    if (counts is None) == (y_true is None) or (y_true is None) != (y_pred is None):
        raise ValueError("confusion: expected either counts, or y_true and y_pred")
    if counts is None:
        counts, classes = _count_labels(y_true, y_pred, classes)
    table = to_tensor("confusion", counts, "counts").numpy()
    if table.ndim != 2 or table.shape[0] != table.shape[1]:
        raise ValueError(
            f"confusion: expected counts of shape (n, n), got {table.shape}; pass labels as y_true "
            "and y_pred"
        )
    if not (numpy.isfinite(table).all() and (table >= 0).all()):
        raise ValueError("confusion: expected finite counts of at least 0, got other values")
    names = [shorten(str(name)) for name in (range(len(table)) if classes is None else classes)]
    if len(names) != len(table):
        raise ValueError(f"confusion: expected {len(table)} classes, got {len(names)}")
    ax = get_axes(ax, (confusion_size(len(names)),) * 2)
    fraction = table / numpy.maximum(table.sum(1, keepdims=True), 1)
    ax.grid(False)
    ax.imshow(fraction, cmap="Blues", vmin=0, vmax=1)
    ax.set(xlabel="predicted", ylabel="true")
    if len(names) > MAX_LABELED_CLASSES:
        return ax
    slanted: Any = {"rotation": 60, "ha": "right", "rotation_mode": "anchor"}
    ax.set_xticks(range(len(names)), names, **(slanted if max(map(len, names)) > 2 else {}))
    ax.set_yticks(range(len(names)), names)
    for text in (*ax.get_xticklabels(), *ax.get_yticklabels()):
        text.set_parse_math(False)  # given axes were created with other settings
    for (i, j), count in numpy.ndenumerate(table):
        if count:
            color = "white" if fraction[i, j] > 0.5 else INK
            ax.text(j, i, f"{count:g}", ha="center", va="center", color=color, fontsize=8)
    return ax


def confusion_size(n_classes: int) -> float:
    """Return the side in inches of a readable confusion matrix.

    Examples
    --------
    >>> from spdnet.plots import confusion_size
    >>> confusion_size(10)
    5.4
    """
    return min(max(3.2, 0.42 * n_classes + 1.2), 9.0)


def _count_labels(
    y_true: Any, y_pred: Any, classes: Sequence[Any] | None
) -> tuple[NDArray[numpy.float64], Sequence[Any]]:
    """Count the labels; return the table and the names of its rows."""
    true, predicted = (to_labels("confusion", *y) for y in (("y_true", y_true), ("y_pred", y_pred)))
    if len(true) != len(predicted) or not true:
        raise ValueError(
            "confusion: expected as many labels in y_true as in y_pred, at least one, got "
            f"{len(true)} and {len(predicted)}"
        )
    names = sorted_unique([*true, *predicted])
    if classes is not None:
        names = to_labels("confusion", "classes", classes)
    index = {name: i for i, name in enumerate(names)}
    unknown = [label for label in (*true, *predicted) if label not in index]
    if unknown:
        raise ValueError(f"confusion: expected labels among the classes, got {unknown[0]!r}")
    table = numpy.zeros((len(names), len(names)))
    for t, p in zip(true, predicted, strict=True):
        table[index[t], index[p]] += 1
    return table, names
