"""Stein's divergence."""

from collections.abc import Callable

import torch
from torch import Tensor

from spdnet._autograd import is_differentiated
from spdnet._precision import accurately
from spdnet.linalg import cholesky, symmetrize
from spdnet.linalg.pencil import LogCosh, pencil_sum, root
from spdnet.manifolds.fixed_point import fixed_point
from spdnet.manifolds.mean_weights import normalized_weights
from spdnet.manifolds.metric import Metric, register_metric
from spdnet.manifolds.pairs import by_row, log_det


class Stein(Metric):
    r"""Root of Stein's divergence, the symmetric variant of the log-determinant divergence.

    :math:`S(X, Y) = \log\det\tfrac{X + Y}{2} - \tfrac12 \log\det(X Y)`. Its root is a distance
    that is invariant under congruence, as the affine-invariant one is. It comes from no Riemannian
    metric: it has distances and a mean, and no tangent vectors. Computations run in float64 and are
    rounded to the dtype of the first argument.

    References
    ----------
    S. Sra, "Positive definite matrices and the S-divergence", Proc. Amer. Math. Soc., 2016.
    https://doi.org/10.1090/proc/12953
    """

    name = "stein"

    @accurately
    def distance(self, X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute the distance :math:`\sqrt{S(X, Y)}`.

        It has no derivative at ``X = Y``, where rounding decides what comes out; there
        :meth:`squared_distance` has all of them.

        Parameters
        ----------
        X, Y : Tensor, shape (..., n, n)

        Returns
        -------
        Tensor, shape (...)

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import stein
        >>> stein.distance(torch.eye(1), 9 * torch.eye(1)) ** 2  # log(5 / 3)
        tensor(0.5108)
        """
        return root(pencil_sum(X, Y, LogCosh(), check=check, who="stein.distance"))

    @accurately
    def squared_distance(self, X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute :math:`S(X, Y) = \sum_k \log\cosh(\tfrac12 \log \lambda_k(X^{-1} Y))`.

        Smooth everywhere. In this form nothing cancels, neither for near points nor for
        ill-conditioned ones.

        Parameters
        ----------
        X, Y : Tensor, shape (..., n, n)

        Returns
        -------
        Tensor, shape (...)

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import stein
        >>> stein.squared_distance(torch.eye(1), 9 * torch.eye(1))  # log(5 / 3)
        tensor(0.5108)
        """
        return pencil_sum(X, Y, LogCosh(), check=check, who="stein.squared_distance")

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
        r"""Compute the weighted mean, the minimum of :math:`\sum_i w_i S(M, X_i)`.

        By the fixed point iteration
        :math:`M \leftarrow (\sum_i w_i (\tfrac{X_i + M}{2})^{-1})^{-1}`, which is slow where the
        matrices differ by orders of magnitude.

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
        >>> from spdnet.manifolds import stein
        >>> stein.mean(torch.stack([torch.eye(2), 4 * torch.eye(2)])).diagonal()
        tensor([2., 2.])
        """
        who = "stein.mean"
        w = normalized_weights(who, X, weights)[..., None, None]
        if check:
            cholesky(X.detach(), who=who)

        def step(M: Tensor) -> Tensor:
            return _inverse((w * _inverse((X + M[..., None, :, :]) / 2)).sum(-3))

        differentiated = is_differentiated(X) or is_differentiated(w)
        start = (w * X).sum(-3)
        return fixed_point(
            who, step, start, tol=tol, max_iter=max_iter, differentiated=differentiated
        )

    def _pairwise(
        self, X: Tensor, Y: Tensor | None, progress: Callable[[int, int], None]
    ) -> Tensor:
        a = log_det(X)
        b = a if Y is None else log_det(Y)

        def row(i: int, others: Tensor, j: slice) -> Tensor:
            D = log_det((X[i] + others) / 2) - (a[i] + b[j]) / 2
            return D.clamp(min=0)  # rounding

        return by_row(X, Y, row, progress)

    def sum_over_pairs(
        self, X: Tensor, i: Tensor, j: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Compute the weighted sum of divergences of pairs, and its gradient."""
        middle, inverse = _log_det_and_inverse((X[i] + X[j]) / 2)
        own, own_inverse = _log_det_and_inverse(X)
        share = torch.zeros_like(own).index_add_(0, i, weights / 2).index_add_(0, j, weights / 2)
        H = weights[:, None, None] / 2 * inverse
        G = torch.zeros_like(X).index_add_(0, i, H).index_add_(0, j, H)
        value = (weights * middle).sum() - (share * own).sum()
        return value, G - share[:, None, None] * own_inverse


stein = Stein()
register_metric(stein)


def _inverse(X: Tensor) -> Tensor:
    return symmetrize(torch.linalg.inv_ex(X).inverse)  # cholesky_inverse is wrong in forward mode


def _log_det_and_inverse(X: Tensor) -> tuple[Tensor, Tensor]:
    """Logarithms of determinants, and their derivatives, the inverses."""
    L = torch.linalg.cholesky(X)
    return 2 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1), torch.cholesky_inverse(L)
