"""The affine-invariant metric."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from spdnet._autograd import constant
from spdnet._precision import accurate_dtype, accurately
from spdnet.linalg import Exp, Log, Sqrt, cholesky, congruence, eigh, expm
from spdnet.linalg.cholesky import whiten
from spdnet.linalg.log_congruence import log_congruence
from spdnet.linalg.pencil import LogSquare, decompose_pencil, factors, pencil_sum, root
from spdnet.linalg.spectral import map_decomposed
from spdnet.linalg.validate import require_tangent
from spdnet.manifolds.flat import trace
from spdnet.manifolds.karcher import karcher_mean
from spdnet.manifolds.mean_weights import normalized_weights
from spdnet.manifolds.metric import Metric, register_metric
from spdnet.manifolds.normalization import CongruenceNormalization
from spdnet.manifolds.pairs import by_row, eigenvalues

#: ratio of eigenvalues beyond which they are computed from factors, more slowly and more exactly
_FAR = 1e8


class AffineInvariant(Metric):
    r"""Affine-invariant metric :math:`\mathrm{tr}(X^{-1} U X^{-1} V)`.

    Computations run in float64 and are rounded to the dtype of the first argument. Because the
    metric does not change under congruence, every formula with :math:`X^{1/2}` holds for the
    Cholesky factor :math:`X = L L^\top` too, which is cheaper and has no trouble with repeated
    eigenvalues: :math:`\tilde Y = L^{-1} Y L^{-\top}` moves ``X`` to the identity. Its eigenvalues
    are the squared singular values of :math:`L^{-1} K`, :math:`Y = K K^\top`, which keep their
    digits at a condition of 1e9, where those of :math:`\tilde Y` itself would have lost them.

    References
    ----------
    X. Pennec, P. Fillard, N. Ayache, "A Riemannian Framework for Tensor Computing", Int. J. Comput.
    Vis., 2006. https://doi.org/10.1007/s11263-005-3222-z
    """

    name = "affine_invariant"

    @accurately
    def inner(self, X: Tensor, U: Tensor, V: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute the inner product :math:`\mathrm{tr}(X^{-1} U X^{-1} V)`.

        Parameters
        ----------
        X, U, V : Tensor, shape (..., n, n)

        Returns
        -------
        Tensor, shape (...)

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import affine_invariant
        >>> affine_invariant.inner(2 * torch.eye(2), torch.eye(2), torch.eye(2))
        tensor(0.5000)
        """
        who = "affine_invariant.inner"
        L = cholesky(X, check=check, who=who)
        U, V = (
            whiten(L, require_tangent(who, T, name, X, check)) for T, name in ((U, "U"), (V, "V"))
        )
        return (U * V).sum((-2, -1))

    @accurately
    def distance(self, X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute the distance :math:`\lVert \log(X^{-1/2} Y X^{-1/2}) \rVert_F`.

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
        >>> from spdnet.manifolds import affine_invariant
        >>> affine_invariant.distance(torch.eye(2), torch.eye(2).mul(torch.e))
        tensor(1.4142)
        """
        return root(pencil_sum(X, Y, LogSquare(), check=check, who="affine_invariant.distance"))

    @accurately
    def squared_distance(self, X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute the squared distance :math:`\sum_k \log^2 \lambda_k(X^{-1} Y)`.

        It is smooth everywhere.

        Parameters
        ----------
        X, Y : Tensor, shape (..., n, n)

        Returns
        -------
        Tensor, shape (...)

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import affine_invariant
        >>> affine_invariant.squared_distance(torch.eye(2), 2 * torch.eye(2)).round(decimals=4)
        tensor(0.9609)
        """
        return pencil_sum(X, Y, LogSquare(), check=check, who="affine_invariant.squared_distance")

    @accurately
    def geodesic(self, X: Tensor, Y: Tensor, t: float | Tensor, *, check: bool = True) -> Tensor:
        r"""Compute the point :math:`X^{1/2} (X^{-1/2} Y X^{-1/2})^t X^{1/2}` of the geodesic.

        Parameters
        ----------
        X, Y : Tensor, shape (..., n, n)
        t : float or Tensor
            0 gives ``X``, 1 gives ``Y``; a tensor has the leading shape of the points.

        Returns
        -------
        Tensor, shape (..., n, n)

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import affine_invariant
        >>> M = affine_invariant.geodesic(torch.eye(2), 4 * torch.eye(2), 0.5)
        >>> M.diagonal().round(decimals=4)
        tensor([2., 2.])
        """
        seen = _from_first("affine_invariant.geodesic", X, Y, check)
        x, T = seen.x, seen.mapped(Log())
        if isinstance(t, Tensor):
            x, t = t.detach()[..., None] * x, t[..., None, None]
        else:
            x = t * x
        return congruence(map_decomposed(t * T, x, seen.P.expand_as(t * T), Exp()), seen.L.mT)

    @accurately
    def exp(self, X: Tensor, V: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute the exponential map :math:`X^{1/2} \exp(X^{-1/2} V X^{-1/2}) X^{1/2}`.

        Parameters
        ----------
        X, V : Tensor, shape (..., n, n)

        Returns
        -------
        Tensor, shape (..., n, n)

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import affine_invariant
        >>> affine_invariant.exp(torch.eye(2), torch.zeros(2, 2)).diagonal().round(decimals=4)
        tensor([1., 1.])
        """
        who = "affine_invariant.exp"
        L = cholesky(X, check=check, who=who)
        V = require_tangent(who, V, "V", X, check)
        return congruence(expm(whiten(L, V), check=False), L.mT)

    @accurately
    def log(self, X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute the logarithmic map :math:`X^{1/2} \log(X^{-1/2} Y X^{-1/2}) X^{1/2}`.

        Parameters
        ----------
        X, Y : Tensor, shape (..., n, n)

        Returns
        -------
        Tensor, shape (..., n, n)
            The tangent vector at ``X`` that points to ``Y``.

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import affine_invariant
        >>> V = affine_invariant.log(torch.eye(2), torch.eye(2).mul(torch.e))
        >>> V.diagonal().round(decimals=4)
        tensor([1., 1.])
        """
        seen = _from_first("affine_invariant.log", X, Y, check)
        return congruence(seen.mapped(Log()), seen.L.mT)

    @accurately
    def transport(self, X: Tensor, Y: Tensor, V: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute the parallel transport :math:`E V E^\top` with :math:`E = (Y X^{-1})^{1/2}`.

        Parameters
        ----------
        X, Y, V : Tensor, shape (..., n, n)

        Returns
        -------
        Tensor, shape (..., n, n)
            Tangent at ``Y``.

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import affine_invariant
        >>> V = affine_invariant.transport(torch.eye(2), 2 * torch.eye(2), torch.eye(2))
        >>> V.diagonal().round(decimals=4)
        tensor([2., 2.])
        """
        who = "affine_invariant.transport"
        seen = _from_first(who, X, Y, check)
        V = require_tangent(who, V, "V", X, check)
        moved = congruence(whiten(seen.L, V), seen.mapped(Sqrt()))
        return congruence(moved, seen.L.mT)

    @accurately
    def mean(
        self,
        X: Tensor,
        weights: Tensor | None = None,
        *,
        tol: float = 1e-9,
        max_iter: int = 50,
        check: bool = True,
    ) -> Tensor:
        r"""Compute the weighted Frechet mean, which minimises :math:`\sum_i w_i \, d(M, X_i)^2`.

        Iterated in float64 until the gradient is below ``tol`` in the metric's own norm, or no
        longer falls and is within what rounding leaves of it, which grows with the condition of the
        matrices. Each mean of a batch stops by itself; a matrix of weight 0 has no influence. Once
        and twice differentiable in reverse and forward mode, through the equation that defines the
        mean and not through the iterations.

        Parameters
        ----------
        X : Tensor, shape (..., N, n, n)
        weights : Tensor, shape (..., N), optional
            Not negative; scaled to sum 1. Equal when not given. The leading shapes broadcast:
            weights ``(K, N)`` of matrices ``(N, n, n)`` give ``K`` means.
        tol : float
            Bound on :math:`\lVert \sum_i w_i \log(M^{-1/2} X_i M^{-1/2}) \rVert_F`.
        max_iter : int
            Iterations after which a RuntimeWarning says that the bound was not met.

        Returns
        -------
        Tensor, shape (..., n, n)

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import affine_invariant
        >>> M = affine_invariant.mean(torch.stack([torch.eye(2), 4 * torch.eye(2)]))
        >>> M.diagonal().round(decimals=4)
        tensor([2., 2.])
        """
        w = normalized_weights("affine_invariant.mean", X, weights)
        if check:
            cholesky(X.detach(), who="affine_invariant.mean")
        return karcher_mean(X, w, tol=tol, max_iter=max_iter)

    def _pairwise(
        self, X: Tensor, Y: Tensor | None, progress: Callable[[int, int], None]
    ) -> Tensor:
        eye = torch.eye(X.shape[-1], dtype=X.dtype, device=X.device).expand_as(X)
        factors = torch.linalg.cholesky(X)
        whiteners = torch.linalg.solve_triangular(factors, eye, upper=False)
        if Y is not None:
            factors = torch.linalg.cholesky(Y)

        def row(i: int, others: Tensor, j: slice) -> Tensor:
            W = whiteners[i]
            s = eigenvalues(W @ others @ W.mT)
            far = ~(s[:, -1] < _FAR * s[:, 0])  # the small ones have lost their digits
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
        s, V = eigh(W @ X[i] @ W.mT, check=False)
        B = W.mT @ V
        slope = 2 * weights[:, None] * s.log()
        G = torch.zeros_like(X)
        G.index_add_(0, i, (B * (slope / s)[:, None]) @ B.mT)
        G.index_add_(0, j, (B * -slope[:, None]) @ B.mT)
        return (weights * s.log().square().sum(-1)).sum(), G

    def normalization(
        self, *, power: float = 1.0, root: str = "symmetric", karcher_steps: int | None = None
    ) -> CongruenceNormalization:
        """Make the operations of a batch normalisation; see :class:`spdnet.nn.SPDBatchNorm`."""
        return CongruenceNormalization(self, power, root, karcher_steps)

    def logits(
        self, X: Tensor, S: Tensor, A: Tensor, *, power: float, alpha: float, beta: float
    ) -> Tensor:
        """Compute the logits of :class:`spdnet.nn.SPDMLR`."""
        dtype = A.dtype
        X, S, A = (Z.to(accurate_dtype(Z)) for Z in (X, S, A))
        W = expm(-power / 2 * S, check=False)
        T = log_congruence(X[..., None, :, :], W, power)  # (..., classes, n, n)
        flat = alpha * (T * A).sum((-2, -1)) + beta * trace(T) * trace(A)
        return (flat / power).to(dtype)


affine_invariant = AffineInvariant()
register_metric(affine_invariant)


class _Seen(NamedTuple):
    """``Y`` as it is seen from ``X``, which is at the identity."""

    L: Tensor  #: the Cholesky factor of X
    Y: Tensor
    x: Tensor  #: logarithms of the eigenvalues of Y, constant
    P: Tensor  #: its eigenvectors, constant

    def mapped(self, f: Exp | Log | Sqrt) -> Tensor:
        """``f(Y)``; the decomposition is better than one of ``Y`` would be."""
        return map_decomposed(self.Y, self.x.exp(), self.P, f)


def _from_first(who: str, X: Tensor, Y: Tensor, check: bool) -> _Seen:
    L, K = factors(X, Y, check=check, who=who)
    x, P, _ = decompose_pencil(constant(L), constant(K), check=check, who=who)
    return _Seen(L, whiten(L, Y), x, P)
