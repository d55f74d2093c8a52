"""The Bures-Wasserstein metric."""

import torch
from torch import Tensor

from spdnet._checks import require_pair
from spdnet._precision import in_float64
from spdnet.linalg import cholesky, congruence, expm, lyapunov, sqrtm, symmetrize
from spdnet.linalg.symmetric import abs_square, frobenius
from spdnet.linalg.validate import require_tangent
from spdnet.manifolds.means import FixedPointMetric
from spdnet.manifolds.metric import register_metric
from spdnet.manifolds.normalization import power_of


class BuresWasserstein(FixedPointMetric):
    r"""Bures-Wasserstein metric: optimal transport between centered Gaussians.

    The map :math:`T = L^{-\top} (L^\top Y L)^{1/2} L^{-1}`, for :math:`X = L L^\top`, transports
    the Gaussian with covariance ``X`` to that with ``Y``: :math:`T X T = Y`. Geodesics reach the
    boundary in finite time: :math:`\exp_X(V)` is defined while :math:`I + \mathcal L_X(V)` is
    positive definite, where :math:`\mathcal L_X(V)` solves the Lyapunov equation. Singular matrices
    are not accepted, although the metric extends to them. Parallel transport has no closed form and
    is not available.

    References
    ----------
    R. Bhatia, T. Jain, Y. Lim, "On the Bures-Wasserstein distance between positive definite
    matrices", Expo. Math., 2019. https://doi.org/10.1016/j.exmath.2018.01.002
    """

    name = "bures_wasserstein"
    default_power = 0.5
    has_trace_term = False

    @in_float64
    def inner(self, X: Tensor, U: Tensor, V: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute :math:`\tfrac12 \mathrm{tr}(\mathcal L_X(U) V)`."""
        who = "bures_wasserstein.inner"
        S = lyapunov(X, require_tangent(who, U, "U", X, check), check=check, who=who)
        return frobenius(S, symmetrize(require_tangent(who, V, "V", X, check))) / 2

    @in_float64
    def distance(self, X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute the square root of :math:`\mathrm{tr}(X + Y - 2 (X^{1/2} Y X^{1/2})^{1/2})`.

        It is evaluated as :math:`\lVert (T - I) L \rVert_F`, which is free of cancellation.
        """
        L, moved = _transport_map("bures_wasserstein.distance", X, Y, check)
        return (moved - L).flatten(-2).norm(dim=-1)

    @in_float64
    def squared_distance(self, X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute :math:`\mathrm{tr}(X + Y - 2 (X^{1/2} Y X^{1/2})^{1/2})`."""
        L, moved = _transport_map("bures_wasserstein.squared_distance", X, Y, check)
        return abs_square(moved - L).sum((-2, -1))

    @in_float64
    def geodesic(self, X: Tensor, Y: Tensor, t: float | Tensor, *, check: bool = True) -> Tensor:
        """Compute :math:`((1 - t) I + t T) X ((1 - t) I + t T)`."""
        L, moved = _transport_map("bures_wasserstein.geodesic", X, Y, check)
        t = t[..., None, None] if isinstance(t, Tensor) else t
        A = L + t * (moved - L)
        return symmetrize(A @ A.mH)

    @in_float64
    def exp(self, X: Tensor, V: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute :math:`(I + S) X (I + S)` with :math:`S = \mathcal L_X(V)`."""
        who = "bures_wasserstein.exp"
        S = lyapunov(X, require_tangent(who, V, "V", X, check), check=check, who=who)
        moved = X + S @ X
        return symmetrize(moved + moved @ S)

    @in_float64
    def log(self, X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
        """Compute :math:`T X + X T - 2 X`."""
        L, moved = _transport_map("bures_wasserstein.log", X, Y, check)
        V = (moved - L) @ L.mH
        return V + V.mH

    def _step(self, X: Tensor, M: Tensor, w: Tensor) -> Tensor:
        """Take the step of Alvarez-Esteban et al. (2016)."""
        L = cholesky(M, check=False)
        roots = sqrtm(congruence(X, L[..., None, :, :]), check=False)
        A = torch.linalg.solve_triangular(L.mH, (w * roots).sum(-3), upper=True)
        return symmetrize(A @ A.mH)

    def logits(
        self, X: Tensor, S: Tensor, A: Tensor, *, power: float, alpha: float, beta: float
    ) -> Tensor:
        """Compute the logits of :class:`spdnet.nn.SPDMLR`."""
        X, P = power_of(X, 2 * power), expm(2 * power * S, check=False)
        L = cholesky(P, check=False)
        tangent = self.log(P, X[..., None, :, :], check=False)
        normal = lyapunov(P, L @ A @ L.mH, check=False)
        return alpha * frobenius(tangent, normal) / (4 * power)


bures_wasserstein = register_metric(BuresWasserstein())


def _transport_map(who: str, X: Tensor, Y: Tensor, check: bool) -> tuple[Tensor, Tensor]:
    """Compute the factor ``L`` of ``X``, and ``T L``."""
    require_pair(who, X, Y)
    L = cholesky(X, check=check, who=who)
    if check:
        cholesky(Y.detach(), who=who, name="Y")
    root = sqrtm(congruence(Y, L), check=False)
    return L, torch.linalg.solve_triangular(L.mH, root, upper=True)
