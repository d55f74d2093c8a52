r"""The Lyapunov equation :math:`S X + X S = V`.

Its solution :math:`S = \mathcal L_X(V)` is linear and self-adjoint in ``V``, and

.. math::
    D \mathcal L_X(V)[E, F] = \mathcal L_X(F - E S - S E),

so every derivative is a solution of the same equation, exact at repeated eigenvalues.
"""

from typing import Any

from torch import Tensor, broadcast_shapes
from torch.autograd import Function

from spdnet._autograd import apply, batch_first, constant, without_jvp
from spdnet._checks import require_pair
from spdnet._precision import without_autocast, working_dtype
from spdnet.linalg.eigh import constant_eigh
from spdnet.linalg.symmetric import symmetrize
from spdnet.linalg.validate import require_finite, require_positive_eigenvalues, require_symmetric


def lyapunov(X: Tensor, V: Tensor, *, check: bool = True, who: str = "lyapunov") -> Tensor:
    """Solve :math:`S X + X S = V` for the symmetric :math:`S`.

    Parameters
    ----------
    X, V : Tensor, shape (..., n, n)
        ``X`` is SPD; only the symmetric part of ``V`` is used. Leading dimensions broadcast.
    check : bool
        Raise a ValueError unless ``X`` is SPD and ``V`` finite.
    who : str
        Caller named in errors.

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg import lyapunov
    >>> lyapunov(2 * torch.eye(2), torch.eye(2)).diagonal()
    tensor([0.2500, 0.2500])
    """
    require_pair(who, X, V, "V")
    if check:
        require_symmetric(who, X)
        require_finite(who, V, "V")
    dtype = working_dtype(X.dtype)
    s, U = constant_eigh(constant(X.to(dtype)), accurate=True)
    if check:
        require_positive_eigenvalues(who, s, "X")
    shape = broadcast_shapes(X.shape, V.shape)
    E, V = X.to(dtype).expand(shape), V.to(dtype).expand(shape)
    return _solve(E, s.expand(shape[:-1]), U.expand(shape), V).to(X.dtype)


class _Lyapunov(Function):
    """The solution, given the decomposition ``s, U`` of ``X``."""

    @staticmethod
    def forward(X: Tensor, s: Tensor, U: Tensor, V: Tensor) -> Tensor:
        with without_autocast(X):
            H = (U.mH @ symmetrize(V) @ U) / (s[..., :, None] + s[..., None, :])
            return symmetrize(U @ H @ U.mH)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        X, s, U, _ = inputs
        ctx.save_for_backward(X, s, U, output)
        ctx.save_for_forward(X, s, U, output)

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> tuple[Any, ...]:
        X, s, U, S = ctx.saved_tensors
        K = _solve(X, s, U, G)
        dX = -(S @ K + K @ S) if ctx.needs_input_grad[0] else None
        return dX, None, None, K if ctx.needs_input_grad[3] else None

    @staticmethod
    def jvp(ctx: Any, dX: Tensor | None, ds: Any, dU: Any, dV: Tensor | None) -> Tensor:
        X, s, U, S = ctx.saved_tensors
        change: Any = 0 if dV is None else dV
        if dX is not None:
            change = change - dX @ S - S @ dX
        return _solve(X, s, U, change)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Tensor, int]:
        return _solve(*batch_first(info.batch_size, in_dims, args)), 0


_CompiledLyapunov = without_jvp(_Lyapunov)


def _solve(X: Tensor, s: Tensor, U: Tensor, V: Tensor) -> Tensor:
    return apply(_Lyapunov, _CompiledLyapunov, X, s, U, V)
