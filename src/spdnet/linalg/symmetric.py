"""Symmetric matrices: symmetric part, trace, and vectors with the same inner product."""

import math
from typing import Any, overload

import numpy
import torch
from torch import Tensor

from spdnet._checks import require_floating, require_square, require_tensor


@overload
def symmetrize(X: Tensor) -> Tensor: ...
@overload
def symmetrize(X: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]: ...
def symmetrize(X: Any) -> Any:
    r"""Compute the symmetric part :math:`(X + X^\top) / 2` of a tensor or array, exactly symmetric.

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg import symmetrize
    >>> symmetrize(torch.tensor([[1.0, 2.0], [4.0, 3.0]]))
    tensor([[1., 3.],
            [3., 3.]])
    """
    if isinstance(X, numpy.ndarray):
        return _of_array(X)
    is_plain = isinstance(X, Tensor) and X.ndim >= 2 and X.dtype.is_floating_point
    if not is_plain or X.shape[-1] != X.shape[-2]:
        require_square("symmetrize", X)
    Y = X + X.mT
    # the compiler of torch 2.11 loses a change in place within a backward pass
    return Y / 2 if torch.compiler.is_compiling() else Y.mul_(0.5)


def _of_array(X: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]:
    if X.ndim < 2 or X.shape[-1] != X.shape[-2]:
        raise ValueError(
            f"symmetrize: expected X of shape (..., n, n), got {X.shape}; pass square matrices in "
            "the last two dimensions"
        )
    if not numpy.issubdtype(X.dtype, numpy.floating):
        raise TypeError(
            f"symmetrize: expected X with a real floating dtype, got {X.dtype}; "
            "use X.astype(numpy.float64)"
        )
    Y = X + X.swapaxes(-1, -2)
    Y *= 0.5
    return Y


def trace(X: Tensor) -> Tensor:
    """Compute the traces ``(...)`` of matrices ``(..., n, n)``."""
    return X.diagonal(dim1=-2, dim2=-1).sum(-1)


def vech(X: Tensor) -> Tensor:
    r"""Vectorize the upper triangle row by row, with off-diagonal entries times :math:`\sqrt 2`.

    This is an isometry: :math:`\langle \mathrm{vech} A, \mathrm{vech} B \rangle = \mathrm{tr}(A B)`
    for symmetric matrices ``(..., n, n)``. The result has the shape ``(..., n * (n + 1) / 2)`` and
    the order of :func:`torch.triu_indices`.

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
    """Return the symmetric matrices ``(..., n, n)`` of vectors made by :func:`vech`.

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
