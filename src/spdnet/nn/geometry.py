r"""What a normalisation has to know about a metric: coordinates, mean, and how to move.

In the log-Euclidean and the log-Cholesky metric, SPD matrices have coordinates in which they are a
vector space. In the affine-invariant one they have none; there "coordinates" are the matrices
themselves, or their power.
"""

import torch
from torch import Tensor

from spdnet._checks import require_choice, require_count, require_number
from spdnet.linalg import cholesky, congruence, expm, invsqrtm, logm, powm, sqrtm, symmetrize
from spdnet.manifolds import affine_invariant, log_cholesky

METRICS = ("log_euclidean", "affine_invariant", "log_cholesky")
ROOTS = ("symmetric", "cholesky")


class Flat:
    """A metric with coordinates in which SPD matrices are a vector space.

    Every method takes coordinates ``F (..., n, n)`` but the first, which makes them.
    """

    power = 1.0

    def coordinates(self, X: Tensor, check: bool) -> Tensor:
        """Of matrices ``X``; ``check`` refuses those that are not SPD."""
        raise NotImplementedError

    def back(self, F: Tensor) -> Tensor:
        """The matrices with these coordinates."""
        raise NotImplementedError

    def bias(self, S: Tensor) -> Tensor:
        """Coordinates that a free matrix stands for."""
        raise NotImplementedError

    def origin(self, like: Tensor) -> Tensor:
        """Coordinates ``(n, n)`` of the identity."""
        return torch.zeros_like(like)

    def mean(self, F: Tensor) -> Tensor:
        """Of matrices ``(N, n, n)``."""
        return F.mean(0)

    def between(self, M: Tensor, target: Tensor, t: float) -> Tensor:
        """The point that is reached after a part ``t`` of the way to the target."""
        return torch.lerp(M, target, t)

    def frame(self, M: Tensor) -> Tensor:
        """What the next two need of the mean."""
        return M

    def logs(self, F: Tensor, frame: Tensor) -> Tensor:
        """Tangent vectors from the mean, whose length is the distance times the power."""
        return F - frame

    def normalized(self, F: Tensor, frame: Tensor, f: Tensor | None, S: Tensor | None) -> Tensor:
        """Moved from the mean to the bias ``S``, after distances from it were scaled by ``f``."""
        F = F - frame
        F = F if f is None else f * F
        return F if S is None else F + self.bias(S)


class LogEuclidean(Flat):
    """The logarithm."""

    def coordinates(self, X: Tensor, check: bool) -> Tensor:
        """Of matrices ``X``; ``check`` refuses those that are not SPD."""
        return logm(X, check=check)

    def back(self, F: Tensor) -> Tensor:
        """The matrices with these coordinates."""
        return expm(F, check=False)

    def bias(self, S: Tensor) -> Tensor:
        """Coordinates that a free matrix stands for."""
        return symmetrize(S)


class LogCholesky(Flat):
    """The Cholesky factor of a power, with the logarithm of its diagonal."""

    def __init__(self, power: float) -> None:
        self.power = power

    def coordinates(self, X: Tensor, check: bool) -> Tensor:
        """Of matrices ``X``; ``check`` refuses those that are not SPD."""
        return log_cholesky.coordinates(_power(X, self.power, check), check=check)

    def back(self, F: Tensor) -> Tensor:
        """The matrices with these coordinates."""
        return _power(log_cholesky.from_coordinates(F), 1 / self.power, check=False)

    def bias(self, S: Tensor) -> Tensor:
        """Coordinates that a free matrix stands for."""
        return S.tril()


class AffineInvariant:
    """Powers of the matrices, and their geometry that every congruence leaves as it is."""

    def __init__(self, who: str, power: float, root: str, karcher_steps: int | None) -> None:
        self.who = who
        self.power = power
        self.root = root
        self.karcher_steps = karcher_steps

    def coordinates(self, X: Tensor, check: bool) -> Tensor:
        """Of matrices ``X``; ``check`` refuses those that are not SPD."""
        if check and self.power == 1:
            cholesky(X.detach(), who=self.who)
        return _power(X, self.power, check)

    def back(self, F: Tensor) -> Tensor:
        """The matrices with these coordinates."""
        return _power(F, 1 / self.power, check=False)

    def origin(self, like: Tensor) -> Tensor:
        """Coordinates ``(n, n)`` of the identity."""
        return torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)

    def mean(self, F: Tensor) -> Tensor:
        """Exact, or after some steps of the fixed-point iteration from the arithmetic mean."""
        if self.karcher_steps is None:
            return affine_invariant.mean(F, check=False)
        return self._steps(F, self.karcher_steps)

    def base(self, F: Tensor) -> Tensor:
        """The point whose tangent space the last of the steps to the mean is taken in, constant."""
        return self._steps(F.detach(), (self.karcher_steps or 1) - 1)

    def _steps(self, F: Tensor, steps: int) -> Tensor:
        M = F.mean(0)
        for _ in range(steps):
            M = M.detach()
            g = logm(congruence(F, invsqrtm(M, check=False)), check=False).mean(0)
            M = congruence(expm(g, check=False), sqrtm(M, check=False))
        return M

    def between(self, M: Tensor, target: Tensor, t: float) -> Tensor:
        """The point that is reached after a part ``t`` of the way to the target."""
        return affine_invariant.geodesic(M, target, t, check=False)

    def frame(self, M: Tensor) -> Tensor:
        """``W`` with ``W^T M W = I``."""
        if self.root == "symmetric":
            return invsqrtm(M, check=False)
        L = cholesky(M, check=False)
        return torch.linalg.solve_triangular(L, self.origin(M).expand_as(M), upper=False).mT

    def logs(self, F: Tensor, frame: Tensor) -> Tensor:
        """Tangent vectors from the mean, whose length is the distance times the power."""
        return logm(congruence(F, frame), check=False)

    def normalized(self, F: Tensor, frame: Tensor, f: Tensor | None, S: Tensor | None) -> Tensor:
        """Moved from the mean to the bias ``S``, after distances from it were scaled by ``f``."""
        P = congruence(F, frame)
        if f is not None:
            P = expm(f * logm(P, check=False), check=False)
        if S is None:
            return P
        S = self.power * symmetrize(S)
        if self.root == "symmetric":
            return congruence(P, expm(S / 2, check=False))
        return congruence(P, cholesky(expm(S, check=False), check=False).mT)


Geometry = Flat | AffineInvariant


def make_geometry(
    who: str,
    metric: str,
    power: float = 1.0,
    root: str = "symmetric",
    karcher_steps: int | None = None,
) -> Geometry:
    """By the name of its metric; ``who`` refuses settings that make no sense."""
    require_choice(who, "metric", metric, METRICS)
    require_choice(who, "root", root, ROOTS)
    require_number(who, "power", power)
    if karcher_steps is not None:
        require_count(who, "karcher_steps", karcher_steps)
    if power == 0 or (power != 1 and metric == "log_euclidean"):
        raise ValueError(
            f"{who}: expected power != 0, and 1 for the log-Euclidean metric, which it does "
            f"not change, got metric={metric!r} and power={power}"
        )
    if metric == "log_euclidean":
        return LogEuclidean()
    if metric == "log_cholesky":
        return LogCholesky(float(power))
    return AffineInvariant(who, float(power), root, karcher_steps)


def is_rounding(v: Tensor, n: int) -> Tensor:
    """Whether a variance of ``n`` by ``n`` matrices is what rounding makes of none."""
    return v <= (64 * n * torch.finfo(v.dtype).eps) ** 2


def _power(X: Tensor, power: float, check: bool) -> Tensor:
    return X if power == 1 else powm(X, power, check=check)
