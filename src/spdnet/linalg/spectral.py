r"""Spectral maps: the autograd function behind every function of a symmetric matrix.

For :math:`X = U S U^\top` and a scalar function :math:`f`, with :math:`\tilde A = U^\top A U`,

.. math::
    f(X) &= U f(S) U^\top \\
    Df(X)[G] &= U \bigl( f[s_i, s_j] \, \tilde G_{ij} \bigr) U^\top \\
    D^2f(X)[G, V] &= U \Bigl( \sum_k f[s_i, s_k, s_j]
        (\tilde G_{ik} \tilde V_{kj} + \tilde V_{ik} \tilde G_{kj}) \Bigr) U^\top

where the brackets are the divided differences of :mod:`spdnet.linalg.scalar`. The derivative is
self-adjoint, so one formula serves forward and reverse mode. All of it is exact where eigenvalues
coincide. The third derivative is not available.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from spdnet._autograd import apply, batch_first, constant, refuse_third_derivative, without_jvp
from spdnet._checks import require_pair, require_square
from spdnet._precision import accurate_dtype, real_dtype, without_autocast, working_dtype
from spdnet.linalg import clamped
from spdnet.linalg.eigh import constant_eigh
from spdnet.linalg.scalar import Clamp, Log, ScalarFunction
from spdnet.linalg.symmetric import symmetrize
from spdnet.linalg.validate import require_finite, require_positive_eigenvalues, require_symmetric


def spectral_map(
    X: Tensor, f: ScalarFunction, *, check: bool = True, who: str = "spectral_map", name: str = "X"
) -> Tensor:
    r"""Apply a scalar function to the eigenvalues, :math:`f(X) = U f(S) U^\top`.

    The result is exactly symmetric and twice differentiable in reverse and forward mode, with vmap
    and compilation; exact at repeated eigenvalues; independent of the other matrices in the batch.
    A program of torch.export has no derivative.

    Parameters
    ----------
    X : Tensor, shape (..., n, n)
        Only the symmetric part is used.
    f : ScalarFunction
        For example ``Log()`` or ``Power(0.3)``, or your own subclass.
    check : bool
        Raise a ValueError for matrices that are not finite, not symmetric, or outside the domain of
        ``f``.
    who, name : str
        Caller and argument named in errors.

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg import Power, spectral_map
    >>> spectral_map(torch.diag(torch.tensor([2.0, 3.0])), Power(2.0)).diagonal().round(decimals=4)
    tensor([4., 9.])
    """
    s, U = decompose(X, f, check=check, who=who, name=name)
    return map_decomposed(X, s, U, f)


def spectral_derivative(
    X: Tensor,
    E: Tensor,
    f: ScalarFunction,
    *,
    check: bool = True,
    who: str = "spectral_derivative",
    name: str = "E",
) -> Tensor:
    """Compute the Frechet derivative :math:`Df(X)[E]` of a spectral map in the direction ``E``.

    Parameters
    ----------
    X, E : Tensor, shape (..., n, n)
        Only the symmetric parts are used; leading dimensions broadcast.
    f : ScalarFunction
    check, who, name
        As in :func:`spectral_map`; ``name`` is that of the direction.

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg import Log, spectral_derivative
    >>> spectral_derivative(2 * torch.eye(2), torch.eye(2), Log()).diagonal().round(decimals=4)
    tensor([0.5000, 0.5000])
    """
    require_pair(who, X, E, name)
    if check:
        require_finite(who, E, name)
    s, U = decompose(X, f, check=check, who=who)
    shape = torch.broadcast_shapes(X.shape, E.shape)
    s, U = s.expand(shape[:-1]), U.expand(shape)
    D = _derivative(X.to(U.dtype).expand(shape), s, U, f, E.to(U.dtype).expand(shape))
    return D.to(X.dtype)


def decompose(
    X: Tensor, f: ScalarFunction, *, check: bool, who: str, name: str = "X"
) -> tuple[Tensor, Tensor]:
    """Validate ``X`` and decompose it for ``f``: constants ``s, U`` in the working dtype."""
    require_square(who, X, name)
    if not isinstance(f, ScalarFunction):
        raise TypeError(
            f"{who}: expected f to be a ScalarFunction such as spdnet.linalg.Log(), got {f!r}"
        )
    if check:
        require_symmetric(who, X, name)
    X = constant(X.to(working_dtype(X.dtype)))
    s, U = constant_eigh(X, accurate=f.needs_small_eigenvalues)
    if check and f.needs_positive:
        require_positive_eigenvalues(who, s, name)
    return s, U


def map_decomposed(X: Tensor, s: Tensor, U: Tensor, f: ScalarFunction) -> Tensor:
    """Compute ``f(X)`` from the result of :func:`decompose`; differentiable in ``X``."""
    return _derivative(X.to(U.dtype), s, U, f).to(X.dtype)


def map_together(*pairs: tuple[Tensor, ScalarFunction]) -> list[Tensor]:
    """Apply a function to each of several single matrices, with one call of the solver.

    On a GPU, the solver takes about as long for several matrices as for one.
    """
    if not pairs:
        return []
    together = torch.stack([X.detach() for X, _ in pairs])
    s, U = decompose(together, Log(), check=False, who="map_together")
    return [map_decomposed(X, s[i], U[i], f) for i, (X, f) in enumerate(pairs)]


class _Derivative(Function):
    """``D^k f(X)[directions]`` for ``k`` directions, given the decomposition of ``X``.

    Without directions it is ``f(X)`` itself. The form is symmetric in its directions and
    self-adjoint in each, so every derivative in reverse or forward mode is the same form with one
    more direction (for ``X``) or with one direction exchanged.
    """

    @staticmethod
    def forward(
        X: Tensor, s: Tensor, U: Tensor, p: Tensor | None, f: ScalarFunction, *directions: Tensor
    ) -> Tensor:
        f = f if p is None else f.bind(p)
        with without_autocast(X):
            if len(directions) < 2 and isinstance(f, Clamp) and clamped.is_faster(s):
                if directions:
                    return clamped.first(s, U, f, *directions)
                return clamped.value(X, s, U, f)
            if len(directions) > 2:
                refuse_third_derivative("spectral_map")
            return (_value, _first, _second)[len(directions)](s, U, f, *directions)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        X, s, U, p, ctx.f, *directions = inputs
        ctx.save_for_backward(X, s, U, p, *directions)
        ctx.save_for_forward(X, s, U, p, *directions)

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> tuple[Any, ...]:
        *point, directions = _saved(ctx)
        dX = _derivative(*point, *directions, G) if ctx.needs_input_grad[0] else None
        exchanged = [
            _derivative(*point, *_exchange(directions, i, G)) if needed else None
            for i, needed in enumerate(ctx.needs_input_grad[5:])
        ]
        return dX, None, None, None, None, *exchanged

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Tensor, int]:
        X, s, U, p, f, *directions = batch_first(info.batch_size, in_dims, args)
        return _derivative(X, s, U, f if p is None else f.bind(p), *directions), 0

    @staticmethod
    def jvp(ctx: Any, dX: Tensor | None, *rest: Any) -> Tensor:
        *point, directions = _saved(ctx)
        terms = [] if dX is None else [_derivative(*point, *directions, dX)]
        for i, change in enumerate(rest[4:]):
            if change is not None:
                terms.append(_derivative(*point, *_exchange(directions, i, change)))
        return torch.stack(terms).sum(0) if len(terms) > 1 else terms[0]


_CompiledDerivative = without_jvp(_Derivative)


def _derivative(X: Tensor, s: Tensor, U: Tensor, f: ScalarFunction, *directions: Tensor) -> Tensor:
    # pass the tensor of f separately, so that autograd and vmap see it
    p = f.parameter
    f = f if p is None else f.bind(None)
    return apply(_Derivative, _CompiledDerivative, X, s, U, p, f, *directions)


def _saved(ctx: Any) -> tuple[Any, ...]:
    """Return ``X, s, U, f, directions`` of a context."""
    X, s, U, p, *directions = ctx.saved_tensors
    return X, s, U, ctx.f if p is None else ctx.f.bind(p), directions


def _value(s: Tensor, U: Tensor, f: ScalarFunction) -> Tensor:
    return symmetrize((U * f.value(s)[..., None, :]) @ U.mH)


def _first(s: Tensor, U: Tensor, f: ScalarFunction, G: Tensor) -> Tensor:
    H = f.first(s[..., :, None], s[..., None, :]) * (U.mH @ G @ U)
    return symmetrize(U @ H @ U.mH)  # also makes the derivative that in the direction sym(G)


def _second(s: Tensor, U: Tensor, f: ScalarFunction, G: Tensor, V: Tensor) -> Tensor:
    dtype, accurate = G.dtype, accurate_dtype(G)
    s = s.to(real_dtype(accurate))
    U, G, V = (x.to(accurate) for x in (U, G, V))
    G = U.mH @ symmetrize(G) @ U
    V = U.mH @ symmetrize(V) @ U
    # n^3 coefficients per matrix: process a few matrices at a time to bound memory
    n, shape, p = s.shape[-1], G.shape, f.parameter
    few = max(1, 2**22 // n**3)
    stacks = (s.expand(shape[:-1]), G, V)
    pieces = [x.reshape(-1, *x.shape[len(shape) - 2 :]).split(few) for x in stacks]
    functions = [f] * len(pieces[0])
    if p is not None:  # one per matrix
        every = p.reshape(p.shape + (1,) * (len(shape) - 2 - p.ndim)).expand(shape[:-2])
        functions = [f.bind(part) for part in every.reshape(-1).split(few)]
    M = torch.cat(list(map(_second_in_eigenbasis, *pieces, functions))).reshape(shape)
    return symmetrize(U @ (M + M.mH) @ U.mH).to(dtype)


def _second_in_eigenbasis(s: Tensor, G: Tensor, V: Tensor, f: ScalarFunction) -> Tensor:
    n = s.shape[-1]
    step = max(1, 2**18 // n**2)  # slices of the middle index bound the memory of large matrices
    M = torch.zeros_like(G)
    for k in range(0, n, step):
        middle = s[..., None, k : k + step, None]
        c = f.second(s[..., :, None, None], middle, s[..., None, None, :])
        M = M + (c * G[..., :, k : k + step, None] * V[..., None, k : k + step, :]).sum(-2)
    return M


def _exchange(directions: list[Tensor], i: int, G: Tensor) -> list[Tensor]:
    return [*directions[:i], G, *directions[i + 1 :]]
