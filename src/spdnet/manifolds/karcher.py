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
from torch.autograd import forward_ad

from spdnet._checks import require_count, require_number
from spdnet.linalg import Log, eigh, expm, invsqrtm, logm, sqrtm, symmetrize
from spdnet.linalg.precision import accurate_dtype

_CG_TOLERANCE = 1e-14
_CG_ITERATIONS = 100


def karcher_mean(X: Tensor, w: Tensor, *, tol: float, max_iter: int) -> Tensor:
    """Mean ``(..., n, n)`` of ``X (..., N, n, n)`` with weights ``w (..., N)`` that sum to 1."""
    require_number("affine_invariant.mean", "tol", tol, above=0)
    require_count("affine_invariant.mean", "max_iter", max_iter)
    dtype, accurate = X.dtype, accurate_dtype(X)
    X, w = X.to(accurate), w.to(accurate)[..., None, None]
    M = _iterate(X.detach(), w.detach(), tol, max_iter)
    if _is_differentiated(X) or _is_differentiated(w):
        M = _attach(M, X, w)
    return M.to(dtype)


@torch.no_grad()
def _iterate(X: Tensor, w: Tensor, tol: float, max_iter: int) -> Tensor:
    """Newton's method; a step that makes the gradient grow is undone and halved."""
    M = expm((w * logm(X, check=False)).sum(-3), check=False)
    g, A = _linearize(M, X, w)
    error, step = _norm(g), torch.ones_like(_norm(g))
    for _ in range(max_iter):
        if (error <= tol).all():
            return M
        moved = _move(M, step * _Solve.apply(g, *A))
        g_moved, A_moved = _linearize(moved, X, w)
        better = _norm(g_moved) < error
        step = torch.where(better, 1.0, step / 2)
        better = better & (error > tol)  # a mean that has converged stays as it is
        M, g = torch.where(better, moved, M), torch.where(better, g_moved, g)
        A = [
            torch.where(better[..., None, :, :], new, old)
            for new, old in zip(A_moved, A, strict=True)
        ]
        error = _norm(g)
    if (error > tol).any():
        warnings.warn(
            f"affine_invariant.mean: not converged after {max_iter} iterations: the gradient is "
            f"{error.max().item():.3g}, expected at most tol={tol:g}; raise max_iter or tol",
            RuntimeWarning,
            stacklevel=5,
        )
    return M


def _linearize(M: Tensor, X: Tensor, w: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The gradient at ``M``, and the operator A as its coefficients and eigenvectors."""
    unroot = invsqrtm(M, check=False)[..., None, :, :]
    s, U = eigh(symmetrize(unroot @ X @ unroot))
    a, b = s[..., :, None], s[..., None, :]
    K = w * (a + b) / 2 * Log().first(a, b)
    return symmetrize((w * ((U * s.log()[..., None, :]) @ U.mT)).sum(-3)), [K, U]


def _move(M: Tensor, S: Tensor) -> Tensor:
    root = sqrtm(M, check=False)
    return symmetrize(root @ expm(S, check=False) @ root)


def _is_differentiated(x: Tensor) -> bool:
    tangent = forward_ad.unpack_dual(x).tangent if forward_ad._current_level >= 0 else None
    return (torch.is_grad_enabled() and x.requires_grad) or tangent is not None


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
        """Conjugate gradients; each system of the batch stops by itself."""
        S, R = torch.zeros_like(B), B
        P, rho = R, _dot(R, R)
        goal = rho * _CG_TOLERANCE**2
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


def _norm(A: Tensor) -> Tensor:
    return _dot(A, A).sqrt()


def _dot(A: Tensor, B: Tensor) -> Tensor:
    return (A * B).sum((-2, -1), keepdim=True)
