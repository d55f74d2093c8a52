"""Operations of Riemannian batch normalization, on coordinates ``F (..., n, n)``.

Coordinates need not be flat: those of the affine-invariant metric are powers of the matrices.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from spdnet.linalg import cholesky, congruence, expm, invsqrtm, logm, powm, sqrtm, symmetrize

if TYPE_CHECKING:
    from spdnet.manifolds.flat import FlatMetric
    from spdnet.manifolds.metric import Metric


@dataclass(eq=False)
class FlatNormalization:
    """Normalization in the coordinates of a flat metric, of powers of the matrices."""

    metric: "FlatMetric"
    power: float

    def coordinates(self, X: Tensor, *, check: bool, who: str) -> Tensor:
        """Compute coordinates; ``check`` raises a ValueError for matrices that are not SPD."""
        return self.metric.coordinates(power_of(X, self.power, check), check=check, who=who)

    def from_coordinates(self, F: Tensor) -> Tensor:
        """Compute the matrices with the coordinates ``F``."""
        return power_of(self.metric.from_coordinates(F), 1 / self.power)

    def origin(self, like: Tensor) -> Tensor:
        """Return the coordinates ``(n, n)`` of the identity."""
        return torch.zeros_like(like)

    def mean(self, F: Tensor) -> Tensor:
        """Compute the mean ``(n, n)`` of ``(N, n, n)``."""
        return F.mean(0)

    def interpolate(self, M: Tensor, target: Tensor, t: float) -> Tensor:
        """Compute the point at the fraction ``t`` of the way from ``M`` to ``target``."""
        return torch.lerp(M, target, t)

    def frame(self, M: Tensor) -> Tensor:
        """Compute the function of the mean that ``logs`` and ``normalized`` need."""
        return M

    def logs(self, F: Tensor, frame: Tensor) -> Tensor:
        """Compute tangent vectors at the mean, whose norm is the distance times the power."""
        return F - frame

    def normalized(self, F: Tensor, frame: Tensor, f: Tensor | None, S: Tensor | None) -> Tensor:
        """Scale the distances from the mean by ``f`` and move the mean to the bias ``S``."""
        F = F - frame
        F = F if f is None else f * F
        return F if S is None else F + self.metric.project_coordinates(S)


@dataclass(eq=False)
class CongruenceNormalization:
    """Normalization by congruences, in the affine-invariant metric of powers of the matrices."""

    metric: "Metric"
    power: float
    root: str
    karcher_steps: int | None

    def coordinates(self, X: Tensor, *, check: bool, who: str) -> Tensor:
        if check and self.power == 1:
            cholesky(X.detach(), who=who)
        return power_of(X, self.power, check)

    def from_coordinates(self, F: Tensor) -> Tensor:
        return power_of(F, 1 / self.power)

    def origin(self, like: Tensor) -> Tensor:
        return torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)

    def mean(self, F: Tensor) -> Tensor:
        """Compute the mean, exactly or by fixed-point steps from the arithmetic mean."""
        if self.karcher_steps is None:
            return self.metric.mean(F, check=False)
        return self._steps(F, self.karcher_steps)

    def base(self, F: Tensor) -> Tensor:
        """Compute the point before the last step to the mean, as a constant."""
        return self._steps(F.detach(), (self.karcher_steps or 1) - 1)

    def _steps(self, F: Tensor, steps: int) -> Tensor:
        M = F.mean(0)
        for _ in range(steps):
            M = M.detach()
            g = logm(congruence(F, invsqrtm(M, check=False)), check=False).mean(0)
            M = congruence(expm(g, check=False), sqrtm(M, check=False))
        return M

    def interpolate(self, M: Tensor, target: Tensor, t: float) -> Tensor:
        return self.metric.geodesic(M, target, t, check=False)

    def frame(self, M: Tensor) -> Tensor:
        """Compute ``W`` with ``W^T M W = I``."""
        if self.root == "symmetric":
            return invsqrtm(M, check=False)
        L = cholesky(M, check=False)
        return torch.linalg.solve_triangular(L, self.origin(M).expand_as(M), upper=False).mT

    def logs(self, F: Tensor, frame: Tensor) -> Tensor:
        return logm(congruence(F, frame), check=False)

    def normalized(self, F: Tensor, frame: Tensor, f: Tensor | None, S: Tensor | None) -> Tensor:
        P = congruence(F, frame)
        if f is not None:
            P = expm(f * logm(P, check=False), check=False)
        if S is None:
            return P
        S = self.power * symmetrize(S)
        if self.root == "symmetric":
            return congruence(P, expm(S / 2, check=False))
        return congruence(P, cholesky(expm(S, check=False), check=False).mT)


def power_of(X: Tensor, power: float, check: bool = False) -> Tensor:
    """Compute the power of matrices; return ``X`` itself for the power 1."""
    return X if power == 1 else powm(X, power, check=check)


Normalization: TypeAlias = FlatNormalization | CongruenceNormalization
