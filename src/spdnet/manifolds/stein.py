"""Stein's divergence."""

import torch
from torch import Tensor

from spdnet._precision import in_float64
from spdnet.linalg import symmetrize
from spdnet.linalg.pencil import LogCosh, pencil_sum, safe_sqrt
from spdnet.manifolds.means import FixedPointMetric
from spdnet.manifolds.metric import register_metric
from spdnet.manifolds.pairs import Progress, by_row, log_det


class Stein(FixedPointMetric):
    r"""Square root of the Stein divergence, a symmetric log-determinant divergence.

    :math:`S(X, Y) = \log\det\tfrac{X + Y}{2} - \tfrac12 \log\det(X Y)`. The square root is a
    distance that is invariant under congruence. No Riemannian metric induces it: there are
    distances and a mean, but no tangent vectors. The iteration for the mean,
    :math:`M \leftarrow (\sum_i w_i (\tfrac{X_i + M}{2})^{-1})^{-1}`, converges slowly if the
    matrices differ by orders of magnitude.

    References
    ----------
    S. Sra, "Positive definite matrices and the S-divergence", Proc. Amer. Math. Soc., 2016.
    https://doi.org/10.1090/proc/12953
    """

    name = "stein"

    @in_float64
    def distance(self, X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute :math:`\sqrt{S(X, Y)}`."""
        return safe_sqrt(pencil_sum(X, Y, LogCosh(), check=check, who="stein.distance"))

    @in_float64
    def squared_distance(self, X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute :math:`S(X, Y) = \sum_k \log\cosh(\tfrac12 \log \lambda_k(X^{-1} Y))`."""
        return pencil_sum(X, Y, LogCosh(), check=check, who="stein.squared_distance")

    def _step(self, X: Tensor, M: Tensor, w: Tensor) -> Tensor:
        return _inverse((w * _inverse((X + M[..., None, :, :]) / 2)).sum(-3))

    def _pairwise(self, X: Tensor, Y: Tensor | None, progress: Progress) -> Tensor:
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
        log_dets, inverses = _log_det_and_inverse(X)
        w = torch.zeros_like(log_dets).index_add_(0, i, weights / 2).index_add_(0, j, weights / 2)
        H = weights[:, None, None] / 2 * inverse
        G = torch.zeros_like(X).index_add_(0, i, H).index_add_(0, j, H)
        value = (weights * middle).sum() - (w * log_dets).sum()
        return value, G - w[:, None, None] * inverses


stein = register_metric(Stein())


def _inverse(X: Tensor) -> Tensor:
    return symmetrize(torch.linalg.inv_ex(X).inverse)  # cholesky_inverse is wrong in forward mode


def _log_det_and_inverse(X: Tensor) -> tuple[Tensor, Tensor]:
    """Compute log-determinants and their derivatives, the inverses."""
    L = torch.linalg.cholesky(X)
    return 2 * L.diagonal(dim1=-2, dim2=-1).real.log().sum(-1), torch.cholesky_inverse(L)
