"""The batched symmetric eigensolver, and which solver runs where.

On the CPU, LAPACK with threads over the batch; on CUDA, cuSOLVER's batched solver; elsewhere the
solver of torch. Where LAPACK fails on a matrix, slower iterations take over, and a warning is
logged; cuSOLVER's failures are NaN, at which trainings stop. All are behind one operator,
``spdnet::eigh``, which compilation and vmap see as a whole. A program of torch.export calls
``aten::linalg_eigh`` instead, so that it can be loaded without this package.
"""

import logging
from typing import Any

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from spdnet._autograd import is_differentiated, is_exporting, refuse_tracing
from spdnet._checks import require_square
from spdnet._precision import accurate_dtype, without_autocast, working_dtype
from spdnet.linalg import cusolver
from spdnet.linalg.symmetric import symmetrize
from spdnet.linalg.threads import over_slices
from spdnet.linalg.validate import require_symmetric

_LOG = logging.getLogger(__name__)


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
    compiling = torch.compiler.is_compiling()
    if not (X.requires_grad if compiling else is_differentiated(X)):
        return constant_eigh(X, accurate=accurate)
    with without_autocast(X):  # torch's solver has derivatives of every order and mode
        s, U = torch.linalg.eigh(symmetrize(X.to(_solver_dtype(X, accurate))))
    return s.to(X.dtype), U.to(X.dtype)


def constant_eigh(X: Tensor, *, accurate: bool = False) -> tuple[Tensor, Tensor]:
    """As :func:`eigh` for ``X`` that is a constant, with the fastest solver that there is."""
    refuse_tracing()
    with without_autocast(X):
        A = X.to(_solver_dtype(X, accurate))
        if is_exporting():
            s, U = torch.linalg.eigh(symmetrize(A))
        else:
            s, U = torch.ops.spdnet.eigh(A)
    return s.to(X.dtype), U.to(X.dtype)


def _solver_dtype(X: Tensor, accurate: bool) -> torch.dtype:
    return accurate_dtype(X) if accurate else working_dtype(X.dtype)


_LIBRARY = torch.library.Library("spdnet", "DEF")
_LIBRARY.define("eigh(Tensor X) -> (Tensor, Tensor)", tags=(torch.Tag.pt2_compliant_tag,))


@torch.library.impl(_LIBRARY, "eigh", "CompositeExplicitAutograd")
def _anywhere(X: Tensor) -> tuple[Tensor, Tensor]:
    s, U = torch.linalg.eigh(symmetrize(X))
    return s, _by_columns(U)


@torch.library.impl(_LIBRARY, "eigh", "CPU")
def _on_cpu(X: Tensor) -> tuple[Tensor, Tensor]:
    n = X.shape[-1]
    A = X.reshape(-1, n, n)
    s, U = _empty(A)
    torch.add(A, A.mT, out=U).mul_(0.5)  # LAPACK works in place

    def solve(part: slice) -> None:
        vectors = U[part]
        try:
            torch.linalg.eigh(vectors, out=(s[part], vectors))
        except LinAlgError:
            _solve_singly(A[part], s[part], vectors)

    over_slices(solve, len(A), cost=n**3)
    return s.reshape(X.shape[:-1]), _unflatten(U, X)


def _solve_singly(A: Tensor, s: Tensor, U: Tensor) -> None:
    """One matrix after the other; those that divide and conquer fails on, by QR iterations.

    Matrices that are not finite stay an error: no solver has an answer.
    """
    from scipy.linalg import eigh as qr_iterations  # slow to load, and hardly ever needed

    for i, X in enumerate(symmetrize(A)):
        try:
            s[i], U[i] = torch.linalg.eigh(X)
        except LinAlgError as error:
            if not X.isfinite().all():
                raise
            _LOG.warning("eigh: %s; solved by QR iterations instead", error)
            try:
                values, vectors = qr_iterations(X.numpy(), driver="ev")
            except ValueError:  # numpy's LinAlgError: neither has an answer
                raise error from None
            s[i], U[i] = torch.from_numpy(values), torch.from_numpy(vectors)


@torch.library.impl(_LIBRARY, "eigh", "CUDA")
def _on_cuda(X: Tensor) -> tuple[Tensor, Tensor]:
    n = X.shape[-1]
    if X.numel() == 0 or not cusolver.is_available():
        return _anywhere(X)
    s, U = cusolver.syev_batched(symmetrize(X).reshape(-1, n, n))
    return s.reshape(X.shape[:-1]), _unflatten(U, X)


@torch.library.register_fake("spdnet::eigh", lib=_LIBRARY)  # type: ignore[untyped-decorator]
def _shapes(X: Tensor) -> tuple[Tensor, Tensor]:
    return _empty(X)


@torch.library.register_vmap("spdnet::eigh", lib=_LIBRARY)  # type: ignore[untyped-decorator]
def _vmap(info: object, in_dims: tuple[int], X: Tensor) -> tuple[Any, tuple[int, int]]:
    return torch.ops.spdnet.eigh(X.movedim(in_dims[0], 0)), (0, 0)


def _empty(X: Tensor) -> tuple[Tensor, Tensor]:
    """Room for eigenvalues and eigenvectors, the latter with the columns that LAPACK writes."""
    return X.new_empty(X.shape[:-1]), X.new_empty(X.shape).mT


def _by_columns(U: Tensor) -> Tensor:
    return U.mT.contiguous().mT


def _unflatten(U: Tensor, X: Tensor) -> Tensor:
    return U.mT.reshape(X.shape).mT
