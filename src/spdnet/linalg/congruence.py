r"""The congruence :math:`W^\top X W`, with a derivative that uses the symmetry of :math:`X`.

For symmetric :math:`X`, and the symmetric part :math:`\tilde G` of the gradient of the result,

.. math::
    \frac{\partial L}{\partial W} = 2 (W^\top X)^\top \tilde G, \qquad
    \frac{\partial L}{\partial X} = W \tilde G W^\top .

:math:`W^\top X` is known from the forward pass, so the gradient of a weight is one product, summed
over the batch; automatic differentiation would multiply by :math:`X` once more.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from spdnet._autograd import apply, batch_first, without_jvp
from spdnet._precision import without_autocast, working_dtype
from spdnet.linalg.products import (
    left_multiply,
    prefers_right,
    right_multiply,
    sum_of_products,
)
from spdnet.linalg.symmetric import symmetrize


def congruence(X: Tensor, W: Tensor) -> Tensor:
    r"""Compute the congruence :math:`W^\top X W`, exactly symmetric for symmetric ``X``.

    Half precision is computed in float32; rounded to eight bits, a matrix may become indefinite.

    Parameters
    ----------
    X : Tensor, shape (..., n, n)
        Symmetric matrices.
    W : Tensor, shape (..., n, k)
        Any matrices with ``n`` rows; leading dimensions broadcast.

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
    if W.ndim == 2 and X.ndim == 3:  # the case of a layer: many matrices, one weight
        Y, _ = apply(_Congruence, _CompiledCongruence, X, W)
    else:
        with without_autocast(X):
            Y = symmetrize(W.mH @ (X @ W))
    return Y.to(out_dtype)


class _Congruence(Function):
    """``sym(W^T X W)`` and ``W^T X`` for symmetric ``X (B, n, n)`` and ``W (n, k)``."""

    @staticmethod
    def forward(X: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:
        with without_autocast(X):
            Q = _transposed_product(X, W)
            Y = right_multiply(Q, W / 2)
            return Y + Y.mH, Q

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        X, W = inputs
        ctx.save_for_backward(X, W, output[1])
        ctx.save_for_forward(X, W, output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, G: Tensor | None, H: Tensor | None) -> tuple[Any, Any]:
        X, W, Q = ctx.saved_tensors
        dX = dW = None
        with without_autocast(X):
            if G is not None:
                G = G + G.mH
                if ctx.needs_input_grad[0]:
                    dX = _spread(G, W)
                if ctx.needs_input_grad[1]:
                    dW = sum_of_products(G, Q).mH
            if H is not None:  # gradient of the second result, for second derivatives
                dX = _add_optional(dX, left_multiply(W, H)) if ctx.needs_input_grad[0] else None
                dW = _add_optional(dW, (X @ H.mH).sum(0)) if ctx.needs_input_grad[1] else None
        return dX, dW

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        X, W = batch_first(info.batch_size, in_dims, args)
        with without_autocast(X):
            Q = W.mH[:, None] @ X
            return (symmetrize(Q @ W[:, None]), Q), (0, 0)

    @staticmethod
    def jvp(ctx: Any, dX: Tensor | None, dW: Tensor | None) -> tuple[Tensor, Tensor]:
        X, W, Q = ctx.saved_tensors
        with without_autocast(X):
            dQ = _add_optional(
                None if dX is None else left_multiply(W.mH, dX),
                None if dW is None else left_multiply(dW.mH, X),
            )
            assert dQ is not None  # at least one is given
            dY = right_multiply(dQ, W)
            if dW is not None:
                dY = dY + right_multiply(Q, dW)
            return symmetrize(dY), dQ


_CompiledCongruence = without_jvp(_Congruence)


def _transposed_product(X: Tensor, W: Tensor) -> Tensor:
    """Compute ``W^T X`` for symmetric ``X (B, n, n)``."""
    if prefers_right(X, W):
        return right_multiply(X, W).mT.contiguous()
    return left_multiply(W.mH, X)


def _spread(G: Tensor, W: Tensor) -> Tensor:
    """Compute ``W G W^T / 2`` for symmetric ``G (B, k, k)``."""
    R = right_multiply(G, W.mH)
    if prefers_right(R, W.mH):
        return right_multiply(R.mT.contiguous(), W.mH / 2)
    return left_multiply(W / 2, R)


def _add_optional(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if a is None or b is None:
        return b if a is None else a
    return a + b
