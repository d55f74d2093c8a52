"""Eigenvalues."""

from collections.abc import Mapping
from typing import Any

import numpy
import torch
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from spdnet._checks import require_square
from spdnet.linalg.validate import require_symmetric
from spdnet.plots.style import (
    TRAIN,
    axes,
    in_style,
    logarithmic,
    tensor_of,
)


@in_style
def spectra(
    X: Any,
    *,
    label: str | None = None,
    color: str = TRAIN,
    log: bool | None = None,
    ax: Axes | None = None,
) -> Axes:
    r"""Eigenvalues :math:`\lambda_1 \ge \lambda_2 \ge \ldots` of many matrices: at each place the
    median, and the band from 5 to 95 percent.

    Parameters
    ----------
    X : array or Tensor, shape (..., n, n)
        Symmetric matrices; or a dict with ``low``, ``median`` and ``high``, as in the results of a
        run.
    label : str, optional
        Name in the legend.
    color : str
    log : bool, optional
        Logarithmic axis; where all of the band is positive, when not given.
    ax : Axes, optional

    Returns
    -------
    Axes

    Examples
    --------
    >>> import numpy
    >>> from spdnet import plots
    >>> ax = plots.spectra([numpy.diag([1.0, 4.0]), numpy.diag([3.0, 2.0])])
    >>> ax.lines[0].get_ydata().tolist()
    [3.5, 1.5]
    """
    low, middle, high = _band(X)
    ax = axes(ax)
    places = numpy.arange(1, len(middle) + 1)
    ax.fill_between(places, low, high, color=color, alpha=0.2, lw=0)
    ax.plot(places, middle, marker="o" if len(places) == 1 else None, color=color, label=label)
    if log or (log is None and bool((low > 0).all())):
        logarithmic(ax)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    ax.set(xlabel="place in the order", ylabel="eigenvalue")
    if label is not None:
        ax.legend()
    return ax


def _band(X: Any) -> list[NDArray[numpy.float64]]:
    """Quantiles ``low, median, high`` of the eigenvalues in descending order."""
    keys = ("low", "median", "high")
    if isinstance(X, Mapping):
        if not set(keys) <= set(X):
            raise ValueError(
                f"spectra: expected matrices, or a dict with {', '.join(keys)}, got {sorted(X)}"
            )
        return [numpy.asarray(X[key], dtype=numpy.float64) for key in keys]
    matrices = tensor_of("spectra", X, "X")
    require_square("spectra", matrices)
    require_symmetric("spectra", matrices)
    s = torch.linalg.eigvalsh(matrices).flip(-1).reshape(-1, matrices.shape[-1])
    return list(numpy.quantile(s.numpy(), (0.05, 0.5, 0.95), axis=0))
