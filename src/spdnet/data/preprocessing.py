"""Preprocessing: from the contents of a file to the SPD matrices or signals that a network sees."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy
from numpy.typing import NDArray

from spdnet import covariance
from spdnet.data.dataset import Dataset
from spdnet.data.examination import clean, covariances_of
from spdnet.data.store import StoredArray


@dataclass(frozen=True)
class Preprocessing:
    """Conversion of the arrays of a file into matrices; saved in every checkpoint.

    Parameters
    ----------
    signals : bool
        True if ``X`` are signals, whose covariances are estimated.
    n : int
        Size of the matrices.
    estimator, reg
        See :func:`spdnet.covariance.estimate`.
    raw : bool
        True if the network takes the signals themselves.

    Examples
    --------
    >>> from spdnet.data import Preprocessing
    >>> Preprocessing(signals=True, n=8, estimator="oas", reg=1e-3).describe(100)
    '100 signals of 8 channels -> matrices of 8 x 8 (oas covariance, reg 0.001)'
    """

    signals: bool
    n: int
    estimator: str
    reg: float
    raw: bool = False

    @classmethod
    def of(
        cls,
        data: Dataset,
        *,
        estimator: str,
        reg: float,
        signals: bool = False,
        model: str | None = None,
    ) -> "Preprocessing":
        """Choose the preprocessing for a data set.

        With ``signals``, square arrays are signals, too; ``model`` is the name of a model that
        takes signals instead of their covariances.
        """
        signals = signals or not data.is_matrices
        if model is not None and not signals:
            n = data.X.shape[-1]
            raise ValueError(
                f"data: expected signals for {model}, got matrices of {n} x {n}; if they "
                "are signals, say so with signals (--signals)"
            )
        return cls(signals, data.X.shape[-2], estimator, reg, model is not None)

    def __call__(self, data: Dataset) -> NDArray[Any] | StoredArray:
        """Return matrices ``(N, n, n)``, which are not checked."""
        rows, cols = data.X.shape[1:]
        if rows != self.n or not (self.signals or cols == self.n):
            kind = f"signals of {self.n} channels" if self.signals else f"{self.n} x {self.n}"
            hint = "; these are signals, and the training had matrices: compute them with "
            hint = "" if self.signals or rows == cols else f"{hint}spdnet.covariance.estimate"
            raise ValueError(f"data: expected {kind} as in training, got {rows} x {cols}{hint}")
        if not self.signals:
            return data.X
        X = numpy.asarray(data.X)
        if rows == cols and numpy.array_equal(X, X.swapaxes(1, 2)):
            raise ValueError(
                f"data: expected signals of {rows} channels, got symmetric matrices; give the "
                "signals that they were computed from"
            )
        if cols < 2:
            return numpy.asarray(covariance.estimate(X, self.estimator))  # raises the error
        # values that are not finite are reported by index with the other faults
        return covariances_of(X, self.estimator, self.reg)

    def describe(self, count: int) -> str:
        """Describe ``count`` inputs and their conversion."""
        matrices, signals = f"matrices of {self.n} x {self.n}", f"signals of {self.n} channels"
        if not self.signals or self.raw:
            return f"{count} {signals if self.signals else matrices}"
        estimator = self.estimator.replace("_", "-")
        return f"{count} {signals} -> {matrices} ({estimator} covariance, reg {self.reg:g})"


def prepare(
    data: Dataset,
    preprocessing: Preprocessing,
    bad: str,
    dtype: str = "float64",
    *,
    singular: bool = False,
    on_matrix: Callable[[int, int], None] | None = None,
) -> Dataset:
    """Convert the contents of a file to SPD matrices, with class names as ``y``.

    Parameters
    ----------
    data : Dataset
    preprocessing : Preprocessing
    bad : {"refuse", "drop", "repair"}
        Treatment of matrices that are not SPD: see :func:`spdnet.data.clean`.
    dtype : str
    singular : bool
        Whether singular matrices are kept as they are.
    on_matrix : callable, optional
        Called with the number of matrices checked and their total.

    Examples
    --------
    >>> from spdnet.data import Preprocessing, load_dataset, prepare
    >>> data = load_dataset("digits")
    >>> how = Preprocessing.of(data, estimator="sample", reg=1e-3)
    >>> prepare(data, how, "refuse").y[:3].tolist()
    ['0', '1', '2']
    """
    if len(data) == 0:
        raise ValueError("data: expected at least one matrix, got none")
    is_singular: list[bool] = []
    X, kept, note = clean(
        preprocessing(data),
        bad,
        dtype=dtype,
        names=data.names,
        on_singular=(lambda: is_singular.append(True)) if singular else None,
        on_matrix=on_matrix,
    )
    there = ((name, getattr(data, name)) for name in ("split", "groups", "names", "index"))
    columns = {name: values[kept] for name, values in there if values is not None}
    return replace(
        data,
        X=X,
        y=None if data.y is None else data.label_names[kept],
        **columns,
        notes=tuple(filter(None, [*data.notes, note])),
        signals=numpy.asarray(data.X)[kept].astype(dtype) if preprocessing.raw else None,
        origin=(data.digest, data.inputs_digest),
        is_singular=bool(is_singular),
    )
