"""Labeled matrices or signals, in memory or on disk."""

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import NDArray

from spdnet.data.errors import DataError

if TYPE_CHECKING:
    from spdnet.data.store import StoredArray

#: the parts of a data set
SPLITS = ("train", "val", "test")
_COLUMNS = ("y", "split", "groups", "names", "index", "signals")


@dataclass(frozen=True, eq=False)
class Dataset:
    """Matrices or signals with their labels, groups and parts.

    :func:`spdnet.data.read` returns the contents of a file; :func:`spdnet.data.prepare` returns SPD
    matrices that are ready for a network.

    Parameters
    ----------
    X : array or StoredArray, shape (N, n, n) or (N, channels, T)
        Matrices, or signals to compute them from.
    y : array, shape (N,), optional
        Class labels: integers or text.
    split : array of str, shape (N,), optional
        ``"train"``, ``"val"`` or ``"test"`` for each sample.
    groups : array, shape (N,), optional
        Samples of one group, such as a subject, stay together in a random split.
    names : array of str, shape (N,), optional
        File of each sample, relative to the folder that was read.
    notes : tuple of str
        Messages for the user: files that were not read, axes that seem swapped, dropped matrices.
    index : array of int, shape (N,), optional
        Position of each sample in the file; ``0, ..., N - 1`` by default.
    classes : list of str, optional
        Class names in the order of the labels: numbers by size, text alphabetically. Computed from
        ``y`` by default; :meth:`take` keeps them.
    signals : array, shape (N, channels, T), optional
        The signals of which ``X`` are the covariances, for networks that take signals.
    origin : (str, str), optional
        ``digest`` and ``inputs_digest`` of the file contents that ``X`` was computed from.
    is_singular : bool
        Whether some matrices are singular.
    channels : sequence of str, optional
        Distinct names of the channels.

    Examples
    --------
    >>> import numpy
    >>> from spdnet.data import Dataset
    >>> data = Dataset(numpy.zeros((5, 3, 100)), numpy.array(["b", "a", "b", "a", "b"]))
    >>> len(data), data.is_matrices, data.classes, data.codes.tolist()
    (5, False, ['a', 'b'], [1, 0, 1, 0, 1])
    >>> data.take([1, 3]).index.tolist()
    [1, 3]
    """

    X: "NDArray[Any] | StoredArray"
    y: NDArray[Any] | None = None
    split: NDArray[Any] | None = None
    groups: NDArray[Any] | None = None
    names: NDArray[Any] | None = None
    notes: tuple[str, ...] = ()
    index: NDArray[numpy.int64] = None  # type: ignore[assignment]  # set in __post_init__
    classes: list[str] = None  # type: ignore[assignment]
    signals: NDArray[Any] | None = None
    origin: tuple[str, str] | None = field(default=None, repr=False)
    is_singular: bool = False
    channels: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.index is None:
            object.__setattr__(self, "index", numpy.arange(len(self.X)))
        N = self.X.shape[:1]
        for name in _COLUMNS:
            values = getattr(self, name)
            if values is not None and values.shape[:1] != N:
                raise ValueError(
                    f"Dataset: expected {name} of shape {N}, one for each of X, got {values.shape}"
                )
        if self.channels is not None:
            names = require_channel_names("Dataset", self.channels, self.X.shape[1])
            object.__setattr__(self, "channels", names)
        if self.classes is None:
            labels = [] if self.y is None else numpy.unique(as_integers(self.y)).tolist()
            object.__setattr__(self, "classes", [str(label) for label in labels])

    def __len__(self) -> int:
        return len(self.X)

    @property
    def is_matrices(self) -> bool:
        """Whether ``X`` contains square matrices rather than signals."""
        return self.X.shape[-1] == self.X.shape[-2]

    @property
    def inputs(self) -> "NDArray[Any] | StoredArray":
        """Network inputs: the signals if they are kept, else ``X``."""
        return self.X if self.signals is None else self.signals

    @property
    def note(self) -> str:
        """All notes in one line."""
        return "; ".join(self.notes)

    @cached_property
    def label_names(self) -> NDArray[numpy.str_]:
        """Class name of each sample, shape ``(N,)``."""
        if self.y is None:
            raise ValueError("Dataset: expected labels y, got none")
        return numpy.array([str(label) for label in as_integers(self.y).tolist()], dtype=str)

    @cached_property
    def codes(self) -> NDArray[numpy.int64]:
        """Class index of each sample, shape ``(N,)``."""
        index = {name: i for i, name in enumerate(self.classes)}
        return numpy.array([index[name] for name in self.label_names.tolist()], numpy.int64)

    def group_codes(self, known: list[str]) -> NDArray[numpy.int64]:
        """Return the group index of each sample; groups not in ``known`` follow the known ones.

        Without groups, all samples belong to one unknown group.
        """
        if self.groups is None:
            return numpy.full(len(self), len(known))
        names = [str(group) for group in self.groups.tolist()]
        index = {name: i for i, name in enumerate([*known, *sorted(set(names) - set(known))])}
        return numpy.array([index[name] for name in names])

    def take(self, index: Any) -> "Dataset":
        """Select samples by index; stored matrices stay on disk."""
        values = ((name, getattr(self, name)) for name in ("X", *_COLUMNS))
        return replace(self, **{k: v.take(index, axis=0) for k, v in values if v is not None})

    @property
    def digest(self) -> str:
        """SHA-256 of the file contents: ``X``, ``y``, ``split``, ``groups`` and ``channels``."""
        return self._digests[0]

    @property
    def inputs_digest(self) -> str:
        """SHA-256 of ``X`` in the file."""
        return self._digests[1]

    @cached_property
    def _digests(self) -> tuple[str, str]:
        if self.origin is not None:
            return self.origin
        sha = hashlib.sha256()
        of_X = ""
        channels = None if self.channels is None else numpy.array(self.channels)
        for values in (self.X, self.y, self.split, self.groups, channels):
            if values is not None:
                sha.update(f"{values.dtype.str} {values.shape}".encode())
                for block in [values] if isinstance(values, numpy.ndarray) else values.blocks():
                    sha.update(numpy.ascontiguousarray(block).data)
            of_X = of_X or sha.hexdigest()
        return sha.hexdigest(), of_X


def require_channel_names(who: str, names: Any, n: int, where: str = "") -> tuple[str, ...]:
    """Return names of ``n`` channels; raise a DataError unless they are distinct text."""
    values = numpy.asarray(names)
    found = tuple(values.tolist()) if values.ndim == 1 else ()
    is_text = all(isinstance(name, str) for name in found)
    if not is_text or len(found) != n or len(set(found)) < n:
        twice = [name for i, name in enumerate(found) if name in found[:i]]
        got = f"{twice[0]!r} twice" if twice else f"{values.dtype} with shape {values.shape}"
        raise DataError(
            f"{who}: expected channels{where} to be {n} distinct names, one for each row of a "
            f"sample, got {got}"
        )
    return found


def is_integer_valued(values: NDArray[Any]) -> NDArray[numpy.bool_]:
    """Return which numbers are integers below 2^53, the largest that float64 counts exactly."""
    with numpy.errstate(all="ignore"):  # NaN in damaged files
        numbers = values.astype(numpy.float64)
        return (numpy.abs(numbers) < 2**53) & (numbers == numpy.round(numbers))


def as_integers(
    values: NDArray[Any], expected: str = "Dataset: expected class labels in y"
) -> NDArray[Any]:
    """Convert numbers such as 1.0 to integers; text stays as it is."""
    if values.dtype.kind != "f":
        return values
    if not (whole := is_integer_valued(values)).all():
        raise DataError(f"{expected}, got real numbers such as {values[~whole][0]}")
    return values.astype(numpy.int64)
