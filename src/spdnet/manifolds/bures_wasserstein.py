"""The Bures-Wasserstein metric."""

import torch
from torch import Tensor

from spdnet._autograd import is_differentiated
from spdnet._checks import require_square
from spdnet._precision import accurately
from spdnet.linalg import cholesky, congruence, expm, lyapunov, sqrtm, symmetrize
from spdnet.linalg.validate import require_tangent
from spdnet.manifolds.fixed_point import fixed_point
from spdnet.manifolds.mean_weights import normalized_weights
from spdnet.manifolds.metric import Metric, register_metric
from spdnet.manifolds.normalization import powered


class BuresWasserstein(Metric):
    r"""Bures-Wasserstein metric: optimal transport between centred Gaussians.

    The map :math:`T = L^{-\top} (L^\top Y L)^{1/2} L^{-1}`, for :math:`X = L L^\top`, takes the
    Gaussian with covariance ``X`` to that with ``Y``: :math:`T X T = Y`. Singular matrices are
    refused, although the metric could be extended to them. Geodesics end there:
    :math:`\exp_X(V)` is defined as long as :math:`I + \mathcal L_X(V)` is positive definite, where
    :math:`\mathcal L` solves Lyapunov's equation. The parallel transport has no closed form and is
    not offered. Computations run in float64 and are rounded to the dtype of the first argument.

    References
    ----------
    R. Bhatia, T. Jain, Y. Lim, "On the Bures-Wasserstein distance between positive definite
    matrices", Expo. Math., 2019. https://doi.org/10.1016/j.exmath.2018.01.002
    """

    name = "bures_wasserstein"
    default_power = 0.5
    has_trace_term = False

    @accurately
    def inner(self, X: Tensor, U: Tensor, V: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute the inner product :math:`\tfrac12 \mathrm{tr}(\mathcal L_X(U) V)`.

        Parameters
        ----------
        X, U, V : Tensor, shape (..., n, n)

        Returns
        -------
        Tensor, shape (...)

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import bures_wasserstein
        >>> bures_wasserstein.inner(torch.eye(2), torch.eye(2), torch.eye(2))
        tensor(0.5000)
        """
        who = "bures_wasserstein.inner"
        S = lyapunov(X, require_tangent(who, U, "U", X, check), check=check, who=who)
        return (S * symmetrize(require_tangent(who, V, "V", X, check))).sum((-2, -1)) / 2

    @accurately
    def distance(self, X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute the root of :math:`\mathrm{tr}(X + Y - 2 (X^{1/2} Y X^{1/2})^{1/2})`.

        Computed as :math:`\lVert (T - I) L \rVert_F`, in which nothing cancels.

        Parameters
        ----------
        X, Y : Tensor, shape (..., n, n)

        Returns
        -------
        Tensor, shape (...)

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import bures_wasserstein
        >>> bures_wasserstein.distance(torch.eye(2), 4 * torch.eye(2))
        tensor(1.4142)
        """
        L, moved = _transported("bures_wasserstein.distance", X, Y, check)
        return (moved - L).flatten(-2).norm(dim=-1)

    @accurately
    def squared_distance(self, X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute :math:`\mathrm{tr}(X + Y - 2 (X^{1/2} Y X^{1/2})^{1/2})`.

        It is smooth everywhere, and computed as :math:`\lVert (T - I) L \rVert_F^2`, in which
        nothing cancels.

        Parameters
        ----------
        X, Y : Tensor, shape (..., n, n)

        Returns
        -------
        Tensor, shape (...)

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import bures_wasserstein
        >>> bures_wasserstein.squared_distance(torch.eye(2), 4 * torch.eye(2))
        tensor(2.)
        """
        L, moved = _transported("bures_wasserstein.squared_distance", X, Y, check)
        return (moved - L).square().sum((-2, -1))

    @accurately
    def geodesic(self, X: Tensor, Y: Tensor, t: float | Tensor, *, check: bool = True) -> Tensor:
        r"""Compute the point :math:`((1 - t) I + t T) X ((1 - t) I + t T)` of the geodesic.

        Parameters
        ----------
        X, Y : Tensor, shape (..., n, n)
        t : float or Tensor, shape (...)
            0 at ``X``, 1 at ``Y``.

        Returns
        -------
        Tensor, shape (..., n, n)

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import bures_wasserstein
        >>> bures_wasserstein.geodesic(torch.eye(2), 9 * torch.eye(2), 0.5).diagonal()
        tensor([4., 4.])
        """
        L, moved = _transported("bures_wasserstein.geodesic", X, Y, check)
        t = t[..., None, None] if isinstance(t, Tensor) else t
        A = L + t * (moved - L)
        return symmetrize(A @ A.mT)

    @accurately
    def exp(self, X: Tensor, V: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute the exponential map :math:`(I + S) X (I + S)` with :math:`S = \mathcal L_X(V)`.

        Parameters
        ----------
        X, V : Tensor, shape (..., n, n)

        Returns
        -------
        Tensor, shape (..., n, n)

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import bures_wasserstein
        >>> bures_wasserstein.exp(torch.eye(2), 2 * torch.eye(2)).diagonal()
        tensor([4., 4.])
        """
        who = "bures_wasserstein.exp"
        S = lyapunov(X, require_tangent(who, V, "V", X, check), check=check, who=who)
        moved = X + S @ X
        return symmetrize(moved + moved @ S)

    @accurately
    def log(self, X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute the logarithmic map :math:`T X + X T - 2 X`.

        Parameters
        ----------
        X, Y : Tensor, shape (..., n, n)

        Returns
        -------
        Tensor, shape (..., n, n)

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import bures_wasserstein
        >>> bures_wasserstein.log(torch.eye(2), 4 * torch.eye(2)).diagonal()
        tensor([2., 2.])
        """
        L, moved = _transported("bures_wasserstein.log", X, Y, check)
        V = (moved - L) @ L.mT
        return V + V.mT

    @accurately
    def mean(
        self,
        X: Tensor,
        weights: Tensor | None = None,
        *,
        tol: float = 1e-12,
        max_iter: int = 1000,
        check: bool = True,
    ) -> Tensor:
        r"""Compute the weighted Frechet mean, from which the maps have the mean :math:`I`.

        By the fixed point iteration of Alvarez-Esteban et al., 2016.

        Parameters
        ----------
        X : Tensor, shape (..., N, n, n)
        weights : Tensor, shape (..., N), optional
            Not negative; scaled to sum 1. Equal when not given.
        tol : float
            Relative change of the matrix at which the iteration ends.
        max_iter : int
            Iterations after which a RuntimeWarning is given.

        Returns
        -------
        Tensor, shape (..., n, n)

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import bures_wasserstein
        >>> bures_wasserstein.mean(torch.stack([torch.eye(2), 9 * torch.eye(2)])).diagonal()
        tensor([4., 4.])
        """
        who = "bures_wasserstein.mean"
        w = normalized_weights(who, X, weights)[..., None, None]
        if check:
            cholesky(X.detach(), who=who)

        def step(M: Tensor) -> Tensor:
            L = cholesky(M, check=False)
            roots = sqrtm(congruence(X, L[..., None, :, :]), check=False)
            A = torch.linalg.solve_triangular(L.mT, (w * roots).sum(-3), upper=True)
            return symmetrize(A @ A.mT)

        differentiated = is_differentiated(X) or is_differentiated(w)
        start = (w * X).sum(-3)
        return fixed_point(
            who, step, start, tol=tol, max_iter=max_iter, differentiated=differentiated
        )

    def logits(
        self, X: Tensor, S: Tensor, A: Tensor, *, power: float, alpha: float, beta: float
    ) -> Tensor:
        """Compute the logits of :class:`spdnet.nn.SPDMLR`."""
        X, P = powered(X, 2 * power), expm(2 * power * S, check=False)
        L = cholesky(P, check=False)
        towards = self.log(P, X[..., None, :, :], check=False)
        normal = lyapunov(P, L @ A @ L.mT, check=False)
        return alpha * (towards * normal).sum((-2, -1)) / (4 * power)


bures_wasserstein = BuresWasserstein()
register_metric(bures_wasserstein)


def _transported(who: str, X: Tensor, Y: Tensor, check: bool) -> tuple[Tensor, Tensor]:
    """The factor ``L`` of ``X``, and ``T L``."""
    require_square(who, X)
    require_square(who, Y, "Y", n=X.shape[-1])
    L = cholesky(X, check=check, who=who)
    if check:
        cholesky(Y.detach(), who=who, name="Y")
    root = sqrtm(congruence(Y, L), check=False)
    return L, torch.linalg.solve_triangular(L.mT, root, upper=True)
