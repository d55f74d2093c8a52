"""The batched symmetric eigensolver, and which solver runs where."""

import torch
from torch import Tensor

from spdnet._checks import require_square, require_symmetric
from spdnet._precision import accurate_dtype, without_autocast, working_dtype
from spdnet.linalg.symmetric import symmetrize


def eigh(X: Tensor, *, accurate: bool = False, check: bool = True) -> tuple[Tensor, Tensor]:
    r"""Eigenvalues (ascending) and eigenvectors, :math:`X = U \mathrm{diag}(s) U^\top`.

    Only the symmetric part of ``X`` is decomposed. Half precision is lifted to float32
    inside, also under autocast. The derivative is the one of :func:`torch.linalg.eigh`:
    exact for ``s``, undefined for ``U`` where eigenvalues coincide. For functions of a
    matrix use :func:`spectral_map`, whose derivative exists there too.

    Parameters
    ----------
    X : Tensor, shape (..., n, n)
        Symmetric matrices; the batch may be empty.
    accurate : bool
        Decompose in float64 and round the result. A float32 solver leaves an error of
        about 1e-7 times the *largest* eigenvalue in every eigenvalue, which a logarithm
        of the small ones does not forgive.
    check : bool
        Refuse input that is not finite and symmetric.

    Returns
    -------
    s : Tensor, shape (..., n)
    U : Tensor, shape (..., n, n)

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg import eigh
    >>> s, U = eigh(torch.tensor([[2.0, 1.0], [1.0, 2.0]]))
    >>> s
    tensor([1., 3.])
    """
    require_square("eigh", X)
    if check:
        require_symmetric("eigh", X)
    dtype = accurate_dtype(X) if accurate else working_dtype(X.dtype)
    with without_autocast(X):
        s, U = torch.linalg.eigh(symmetrize(X.to(dtype)))
    return s.to(X.dtype), U.to(X.dtype)
