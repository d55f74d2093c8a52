"""The affine-invariant metric."""

from typing import NamedTuple

import torch
from torch import Tensor

from spdnet._autograd import constant
from spdnet._precision import accurate_dtype, in_float64
from spdnet.linalg import Exp, Log, Sqrt, cholesky, congruence, eigh, expm
from spdnet.linalg.cholesky import whiten
from spdnet.linalg.log_congruence import log_congruence
from spdnet.linalg.pencil import LogSquare, cholesky_pair, decompose_pencil, pencil_sum, safe_sqrt
from spdnet.linalg.spectral import map_decomposed
from spdnet.linalg.symmetric import frobenius, trace
from spdnet.linalg.validate import require_tangent
from spdnet.manifolds.karcher import karcher_mean
from spdnet.manifolds.means import normalized_weights
from spdnet.manifolds.metric import Metric, register_metric
from spdnet.manifolds.normalization import CongruenceNormalization
from spdnet.manifolds.pairs import Progress, by_row, eigenvalues

#: ratio of eigenvalues above which they are computed from factors, slower but more accurately
_MAX_RATIO = 1e8


class AffineInvariant(Metric):
    r"""Affine-invariant metric :math:`\mathrm{tr}(X^{-1} U X^{-1} V)`.

    The metric is invariant under congruence, so every formula with :math:`X^{1/2}` also holds for
    the Cholesky factor :math:`X = L L^\top`, which is cheaper: :math:`\tilde Y = L^{-1} Y
    L^{-\top}` moves ``X`` to the identity. The eigenvalues of :math:`\tilde Y` are the squared
    singular values of :math:`L^{-1} K` with :math:`Y = K K^\top`, which stay accurate at condition
    numbers of 1e9.

    References
    ----------
    X. Pennec, P. Fillard, N. Ayache, "A Riemannian Framework for Tensor Computing", Int. J. Comput.
    Vis., 2006. https://doi.org/10.1007/s11263-005-3222-z
    """

    name = "affine_invariant"

    @in_float64
    def inner(self, X: Tensor, U: Tensor, V: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute :math:`\mathrm{tr}(X^{-1} U X^{-1} V)`."""
        who = "affine_invariant.inner"
        L = cholesky(X, check=check, who=who)
        U = whiten(L, require_tangent(who, U, "U", X, check))
        V = whiten(L, require_tangent(who, V, "V", X, check))
        return frobenius(U, V)

    @in_float64
    def distance(self, X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute :math:`\lVert \log(X^{-1/2} Y X^{-1/2}) \rVert_F`."""
        who = "affine_invariant.distance"
        return safe_sqrt(pencil_sum(X, Y, LogSquare(), check=check, who=who))

    @in_float64
    def squared_distance(self, X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute :math:`\sum_k \log^2 \lambda_k(X^{-1} Y)`."""
        return pencil_sum(X, Y, LogSquare(), check=check, who="affine_invariant.squared_distance")

    @in_float64
    def geodesic(self, X: Tensor, Y: Tensor, t: float | Tensor, *, check: bool = True) -> Tensor:
        """Compute :math:`X^{1/2} (X^{-1/2} Y X^{-1/2})^t X^{1/2}`."""
        pair = _whiten_pair("affine_invariant.geodesic", X, Y, check)
        x, T = pair.x, pair.map(Log())
        if isinstance(t, Tensor):
            x, t = t.detach()[..., None] * x, t[..., None, None]
        else:
            x = t * x
        return congruence(map_decomposed(t * T, x, pair.P.expand_as(t * T), Exp()), pair.L.mH)

    @in_float64
    def exp(self, X: Tensor, V: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute :math:`X^{1/2} \exp(X^{-1/2} V X^{-1/2}) X^{1/2}`."""
        who = "affine_invariant.exp"
        L = cholesky(X, check=check, who=who)
        V = require_tangent(who, V, "V", X, check)
        return congruence(expm(whiten(L, V), check=False), L.mH)

    @in_float64
    def log(self, X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute :math:`X^{1/2} \log(X^{-1/2} Y X^{-1/2}) X^{1/2}`."""
        pair = _whiten_pair("affine_invariant.log", X, Y, check)
        return congruence(pair.map(Log()), pair.L.mH)

    @in_float64
    def transport(self, X: Tensor, Y: Tensor, V: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute :math:`E V E^\top` with :math:`E = (Y X^{-1})^{1/2}`."""
        who = "affine_invariant.transport"
        pair = _whiten_pair(who, X, Y, check)
        V = require_tangent(who, V, "V", X, check)
        moved = congruence(whiten(pair.L, V), pair.map(Sqrt()))
        return congruence(moved, pair.L.mH)

    @in_float64
    def mean(
        self,
        X: Tensor,
        weights: Tensor | None = None,
        *,
        tol: float = 1e-9,
        max_iter: int = 50,
        check: bool = True,
    ) -> Tensor:
        r"""Compute the weighted Frechet mean by Newton's method.

        The iteration stops when the gradient :math:`\lVert \sum_i w_i \log(M^{-1/2} X_i M^{-1/2})
        \rVert_F` is at most ``tol``, or no longer decreases because of rounding; a RuntimeWarning
        reports that ``max_iter`` iterations were not enough. Each mean of a batch stops on its own.
        The mean is twice differentiable in reverse and forward mode, through the equation that
        defines it rather than through the iterations.
        """
        w = normalized_weights("affine_invariant.mean", X, weights)
        if check:
            cholesky(X.detach(), who="affine_invariant.mean")
        return karcher_mean(X, w, tol=tol, max_iter=max_iter)

    def _pairwise(self, X: Tensor, Y: Tensor | None, progress: Progress) -> Tensor:
        eye = torch.eye(X.shape[-1], dtype=X.dtype, device=X.device).expand_as(X)
        factors = torch.linalg.cholesky(X)
        whiteners = torch.linalg.solve_triangular(factors, eye, upper=False)
        if Y is not None:
            factors = torch.linalg.cholesky(Y)

        def row(i: int, others: Tensor, j: slice) -> Tensor:
            W = whiteners[i]
            s = eigenvalues(W @ others @ W.mH)
            far = ~(s[:, -1] < _MAX_RATIO * s[:, 0])  # the small ones are inaccurate
            if far.any():
                s[far] = torch.linalg.svdvals(W @ factors[j][far]).square().flip(-1)
            return s.log().square().sum(-1)

        return by_row(X, Y, row, progress)

    def sum_over_pairs(
        self, X: Tensor, i: Tensor, j: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Compute the weighted sum of squared distances of pairs, and its gradient."""
        eye = torch.eye(X.shape[-1], dtype=X.dtype, device=X.device)
        W = torch.linalg.solve_triangular(torch.linalg.cholesky(X), eye, upper=False)[j]
        s, V = eigh(W @ X[i] @ W.mH, check=False)
        B = W.mH @ V
        slope = 2 * weights[:, None] * s.log()
        G = torch.zeros_like(X)
        G.index_add_(0, i, (B * (slope / s)[:, None]) @ B.mH)
        G.index_add_(0, j, (B * -slope[:, None]) @ B.mH)
        return (weights * s.log().square().sum(-1)).sum(), G

    def normalization(
        self, *, power: float = 1.0, root: str = "symmetric", karcher_steps: int | None = None
    ) -> CongruenceNormalization:
        """Create a normalization by congruences."""
        return CongruenceNormalization(self, power, root, karcher_steps)

    def logits(
        self, X: Tensor, S: Tensor, A: Tensor, *, power: float, alpha: float, beta: float
    ) -> Tensor:
        """Compute the logits of :class:`spdnet.nn.SPDMLR`."""
        dtype = A.dtype
        X, S, A = (Z.to(accurate_dtype(Z)) for Z in (X, S, A))
        W = expm(-power / 2 * S, check=False)
        T = log_congruence(X[..., None, :, :], W, power)  # (..., classes, n, n)
        flat = alpha * frobenius(T, A) + beta * trace(T) * trace(A)
        return (flat / power).to(dtype)


affine_invariant = register_metric(AffineInvariant())


class _Whitened(NamedTuple):
    """``Y`` after the congruence that moves ``X`` to the identity."""

    L: Tensor  #: Cholesky factor of X
    Y: Tensor
    x: Tensor  #: logarithms of the eigenvalues of Y, constant
    P: Tensor  #: eigenvectors of Y, constant

    def map(self, f: Exp | Log | Sqrt) -> Tensor:
        """Compute ``f(Y)`` from the accurate decomposition."""
        return map_decomposed(self.Y, self.x.exp(), self.P, f)


def _whiten_pair(who: str, X: Tensor, Y: Tensor, check: bool) -> _Whitened:
    L, K = cholesky_pair(X, Y, check=check, who=who)
    x, P, _ = decompose_pencil(constant(L), constant(K), check=check, who=who)
    return _Whitened(L, whiten(L, Y), x, P)
