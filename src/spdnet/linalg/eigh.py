"""The batched symmetric eigensolver.

The CPU uses LAPACK with threads over the batch, CUDA the batched solver of cuSOLVER, other devices
the solver of torch. If LAPACK fails on a matrix, slower QR iterations are used and a warning is
logged; if cuSOLVER fails, the eigenvalues are NaN. One operator, ``spdnet::eigh``, opaque to
compilation and vmap, selects the solver. A program of torch.export calls ``aten::linalg_eigh``
instead, so that it can be loaded without this package.
"""

import logging
from typing import Any

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from spdnet._autograd import is_differentiated, is_exporting, refuse_tracing
from spdnet._checks import require_square
from spdnet._precision import accurate_dtype, real_dtype, without_autocast, working_dtype
from spdnet.linalg import cusolver
from spdnet.linalg.symmetric import symmetrize
from spdnet.linalg.threads import parallel_for
from spdnet.linalg.validate import require_symmetric

_LOG = logging.getLogger(__name__)


def eigh(X: Tensor, *, accurate: bool = False, check: bool = True) -> tuple[Tensor, Tensor]:
    r"""Compute eigenvalues (ascending) and eigenvectors, :math:`X = U \mathrm{diag}(s) U^\top`.

    Return ``s (..., n)`` and ``U (..., n, n)``. Only the symmetric part of ``X`` is decomposed,
    half precision in float32. The derivative is that of :func:`torch.linalg.eigh`: exact for ``s``,
    undefined for ``U`` where eigenvalues coincide. For functions of a matrix, use
    :func:`spectral_map`, whose derivative is defined there as well.

    Parameters
    ----------
    X : Tensor, shape (..., n, n)
        Symmetric matrices; the batch may be empty.
    accurate : bool
        Decompose in float64 and round the result. A float32 solver leaves an error of about 1e-7
        times the *largest* eigenvalue in every eigenvalue, too much for a logarithm of small ones.
    check : bool
        Raise a ValueError unless ``X`` is finite and symmetric.

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
    return s.to(real_dtype(X.dtype)), U.to(X.dtype)


def constant_eigh(X: Tensor, *, accurate: bool = False) -> tuple[Tensor, Tensor]:
    """Decompose a constant ``X`` like :func:`eigh`, with the fastest solver available."""
    refuse_tracing()
    with without_autocast(X):
        A = X.to(_solver_dtype(X, accurate))
        if is_exporting():
            s, U = torch.linalg.eigh(symmetrize(A))
        else:
            s, U = torch.ops.spdnet.eigh(A)
    return s.to(real_dtype(X.dtype)), U.to(X.dtype)


def _solver_dtype(X: Tensor, accurate: bool) -> torch.dtype:
    return accurate_dtype(X) if accurate else working_dtype(X.dtype)


_LIBRARY = torch.library.Library("spdnet", "DEF")
_LIBRARY.define("eigh(Tensor X) -> (Tensor, Tensor)", tags=(torch.Tag.pt2_compliant_tag,))


@torch.library.impl(_LIBRARY, "eigh", "CompositeExplicitAutograd")
def _eigh_default(X: Tensor) -> tuple[Tensor, Tensor]:
    s, U = torch.linalg.eigh(_symmetric_part(X))
    return s, U.mT.contiguous().mT


@torch.library.impl(_LIBRARY, "eigh", "CPU")
def _eigh_cpu(X: Tensor) -> tuple[Tensor, Tensor]:
    n = X.shape[-1]
    A = X.reshape(-1, n, n)
    s, U = _empty(A)
    _symmetric_part(A, out=U)  # LAPACK works in place

    def solve(part: slice) -> None:
        vectors = U[part]
        try:
            torch.linalg.eigh(vectors, out=(s[part], vectors))
        except LinAlgError:
            _solve_one_by_one(A[part], s[part], vectors)

    parallel_for(solve, len(A), cost=n**3)
    return s.reshape(X.shape[:-1]), _unflatten(U, X)


def _solve_one_by_one(A: Tensor, s: Tensor, U: Tensor) -> None:
    """Solve one matrix at a time, by QR iterations if divide and conquer fails."""
    from scipy.linalg import eigh as qr_iterations  # slow to import, rarely needed

    for i, X in enumerate(_symmetric_part(A)):
        try:
            s[i], U[i] = torch.linalg.eigh(X)
        except LinAlgError as error:
            if not X.isfinite().all():
                raise
            _LOG.warning("eigh: %s; solved by QR iterations instead", error)
            try:
                values, vectors = qr_iterations(X.numpy(), driver="ev")
            except ValueError:  # numpy's LinAlgError: both solvers failed
                raise error from None
            s[i], U[i] = torch.from_numpy(values), torch.from_numpy(vectors)


@torch.library.impl(_LIBRARY, "eigh", "CUDA")
def _eigh_cuda(X: Tensor) -> tuple[Tensor, Tensor]:
    n = X.shape[-1]
    if X.numel() == 0 or not cusolver.is_available():
        return _eigh_default(X)
    s, U = cusolver.syev_batched(_symmetric_part(X).reshape(-1, n, n))
    return s.reshape(X.shape[:-1]), _unflatten(U, X)


@torch.library.register_fake("spdnet::eigh", lib=_LIBRARY)  # type: ignore[untyped-decorator]
def _eigh_fake(X: Tensor) -> tuple[Tensor, Tensor]:
    return _empty(X)


@torch.library.register_vmap("spdnet::eigh", lib=_LIBRARY)  # type: ignore[untyped-decorator]
def _eigh_vmap(info: object, in_dims: tuple[int], X: Tensor) -> tuple[Any, tuple[int, int]]:
    return torch.ops.spdnet.eigh(X.movedim(in_dims[0], 0)), (0, 0)


def _symmetric_part(X: Tensor, out: Tensor | None = None) -> Tensor:
    """Compute :func:`symmetrize` within the operator.

    The lazy conjugate of ``X.mH`` is lost there if the operator is called by a compiled program.
    """
    return torch.add(X, X.mT.conj_physical(), out=out).mul_(0.5)


def _empty(X: Tensor) -> tuple[Tensor, Tensor]:
    """Allocate eigenvalues and eigenvectors, the latter column-major as LAPACK writes them."""
    return X.real.new_empty(X.shape[:-1]), X.new_empty(X.shape).mT


def _unflatten(U: Tensor, X: Tensor) -> Tensor:
    return U.mT.reshape(X.shape).mT
