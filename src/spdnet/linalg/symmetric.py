"""The symmetric part of matrices."""

from typing import Any, overload

import numpy
import torch
from torch import Tensor

from spdnet._checks import require_square


@overload
def symmetrize(X: Tensor) -> Tensor: ...
@overload
def symmetrize(X: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]: ...
def symmetrize(X: Any) -> Any:
    r"""Symmetric part :math:`(X + X^\top) / 2`, exactly symmetric.

    Parameters
    ----------
    X : Tensor or array, shape (..., n, n)
        With a real floating dtype.

    Returns
    -------
    Tensor or array, shape (..., n, n)

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
