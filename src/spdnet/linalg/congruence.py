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
            Q = _left_multiply(W.mH, X)
            Y = _right_multiply(Q, W / 2)
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
                    dX = _left_multiply(W / 2, _right_multiply(G, W.mH))
                if ctx.needs_input_grad[1]:
                    dW = _sum_of_products(G, Q).mH
            if H is not None:  # gradient of the second result, for second derivatives
                dX = _add_optional(dX, _left_multiply(W, H)) if ctx.needs_input_grad[0] else None
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
                None if dX is None else _left_multiply(W.mH, dX),
                None if dW is None else _left_multiply(dW.mH, X),
            )
            assert dQ is not None  # at least one is given
            dY = _right_multiply(dQ, W)
            if dW is not None:
                dY = dY + _right_multiply(Q, dW)
            return symmetrize(dY), dQ


_CompiledCongruence = without_jvp(_Congruence)


# torch's matmul copies a transposed batch; these forms do not


def _left_multiply(A: Tensor, X: Tensor) -> Tensor:
    """Compute ``A X_b`` of ``(m, n)`` and ``(B, n, k)``."""
    return torch.bmm(A.expand(X.shape[0], *A.shape), X)


def _right_multiply(X: Tensor, A: Tensor) -> Tensor:
    """Compute ``X_b A`` of ``(B, m, n)`` and ``(n, k)`` as one product."""
    B, m, n = X.shape
    return (X.reshape(B * m, n) @ A).view(B, m, A.shape[-1])


def _sum_of_products(A: Tensor, B: Tensor) -> Tensor:
    """Compute ``sum_b A_b^H B_b`` of ``(B, k, m)`` and ``(B, k, n)``, one product per thread."""
    A, B = A.flatten(0, 1), B.flatten(0, 1)
    threads = 1
    if A.device.type == "cpu" and not torch.compiler.is_compiling():
        threads = torch.get_num_threads()
    if threads == 1 or len(A) == 0 or len(A) % threads != 0:
        return A.mH @ B
    return (A.unflatten(0, (threads, -1)).mH @ B.unflatten(0, (threads, -1))).sum(0)


def _add_optional(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if a is None or b is None:
        return b if a is None else a
    return a + b
