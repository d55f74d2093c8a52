"""Which classes are taken for which."""

from collections.abc import Sequence
from typing import Any

import numpy
from matplotlib.axes import Axes
from numpy.typing import NDArray

from spdnet.plots.classes import MANY_CLASSES, label_list, ordered, short
from spdnet.plots.style import INK, axes, in_style, tensor_of


@in_style
def confusion(
    counts: Any = None,
    classes: Sequence[Any] | None = None,
    *,
    y_true: Any = None,
    y_pred: Any = None,
    ax: Axes | None = None,
) -> Axes:
    """True classes in rows, predicted ones in columns; the shade is the share of the row.

    Parameters
    ----------
    counts : array or Tensor, shape (n, n), optional
    classes : sequence, optional
        Names of the rows; with labels, those that there are and their order. Numbers from 0, or
        the labels in order, when not given. With more than 25, rows and cells have no text.
    y_true, y_pred : sequences, optional
        Labels to count, instead of counts.
    ax : Axes, optional

    Returns
    -------
    Axes

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
        table, names = _count((y_true, y_pred), classes)
    else:
        table, names = _counted(counts, classes)
    ax = axes(ax, (side_of(len(names)),) * 2)
    share = table / numpy.maximum(table.sum(1, keepdims=True), 1)
    ax.grid(False)
    ax.imshow(share, cmap="Blues", vmin=0, vmax=1)
    ax.set(xlabel="predicted", ylabel="true")
    if len(names) > MANY_CLASSES:
        return ax
    slanted: Any = {"rotation": 60, "ha": "right", "rotation_mode": "anchor"}
    ax.set_xticks(range(len(names)), names, **(slanted if max(map(len, names)) > 2 else {}))
    ax.set_yticks(range(len(names)), names)
    for text in (*ax.get_xticklabels(), *ax.get_yticklabels()):
        text.set_parse_math(False)  # those of given axes are older than our settings
    for (i, j), count in numpy.ndenumerate(table):
        if count:
            color = "white" if share[i, j] > 0.5 else INK
            ax.text(j, i, f"{count:g}", ha="center", va="center", color=color, fontsize=8)
    return ax


def side_of(n_classes: int) -> float:
    """Inches of a square picture in which so many rows of a confusion matrix can be read.

    Examples
    --------
    >>> from spdnet.plots import side_of
    >>> side_of(10)
    5.4
    """
    return min(max(3.2, 0.42 * n_classes + 1.2), 9.0)


def _counted(
    counts: Any, classes: Sequence[Any] | None
) -> tuple[NDArray[numpy.float64], list[str]]:
    """The table of a confusion, and the names of its rows."""
    table = tensor_of("confusion", counts, "counts").numpy()
    if table.ndim != 2 or table.shape[0] != table.shape[1]:
        raise ValueError(
            f"confusion: expected counts of shape (n, n), got {table.shape}; give labels as y_true "
            "and y_pred"
        )
    if not (numpy.isfinite(table).all() and (table >= 0).all()):
        raise ValueError("confusion: expected counts of at least 0, got others")
    names = range(len(table)) if classes is None else classes
    if len(names) != len(table):
        raise ValueError(f"confusion: expected {len(table)} classes, got {len(names)}")
    return table, [short(str(name)) for name in names]


def _count(
    labels: tuple[Any, Any], classes: Sequence[Any] | None
) -> tuple[NDArray[numpy.float64], list[str]]:
    """The table of labels, and the names of its rows."""
    true, predicted = (
        label_list("confusion", name, y)
        for name, y in zip(("y_true", "y_pred"), labels, strict=True)
    )
    if len(true) != len(predicted) or not true:
        raise ValueError(
            "confusion: expected as many labels in y_true as in y_pred, at least one, got "
            f"{len(true)} and {len(predicted)}"
        )
    known = (
        ordered([*true, *predicted]) if classes is None else label_list("confusion", "c", classes)
    )
    place = {name: i for i, name in enumerate(known)}
    table = numpy.zeros((len(known), len(known)))
    for t, p in zip(true, predicted, strict=True):
        for label in (t, p):
            if label not in place:
                raise ValueError(f"confusion: expected labels among the classes, got {label!r}")
        table[place[t], place[p]] += 1
    return table, [short(str(name)) for name in known]
