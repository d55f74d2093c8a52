r"""The Frechet mean of SPD matrices under the affine-invariant metric.

At an estimate :math:`M = L L^\top` let :math:`Y_i = L^{-1} X_i L^{-\top}`; the mean is where
:math:`g = \sum_i w_i \log Y_i` vanishes. Moving to :math:`L \exp(S) L^\top` changes :math:`g` by
:math:`-A[S]` to first order, with the self-adjoint operator

.. math:: A[S] = \sum_i w_i \, U_i \Bigl( \tfrac{\lambda_a + \lambda_b}{2}
    \log[\lambda_a, \lambda_b] \, (U_i^\top S U_i)_{ab} \Bigr) U_i^\top,

whose eigenvalues are at least 1. The Newton step ``S = A^{-1}[g]`` finds the mean and gives its
derivative. The data and :math:`M` are stored as Cholesky factors, so that the eigenvalues of
:math:`Y_i` are squared singular values, which stay accurate for ill-conditioned matrices.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from spdnet._autograd import batch_first, is_differentiated
from spdnet._checks import require_count, require_number
from spdnet._precision import accurate_dtype, real_dtype
from spdnet._warnings import warn_user
from spdnet.linalg import Log, cholesky, congruence, expm, symmetrize
from spdnet.linalg.cholesky import diagonal_signs, whiten
from spdnet.linalg.pencil import MAX_GRAM_RATIO, accurate_svd
from spdnet.linalg.spectral import map_decomposed
from spdnet.linalg.symmetric import frobenius

# the eigenvalues of A range from 1 to about half the largest log-ratio of eigenvalues in the data,
# at most a few hundred in float64: conjugate gradients converge long before this limit
_CG_ITERATIONS = 100
_CG_TOLERANCE = 1e-14
#: relative tolerance of a Newton step, which only has to make progress
_STEP_TOLERANCE = 1e-4


def karcher_mean(X: Tensor, w: Tensor, *, tol: float, max_iter: int) -> Tensor:
    """Compute the mean of ``X (..., N, n, n)`` with weights ``w (..., N)`` that sum to 1."""
    require_number("affine_invariant.mean", "tol", tol, above=0)
    require_count("affine_invariant.mean", "max_iter", max_iter)
    dtype, accurate = X.dtype, accurate_dtype(X)
    shape = torch.broadcast_shapes(X.shape[:-2], w.shape)
    X = X.to(accurate).expand(*shape, *X.shape[-2:])
    w = w.to(real_dtype(accurate)).expand(shape)[..., None, None]
    differentiated = is_differentiated(X) or is_differentiated(w)
    L, s, U = _Newton.apply(X.detach(), w.detach(), tol, max_iter, differentiated)
    M = symmetrize(L @ L.mH)
    if differentiated:
        moved = _attach_derivative(L, s, U, X, w)
        M = M + (moved - moved.detach())
    return M.to(dtype)


class _Estimate(NamedTuple):
    """Estimates of the means, with the leading shape of the means."""

    L: Tensor  #: Cholesky factor of the estimate
    g: Tensor  #: gradient
    s: Tensor  #: eigenvalues and eigenvectors of the whitened data
    U: Tensor
    error: Tensor  #: norm of the gradient
    rounding: Tensor  #: bound on the rounding error of the gradient


class _Newton(torch.autograd.Function):
    """The factor of the mean and the eigendecompositions of the whitened data, as constants.

    A Function because the iteration branches on values, which vmap alone does not allow.
    """

    @staticmethod
    def forward(
        X: Tensor, w: Tensor, tol: float, max_iter: int, polish: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Run damped Newton steps: a step that increases the gradient is undone and halved.

        ``polish`` adds one step at the end, because the derivative is that of the exact mean.
        """
        F = cholesky(X, check=False)
        valid = (F.diagonal(dim1=-2, dim2=-1).real > 0).all(-1)[..., None, None] | (w == 0)
        F = torch.where(valid & (w > 0), F, torch.eye(F.shape[-1], dtype=F.dtype, device=F.device))
        s, U = _decompose(F)
        start = (w * ((U * s.log()[..., None, :]) @ U.mH)).sum(-3)
        current = _evaluate(_triangular(expm(start / 2, check=False)), F, w)
        step = torch.ones_like(current.error)
        finished = current.error <= tol
        for _ in range(max_iter):
            if finished.all():
                break
            S = step * _newton_step(current, w, _STEP_TOLERANCE)
            candidate = _evaluate(_move(current.L, S), F, w)
            better = candidate.error < current.error
            # within rounding error, only a halved gradient counts as progress
            stalled = (current.error <= current.rounding) & ~(candidate.error < current.error / 2)
            step = torch.where(better, 1.0, step / 2)
            taken = better & ~finished  # converged means stay unchanged
            current = _select(taken, candidate, current)
            finished = finished | (current.error <= tol) | stalled
        if polish:
            candidate = _evaluate(_move(current.L, _newton_step(current, w, _CG_TOLERANCE)), F, w)
            current = _select(candidate.error < current.error, candidate, current)
        valid = valid.all(-3)
        error = torch.where(valid, current.error, torch.nan)[~(finished & valid)]
        if error.numel() > 0:
            warn_user(
                f"affine_invariant.mean: not converged after {max_iter} iterations: the gradient "
                f"is {error.max().item():.3g}, expected at most tol={tol:g}; increase max_iter or "
                "tol",
            )
        L = torch.where(valid, current.L, torch.nan)
        if (w == 0).any():  # the derivative with respect to these weights needs them
            return L, *_decompose(cholesky(X, check=False), current.L)
        return L, current.s, current.U

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.mark_non_differentiable(*output)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, tuple[int, int, int]]:
        return _Newton.apply(*batch_first(info.batch_size, in_dims, args)), (0, 0, 0)


def _evaluate(L: Tensor, F: Tensor, w: Tensor) -> _Estimate:
    """Evaluate the gradient at ``L L^T`` for data with the factors ``F``."""
    s, U = _decompose(F, L)
    g = symmetrize((w * ((U * s.log()[..., None, :]) @ U.mH)).sum(-3))
    ratio = s.amax(-1) / s.amin(-1)
    ratio = torch.where(ratio > MAX_GRAM_RATIO, ratio.sqrt(), ratio)[..., None, None]
    sigma = torch.linalg.svdvals(L)
    condition = (sigma[..., 0] / sigma[..., -1])[..., None, None]
    unit = 8 * L.shape[-1] * torch.finfo(L.dtype).eps
    rounding = unit * torch.maximum((w * ratio).sum(-3), condition)
    return _Estimate(L, g, s, U, _dot(g, g).sqrt(), rounding)


def _decompose(F: Tensor, L: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Decompose ``F F^T``, whitened by ``L L^T``, accurately relative to each eigenvalue."""
    if L is not None:
        F = torch.linalg.solve_triangular(L[..., None, :, :], F, upper=False)
    sigma, U, _ = accurate_svd(F)
    return sigma.square(), U


def _operator(s: Tensor, U: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Return the coefficients and eigenvectors of the operator A."""
    a, b = s[..., :, None], s[..., None, :]
    return w * (a + b) / 2 * Log().first(a, b), U


def _move(L: Tensor, S: Tensor) -> Tensor:
    """Compute the factor of ``L exp(S) L^T``."""
    return _triangular(L @ expm(S / 2, check=False))


def _triangular(R: Tensor) -> Tensor:
    """Compute the lower triangular factor of ``R R^T``."""
    T = torch.linalg.qr(R.mH, mode="r").R
    return (T * diagonal_signs(T).conj()[..., :, None]).mH


def _select(taken: Tensor, candidate: _Estimate, current: _Estimate) -> _Estimate:
    """Select ``candidate`` where ``taken (..., 1, 1)``; some fields have a dimension of samples."""
    masks = [taken if x.ndim == taken.ndim else taken[..., None, :, :] for x in current]
    return _Estimate(*map(torch.where, masks, candidate, current))


def _newton_step(current: _Estimate, w: Tensor, tolerance: float) -> Tensor:
    return _conjugate_gradients(current.g, *_operator(current.s, current.U, w), tolerance=tolerance)


def _attach_derivative(L: Tensor, s: Tensor, U: Tensor, X: Tensor, w: Tensor) -> Tensor:
    """Compute the mean as a differentiable function of ``X`` and ``w``.

    Two steps of the chord method are taken from the mean ``L L^T``, with the constant operator A:
    the first makes the first derivative exact, and the second the second. Both steps are zero.
    """
    A = _operator(s, U, w.detach())
    Y = whiten(L[..., None, :, :], X)
    S = torch.zeros_like(L)
    for _ in range(2):
        back = expm(-S / 2, check=False)[..., None, :, :]
        g = (w * map_decomposed(symmetrize(back @ Y @ back), s, U, Log())).sum(-3)
        S = S + _Solve.apply(g, *A)
        S = S - S.detach()
    return congruence(expm(S, check=False), L.mH)


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
    """Compute ``A^{-1}[B]``; each system of the batch stops on its own."""
    S, R = torch.zeros_like(B), B
    P, rho = R, _dot(R, R)
    goal = rho * tolerance**2
    for _ in range(_CG_ITERATIONS):
        active = rho > goal
        if not active.any():
            break
        AP = (U @ (K * (U.mH @ P[..., None, :, :] @ U)) @ U.mH).sum(-3)
        alpha = torch.where(active, rho / _dot(P, AP), 0.0)
        S, R = S + alpha * P, R - alpha * AP
        rho, old = torch.where(active, _dot(R, R), rho), rho
        P = torch.where(active, R + rho / old * P, P)
    return symmetrize(S)


def _dot(A: Tensor, B: Tensor) -> Tensor:
    return frobenius(A, B, keepdim=True)
