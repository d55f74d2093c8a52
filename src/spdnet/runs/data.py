"""From files to the SPD matrices that a network sees, the same way in training and afterwards."""

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from spdnet import covariance
from spdnet._checks import did_you_mean
from spdnet.data import LabelledArrays, StoredArray, read, treat
from spdnet.data.channels import covariances_of
from spdnet.data.io.readers import with_groups
from spdnet.runs.settings import EMBEDDED, Settings
from spdnet.training import DiskTensor

_SIGNALS = (
    "these are signals, and the training had matrices: compute them with spdnet.covariance.estimate"
)


@dataclass(frozen=True)
class Preprocessing:
    """What is done to the arrays of a file before the network; it travels in the checkpoint.

    Parameters
    ----------
    signals : bool
        Whether ``X`` are signals, of which covariances are estimated.
    n : int
        Size of the matrices.
    estimator, reg
        See :func:`spdnet.covariance.estimate`.
    raw : bool
        Whether the network takes the signals themselves.
    """

    signals: bool
    n: int
    estimator: str
    reg: float
    raw: bool = False

    @classmethod
    def of(cls, data: LabelledArrays, settings: Settings) -> "Preprocessing":
        """What these data need."""
        signals = settings.signals or not data.are_matrices
        raw = settings.make_recipe().takes_signals
        if raw and not signals:
            n = data.X.shape[-1]
            raise ValueError(
                f"data: expected signals for {settings.model}, got matrices of {n} x {n}; if they "
                "are signals, say so with signals (--signals)"
            )
        return cls(signals, data.X.shape[-2], settings.estimator, settings.reg, raw)

    def __call__(self, data: LabelledArrays) -> NDArray[Any] | StoredArray:
        """Matrices ``(N, n, n)``; not all of them need be SPD."""
        rows, cols = data.X.shape[1:]
        if rows != self.n or not (self.signals or cols == self.n):
            kind = f"signals of {self.n} channels" if self.signals else f"{self.n} x {self.n}"
            hint = "" if self.signals or rows == cols else f"; {_SIGNALS}"
            raise ValueError(f"data: expected {kind} as in training, got {rows} x {cols}{hint}")
        if not self.signals:
            return data.X
        X = numpy.asarray(data.X)
        if rows == cols and numpy.array_equal(X, X.swapaxes(1, 2)):
            raise ValueError(
                f"data: expected signals of {rows} channels, got symmetric matrices of {rows} x "
                f"{rows}; give the signals that they were computed from"
            )
        if cols < 2:
            return numpy.asarray(covariance.estimate(X, self.estimator))  # refuses them
        # what is not finite is found with the other faults, by index
        return covariances_of(X, self.estimator, self.reg)

    def describe(self, count: int) -> str:
        """So many of what, and what becomes of them."""
        n = self.n
        if not self.signals:
            return f"{count} matrices of {n} x {n}"
        text = f"{count} signals of {n} channels"
        if self.raw:
            return text
        estimator = self.estimator.replace("_", "-")
        return f"{text} -> matrices of {n} x {n} ({estimator} covariance, reg {self.reg:g})"

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Matrices:
    """SPD matrices that are ready, and where they came from.

    Attributes
    ----------
    X : array or StoredArray, shape (N, n, n)
        All SPD.
    y : array of str, shape (N,), optional
        Names of the classes.
    classes : list of str
        The names in the order of the labels as they were: numbers by size, text by alphabet.
    split, groups, names : array, shape (N,), optional
        See :class:`spdnet.data.LabelledArrays`.
    index : array of int, shape (N,)
        Places in the file.
    note : str
        What was not read, and what was done to bad matrices; empty if nothing.
    digest : str
        Of the contents of the file.
    digest_of_inputs : str
        Of ``X`` in the file alone.
    signals : array, shape (N, n, T), optional
        Of which ``X`` are the covariances, for a network that takes them.
    """

    X: NDArray[Any] | StoredArray
    y: NDArray[Any] | None
    classes: list[str]
    split: NDArray[Any] | None
    groups: NDArray[Any] | None
    names: NDArray[Any] | None
    index: NDArray[numpy.int64]
    note: str
    digest: str
    digest_of_inputs: str
    signals: NDArray[Any] | None = None

    @property
    def inputs(self) -> NDArray[Any] | StoredArray:
        """What the network sees: matrices, or signals."""
        return self.X if self.signals is None else self.signals

    @property
    def tensor(self) -> Tensor | DiskTensor:
        """What the network sees, as a tensor."""
        inputs = self.inputs
        if isinstance(inputs, StoredArray):
            return DiskTensor(inputs)
        return torch.from_numpy(inputs)

    def some(self, index: NDArray[numpy.int64]) -> "Matrices":
        """Those at some places."""
        names = ("X", "y", "split", "groups", "names", "index", "signals")
        values = {name: getattr(self, name) for name in names}
        return replace(
            self, **{k: v.take(index, axis=0) for k, v in values.items() if v is not None}
        )

    def domain_codes(self, known: list[str]) -> NDArray[numpy.int64]:
        """Groups as numbers, those that are not known after the others.

        Without groups, all are taken for one that is not known.
        """
        if self.groups is None:
            return numpy.full(len(self.X), len(known))
        names = [str(group) for group in self.groups.tolist()]
        place = {name: i for i, name in enumerate([*known, *sorted(set(names) - set(known))])}
        return numpy.array([place[name] for name in names])


def load_arrays(
    data: str,
    labels: str | None = None,
    groups: str | None = None,
    *,
    labelled: bool | None = True,
    on_file: Callable[[int, int], None] | None = None,
) -> LabelledArrays:
    """An embedded data set by its name, or what a file or folder holds; with groups of a file."""
    if data in EMBEDDED and labels is None:
        found = LabelledArrays(*EMBEDDED[data]())
        return found if groups is None else with_groups(found, groups)
    is_name = Path(data).name == data and not Path(data).suffix
    if is_name and not Path(data).exists() and (hint := did_you_mean(data, EMBEDDED)):
        raise FileNotFoundError(f"read: expected a file or folder at {data}, got none{hint}")
    return read(data, labels, groups=groups, labelled=labelled, on_file=on_file)


def prepare(
    data: LabelledArrays,
    preprocessing: Preprocessing,
    bad: str,
    dtype: str = "float64",
    *,
    on_matrix: Callable[[int, int], None] | None = None,
) -> Matrices:
    """Matrices that are all SPD in a precision, or an error that says which are not."""
    if len(data) == 0:
        raise ValueError("data: expected at least one matrix, got none")
    names, classes = (None, []) if data.y is None else _names(data.y)
    X, kept, note = treat(
        preprocessing(data), bad, dtype=dtype, names=data.names, on_matrix=on_matrix
    )

    def some(values: NDArray[Any] | None) -> NDArray[Any] | None:
        return None if values is None else values[kept]

    return Matrices(
        X,
        some(names),
        classes,
        some(data.split),
        some(data.groups),
        some(data.names),
        kept,
        "; ".join(filter(None, [*data.notes, note])),
        *_digests(data),
        numpy.asarray(data.X)[kept].astype(dtype) if preprocessing.raw else None,
    )


def _names(y: NDArray[Any]) -> tuple[NDArray[Any], list[str]]:
    if y.dtype.kind == "f":
        y = y.astype(numpy.int64)  # whole numbers, as the reader has checked
    classes, codes = numpy.unique(y, return_inverse=True)
    text = [str(c) for c in classes.tolist()]
    return numpy.array(text)[codes.reshape(-1)], text


def _digests(data: LabelledArrays) -> tuple[str, str]:
    """Of everything, and of ``X`` alone."""
    sha = hashlib.sha256()
    of_X = ""
    for values in (data.X, data.y, data.split, data.groups):
        if values is not None:
            sha.update(f"{values.dtype.str} {values.shape}".encode())
            for block in values.blocks() if isinstance(values, StoredArray) else [values]:
                sha.update(numpy.ascontiguousarray(block).data)
        of_X = of_X or sha.hexdigest()
    return sha.hexdigest(), of_X
