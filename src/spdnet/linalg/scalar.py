r"""Scalar functions and their divided differences, from which spectral maps are differentiated.

A spectral function :math:`f(X) = U f(S) U^\top` is differentiated through the divided
differences of its scalar function,

.. math::
    f[a, b] = \frac{f(a) - f(b)}{a - b}, \qquad
    f[a, b, c] = \frac{f[a, b] - f[b, c]}{a - c},

extended to :math:`f'(a)` and :math:`f''(a) / 2` where the arguments coincide. Each function
evaluates them without subtracting nearly equal numbers, so ties and near ties need no threshold.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

#: eight nodes and weights on [0, 1]: accurate to rounding for a softplus over a unit interval
_GAUSS_LEGENDRE = [
    (float(node + 1) / 2, float(weight) / 2)
    for node, weight in zip(*numpy.polynomial.legendre.leggauss(8), strict=True)
]


class ScalarFunction:
    """Function of one eigenvalue, with the divided differences of its spectral map.

    Subclass it to pass your own function to :func:`spdnet.linalg.spectral_map`. All methods are
    elementwise and broadcast; ``first`` and ``second`` are symmetric in their arguments.

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg import ScalarFunction, spectral_map
    >>> class Square(ScalarFunction):
    ...     def value(self, s):
    ...         return s**2
    ...     def first(self, a, b):
    ...         return a + b
    >>> spectral_map(torch.diag(torch.tensor([1.0, 3.0])), Square()).diagonal()
    tensor([1., 9.])
    """

    #: eigenvalues must be positive
    needs_positive: ClassVar[bool] = False
    #: small eigenvalues need relative accuracy
    needs_small_eigenvalues: ClassVar[bool] = False

    @property
    def parameter(self) -> Tensor | None:
        """Tensor of the leading shape of ``X`` that the function holds as a constant, or None."""
        return None

    def bind(self, parameter: Tensor | None) -> "ScalarFunction":
        """Return the same function with another tensor, or with None."""
        return self

    def value(self, s: Tensor) -> Tensor:
        """Compute ``f(s)``."""
        raise NotImplementedError(f"{type(self).__name__} does not define value(s)")

    def first(self, a: Tensor, b: Tensor) -> Tensor:
        """Compute ``f[a, b]``, and ``f'(a)`` where ``a == b``."""
        raise NotImplementedError(f"{type(self).__name__} does not define first(a, b)")

    def second(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        """Compute ``f[a, b, c]``, and ``f''(a) / 2`` where all three are equal."""
        raise NotImplementedError(
            f"{type(self).__name__} has no second derivative: define second(a, b, c), the second "
            "divided difference, to differentiate its spectral map twice"
        )


@dataclass(frozen=True)
class Log(ScalarFunction):
    """``log(s)`` for ``s > 0``.

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg import Log
    >>> Log().first(torch.tensor(2.0), torch.tensor(2.0))  # the derivative, 1 / 2
    tensor(0.5000)
    """

    needs_positive = True
    needs_small_eigenvalues = True

    def value(self, s: Tensor) -> Tensor:
        return s.log()

    def first(self, a: Tensor, b: Tensor) -> Tensor:
        gap, lo = (a - b).abs(), torch.minimum(a, b)
        # 2^-100 stands for 0: log1p(t) / t is 1
        relative = (gap / lo).clamp(min=2.0**-100)
        near = torch.log1p(relative) / relative / lo
        # logarithms of the arguments, which are fewer than the pairs
        far = (a.log() - b.log()).abs() / gap
        return torch.where(relative > 1, far, near)

    def second(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        # log is the inverse of exp, and f[a,b,c] = -g[x,y,z] f[a,b] f[b,c] f[a,c] for g = 1/f
        a, b, c = _sort3(a, b, c)
        steepness = _exp_second(a, b, _log_ratio(a, b), _log_ratio(b, c))
        return -steepness * self.first(a, b) * self.first(b, c) * self.first(a, c)


@dataclass(frozen=True)
class Exp(ScalarFunction):
    """``exp(s)``.

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg import Exp
    >>> Exp().value(torch.tensor(0.0)), Exp().first(torch.tensor(0.0), torch.tensor(0.0))
    (tensor(1.), tensor(1.))
    """

    def value(self, s: Tensor) -> Tensor:
        return s.exp()

    def first(self, a: Tensor, b: Tensor) -> Tensor:
        hi, lo = _sort2(a, b)
        return hi.exp() * _phi1(lo - hi)

    def second(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        a, b, c = _sort3(a, b, c)
        return _exp_second(a.exp(), b.exp(), a - b, b - c)


@dataclass(frozen=True)
class Sqrt(ScalarFunction):
    """``sqrt(s)`` for ``s > 0``.

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg import Sqrt
    >>> Sqrt().first(torch.tensor(9.0), torch.tensor(1.0))  # (3 - 1) / (9 - 1)
    tensor(0.2500)
    """

    needs_positive = True
    needs_small_eigenvalues = True

    def value(self, s: Tensor) -> Tensor:
        return s.sqrt()

    def first(self, a: Tensor, b: Tensor) -> Tensor:
        return 1 / (a.sqrt() + b.sqrt())

    def second(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return -self.first(a, b) * self.first(b, c) * self.first(a, c)


@dataclass(frozen=True)
class InvSqrt(ScalarFunction):
    """``1 / sqrt(s)`` for ``s > 0``.

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg import InvSqrt
    >>> InvSqrt().value(torch.tensor(4.0))
    tensor(0.5000)
    """

    needs_positive = True
    needs_small_eigenvalues = True

    def value(self, s: Tensor) -> Tensor:
        return s.rsqrt()

    def first(self, a: Tensor, b: Tensor) -> Tensor:
        a, b = a.sqrt(), b.sqrt()
        return -1 / (a * b * (a + b))

    def second(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        a, b, c = a.sqrt(), b.sqrt(), c.sqrt()
        return (a + b + c) / (a * b * c) / ((a + b) * (b + c) * (a + c))


@dataclass(frozen=True)
class Power(ScalarFunction):
    """``s ** p`` for ``s > 0`` and any real ``p``.

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg import Power
    >>> Power(-1.0).value(torch.tensor(4.0))
    tensor(0.2500)
    """

    p: float
    needs_positive = True
    needs_small_eigenvalues = True

    def value(self, s: Tensor) -> Tensor:
        return s**self.p

    def first(self, a: Tensor, b: Tensor) -> Tensor:
        # exp(p x) after x = log(s), by the chain rule of divided differences
        hi, lo = _sort2(a, b)
        return self._first_in_log(hi, lo) * Log().first(hi, lo)

    def second(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        a, b, c = _sort3(a, b, c)
        apart = (self.first(a, b) - self.first(b, c)) / (a - c)
        upper, lower = self.p * _log_ratio(a, b), self.p * _log_ratio(b, c)
        if self.p >= 0:
            curvature = _exp_second(a**self.p, b**self.p, upper, lower)
        else:  # a negative power reverses the order
            curvature = _exp_second(c**self.p, b**self.p, -lower, -upper)
        log = Log()
        slope = self._first_in_log(a, b)
        bend = self.p**2 * curvature * log.first(a, c) * log.first(b, c)
        close = slope * log.second(a, b, c) + bend
        return torch.where(a > 2 * c, apart, close)

    def _first_in_log(self, hi: Tensor, lo: Tensor) -> Tensor:
        """Compute the divided difference of ``exp(p x)`` at two logarithms from the larger."""
        top = hi if self.p >= 0 else lo
        return self.p * top**self.p * _phi1(-abs(self.p) * _log_ratio(hi, lo))


@dataclass(frozen=True)
class _Thresholded(ScalarFunction):
    """Function with a threshold, one number or one for each matrix."""

    eps: float | Tensor | None

    @property
    def parameter(self) -> Tensor | None:
        return self.eps if isinstance(self.eps, Tensor) else None

    def bind(self, parameter: Tensor | None) -> "_Thresholded":
        return type(self)(parameter)


@dataclass(frozen=True)
class Clamp(_Thresholded):
    """``max(eps, s)``, with derivative 1 at ``s == eps`` as in :func:`torch.clamp`.

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg import Clamp
    >>> Clamp(0.5).value(torch.tensor([2.0, 0.1]))
    tensor([2.0000, 0.5000])
    """

    def value(self, s: Tensor) -> Tensor:
        return torch.clamp(s, min=self.threshold(s))

    def first(self, a: Tensor, b: Tensor) -> Tensor:
        hi, lo = _sort2(a, b)
        eps = self.threshold(a)
        mixed = (hi - eps) / (hi - lo)
        return torch.where(lo >= eps, 1.0, torch.where(hi >= eps, mixed, 0.0))

    def second(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        a, b, c = _sort3(a, b, c)
        eps = self.threshold(a)
        one_clipped = (eps - c) / (a - c) / (b - c)
        two_clipped = (a - eps) / (a - b) / (a - c)
        some = torch.where(b >= eps, one_clipped, two_clipped)
        return torch.where((a >= eps) & (c < eps), some, 0.0)

    def threshold(self, s: Tensor) -> Any:
        """Return the threshold in a form that broadcasts with ``s``."""
        if not isinstance(self.eps, Tensor):
            return self.eps
        eps = self.eps.to(s)
        return eps.reshape(eps.shape + (1,) * (s.ndim - eps.ndim))


@dataclass(frozen=True)
class ClampedExp(_Thresholded):
    """``max(eps, exp(s))`` for ``eps >= 0``: the exponential of a clamp at ``log(eps)``.

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg.scalar import ClampedExp
    >>> ClampedExp(0.5).value(torch.tensor([0.0, -2.0]))
    tensor([1.0000, 0.5000])
    """

    def value(self, s: Tensor) -> Tensor:
        return Clamp(self.eps).value(s.exp())

    def first(self, a: Tensor, b: Tensor) -> Tensor:
        clamp = self.inner(a)
        return Exp().first(clamp.value(a), clamp.value(b)) * clamp.first(a, b)

    def second(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        # the chain rule of divided differences; no term is negative
        clamp, exp = self.inner(a), Exp()
        a, b, c = _sort3(a, b, c)
        x, y, z = clamp.value(a), clamp.value(b), clamp.value(c)
        slope = exp.first(x, y) * clamp.second(a, b, c)
        return slope + exp.second(x, y, z) * clamp.first(a, c) * clamp.first(b, c)

    def inner(self, s: Tensor) -> Clamp:
        """Return the clamp of the exponents ``s``."""
        if isinstance(self.eps, Tensor):
            return Clamp(self.eps.to(s).clamp(min=0).log())
        return Clamp(math.log(self.eps) if self.eps else -math.inf)


@dataclass(frozen=True)
class Softplus(ScalarFunction):
    """``eps + softplus(beta (s - eps)) / beta``, a smooth ``max(eps, s)`` of width ``1 / beta``.

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg import Softplus
    >>> Softplus(0.5, 100.0).value(torch.tensor([2.0, 0.1]))
    tensor([2.0000, 0.5000])
    """

    eps: float
    beta: float

    def value(self, s: Tensor) -> Tensor:
        x = self._scaled(s)
        return self.eps + torch.logaddexp(x, torch.zeros_like(x)) / self.beta

    def first(self, a: Tensor, b: Tensor) -> Tensor:
        return self._first(*_sort2(self._scaled(a), self._scaled(b)))

    def second(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        a, b, c = _sort3(self._scaled(a), self._scaled(b), self._scaled(c))
        spread = a - c
        apart = (self._first(a, b) - self._first(b, c)) / spread
        # close together: the same difference as an integral of positive terms
        close = torch.zeros_like(spread)
        for u, weight in _GAUSS_LEGENDRE:
            slope = torch.sigmoid(b + u * (a - b)) * torch.sigmoid(u * (b - c) - b)
            close = close + weight * u * slope * _phi1(-u * spread)
        return self.beta * torch.where(spread < 1, close, apart)

    def _scaled(self, s: Tensor) -> Tensor:
        return self.beta * (s - self.eps)

    @staticmethod
    def _first(a: Tensor, b: Tensor) -> Tensor:
        gap = a - b
        growth = torch.sigmoid(b) * _phi1(gap.clamp(max=1))
        t = growth * gap
        close = _ratio(torch.log1p(t), t, torch.ones_like(t)) * growth
        apart = torch.logaddexp(gap + logsigmoid(b), logsigmoid(-b))
        return torch.where(gap < 1, close, _ratio(apart, gap, apart))


@dataclass(frozen=True)
class Sigmoid(ScalarFunction):
    """``1 / (1 + exp(-beta s))``.

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg import Sigmoid
    >>> Sigmoid(1.0).value(torch.tensor(0.0))
    tensor(0.5000)
    """

    beta: float

    def value(self, s: Tensor) -> Tensor:
        return torch.sigmoid(self.beta * s)

    def first(self, a: Tensor, b: Tensor) -> Tensor:
        return self.beta * self._first(*_sort2(self.beta * a, self.beta * b))

    def second(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        a, b, c = _sort3(self.beta * a, self.beta * b, self.beta * c)
        spread = a - c
        apart = (self._first(a, b) - self._first(b, c)) / spread
        # odd: use the side where exp(-x) does not overflow
        flip = a + c < 0
        a, b, c = torch.where(flip, -c, a), torch.where(flip, -b, b), torch.where(flip, -a, c)
        exp = Exp()
        bend = torch.sigmoid(c) * exp.first(-a, -c) * exp.first(-b, -c) - exp.second(-a, -b, -c)
        close = torch.sigmoid(a) * torch.sigmoid(b) * bend
        close = torch.where(flip, -close, close)
        return self.beta**2 * torch.where(spread < 1, close, apart)

    @staticmethod
    def _first(hi: Tensor, lo: Tensor) -> Tensor:
        return torch.sigmoid(hi) * torch.sigmoid(-lo) * _phi1(lo - hi)


def _sort2(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return torch.maximum(a, b), torch.minimum(a, b)


def _sort3(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    a, b = _sort2(a, b)
    b, c = _sort2(b, c)
    a, b = _sort2(a, b)
    return a, b, c


def _ratio(numerator: Tensor, denominator: Tensor, limit: Tensor) -> Tensor:
    """Divide, with the value ``limit`` where the denominator is exactly zero."""
    tie = denominator == 0
    return torch.where(tie, limit, numerator / torch.where(tie, 1.0, denominator))


def _log_ratio(hi: Tensor, lo: Tensor) -> Tensor:
    """Compute ``log(hi / lo)`` for ``hi >= lo > 0`` without cancellation or overflow."""
    return torch.where(hi > 2 * lo, hi.log() - lo.log(), torch.log1p((hi - lo) / lo))


def _phi1(t: Tensor) -> Tensor:
    """Compute ``(exp(t) - 1) / t``, 1 at zero."""
    return _ratio(torch.expm1(t), t, torch.ones_like(t))


def _phi2(t: Tensor) -> Tensor:
    """Compute ``(exp(t) - 1 - t) / t**2``, 1/2 at zero."""
    series = torch.full_like(t, 1.0 / 19)
    for k in range(18, 1, -1):  # sum of t**k / (k + 2)!, by Horner's rule
        series = (1 + t.clamp(-1, 1) * series) / k
    return torch.where(t.abs() < 1, series, (torch.expm1(t) - t) / (t * t))


def _exp_second(exp_a: Tensor, exp_b: Tensor, p: Tensor, q: Tensor) -> Tensor:
    """Compute ``exp[a, b, c]`` for ``a >= b >= c`` from the gaps ``p = a - b`` and ``q = b - c``.

    It is a mean of two positive numbers, weighted by the gaps; nothing overflows before exp(a).
    """
    decay = (-p).exp()
    falling = torch.where(p < 1, decay * _phi2(p.clamp(max=1)), (1 - (1 + p) * decay) / (p * p))
    upper, lower = exp_a * falling, exp_b * _phi2(-q)
    return _ratio(p * upper + q * lower, p + q, exp_a / 2)
