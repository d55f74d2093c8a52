"""Batched Cholesky factors of SPD matrices."""

import torch
from torch import Tensor

from spdnet._autograd import is_concrete
from spdnet._checks import require_square
from spdnet._precision import working_dtype
from spdnet.linalg.symmetric import symmetrize
from spdnet.linalg.validate import require_positive_eigenvalues, require_symmetric


def cholesky(X: Tensor, *, check: bool = True, who: str = "cholesky", name: str = "X") -> Tensor:
    r"""Compute the lower triangular :math:`L` with a positive diagonal and :math:`L L^\top = X`.

    Parameters
    ----------
    X : Tensor, shape (..., n, n)
        Symmetric positive definite.
    check : bool
        Raise a ValueError unless ``X`` is finite, symmetric and positive definite; without the
        check, the factor of such a matrix is meaningless.
    who, name : str
        Caller and argument named in errors.

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg import cholesky
    >>> cholesky(torch.tensor([[4.0, 2.0], [2.0, 5.0]]))
    tensor([[2., 0.],
            [1., 2.]])
    """
    require_square(who, X, name)
    if check:
        require_symmetric(who, X, name)
    lifted = symmetrize(X.to(working_dtype(X.dtype)))
    L, info = torch.linalg.cholesky_ex(lifted)
    if check and is_concrete(X) and (info != 0).any():
        s = torch.linalg.eigvalsh(lifted.detach())
        require_positive_eigenvalues(who, s, name, bad=info != 0)
    return L.to(X.dtype)


def whiten(L: Tensor, V: Tensor) -> Tensor:
    r"""Compute :math:`L^{-1} V L^{-\top}`, which maps :math:`L L^\top` to the identity."""
    half = torch.linalg.solve_triangular(L, V, upper=False)
    return symmetrize(torch.linalg.solve_triangular(L, half.mH, upper=False))


def diagonal_signs(R: Tensor) -> Tensor:
    """Return the signs of the diagonal of a triangular factor: 1 or -1, or complex phases."""
    d = R.diagonal(dim1=-2, dim2=-1)
    return torch.where(d == 0, 1.0, d.sgn()) if d.is_complex() else torch.where(d < 0, -1.0, 1.0)
