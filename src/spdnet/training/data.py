"""What is trained on: labelled matrices or signals, in memory or on disk."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor


class Rows(Protocol):
    """Many arrays that are read when they are asked for, such as a stored array."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of all."""

    def __getitem__(self, index: Any) -> NDArray[Any]:
        """Some of them, in memory."""

    def take(self, index: Any, axis: int = 0) -> "Rows":
        """Some of them, where they are."""


@dataclass(frozen=True)
class DiskTensor:
    """Matrices on disk that a loop can index, slice and split like a tensor.

    Parameters
    ----------
    rows : Rows
        Of the dtype to compute in.
    device : torch.device
        Where the matrices go when they are read.

    Examples
    --------
    >>> import numpy, tempfile
    >>> from spdnet.data import open_stored
    >>> from spdnet.training import DiskTensor
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     numpy.savez(f"{folder}/three.npz", X=numpy.zeros((3, 2, 2)))
    ...     X = DiskTensor(open_stored(f"{folder}/three.npz"))
    ...     X.shape, X[torch.tensor([2, 0])].shape
    ((3, 2, 2), torch.Size([2, 2, 2]))
    """

    rows: Rows
    device: torch.device = torch.device("cpu")  # noqa: RUF009, it cannot be changed

    @property
    def shape(self) -> tuple[int, ...]:
        """Of all matrices."""
        return self.rows.shape

    @property
    def dtype(self) -> torch.dtype:
        """Of the matrices in memory."""
        return torch.from_numpy(self.rows[:0]).dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Tensor:
        """Some matrices, in memory."""
        places = index.cpu().numpy() if isinstance(index, Tensor) else index
        return torch.from_numpy(self.rows[places]).to(self.device)

    def take(self, index: Tensor) -> "DiskTensor":
        """Some matrices, still on disk."""
        return replace(self, rows=self.rows.take(index.cpu().numpy()))

    def to(self, device: torch.device | str) -> "DiskTensor":
        """The same, to be read onto another device."""
        return replace(self, device=torch.device(device))

    def split(self, size: int) -> Iterator[Tensor]:
        """All of them in their order, ``size`` at a time."""
        for start in range(0, len(self), size):
            yield self[start : start + size]


@dataclass(frozen=True)
class LabelledMatrices:
    """SPD matrices, or signals, with their classes.

    Parameters
    ----------
    X : Tensor or DiskTensor, shape (N, n, n) or (N, channels, T)
    y : Tensor, shape (N,)
        Classes from 0.
    weight : Tensor, shape (N,), optional
        Of each matrix in the loss; 1 when not given.
    domain : Tensor, shape (N,), optional
        From 0, for a network that has statistics of each domain.

    Examples
    --------
    >>> import torch
    >>> from spdnet.training import LabelledMatrices
    >>> len(LabelledMatrices(torch.eye(3).repeat(4, 1, 1), torch.tensor([0, 1, 0, 1])))
    4
    """

    X: Tensor | DiskTensor
    y: Tensor
    weight: Tensor | None = None
    domain: Tensor | None = None

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: Tensor) -> "LabelledMatrices":
        """Some of them, in memory."""
        return self._each(self.X[index], lambda values: values[index])

    def part(self, index: Tensor) -> "LabelledMatrices":
        """Some of them, where they are."""
        X = self.X.take(index) if isinstance(self.X, DiskTensor) else self.X[index]
        return self._each(X, lambda values: values[index])

    def to(self, device: torch.device) -> "LabelledMatrices":
        """The same on another device."""
        return self._each(self.X.to(device), lambda values: values.to(device))

    def _each(
        self, X: Tensor | DiskTensor, function: Callable[[Tensor], Tensor]
    ) -> "LabelledMatrices":
        weight, domain = (
            None if values is None else function(values) for values in (self.weight, self.domain)
        )
        return LabelledMatrices(X, function(self.y), weight, domain)

    @property
    def inputs(self) -> tuple[Any, ...]:
        """What a network is called with."""
        return (self.X,) if self.domain is None else (self.X, self.domain)


def read_ahead(
    data: LabelledMatrices, batches: Iterable[Tensor]
) -> Iterator[tuple[Tensor, LabelledMatrices]]:
    """Each batch of indices with its matrices; from disk, the next is read while one is used."""
    if not isinstance(data.X, DiskTensor):
        yield from ((batch, data[batch]) for batch in batches)
        return
    with ThreadPoolExecutor(1, "read-ahead") as reader:
        waiting = None
        for batch in batches:
            following = (batch, reader.submit(data.__getitem__, batch))
            if waiting is not None:
                yield waiting[0], waiting[1].result()
            waiting = following
        if waiting is not None:
            yield waiting[0], waiting[1].result()


def as_tensor(values: NDArray[Any] | Rows) -> Tensor | DiskTensor:
    """Return an array as a tensor that shares its memory; stored rows stay on disk."""
    return torch.from_numpy(values) if isinstance(values, numpy.ndarray) else DiskTensor(values)
