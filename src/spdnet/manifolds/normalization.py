"""Operations of Riemannian batch normalization, on coordinates ``F (..., n, n)``.

Coordinates need not be flat: those of the affine-invariant metric are powers of the matrices.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from spdnet._autograd import is_capturing
from spdnet._precision import accurate_dtype
from spdnet.linalg import (
    Exp,
    InvSqrt,
    Log,
    Power,
    cholesky,
    congruence,
    expm,
    invsqrtm,
    logm,
    powm,
    symmetrize,
)
from spdnet.linalg.scalar import ScalarFunction
from spdnet.linalg.spectral import decompose, map_decomposed, map_together

if TYPE_CHECKING:
    from spdnet.manifolds.flat import FlatMetric
    from spdnet.manifolds.metric import Metric


@dataclass(eq=False)
class Groups:
    """Groups of the entries of a batch ``(N, ...)``, such as its domains; none is empty."""

    index: Tensor  #: group of each entry
    sizes: Tensor  #: number of entries of each group

    def mean(self, x: Tensor) -> Tensor:
        """Compute the mean of each group, independent of the values of other groups."""
        total = x.new_zeros(len(self.sizes), *x.shape[1:]).index_add(0, self.index, x)
        return total / self.sizes.reshape(-1, *(1,) * (x.ndim - 1))

    def map(self, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Reduce each group to one entry, for all groups of the same size ``k`` at once.

        ``function`` maps ``(g, k, ...)`` to ``(g, ...)``.
        """
        order = self.index.argsort(stable=True)
        values = x.new_zeros(len(self.sizes), *x.shape[1:])
        for k in self.sizes.unique().tolist():
            chosen = self.sizes == k
            entries = x[order[chosen[self.index[order]]]]
            values[chosen] = function(entries.unflatten(0, (-1, k)))
        return values


#: updated running mean, frame of the batch, and shift
Update: TypeAlias = tuple[Tensor, Tensor, Tensor | None]


@dataclass(eq=False)
class FlatNormalization:
    """Normalization in the coordinates of a flat metric, of powers of the matrices."""

    metric: "FlatMetric"
    power: float
    has_fixed_steps = True

    def coordinates(self, X: Tensor, *, check: bool, who: str) -> Tensor:
        """Compute coordinates; ``check`` raises a ValueError for matrices that are not SPD."""
        return self.metric.coordinates(power_of(X, self.power, check), check=check, who=who)

    def from_coordinates(self, F: Tensor) -> Tensor:
        """Compute the matrices with the coordinates ``F``."""
        return power_of(self.metric.from_coordinates(F), 1 / self.power)

    def origin(self, like: Tensor) -> Tensor:
        """Return the coordinates ``(n, n)`` of the identity."""
        return torch.zeros_like(like)

    def mean(self, F: Tensor, groups: Groups | None = None) -> Tensor:
        """Compute the mean ``(n, n)`` of ``(N, n, n)``, or of each group, ``(G, n, n)``."""
        return _mean(F, groups)

    def interpolate(self, M: Tensor, target: Tensor, t: float) -> Tensor:
        """Compute the point at the fraction ``t`` of the way from ``M`` to ``target``."""
        return torch.lerp(M, target, t)

    def frame(self, M: Tensor) -> Tensor:
        """Compute the function of the mean that ``deviation`` needs."""
        return M

    def shift(self, S: Tensor | None) -> Tensor | None:
        """Compute the function of the bias that ``Deviation.normalized`` needs."""
        return None if S is None else self.metric.project_coordinates(S)

    def move(self, M: Tensor, target: Tensor, t: float, S: Tensor | None) -> Update:
        """Compute ``interpolate``, the frame of the target, and the shift of the bias ``S``."""
        return self.interpolate(M, target, t), self.frame(target), self.shift(S)

    def deviation(self, F: Tensor, frame: Tensor) -> "FlatDeviation":
        """Compute the deviation from the mean."""
        return FlatDeviation(self, F - frame)


@dataclass(eq=False)
class CongruenceNormalization:
    """Normalization by congruences, in the affine-invariant metric of powers of the matrices."""

    metric: "Metric"
    power: float
    root: str
    karcher_steps: int | None

    @property
    def has_fixed_steps(self) -> bool:
        """Whether the number of steps to the mean is independent of the values."""
        return self.karcher_steps is not None

    def coordinates(self, X: Tensor, *, check: bool, who: str) -> Tensor:
        if check and self.power == 1:
            cholesky(X.detach(), who=who)
        return power_of(X, self.power, check)

    def from_coordinates(self, F: Tensor) -> Tensor:
        return power_of(F, 1 / self.power)

    def origin(self, like: Tensor) -> Tensor:
        return torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)

    def mean(self, F: Tensor, groups: Groups | None = None) -> Tensor:
        """Compute the mean, exactly or by fixed-point steps from the arithmetic mean."""
        if self.karcher_steps is not None:
            return self._steps(F, self.karcher_steps, groups)
        exact = partial(self.metric.mean, check=False)
        return exact(F) if groups is None else groups.map(exact, F)

    def base(self, F: Tensor, groups: Groups | None = None) -> Tensor:
        """Compute the point before the last step to the mean, as a constant."""
        return self._steps(F.detach(), (self.karcher_steps or 1) - 1, groups)

    def _steps(self, F: Tensor, steps: int, groups: Groups | None) -> Tensor:
        M = _mean(F, groups)
        for _ in range(steps):
            root, inverse = self._factors(M.detach())
            inverse = inverse if groups is None else inverse[groups.index]
            g = _mean(logm(congruence(F, inverse), check=False), groups)
            M = congruence(expm(g, check=False), root)
        return M

    def interpolate(self, M: Tensor, target: Tensor, t: float) -> Tensor:
        return self.metric.geodesic(M, target, t, check=False)

    def frame(self, M: Tensor) -> Tensor:
        """Compute ``W`` with ``W^T M W = I``."""
        return invsqrtm(M, check=False) if self.root == "symmetric" else self._factors(M)[1]

    def shift(self, S: Tensor | None) -> Tensor | None:
        """Compute ``W`` with ``W^T W`` equal to the power of the bias."""
        return None if S is None else self._root(expm(self._exponent(S), check=False))

    def move(self, M: Tensor, target: Tensor, t: float, S: Tensor | None) -> Update:
        """Compute the results of the separate methods, with one decomposition call."""
        pairs: dict[str, tuple[Tensor, ScalarFunction]] = {}
        if self.root == "symmetric":
            pairs["frame"] = target, InvSqrt()
        if S is not None:
            pairs["shift"] = self._exponent(S), Exp()
        if is_capturing(M):
            R, inverse = self._factors(M)  # the geodesic would synchronize
            pairs["moved"] = congruence(target, inverse), Power(t)
        found = dict(zip(pairs, map_together(*pairs.values()), strict=True))
        return (
            congruence(found["moved"], R) if "moved" in found else self.interpolate(M, target, t),
            found["frame"] if "frame" in found else self.frame(target),
            self._root(found["shift"]) if "shift" in found else None,
        )

    def _factors(self, M: Tensor) -> tuple[Tensor, Tensor]:
        """Compute ``R`` with ``R^T R = M``, and its inverse.

        Geodesics and means are the same for every such factor; that of Cholesky is the cheapest.
        """
        L = cholesky(M.to(accurate_dtype(M)), check=False)
        inverse = torch.linalg.solve_triangular(L, self.origin(L).expand_as(L), upper=False)
        return L.mH.to(M.dtype), inverse.mH.to(M.dtype)

    def _exponent(self, S: Tensor) -> Tensor:
        """Return the matrix whose exponential is the root, or the matrix to factorize."""
        half = 2 if self.root == "symmetric" else 1
        return self.power * symmetrize(S) / half

    def _root(self, E: Tensor) -> Tensor:
        return E if self.root == "symmetric" else cholesky(E, check=False).mH

    def deviation(self, F: Tensor, frame: Tensor) -> "CongruenceDeviation":
        return CongruenceDeviation(self, congruence(F, frame))


@dataclass(eq=False)
class FlatDeviation:
    """Deviation of matrices from the mean, in flat coordinates."""

    space: FlatNormalization
    logs: Tensor  #: tangent vectors at the mean, whose norm is the distance times the power

    def normalized(self, f: Tensor | None, shift: Tensor | None) -> Tensor:
        """Scale the distances from the mean by ``f`` and move the mean to the bias."""
        F = self.logs if f is None else f * self.logs
        return F if shift is None else F + shift


@dataclass(eq=False)
class CongruenceDeviation:
    """Deviation of matrices from the mean, after the congruence that moves it to the identity.

    The logarithm and its multiples share one decomposition.
    """

    space: CongruenceNormalization
    P: Tensor
    _known: tuple[Tensor, Tensor] | None = None

    def _decomposed(self) -> tuple[Tensor, Tensor]:
        if self._known is None:
            self._known = decompose(self.P, Log(), check=False, who="normalization")
        return self._known

    @property
    def logs(self) -> Tensor:
        return map_decomposed(self.P, *self._decomposed(), Log())

    def normalized(self, f: Tensor | None, shift: Tensor | None) -> Tensor:
        P = self.P
        if f is not None:
            s, U = self._decomposed()
            exponents = (f if f.ndim == 0 else f[..., 0]).detach() * s.log()
            P = map_decomposed(f * self.logs, exponents, U, Exp())
        return P if shift is None else congruence(P, shift)


def _mean(x: Tensor, groups: Groups | None) -> Tensor:
    return x.mean(0) if groups is None else groups.mean(x)


def power_of(X: Tensor, power: float, check: bool = False) -> Tensor:
    """Compute the power of matrices; return ``X`` itself for the power 1."""
    return X if power == 1 else powm(X, power, check=check)


Normalization: TypeAlias = FlatNormalization | CongruenceNormalization
Deviation: TypeAlias = FlatDeviation | CongruenceDeviation
