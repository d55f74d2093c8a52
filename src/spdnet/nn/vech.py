"""Symmetric matrices as vectors."""

import torch
from torch import Tensor

from spdnet.linalg import vech


class Vech(torch.nn.Module):
    r"""Upper triangle as a vector, with off-diagonal entries times :math:`\sqrt 2`.

    Maps ``(..., n, n)`` to ``(..., n * (n + 1) / 2)`` and preserves inner products: see
    :func:`spdnet.linalg.vech`.

    Examples
    --------
    >>> import torch
    >>> from spdnet.nn import Vech
    >>> Vech()(torch.tensor([[1.0, 2.0], [2.0, 3.0]]))
    tensor([1.0000, 2.8284, 3.0000])
    """

    def forward(self, X: Tensor) -> Tensor:
        """Map ``(..., n, n)`` to ``(..., n * (n + 1) / 2)``."""
        return vech(X)
