"""Reference implementations: textbook formulas in 120-digit arithmetic."""

import mpmath as mp
import torch
from torch import Tensor

from spdnet.linalg import Clamp, Exp, InvSqrt, Log, Power, ScalarFunction, Sigmoid, Softplus, Sqrt
from spdnet.linalg.scalar import ClampedExp

mp.mp.dps = 120


def scalar(f: ScalarFunction, x):
    """Compute ``f(x)``."""
    match f:
        case Log():
            return mp.log(x)
        case Exp():
            return mp.exp(x)
        case Sqrt():
            return mp.sqrt(x)
        case InvSqrt():
            return 1 / mp.sqrt(x)
        case Power(p):
            return x ** mp.mpf(p)
        case Clamp(eps):
            return max(x, mp.mpf(eps))
        case ClampedExp(eps):
            return max(mp.exp(x), mp.mpf(eps))
        case Softplus(eps, beta):
            return mp.mpf(eps) + mp.log1p(mp.exp(mp.mpf(beta) * (x - mp.mpf(eps)))) / mp.mpf(beta)
        case Sigmoid(beta):
            return 1 / (1 + mp.exp(-mp.mpf(beta) * x))
    raise TypeError(f)


def divided_difference(f: ScalarFunction, *points: float):
    """Compute a divided difference of any order; equal points are separated by 1e-20."""
    shift = mp.mpf(10) ** -20
    points = sorted(mp.mpf(p) * (1 + points[:k].count(p) * shift) for k, p in enumerate(points))

    def recurse(xs):
        if len(xs) == 1:
            return scalar(f, xs[0])
        return (recurse(xs[1:]) - recurse(xs[:-1])) / (xs[-1] - xs[0])

    return float(recurse(points))


def spectral_map(X: Tensor, f: ScalarFunction):
    """Compute ``f(X)`` of one matrix as an mpmath matrix."""
    return _map(_to_mp(X), f)


def spectral_derivative(X: Tensor, E: Tensor, f: ScalarFunction) -> Tensor:
    """Compute ``Df(X)[E]`` by a central difference with a step of 1e-20."""
    h = mp.mpf(10) ** -20
    X, E = _to_mp(X), _to_mp(E)
    return to_tensor((_map(X + h * E, f) - _map(X - h * E, f)) / (2 * h))


def spectral_second_derivative(X: Tensor, G: Tensor, V: Tensor, f: ScalarFunction) -> Tensor:
    """Compute ``D2f(X)[G, V]`` by central differences with steps of 1e-20."""
    h = mp.mpf(10) ** -20
    X, G, V = _to_mp(X), h * _to_mp(G), h * _to_mp(V)
    corners = _map(X + G + V, f) - _map(X + G - V, f) - _map(X - G + V, f) + _map(X - G - V, f)
    return to_tensor(corners / (4 * h**2))


def to_tensor(A) -> Tensor:
    is_complex = any(isinstance(x, mp.mpc) for x in A)
    kind, dtype = (complex, torch.complex128) if is_complex else (float, torch.float64)
    rows = [[kind(A[i, j]) for j in range(A.cols)] for i in range(A.rows)]
    return torch.tensor(rows, dtype=dtype)


def _map(X, f: ScalarFunction):
    s, U = mp.eigh(X)
    return U * mp.diag([scalar(f, x) for x in s]) * U.H


def _to_mp(X: Tensor):
    return mp.matrix([[mp.mpmathify(x) for x in row] for row in X.tolist()])
