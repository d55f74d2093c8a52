"""Labeled samples for training, in memory or on disk."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from spdnet.data import StoredArray


@dataclass(frozen=True)
class DiskTensor:
    """Array on disk that can be indexed, sliced and split like a tensor, and is read to ``device``.

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

    rows: "StoredArray"
    device: torch.device = torch.device("cpu")  # noqa: RUF009, torch.device is immutable

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole array."""
        return self.rows.shape

    @property
    def dtype(self) -> torch.dtype:
        """Floating-point type of the rows that are read."""
        return torch.from_numpy(self.rows[:0]).dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Tensor:
        """Read rows."""
        index = index.cpu().numpy() if isinstance(index, Tensor) else index
        return torch.from_numpy(self.rows[index]).to(self.device)

    def take(self, index: Tensor) -> "DiskTensor":
        """Select rows without reading them."""
        return replace(self, rows=self.rows.take(index.cpu().numpy()))

    def to(self, device: torch.device | str) -> "DiskTensor":
        """Return the same array, to be read to another device."""
        return replace(self, device=torch.device(device))

    def split(self, size: int) -> Iterator[Tensor]:
        """Read all rows in chunks."""
        for start in range(0, len(self), size):
            yield self[start : start + size]


@dataclass(frozen=True)
class Samples:
    """SPD matrices or signals with their classes.

    Parameters
    ----------
    X : Tensor or DiskTensor, shape (N, n, n) or (N, channels, T)
    y : Tensor, shape (N,)
        Class indices.
    weight : Tensor, shape (N,), optional
        Weights in the loss.
    domain : Tensor, shape (N,), optional
        Domain indices, for a network that uses domains.

    Examples
    --------
    >>> import torch
    >>> from spdnet.training import Samples
    >>> len(Samples(torch.eye(3).repeat(4, 1, 1), torch.tensor([0, 1, 0, 1])))
    4
    """

    X: Tensor | DiskTensor
    y: Tensor
    weight: Tensor | None = None
    domain: Tensor | None = None

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: Tensor) -> "Samples":
        """Select samples by index, and read them."""
        return self._map(self.X[index], lambda values: values[index])

    def take(self, index: Tensor) -> "Samples":
        """Select samples by index; samples on disk are not read."""
        X = self.X.take(index) if isinstance(self.X, DiskTensor) else self.X[index]
        return self._map(X, lambda values: values[index])

    def to(self, device: torch.device) -> "Samples":
        """Move the samples to a device."""
        return self._map(self.X.to(device), lambda values: values.to(device))

    def _map(self, X: Tensor | DiskTensor, function: Callable[[Tensor], Tensor]) -> "Samples":
        weight, domain = (
            None if values is None else function(values) for values in (self.weight, self.domain)
        )
        return Samples(X, function(self.y), weight, domain)

    @property
    def inputs(self) -> tuple[Any, ...]:
        """Arguments of the network."""
        return (self.X,) if self.domain is None else (self.X, self.domain)


def read_ahead(data: Samples, batches: Iterable[Tensor]) -> Iterator[Samples]:
    """Read batches by index; from disk, the next batch is read while the current one is used."""
    if not isinstance(data.X, DiskTensor):
        yield from (data[batch] for batch in batches)
        return
    with ThreadPoolExecutor(1, "read-ahead") as reader:
        current = None
        for batch in batches:
            following = reader.submit(data.__getitem__, batch)
            if current is not None:
                yield current.result()
            current = following
        if current is not None:
            yield current.result()


def as_tensor(values: "NDArray[Any] | StoredArray") -> Tensor | DiskTensor:
    """Return an array as a tensor that shares its memory; stored rows stay on disk."""
    return torch.from_numpy(values) if isinstance(values, numpy.ndarray) else DiskTensor(values)
