r"""Functions of two SPD matrices through the eigenvalues of :math:`X^{-1} Y`.

With :math:`X = L L^\top`, :math:`Y = K K^\top` and the singular value decomposition
:math:`L^{-1} K = P \Sigma Q^\top`, the columns of :math:`A = L^{-\top} P` and
:math:`B = K^{-\top} Q` diagonalize both: :math:`A^\top X A = I = B^\top Y B`, and :math:`X^{-1} Y`
has the eigenvalues :math:`e^{x_k}`, :math:`x = 2 \log \Sigma`. For :math:`\varphi = \sum_k g(x_k)`
and directions :math:`E, F` of ``X`` and ``Y``, with :math:`\tilde E = A^\top E A` and
:math:`\tilde F = B^\top F B`,

.. math::
    D\varphi[E, F] &= \sum_k g'(x_k) \, (\tilde F_{kk} - \tilde E_{kk}) \\
    D^2\varphi[(E, F)^2] &= \sum_{jk} (c_{jk} + m_{jk}) \tilde E_{jk}^2
        + (c_{jk} - m_{jk}) \tilde F_{jk}^2 - 2 e_{jk} \tilde E_{jk} \tilde F_{jk} \\
    m &= \tfrac12 (g'_j + g'_k), \quad
    c = \tfrac12 (g'_j - g'_k) \coth \tfrac{x_j - x_k}2, \quad
    e = \tfrac12 (g'_j - g'_k) / \sinh \tfrac{x_j - x_k}2 .

The condition number of a factor is the square root of that of its matrix, so points of condition
1e9 lose no more accuracy than points of condition 3e4 would without factors. Nothing cancels where
the points are close, and eigenvalues may coincide. The third derivative is not available.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from spdnet._autograd import (
    apply,
    batch_first,
    constant,
    is_concrete,
    is_differentiated,
    refuse_third_derivative,
    without_jvp,
)
from spdnet._checks import require_pair
from spdnet._precision import without_autocast
from spdnet.linalg.cholesky import cholesky
from spdnet.linalg.eigh import eigh
from spdnet.linalg.symmetric import frobenius, symmetrize

#: ratio of squared singular values up to which they are computed from the Gram matrix
MAX_GRAM_RATIO = 1e4


class LogSquare:
    """``x ** 2``: the sum is the squared affine-invariant distance."""

    def value(self, x: Tensor) -> Tensor:
        """Compute ``g(x)``."""
        return x.square()

    def slope(self, x: Tensor) -> Tensor:
        """Compute ``g'(x)``."""
        return 2 * x

    def curvature(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the coefficients ``c`` and ``e`` of two logarithms."""
        h = (x - y) / 2
        tie = h == 0
        safe = torch.where(tie, 1.0, h)
        c, e = safe / torch.tanh(safe), safe / torch.sinh(safe)
        return 2 * torch.where(tie, 1.0, c), 2 * torch.where(tie, 1.0, e)


class LogCosh:
    """``log cosh(x / 2)``: the sum is the Stein divergence."""

    def value(self, x: Tensor) -> Tensor:
        """Compute ``g(x)``."""
        u = x.abs() / 2
        # cosh u - 1 by expm1: the bits of torch.sinh depend on the position in the tensor
        e = torch.expm1(u.clamp(max=1))
        near = torch.log1p(e.square() / (2 * (1 + e)))
        return torch.where(u < 1, near, u + torch.log1p(torch.exp(-2 * u)) - math.log(2))

    def slope(self, x: Tensor) -> Tensor:
        """Compute ``g'(x)``."""
        return torch.tanh(x / 2) / 2

    def curvature(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the coefficients ``c`` and ``e`` of two logarithms."""
        u, v, h = x.abs() / 2, y.abs() / 2, (x - y).abs() / 2
        scale = (1 + torch.exp(-2 * u)) * (1 + torch.exp(-2 * v))
        c = torch.exp(h - u - v) * (1 + torch.exp(-2 * h)) / (2 * scale)
        return c, torch.exp(-u - v) / scale


def pencil_sum(
    X: Tensor, Y: Tensor, g: LogSquare | LogCosh, *, check: bool = True, who: str = "pencil_sum"
) -> Tensor:
    r"""Compute :math:`\sum_k g(\log \lambda_k)` over the eigenvalues of :math:`X^{-1} Y`.

    ``X`` and ``Y`` are SPD ``(..., n, n)`` and broadcast. Twice differentiable in reverse and
    forward mode. ``check`` raises a ValueError unless both are SPD and their eigenvalues exceed
    rounding errors.
    """
    L, K = cholesky_pair(constant(X), constant(Y), check=check, who=who)
    if not (_needs_derivative(X) or _needs_derivative(Y)):
        return g.value(log_eigenvalues(L, K, check=check, who=who)).sum(-1)
    x, P, Q = decompose_pencil(L, K, check=check, who=who)
    A = torch.linalg.solve_triangular(L.mH, P, upper=True)
    B = torch.linalg.solve_triangular(K.mH, Q, upper=True)
    return apply(_Value, _CompiledValue, X.expand(P.shape), Y.expand(P.shape), x, A, B, g)


def safe_sqrt(square: Tensor) -> Tensor:
    """Compute the square root with derivative zero at zero."""
    positive = square > 0
    return torch.where(positive, torch.where(positive, square, 1.0).sqrt(), 0 * square)


def cholesky_pair(X: Tensor, Y: Tensor, *, check: bool, who: str) -> tuple[Tensor, Tensor]:
    """Compute the Cholesky factors of two points, with validation if ``check``."""
    require_pair(who, X, Y)
    return cholesky(X, check=check, who=who), cholesky(Y, check=check, who=who, name="Y")


def decompose_pencil(
    L: Tensor, K: Tensor, *, check: bool, who: str
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Compute ``x, P, Q`` of :math:`L^{-1} K = P e^{x/2} Q^\top` for constant factors."""
    with without_autocast(L):
        W = torch.linalg.solve_triangular(L, K, upper=False)
        if _is_large(W):
            sigma, P, Q = accurate_svd(W)
        else:
            P, sigma, Qh = torch.linalg.svd(W)
            Q = Qh.mH
    return _log_spectrum(sigma, L, K, check, who), P, Q


def log_eigenvalues(L: Tensor, K: Tensor, *, check: bool, who: str) -> Tensor:
    """Compute only ``x`` of :func:`decompose_pencil`, for half of the work."""
    with without_autocast(L):
        W = torch.linalg.solve_triangular(L, K, upper=False)
        sigma = accurate_svd(W)[0] if _is_large(W) else torch.linalg.svdvals(W)
    return _log_spectrum(sigma, L, K, check, who)


def accurate_svd(W: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r"""Compute ``sigma, P, Q`` of :math:`W = P \Sigma Q^\top`, accurate relative to each value.

    Values of similar size are computed from the eigenvalues of :math:`W W^\top`, which is faster,
    and much faster on a GPU.
    """
    s, P = eigh(symmetrize(W @ W.mH), check=False)
    far = ~(s[..., 0] * MAX_GRAM_RATIO > s[..., -1])
    sigma = torch.where(far[..., None], 1.0, s).sqrt()
    Q = W.mH @ (P / sigma[..., None, :])
    if far.any():
        P_far, sigma_far, Qh_far = torch.linalg.svd(W[far])
        sigma[far], P[far], Q[far] = sigma_far, P_far, Qh_far.mH
    return sigma, P, Q


def _is_large(W: Tensor) -> bool:
    """Return whether CUDA would decompose matrices of this size one at a time."""
    return W.is_cuda and W.shape[-1] > 32 and is_concrete(W)


def _log_spectrum(sigma: Tensor, L: Tensor, K: Tensor, check: bool, who: str) -> Tensor:
    n = sigma.shape[-1]
    if check and is_concrete(sigma) and sigma.numel() > 0:
        ratio = sigma.amin(-1) / sigma.amax(-1)
        bad = ~(ratio > 8 * n * torch.finfo(sigma.dtype).eps)
        if bad.any():
            index = tuple(bad.nonzero()[0].tolist()) if bad.ndim else ()
            where = f" for pair {', '.join(map(str, index))}" if index else ""
            raise ValueError(
                f"{who}: expected X and Y for which {sigma.dtype} holds the eigenvalues of "
                f"X^(-1/2) Y X^(-1/2), but the smallest is {ratio[index].item() ** 2:.1e} of the "
                f"largest{where}, and may be rounding error; regularize both, for example with "
                "spdnet.covariance.regularize"
            )
    # without check, a matrix that is not positive definite gives NaN
    valid = [(F.diagonal(dim1=-2, dim2=-1).real > 0).all(-1, keepdim=True) for F in (L, K)]
    return torch.where(valid[0] & valid[1], 2 * sigma.log(), torch.nan)


class _Value(Function):
    """The sum, given the decomposition of the pair."""

    @staticmethod
    def forward(X: Tensor, Y: Tensor, x: Tensor, A: Tensor, B: Tensor, g: Any) -> Tensor:
        return g.value(x).sum(-1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        *saved, ctx.g = inputs
        ctx.save_for_backward(*saved)
        ctx.save_for_forward(*saved)

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> tuple[Any, ...]:
        dX, dY = apply(_Gradient, _CompiledGradient, *ctx.saved_tensors, ctx.g)
        G = G[..., None, None]
        return G * dX, G * dY, None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Tensor, int]:
        return apply(_Value, _CompiledValue, *batch_first(info.batch_size, in_dims, args)), 0

    @staticmethod
    def jvp(ctx: Any, dX: Tensor | None, dY: Tensor | None, *_: Any) -> Tensor:
        gradients = apply(_Gradient, _CompiledGradient, *ctx.saved_tensors, ctx.g)
        pairs = zip(gradients, (dX, dY), strict=True)
        terms = [frobenius(G, D) for G, D in pairs if D is not None]
        return terms[0] + terms[1] if len(terms) == 2 else terms[0]


_CompiledValue = without_jvp(_Value)


class _Gradient(Function):
    """Derivatives of the sum with respect to both points."""

    @staticmethod
    def forward(
        X: Tensor, Y: Tensor, x: Tensor, A: Tensor, B: Tensor, g: Any
    ) -> tuple[Tensor, Tensor]:
        slope = g.slope(x)[..., None, :]
        with without_autocast(X):
            return symmetrize(-(A * slope) @ A.mH), symmetrize((B * slope) @ B.mH)

    setup_context = _Value.setup_context

    @staticmethod
    def backward(ctx: Any, E: Tensor, F: Tensor) -> tuple[Any, ...]:
        dX, dY = apply(_Curvature, _CompiledCurvature, *ctx.saved_tensors, ctx.g, E, F)
        return dX, dY, None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, tuple[int, int]]:
        moved = batch_first(info.batch_size, in_dims, args)
        return apply(_Gradient, _CompiledGradient, *moved), (0, 0)

    @staticmethod
    def jvp(ctx: Any, dX: Tensor | None, dY: Tensor | None, *_: Any) -> tuple[Tensor, Tensor]:
        pairs = zip(ctx.saved_tensors[:2], (dX, dY), strict=True)
        E, F = (torch.zeros_like(X) if D is None else D for X, D in pairs)
        return apply(_Curvature, _CompiledCurvature, *ctx.saved_tensors, ctx.g, E, F)


_CompiledGradient = without_jvp(_Gradient)


class _Curvature(Function):
    """Second derivative applied to a pair of directions, linear and self-adjoint in them."""

    @staticmethod
    def forward(
        X: Tensor, Y: Tensor, x: Tensor, A: Tensor, B: Tensor, g: Any, E: Tensor, F: Tensor
    ) -> tuple[Tensor, Tensor]:
        slope = g.slope(x)
        m = (slope[..., :, None] + slope[..., None, :]) / 2
        c, e = g.curvature(x[..., :, None], x[..., None, :])
        with without_autocast(X):
            E, F = A.mH @ symmetrize(E) @ A, B.mH @ symmetrize(F) @ B
            E, F = (c + m) * E - e * F, (c - m) * F - e * E
            return symmetrize(A @ E @ A.mH), symmetrize(B @ F @ B.mH)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        *saved, ctx.g, _, _ = inputs
        ctx.save_for_backward(*saved)
        ctx.save_for_forward(*saved)

    @staticmethod
    def backward(ctx: Any, G: Tensor, H: Tensor) -> tuple[Any, ...]:
        if any(ctx.needs_input_grad[:2]):
            refuse_third_derivative("pencil_sum")
        dE, dF = apply(_Curvature, _CompiledCurvature, *ctx.saved_tensors, ctx.g, G, H)
        return None, None, None, None, None, None, dE, dF

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, tuple[int, int]]:
        moved = batch_first(info.batch_size, in_dims, args)
        return apply(_Curvature, _CompiledCurvature, *moved), (0, 0)

    @staticmethod
    def jvp(ctx: Any, dX: Tensor | None, dY: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor]:
        if dX is not None or dY is not None:
            refuse_third_derivative("pencil_sum")
        pairs = zip(ctx.saved_tensors[:2], rest[-2:], strict=True)
        dE, dF = (torch.zeros_like(X) if D is None else D for X, D in pairs)
        return apply(_Curvature, _CompiledCurvature, *ctx.saved_tensors, ctx.g, dE, dF)


_CompiledCurvature = without_jvp(_Curvature)


def _needs_derivative(X: Tensor) -> bool:
    return X.requires_grad if torch.compiler.is_compiling() else is_differentiated(X)
