"""Vech: symmetric matrices as vectors."""

import torch
from torch import Tensor

from spdnet.linalg import vech


class Vech(torch.nn.Module):
    r"""Upper triangle as a vector, off-diagonal entries times :math:`\sqrt 2`.

    Keeps inner products, with half the numbers of a flattened matrix: ``(..., n, n)`` to
    ``(..., n * (n + 1) / 2)``.

    Examples
    --------
    >>> import torch
    >>> from spdnet.nn import Vech
    >>> Vech()(torch.tensor([[1.0, 2.0], [2.0, 3.0]]))
    tensor([1.0000, 2.8284, 3.0000])
    """

    def forward(self, X: Tensor) -> Tensor:
        """``(..., n, n)`` to ``(..., n * (n + 1) / 2)``."""
        return vech(X)
