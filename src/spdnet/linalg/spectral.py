r"""Spectral maps: the one autograd function behind every function of a symmetric matrix.

For :math:`X = U S U^\top` and a scalar function :math:`f`, with :math:`\tilde A = U^\top A U`,

.. math::
    f(X) &= U f(S) U^\top \\
    Df(X)[G] &= U \bigl( f[s_i, s_j] \, \tilde G_{ij} \bigr) U^\top \\
    D^2f(X)[G, V] &= U \Bigl( \sum_k f[s_i, s_k, s_j]
        (\tilde G_{ik} \tilde V_{kj} + \tilde V_{ik} \tilde G_{kj}) \Bigr) U^\top

where the brackets are the divided differences of :mod:`spdnet.linalg.scalar`. The derivative is
self-adjoint, so one formula serves forward and reverse mode. All of it is exact where eigenvalues
coincide. The third derivative is refused.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from spdnet._checks import (
    require_floating,
    require_positive_eigenvalues,
    require_square,
    require_symmetric,
)
from spdnet.linalg.eigh import eigh
from spdnet.linalg.precision import accurate_dtype, without_autocast, working_dtype
from spdnet.linalg.scalar import ScalarFunction
from spdnet.linalg.symmetric import symmetrize


def spectral_map(
    X: Tensor, f: ScalarFunction, *, check: bool = True, who: str = "spectral_map", name: str = "X"
) -> Tensor:
    r"""Apply a scalar function to the eigenvalues, :math:`f(X) = U f(S) U^\top`.

    Differentiable twice in reverse and forward mode, with vmap, compilation and export; exact at
    repeated eigenvalues; the result for one matrix does not depend on the others in the batch.

    Parameters
    ----------
    X : Tensor, shape (..., n, n)
        Symmetric matrices; only the symmetric part counts.
    f : ScalarFunction
        For example ``Log()`` or ``Power(0.3)``, or a subclass of your own.
    check : bool
        Pass over the data and refuse matrices that are not finite, not symmetric, or outside the
        domain of ``f``.
    who, name : str
        The caller and the argument that an error names.

    Returns
    -------
    Tensor, shape (..., n, n)
        Exactly symmetric.

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg import Power, spectral_map
    >>> Y = spectral_map(torch.tensor([[2.0, 0.0], [0.0, 3.0]]), Power(2.0))
    >>> Y.diagonal().round(decimals=4)
    tensor([4., 9.])
    """
    s, U = decompose(X, f, check=check, who=who, name=name)
    return map_decomposed(X, s, U, f)


def spectral_derivative(
    X: Tensor, E: Tensor, f: ScalarFunction, *, check: bool = True, who: str = "spectral_derivative"
) -> Tensor:
    r"""Frechet derivative :math:`Df(X)[E]` of a spectral map in the symmetric direction ``E``.

    Parameters
    ----------
    X, E : Tensor, shape (..., n, n)
        Symmetric matrices and directions; the leading shapes broadcast.
    f : ScalarFunction
    check, who
        As in :func:`spectral_map`.

    Returns
    -------
    Tensor, shape (..., n, n)

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg import Log, spectral_derivative
    >>> spectral_derivative(2 * torch.eye(2), torch.eye(2), Log()).diagonal().round(decimals=4)
    tensor([0.5000, 0.5000])
    """
    require_square(who, E, "E", n=X.shape[-1])
    s, U = decompose(X, f, check=check, who=who)
    shape = torch.broadcast_shapes(X.shape, E.shape)
    s, U = s.expand(shape[:-1]), U.expand(shape)
    D = _derivative(X.to(s.dtype).expand(shape), s, U, f, E.to(s.dtype).expand(shape))
    return D.to(X.dtype)


def decompose(
    X: Tensor, f: ScalarFunction, *, check: bool, who: str, name: str = "X"
) -> tuple[Tensor, Tensor]:
    """Check ``X`` and decompose it for ``f``: constants ``s, U`` in the working dtype."""
    require_square(who, X, name)
    require_floating(who, X, name)
    if check:
        require_symmetric(who, X, name)
    s, U = eigh(X.detach().to(working_dtype(X.dtype)), accurate=f.needs_small_eigenvalues)
    if check and f.needs_positive:
        require_positive_eigenvalues(who, s, name)
    return s, U


def map_decomposed(X: Tensor, s: Tensor, U: Tensor, f: ScalarFunction) -> Tensor:
    """``f(X)`` from the result of :func:`decompose`; differentiable with respect to ``X``."""
    return _derivative(X.to(s.dtype), s, U, f).to(X.dtype)


class _Derivative(Function):
    """``D^k f(X)[directions]`` for ``k`` directions, given the decomposition of ``X``.

    With no direction it is ``f(X)`` itself. The form is symmetric in its directions and
    self-adjoint in each of them, so every derivative of it, in reverse or in forward mode, is the
    same form with one direction more (for ``X``) or with one direction exchanged.
    """

    @staticmethod
    def forward(X: Tensor, s: Tensor, U: Tensor, f: ScalarFunction, *directions: Tensor) -> Tensor:
        kernel = (_value, _first, _second, _refuse_third)[len(directions)]
        with without_autocast(X):
            return kernel(s, U, f, *directions)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        X, s, U, ctx.f, *directions = inputs
        ctx.save_for_backward(X, s, U, *directions)
        ctx.save_for_forward(X, s, U, *directions)

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> tuple[Any, ...]:
        X, s, U, *directions = ctx.saved_tensors
        dX = _derivative(X, s, U, ctx.f, *directions, G) if ctx.needs_input_grad[0] else None
        exchanged = [
            _derivative(X, s, U, ctx.f, *_exchange(directions, i, G)) if needed else None
            for i, needed in enumerate(ctx.needs_input_grad[4:])
        ]
        return dX, None, None, None, *exchanged

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Tensor, int]:
        return _derivative(*_batch_first(info.batch_size, in_dims, args)), 0


class _ForwardDerivative(_Derivative):
    """With forward mode: apart, because the compiler refuses a Function that defines ``jvp``."""

    @staticmethod
    def jvp(ctx: Any, dX: Tensor | None, *rest: Any) -> Tensor:
        X, s, U, *directions = ctx.saved_tensors
        terms = [] if dX is None else [_derivative(X, s, U, ctx.f, *directions, dX)]
        for i, change in enumerate(rest[3:]):
            if change is not None:
                terms.append(_derivative(X, s, U, ctx.f, *_exchange(directions, i, change)))
        return torch.stack(terms).sum(0) if len(terms) > 1 else terms[0]


def _derivative(X: Tensor, s: Tensor, U: Tensor, f: ScalarFunction, *directions: Tensor) -> Tensor:
    function = _Derivative if torch.compiler.is_compiling() else _ForwardDerivative
    return function.apply(X, s, U, f, *directions)


def _value(s: Tensor, U: Tensor, f: ScalarFunction) -> Tensor:
    return symmetrize((U * f.value(s)[..., None, :]) @ U.mT)


def _first(s: Tensor, U: Tensor, f: ScalarFunction, G: Tensor) -> Tensor:
    H = U.mT @ symmetrize(G) @ U
    H = f.first(s[..., :, None], s[..., None, :]) * H
    return symmetrize(U @ H @ U.mT)


def _second(s: Tensor, U: Tensor, f: ScalarFunction, G: Tensor, V: Tensor) -> Tensor:
    n, dtype, accurate = s.shape[-1], G.dtype, accurate_dtype(G)
    s, U, G, V = (x.to(accurate) for x in (s, U, G, V))
    G = U.mT @ symmetrize(G) @ U
    V = U.mT @ symmetrize(V) @ U
    M = torch.zeros_like(G)
    # n^3 coefficients, in slices over k so that they need not all be there at once
    for k in range(0, n, step := max(1, 2**18 // n**2)):
        middle = s[..., None, k : k + step, None]
        c = f.second(s[..., :, None, None], middle, s[..., None, None, :])
        M = M + (c * G[..., :, k : k + step, None] * V[..., None, k : k + step, :]).sum(-2)
    return symmetrize(U @ (M + M.mT) @ U.mT).to(dtype)


def _refuse_third(*_: Any) -> Tensor:
    raise NotImplementedError(
        "spectral_map: the third derivative is not available; the first and second are exact. "
        "Detach the second derivative if you did not mean to differentiate it"
    )


def _exchange(directions: list[Tensor], i: int, G: Tensor) -> list[Tensor]:
    return [*directions[:i], G, *directions[i + 1 :]]


def _batch_first(size: int, in_dims: tuple[Any, ...], args: tuple[Any, ...]) -> list[Any]:
    """Every tensor with the batch of vmap as its first dimension."""

    def moved(x: Any, dim: int | None) -> Any:
        if not isinstance(x, Tensor):
            return x
        return x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)

    return [moved(x, dim) for x, dim in zip(args, in_dims, strict=True)]
