"""Preprocessing: conversion of file contents to the SPD matrices or signals of a network."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy
from numpy.typing import NDArray

from spdnet import covariance
from spdnet._checks import did_you_mean
from spdnet.data.dataset import Dataset, require_channel_names
from spdnet.data.errors import DataError
from spdnet.data.examination import clean, covariances_of, list_indices, missing_channels
from spdnet.data.names import shorten
from spdnet.data.store import StoredArray

#: smallest fraction of the training channels from which the others are estimated
_MIN_CHANNELS = 1 / 4


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
    channels : sequence of str, optional
        Names of the channels.

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
    channels: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.channels is not None:
            names = require_channel_names("Preprocessing", self.channels, self.n)
            object.__setattr__(self, "channels", names)

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
                "are signals, set signals (--signals)"
            )
        n = data.X.shape[-2]
        return cls(signals, n, estimator, reg, model is not None, data.channels)

    def arrange(self, data: Dataset, *, missing: bool) -> Dataset:
        """Arrange channels by name as in training, if both have names.

        Channels that the data lack become NaN with ``missing``; additional channels are dropped.
        """
        own, wanted = data.channels, self.channels
        usable = self.signals or data.is_matrices
        if own is None or wanted is None or own == wanted or not usable:
            return data
        lacking, more = ([k for k in a if k not in b] for a, b in ((wanted, own), (own, wanted)))
        respelled = {name.casefold() for name in lacking} & {name.casefold() for name in more}
        too_few = len(wanted) - len(lacking) < _MIN_CHANNELS * len(wanted)
        if too_few or (lacking and not missing) or respelled:
            hints = (did_you_mean(name, lacking) for name in more)
            why = next(filter(None, hints), "")
            if too_few and not why:
                why = f"; {len(wanted) - len(lacking)} of {len(wanted)} channels are too few"
            elif not respelled:
                why = (
                    "; they are estimated only by a network for real matrices, trained on data in "
                    f"memory, and not with 'repair' (--bad){why}"
                )
            raise DataError(
                f"data: expected the training channels, {shorten(wanted)}, got data without "
                f"{shorten(lacking)}{why}"
            )
        if isinstance(data.X, StoredArray):
            raise DataError(
                "data: expected the channels in the training order, because data on disk are not "
                f"rearranged, got {shorten(own)}; rearrange them in the file"
            )
        index = numpy.array([own.index(name) if name in own else -1 for name in wanted])
        X = data.X[:, index] if self.signals else data.X[:, index][:, :, index]
        notes = [*data.notes]
        if lacking:
            X = X.astype(numpy.result_type(X, numpy.float32))
            X[:, index < 0] = numpy.nan
            if not self.signals:
                X[:, :, index < 0] = numpy.nan
            notes.append(f"channels of the training data that are missing here: {shorten(lacking)}")
        if more:
            notes.append(f"channels dropped, because the training data lack them: {shorten(more)}")
        origin = (data.digest, data.inputs_digest)
        return replace(data, X=X, channels=wanted, notes=tuple(notes), origin=origin)

    def __call__(self, data: Dataset, *, missing: bool = False) -> NDArray[Any] | StoredArray:
        """Return matrices ``(N, n, n)``, which are not checked.

        With ``missing``, channels of signals that are constant, or NaN throughout, become NaN.
        """
        rows, cols = data.X.shape[1:]
        if rows != self.n or not (self.signals or cols == self.n):
            kind = f"signals of {self.n} channels" if self.signals else f"{self.n} x {self.n}"
            hint = "; these are signals, but the training data were matrices: compute them with "
            hint = "" if self.signals or rows == cols else f"{hint}spdnet.covariance.estimate"
            if not hint and rows != self.n and (data.channels is None or self.channels is None):
                hint = (
                    "; to match different montages, name the channels here and in the training data"
                )
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
        return covariances_of(X, self.estimator, self.reg, missing=missing)

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
    missing: bool = False,
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
        Whether singular matrices are kept unchanged.
    missing : bool
        Whether channels may be missing: rows and columns of NaN or zero, or signals that are
        constant, or NaN throughout. They become NaN. This applies to real data in memory for a
        network of matrices, not with ``bad="repair"``; otherwise, they are faults.
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
    in_memory = not isinstance(data.X, StoredArray) and data.X.dtype.kind != "c"
    missing = missing and in_memory and bad != "repair"
    matrices = preprocessing(data, missing=missing)
    if bad == "refuse" and in_memory and preprocessing.signals and (missing or preprocessing.raw):
        _require_finite(data, missing=missing)
    X, kept, note = clean(
        matrices,
        bad,
        dtype=dtype,
        names=data.names,
        missing=missing,
        on_singular=(lambda: is_singular.append(True)) if singular else None,
        on_matrix=on_matrix,
    )
    columns_of_data = (
        (name, getattr(data, name)) for name in ("split", "groups", "names", "index")
    )
    columns = {name: values[kept] for name, values in columns_of_data if values is not None}
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


def _require_finite(data: Dataset, *, missing: bool) -> None:
    """Raise a DataError unless signals are finite, apart from channels that may be missing."""
    X = numpy.asarray(data.X)
    broken = ~numpy.isfinite(X).all(-1)
    if missing:
        broken &= ~missing_channels(X)
        expected = ", or missing channels that are NaN throughout"
        advice = "set the whole channel to NaN if it is missing"
    else:
        expected = " for a network of signals"
        advice = "choose a network of matrices, which may have missing channels"
    bad = numpy.flatnonzero(broken.any(-1))
    if len(bad):
        channel = int(broken[bad[0]].argmax())
        name = channel if data.channels is None else data.channels[channel]
        raise DataError(
            f"data: expected finite signals{expected}, got {len(bad)} not finite: "
            f"{list_indices(bad, data.names, most=10)}, the first in channel {name}; {advice}, or "
            "choose 'drop' (--bad)"
        )
