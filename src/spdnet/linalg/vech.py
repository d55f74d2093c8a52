"""Symmetric matrix <-> vector, keeping inner products."""

import math

import torch
from torch import Tensor

from spdnet._checks import require_floating, require_square, require_tensor


def vech(X: Tensor) -> Tensor:
    r"""Upper triangle as a vector, off-diagonal entries times :math:`\sqrt 2`.

    An isometry: :math:`\langle \mathrm{vech} A, \mathrm{vech} B \rangle = \mathrm{tr}(A B)` for
    symmetric matrices, of which only the upper triangle is read. The order is that of
    :func:`torch.triu_indices`, row after row.

    Parameters
    ----------
    X : Tensor, shape (..., n, n)
        Symmetric matrices.

    Returns
    -------
    Tensor, shape (..., n * (n + 1) / 2)

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg import vech
    >>> vech(torch.tensor([[1.0, 2.0], [2.0, 3.0]]))
    tensor([1.0000, 2.8284, 3.0000])
    """
    require_square("vech", X)
    rows, cols = torch.triu_indices(X.shape[-1], X.shape[-1], device=X.device)
    scale = torch.full(rows.shape, math.sqrt(2), dtype=X.dtype, device=X.device)
    return X[..., rows, cols] * scale.masked_fill(rows == cols, 1.0)


def unvech(v: Tensor) -> Tensor:
    r"""Symmetric matrix of a vector made by :func:`vech`.

    Parameters
    ----------
    v : Tensor, shape (..., n * (n + 1) / 2)

    Returns
    -------
    Tensor, shape (..., n, n)

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg import unvech
    >>> unvech(torch.tensor([1.0, 0.0, 3.0])).diagonal().round(decimals=4)
    tensor([1., 3.])
    """
    require_tensor("unvech", v, "v")
    length = v.shape[-1] if v.ndim else 0
    n = (math.isqrt(8 * length + 1) - 1) // 2
    if n * (n + 1) // 2 != length or length == 0:
        raise ValueError(
            "unvech: expected v of shape (..., n * (n + 1) / 2) for some n >= 1, "
            f"got {tuple(v.shape)}; pass a vector made by vech"
        )
    require_floating("unvech", v, "v")
    rows, cols = torch.triu_indices(n, n, device=v.device)
    position = torch.zeros(n, n, dtype=torch.long, device=v.device)
    position[rows, cols] = torch.arange(length, device=v.device)
    position = torch.maximum(position, position.mT)
    scale = torch.full((n, n), math.sqrt(0.5), dtype=v.dtype, device=v.device).fill_diagonal_(1.0)
    return v[..., position] * scale
