r"""The Frechet mean of SPD matrices under the affine-invariant metric.

At a guess :math:`M = L L^\top` the data are seen as :math:`Y_i = L^{-1} X_i L^{-\top}`; the mean is
where :math:`g = \sum_i w_i \log Y_i` vanishes. Moving to :math:`L \exp(S) L^\top` changes :math:`g`
by :math:`-A[S]` to first order, with the self-adjoint operator

.. math:: A[S] = \sum_i w_i \, U_i \Bigl( \tfrac{\lambda_a + \lambda_b}{2}
    \log[\lambda_a, \lambda_b] \, (U_i^\top S U_i)_{ab} \Bigr) U_i^\top,

whose eigenvalues are at least 1. ``S = A^{-1}[g]`` is Newton's step: the mean is found with it and
differentiated through it.
"""

import warnings
from typing import Any

import torch
from torch import Tensor

from spdnet._autograd import batch_first, is_differentiated
from spdnet._checks import require_count, require_number
from spdnet._precision import accurate_dtype
from spdnet.linalg import Log, eigh, expm, invsqrtm, logm, sqrtm, symmetrize

# A has eigenvalues from 1 to about half the largest log-ratio of eigenvalues in the data, at most a
# few hundred in float64: conjugate gradients end long before this limit
_CG_ITERATIONS = 100
_CG_TOLERANCE = 1e-14
#: of a step of Newton's method, which only has to come nearer
_STEP_TOLERANCE = 1e-4


def karcher_mean(X: Tensor, w: Tensor, *, tol: float, max_iter: int) -> Tensor:
    """Mean ``(..., n, n)`` of ``X (..., N, n, n)`` with weights ``w (..., N)`` that sum to 1."""
    require_number("affine_invariant.mean", "tol", tol, above=0)
    require_count("affine_invariant.mean", "max_iter", max_iter)
    dtype, accurate = X.dtype, accurate_dtype(X)
    X, w = X.to(accurate), w.to(accurate)[..., None, None].expand(*X.shape[:-2], 1, 1)
    M = _Newton.apply(X.detach(), w.detach(), tol, max_iter)
    if is_differentiated(X) or is_differentiated(w):
        M = _attach(M, X, w)
    return M.to(dtype)


class _Newton(torch.autograd.Function):
    """The mean as a constant: a Function for its vmap, because the iteration looks at values."""

    @staticmethod
    def forward(X: Tensor, w: Tensor, tol: float, max_iter: int) -> Tensor:
        """A step that makes the gradient grow is undone and halved."""
        M = expm((w * logm(X, check=False)).sum(-3), check=False)
        g, A = _linearize(M, X, w)
        error, step = _norm(g), torch.ones_like(_norm(g))
        goal = _rounding(X).clamp(min=tol)
        for _ in range(max_iter):
            unfinished = ~(error <= goal)  # NaN is not finished
            if not unfinished.any():
                return M
            moved = _move(M, step * _conjugate_gradients(g, *A, tolerance=_STEP_TOLERANCE))
            g_moved, A_moved = _linearize(moved, X, w)
            better = _norm(g_moved) < error
            step = torch.where(better, 1.0, step / 2)
            taken = better & unfinished  # a mean that has converged stays as it is
            M, g = torch.where(taken, moved, M), torch.where(taken, g_moved, g)
            pairs = zip(A_moved, A, strict=True)
            A = [torch.where(taken[..., None, :, :], new, old) for new, old in pairs]
            error = _norm(g)
        if not (error <= goal).all():
            warnings.warn(
                f"affine_invariant.mean: not converged after {max_iter} iterations: the gradient "
                f"is {error.max().item():.3g}, expected at most tol={tol:g}; raise max_iter or tol",
                RuntimeWarning,
                stacklevel=6,  # the caller of mean
            )
        return M

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Tensor, int]:
        return _Newton.apply(*batch_first(info.batch_size, in_dims, args)), 0


def _rounding(X: Tensor) -> Tensor:
    """What rounding leaves of the gradient: the unit times the largest condition in the data."""
    s = torch.linalg.eigvalsh(X)
    condition = (s[..., -1] / s[..., 0]).amax(-1)
    return torch.finfo(X.dtype).eps * condition[..., None, None]


def _linearize(M: Tensor, X: Tensor, w: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The gradient at ``M``, and the operator A as its coefficients and eigenvectors."""
    unroot = invsqrtm(M, check=False)[..., None, :, :]
    s, U = eigh(symmetrize(unroot @ X @ unroot), check=False)
    a, b = s[..., :, None], s[..., None, :]
    K = w * (a + b) / 2 * Log().first(a, b)
    return symmetrize((w * ((U * s.log()[..., None, :]) @ U.mT)).sum(-3)), [K, U]


def _move(M: Tensor, S: Tensor) -> Tensor:
    root = sqrtm(M, check=False)
    return symmetrize(root @ expm(S, check=False) @ root)


def _attach(M: Tensor, X: Tensor, w: Tensor) -> Tensor:
    """The same mean as a function of ``X`` and ``w``.

    Two steps of the chord method, with the operator A at the solution held constant: the first
    makes the first derivative exact, the second the second.
    """
    _, A = _linearize(M, X.detach(), w.detach())
    unroot = invsqrtm(M, check=False)[..., None, :, :]
    Y = symmetrize(unroot @ X @ unroot)
    S = torch.zeros_like(M)
    for _ in range(2):
        back = expm(-S / 2, check=False)[..., None, :, :]
        g = (w * logm(symmetrize(back @ Y @ back), check=False)).sum(-3)
        S = S + _Solve.apply(g, *A)
    return _move(M, S)


class _Solve(torch.autograd.Function):
    """``A^{-1}[B]`` for the constant self-adjoint operator given by ``K`` and ``U``."""

    @staticmethod
    def forward(B: Tensor, K: Tensor, U: Tensor) -> Tensor:
        return _conjugate_gradients(B, K, U, tolerance=_CG_TOLERANCE)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _, K, U = inputs
        ctx.save_for_backward(K, U)
        ctx.save_for_forward(K, U)

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> tuple[Any, ...]:
        return _Solve.apply(symmetrize(G), *ctx.saved_tensors), None, None

    @staticmethod
    def jvp(ctx: Any, dB: Tensor, *_: Any) -> Tensor:
        return _Solve.apply(dB, *ctx.saved_tensors)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Tensor, int]:
        return _Solve.apply(*batch_first(info.batch_size, in_dims, args)), 0


def _conjugate_gradients(B: Tensor, K: Tensor, U: Tensor, *, tolerance: float) -> Tensor:
    """``A^{-1}[B]``; each system of the batch stops by itself."""
    S, R = torch.zeros_like(B), B
    P, rho = R, _dot(R, R)
    goal = rho * tolerance**2
    for _ in range(_CG_ITERATIONS):
        active = rho > goal
        if not active.any():
            break
        AP = (U @ (K * (U.mT @ P[..., None, :, :] @ U)) @ U.mT).sum(-3)
        alpha = torch.where(active, rho / _dot(P, AP), 0.0)
        S, R = S + alpha * P, R - alpha * AP
        rho, old = torch.where(active, _dot(R, R), rho), rho
        P = torch.where(active, R + rho / old * P, P)
    return symmetrize(S)


def _norm(A: Tensor) -> Tensor:
    return _dot(A, A).sqrt()


def _dot(A: Tensor, B: Tensor) -> Tensor:
    return (A * B).sum((-2, -1), keepdim=True)
