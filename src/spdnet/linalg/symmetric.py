"""The symmetric part of matrices."""

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
    return (X + X.mT).mul_(0.5)
