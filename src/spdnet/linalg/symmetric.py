"""Symmetric matrices: the symmetric part and the congruence, exactly symmetric."""

import torch
from torch import Tensor

from spdnet._precision import without_autocast, working_dtype


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
    return (X + X.mT) / 2


def congruence(X: Tensor, W: Tensor) -> Tensor:
    r"""Congruence :math:`W^\top X W`, exactly symmetric for symmetric ``X``.

    The product is formed as ``W.mT @ (X @ W)``, the cheap order for a ``W`` that
    reduces the dimension, and never in half precision: a matrix rounded to eight
    bits is no longer positive definite.

    Parameters
    ----------
    X : Tensor, shape (..., n, n)
        Symmetric matrices.
    W : Tensor, shape (..., n, k)
        Any matrices with ``n`` rows; the leading shapes broadcast.

    Returns
    -------
    Tensor, shape (..., k, k)

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg import congruence
    >>> congruence(torch.diag(torch.tensor([1.0, 2.0, 3.0])), torch.eye(3)[:, :2])
    tensor([[1., 0.],
            [0., 2.]])
    """
    out_dtype = torch.promote_types(X.dtype, W.dtype)
    dtype = working_dtype(out_dtype)
    with without_autocast(X):
        W = W.to(dtype)
        Y = symmetrize(W.mT @ (X.to(dtype) @ W))
    return Y.to(out_dtype)
