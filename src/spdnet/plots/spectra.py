"""Spectra of matrices."""

from collections.abc import Mapping
from typing import Any

import numpy
import torch
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from spdnet._checks import require_square
from spdnet.linalg.validate import require_symmetric
from spdnet.plots.style import TRAIN, get_axes, styled, to_tensor, use_log_scale


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
    low, middle, high = _band(X)
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


def _band(X: Any) -> list[NDArray[numpy.float64]]:
    """Return the quantiles ``low, median, high`` of the eigenvalues in descending order."""
    keys = ("low", "median", "high")
    if isinstance(X, Mapping):
        if not set(keys) <= set(X):
            raise ValueError(
                f"spectra: expected matrices, or a dict with {', '.join(keys)}, got {sorted(X)}"
            )
        return [numpy.asarray(X[key], dtype=numpy.float64) for key in keys]
    matrices = to_tensor("spectra", X, "X")
    require_square("spectra", matrices)
    require_symmetric("spectra", matrices)
    s = torch.linalg.eigvalsh(matrices).flip(-1).reshape(-1, matrices.shape[-1])
    return list(numpy.quantile(s.numpy(), (0.05, 0.5, 0.95), axis=0))
