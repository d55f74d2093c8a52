r"""The congruence :math:`W^\top X W`, with the derivative that symmetry makes cheap.

For symmetric :math:`X`, and the symmetric part :math:`\tilde G` of the gradient of the result,

.. math::
    \frac{\partial L}{\partial W} = 2 (X W) \tilde G, \qquad
    \frac{\partial L}{\partial X} = W \tilde G W^\top .

:math:`X W` is there from the forward pass, so that the gradient of a weight is one small product,
where automatic differentiation would multiply by :math:`X` once more.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from spdnet._autograd import batch_first
from spdnet._precision import without_autocast, working_dtype
from spdnet.linalg.symmetric import symmetrize


def congruence(X: Tensor, W: Tensor) -> Tensor:
    r"""Congruence :math:`W^\top X W`, exactly symmetric for symmetric ``X``.

    The product is formed as ``W.mT @ (X @ W)``, the cheap order for a ``W`` that
    reduces the dimension, and never in half precision: a matrix rounded to eight
    bits is no longer positive definite.

    Parameters
    ----------
    X : Tensor, shape (..., n, n)
        Symmetric matrices.
    W : Tensor, shape (..., n, k)
        Any matrices with ``n`` rows; the leading shapes broadcast.

    Returns
    -------
    Tensor, shape (..., k, k)

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg import congruence
    >>> congruence(torch.diag(torch.tensor([1.0, 2.0, 3.0])), torch.eye(3)[:, :2])
    tensor([[1., 0.],
            [0., 2.]])
    """
    out_dtype = torch.promote_types(X.dtype, W.dtype)
    dtype = working_dtype(out_dtype)
    X, W = X.to(dtype), W.to(dtype)
    if W.ndim == 2 and X.ndim == 3:  # many matrices, one weight: what a layer does
        Y, _ = _congruence(X, W)
    else:
        with without_autocast(X):
            Y = symmetrize(W.mT @ (X @ W))
    return Y.to(out_dtype)


class _Congruence(Function):
    """``sym(W^T X W)`` and ``X W`` for symmetric ``X (B, n, n)`` and ``W (n, k)``."""

    @staticmethod
    def forward(X: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:
        with without_autocast(X):
            P = X @ W
            return symmetrize(W.mT @ P), P

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        X, W = inputs
        ctx.save_for_backward(X, W, output[1])
        ctx.save_for_forward(X, W, output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, G: Tensor | None, H: Tensor | None) -> tuple[Any, Any]:
        X, W, P = ctx.saved_tensors
        dX = dW = None
        with without_autocast(X):
            if G is not None:
                G = symmetrize(G)
                dX = W @ G @ W.mT if ctx.needs_input_grad[0] else None
                dW = 2 * _sum_of_products(P, G) if ctx.needs_input_grad[1] else None
            if H is not None:  # of the second result, where a second derivative is taken
                dX = _plus(dX, H @ W.mT) if ctx.needs_input_grad[0] else None
                dW = _plus(dW, _sum_of_products(X.mT, H)) if ctx.needs_input_grad[1] else None
        return dX, dW

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        X, W = batch_first(info.batch_size, in_dims, args)
        with without_autocast(X):
            P = X @ W[:, None]
            return (symmetrize(W.mT[:, None] @ P), P), (0, 0)


class _ForwardCongruence(_Congruence):
    """With forward mode: apart, because the compiler refuses a Function that defines ``jvp``."""

    @staticmethod
    def jvp(ctx: Any, dX: Tensor | None, dW: Tensor | None) -> tuple[Tensor, Tensor]:
        X, W, P = ctx.saved_tensors
        with without_autocast(X):
            dP = _plus(None if dX is None else dX @ W, None if dW is None else X @ dW)
            assert dP is not None  # called with at least one of them
            dY = W.mT @ dP
            if dW is not None:
                dY = dY + dW.mT @ P
            return symmetrize(dY), dP


def _congruence(X: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:
    if not torch.compiler.is_compiling():
        return _ForwardCongruence.apply(X, W)
    wanted = torch.is_grad_enabled() and (X.requires_grad or W.requires_grad)
    if wanted and not torch.compiler.is_exporting():
        return _Congruence.apply(X, W)
    return _Congruence.forward(X, W)  # not every tracer takes a Function; these are plain products


def _sum_of_products(A: Tensor, B: Tensor) -> Tensor:
    """``sum_b A_b B_b`` of ``(B, n, k)`` and ``(B, k, m)``."""
    return (A @ B).sum(0)


def _plus(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if a is None or b is None:
        return b if a is None else a
    return a + b
