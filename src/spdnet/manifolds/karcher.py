r"""The Frechet mean of SPD matrices under the affine-invariant metric.

At a guess :math:`M = L L^\top` the data are seen as :math:`Y_i = L^{-1} X_i L^{-\top}`; the mean is
where :math:`g = \sum_i w_i \log Y_i` vanishes. Moving to :math:`L \exp(S) L^\top` changes :math:`g`
by :math:`-A[S]` to first order, with the self-adjoint operator

.. math:: A[S] = \sum_i w_i \, U_i \Bigl( \tfrac{\lambda_a + \lambda_b}{2}
    \log[\lambda_a, \lambda_b] \, (U_i^\top S U_i)_{ab} \Bigr) U_i^\top,

whose eigenvalues are at least 1. ``S = A^{-1}[g]`` is Newton's step: the mean is found with it and
differentiated through it. The data are held by their Cholesky factors and :math:`M` by its own, so
that the eigenvalues of :math:`Y_i` are squares of singular values, which keep their digits where
matrices are ill-conditioned.
"""

import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor

from spdnet._autograd import batch_first, is_differentiated
from spdnet._checks import require_count, require_number
from spdnet._precision import accurate_dtype
from spdnet.linalg import Log, cholesky, congruence, expm, symmetrize
from spdnet.linalg.cholesky import whiten
from spdnet.linalg.pencil import FAR, singular
from spdnet.linalg.spectral import map_decomposed

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
    shape = torch.broadcast_shapes(X.shape[:-2], w.shape)
    X = X.to(accurate).expand(*shape, *X.shape[-2:])
    w = w.to(accurate).expand(shape)[..., None, None]
    differentiated = is_differentiated(X) or is_differentiated(w)
    L, s, U = _Newton.apply(X.detach(), w.detach(), tol, max_iter, differentiated)
    M = symmetrize(L @ L.mT)
    if differentiated:
        moved = _attached(L, s, U, X, w)
        M = M + (moved - moved.detach())
    return M.to(dtype)


class _Guess(NamedTuple):
    """A guess of the mean: tensors that have the leading shape of the means."""

    L: Tensor  #: its Cholesky factor
    g: Tensor  #: the gradient there
    s: Tensor  #: eigenvalues and eigenvectors of the data as seen from there
    U: Tensor
    error: Tensor  #: the norm of the gradient
    rounding: Tensor  #: what rounding leaves of it


class _Newton(torch.autograd.Function):
    """The mean as a constant: a Function for its vmap, because the iteration looks at values.

    Gives the factor of the mean, and the data's eigenvalues and eigenvectors as seen from there.
    """

    @staticmethod
    def forward(
        X: Tensor, w: Tensor, tol: float, max_iter: int, polish: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """A step that makes the gradient grow is undone and halved.

        ``polish`` adds one at the end: a derivative is that of the exact mean.
        """
        F = cholesky(X, check=False)
        valid = (F.diagonal(dim1=-2, dim2=-1) > 0).all(-1)[..., None, None] | (w == 0)
        F = torch.where(valid & (w > 0), F, torch.eye(F.shape[-1], dtype=F.dtype, device=F.device))
        s, U = _decompose(F)
        start = (w * ((U * s.log()[..., None, :]) @ U.mT)).sum(-3)
        now = _look(_triangular(expm(start / 2, check=False)), F, w)
        step = torch.ones_like(now.error)
        finished = now.error <= tol
        for _ in range(max_iter):
            if finished.all():
                break
            then = _look(_moved(now.L, step * _step(now, w, _STEP_TOLERANCE)), F, w)
            better = then.error < now.error
            # within rounding, a gradient that is not halved is no progress
            resting = (now.error <= now.rounding) & ~(then.error < now.error / 2)
            step = torch.where(better, 1.0, step / 2)
            taken = better & ~finished  # a mean that has converged stays as it is
            now = _chosen(taken, then, now)
            finished = finished | (now.error <= tol) | resting
        if polish:
            then = _look(_moved(now.L, _step(now, w, _CG_TOLERANCE)), F, w)
            now = _chosen(then.error < now.error, then, now)
        valid = valid.all(-3)
        error = torch.where(valid, now.error, torch.nan)[~(finished & valid)]
        if error.numel() > 0:
            warnings.warn(
                f"affine_invariant.mean: not converged after {max_iter} iterations: the gradient "
                f"is {error.max().item():.3g}, expected at most tol={tol:g}; raise max_iter or tol",
                RuntimeWarning,
                stacklevel=6,  # the caller of mean
            )
        L = torch.where(valid, now.L, torch.nan)
        if (w == 0).any():  # they have a derivative with respect to their weight
            s, U = _decompose(_seen(now.L, cholesky(X, check=False)))
            return L, s, U
        return L, now.s, now.U

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.mark_non_differentiable(*output)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, tuple[int, int, int]]:
        return _Newton.apply(*batch_first(info.batch_size, in_dims, args)), (0, 0, 0)


def _look(L: Tensor, F: Tensor, w: Tensor) -> _Guess:
    """The data with factors ``F`` seen from ``L L^T``."""
    s, U = _decompose(_seen(L, F))
    g = symmetrize((w * ((U * s.log()[..., None, :]) @ U.mT)).sum(-3))
    ratio = s.amax(-1) / s.amin(-1)
    ratio = torch.where(ratio > FAR, ratio.sqrt(), ratio)[..., None, None]
    sigma = torch.linalg.svdvals(L)
    condition = (sigma[..., 0] / sigma[..., -1])[..., None, None]
    unit = 8 * L.shape[-1] * torch.finfo(L.dtype).eps
    return _Guess(L, g, s, U, _norm(g), unit * torch.maximum((w * ratio).sum(-3), condition))


def _seen(L: Tensor, F: Tensor) -> Tensor:
    return torch.linalg.solve_triangular(L[..., None, :, :], F, upper=False)


def _decompose(W: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of ``W W^T``, exact relative to each eigenvalue."""
    sigma, U, _ = singular(W)
    return sigma.square(), U


def _operator(s: Tensor, U: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """The operator A as its coefficients and eigenvectors."""
    a, b = s[..., :, None], s[..., None, :]
    return w * (a + b) / 2 * Log().first(a, b), U


def _moved(L: Tensor, S: Tensor) -> Tensor:
    """The factor of ``L exp(S) L^T``."""
    return _triangular(L @ expm(S / 2, check=False))


def _triangular(R: Tensor) -> Tensor:
    """The lower triangular factor of ``R R^T``."""
    T = torch.linalg.qr(R.mT, mode="r").R
    return (T * torch.where(T.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0)[..., :, None]).mT


def _chosen(taken: Tensor, then: _Guess, now: _Guess) -> _Guess:
    """``then`` for the means ``(..., 1, 1)`` that take it; some have a dimension of samples."""
    pairs = zip(then, now, strict=True)
    return _Guess(
        *(
            torch.where(taken if new.ndim == taken.ndim else taken[..., None, :, :], new, old)
            for new, old in pairs
        )
    )


def _step(now: _Guess, w: Tensor, tolerance: float) -> Tensor:
    return _conjugate_gradients(now.g, *_operator(now.s, now.U, w), tolerance=tolerance)


def _attached(L: Tensor, s: Tensor, U: Tensor, X: Tensor, w: Tensor) -> Tensor:
    """The same mean as a function of ``X`` and ``w``.

    Two steps of the chord method, with the operator A at the solution held constant: the first
    makes the first derivative exact, the second the second. The steps themselves are zero.
    """
    A = _operator(s, U, w.detach())
    Y = whiten(L[..., None, :, :], X)
    S = torch.zeros_like(L)
    for _ in range(2):
        back = expm(-S / 2, check=False)[..., None, :, :]
        g = (w * map_decomposed(symmetrize(back @ Y @ back), s, U, Log())).sum(-3)
        S = S + _Solve.apply(g, *A)
        S = S - S.detach()
    return congruence(expm(S, check=False), L.mT)


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
