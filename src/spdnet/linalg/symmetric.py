"""The symmetric part of matrices."""

import torch
from torch import Tensor


def symmetrize(X: Tensor) -> Tensor:
    r"""Symmetric part :math:`(X + X^\top) / 2`, exactly symmetric.

    Parameters
    ----------
    X : Tensor, shape (..., n, n)

    Returns
    -------
    Tensor, shape (..., n, n)

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg import symmetrize
    >>> symmetrize(torch.tensor([[1.0, 2.0], [4.0, 3.0]]))
    tensor([[1., 3.],
            [3., 3.]])
    """
    Y = X + X.mT
    # the compiler of torch 2.11 loses a change in place within a backward pass
    return Y / 2 if torch.compiler.is_compiling() else Y.mul_(0.5)
