r"""Dimensionality reduction of SPD matrices by :math:`X \mapsto U^\top X U`."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import OptimizeResult, minimize
from sklearn.base import TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from spdnet._checks import require_number
from spdnet._inputs import seed_of
from spdnet._warnings import warn_user
from spdnet.baselines.estimator import (
    IntArray,
    SubsetClassifier,
    checked,
    choice,
    count,
    show_progress,
)
from spdnet.baselines.neighbors import vote
from spdnet.linalg import logm, symmetrize
from spdnet.manifolds import Metric, get_metric, stiefel


@dataclass(eq=False, repr=False)
class SPDML(TransformerMixin, SubsetClassifier):  # type: ignore[misc]
    r"""SPD manifold learning with a nearest-neighbor classifier.

    Finds :math:`U` with orthonormal columns that minimizes
    :math:`\sum_{ij} G_{ij} \, \delta^2(U^\top X_i U, U^\top X_j U)`. :math:`G_{ij}` is 1 if
    :math:`i` and :math:`j` are in the same class and one is among the nearest neighbors of the
    other, -1 for such neighbors in different classes, and 0 otherwise. The distance is invariant
    under congruence, so the cost depends only on the column space of :math:`U`. It is minimized by
    L-BFGS over all matrices of full rank; the conjugate gradients of the authors on the Grassmann
    manifold reach the same minima in more iterations. Fitting requires the distances of all pairs
    (see :class:`NearestNeighbor`), and N n^2 r + P r^3 operations per iteration, with r components
    and P pairs of neighbors.

    Parameters
    ----------
    metric : {"affine_invariant", "stein"} or Metric
        The distance :math:`\delta`, invariant under congruence.
    n_components : int, optional
        Number of columns of U; by default 20, but at most half the size.
    k_w, k_b : int, optional
        Number of neighbors of the same class and of other classes. ``k_w`` is by default the size
        of the smallest class minus one, at most 15; ``k_b`` is by default ``k_w``.
    balance : bool
        Give both sums the same weight. Otherwise, with more neighbors of the same class than of
        others, shrinking all distances minimizes the cost.
    init : {"pca", "identity", "lda", "random"}
        Initial U: the leading eigenvectors of the mean matrix, the first features,
        two-dimensional discriminant analysis of the logarithms, or random.
    max_iter, tol : int and float
        Maximum number of iterations, and largest entry of the final gradient relative to the
        initial one.
    random_state : int, RandomState or None
        Seed of the random initialization.
    max_train, device, verbose : see :class:`NearestNeighbor`

    Attributes
    ----------
    U_ : array, shape (n, n_components)
    costs_ : list of float
        Cost at the start and after each iteration.

    References
    ----------
    M. Harandi, M. Salzmann, R. Hartley, "From manifold to manifold: Geometry-aware dimensionality
    reduction for SPD matrices", ECCV 2014.

    Examples
    --------
    >>> from spdnet.baselines import SPDML
    >>> from spdnet.data import load_digits_spd
    >>> X, y = load_digits_spd()
    >>> model = SPDML("stein", n_components=8, tol=0.1).fit(X[:200], y[:200])
    >>> model.transform(X[200:300]).shape
    (100, 8, 8)
    """

    metric: str | Metric = "affine_invariant"
    n_components: int | None = count(None)
    _: KW_ONLY
    k_w: int | None = count(None)
    k_b: int | None = count(None)
    balance: bool = True
    init: str = choice("pca", choices=("pca", "identity", "lda", "random"))
    max_iter: int = count(1000)
    tol: float = checked(1e-3, require_number, at_least=0)
    random_state: Any = 0

    def _fit(self, X: Tensor, codes: IntArray) -> None:
        self.metric_ = get_metric(self.metric, "sum_over_pairs", who="SPDML")
        X, codes = self._subset(X, codes)
        n = X.shape[-1]
        r = min(20, (n + 1) // 2) if self.n_components is None else self.n_components
        if r > n:
            raise ValueError(f"SPDML: expected n_components <= {n}, got {r}")
        pairs, weights = self._neighbor_pairs(X, codes)
        U = self._minimize(X, pairs, weights, self._initial_basis(X, codes, r))
        self.U_ = U.cpu().numpy()
        self.codes_ = codes
        self.reduced_ = self._reduce(X).cpu()

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """Compute the SPD matrices ``U^T X U``."""
        return self._reduce(self._validate_fitted(X)).cpu().numpy()

    def similarity(self, A: ArrayLike, B: ArrayLike) -> NDArray[Any]:
        """Compute the negative distances ``(N, M)`` of all pairs after the reduction."""
        one, other = (self._reduce(self._validate_fitted(X)) for X in (A, B))
        squares = self.metric_.pairwise(one, other, check=False)
        return -squares.clamp(min=0).sqrt().cpu().numpy()

    def _predict(self, X: Tensor) -> IntArray:
        known = self.reduced_.to(X.device)
        return vote(self.metric_.pairwise(self._reduce(X), known, check=False), self.codes_)

    def _reduce(self, X: Tensor) -> Tensor:
        U = torch.from_numpy(self.U_).to(X.device)
        return symmetrize(U.mT @ X @ U)

    def _neighbor_pairs(
        self, X: Tensor, codes: IntArray
    ) -> tuple[IntArray, NDArray[numpy.float64]]:
        """Return pairs ``(P, 2)``, each once, and their weights, negative for different classes."""
        with show_progress(self.verbose, "distances") as progress:
            D = self.metric_.pairwise(X, progress=progress, check=False).cpu().numpy()
        smallest = int(numpy.bincount(codes).min())
        k_w = max(1, min(15, smallest - 1)) if self.k_w is None else self.k_w
        k_b = k_w if self.k_b is None else self.k_b
        same = codes[:, None] == codes[None, :]
        pairs, weights = [], []
        for kind, k, sign in ((same, k_w, 1.0), (~same, k_b, -1.0)):
            far = numpy.where(kind, D, numpy.inf)
            numpy.fill_diagonal(far, numpy.inf)
            nearest = numpy.argsort(far, 1, kind="stable")[:, :k]
            i = numpy.repeat(numpy.arange(len(D)), nearest.shape[1])
            j = nearest.reshape(-1)
            found = numpy.sort(numpy.stack([i, j], 1)[numpy.isfinite(far[i, j])], 1)
            pairs.append(numpy.unique(found, axis=0))  # mutual neighbors count once
            n = len(pairs[-1])
            # factor 2: the sum is over both orders of a pair
            weights.append(numpy.full(n, sign / n if self.balance and n else 2 * sign))
        return numpy.concatenate(pairs), numpy.concatenate(weights)

    def _initial_basis(self, X: Tensor, codes: IntArray, r: int) -> Tensor:
        n = X.shape[-1]
        identity = torch.eye(n, dtype=X.dtype, device=X.device)
        if self.init == "identity":
            return identity[:, :r]
        if self.init == "random":
            generator = torch.Generator().manual_seed(seed_of(self.random_state))
            return stiefel.random_point(n, r, generator=generator, dtype=X.dtype).to(X.device)
        if self.init == "pca":
            scaled = X / X.diagonal(dim1=-2, dim2=-1).sum(-1)[:, None, None]
            return torch.linalg.eigh(scaled.mean(0))[1].flip(-1)[:, :r]
        T = logm(X, check=False)
        classes = torch.from_numpy(codes).to(X.device)
        means = torch.stack([T[classes == c].mean(0) for c in range(len(self.classes_))])
        count = torch.bincount(classes).to(T)[:, None, None]
        between = (count * (means - T.mean(0)) @ (means - T.mean(0))).sum(0)
        within = ((T - means[classes]) @ (T - means[classes])).sum(0)
        size = (within + between).diagonal().mean().clamp(min=1e-300)
        L = torch.linalg.cholesky(within + 1e-10 * size * identity)
        W = torch.linalg.solve_triangular(L, identity, upper=False)
        _, V = torch.linalg.eigh(symmetrize(W @ between @ W.mT))
        return torch.linalg.qr(W.mT @ V.flip(-1)[:, :r])[0]

    def _minimize(
        self, X: Tensor, pairs: IntArray, weights: NDArray[numpy.float64], U: Tensor
    ) -> Tensor:
        """Minimize over all matrices of full rank, since only the column space matters."""
        n, r = U.shape
        index, weight = (torch.from_numpy(a).to(X.device) for a in (pairs, weights))
        used, inverse = index.unique(return_inverse=True)
        X = X[used]

        def cost(a: NDArray[numpy.float64]) -> tuple[float, NDArray[numpy.float64]]:
            value, G = cost_and_gradient(
                X, torch.from_numpy(a).to(X).reshape(n, r), inverse, weight, self.metric_
            )
            return value, G.reshape(-1).cpu().numpy()

        start = U.reshape(-1).cpu().numpy()
        value, G = cost(start)
        self.costs_ = [value]
        if r == n:  # every basis spans the space
            self.n_iter_ = 0
            return U
        with show_progress(self.verbose, "SPDML, iteration") as progress:

            def record(intermediate_result: OptimizeResult) -> None:
                self.costs_.append(float(intermediate_result.fun))
                progress(len(self.costs_) - 1, self.max_iter)

            limits = {"maxiter": self.max_iter, "maxfun": 20 * self.max_iter, "maxcor": 20}
            options = {"ftol": 0.0, "gtol": self.tol * float(numpy.abs(G).max()), **limits}
            found = minimize(
                cost, start, jac=True, method="L-BFGS-B", callback=record, options=options
            )
        self.n_iter_ = int(found.nit)
        if not found.success:
            warn_user(
                f"SPDML: not converged to tol={self.tol:g} after "
                f"{self.n_iter_} iterations ({found.message}); increase max_iter or tol",
                ConvergenceWarning,
            )
        return torch.linalg.qr(torch.from_numpy(found.x).to(U).reshape(n, r))[0]


def cost_and_gradient(
    X: Tensor, U: Tensor, pairs: Tensor, weights: Tensor, metric: Metric
) -> tuple[float, Tensor]:
    r"""Compute :math:`\sum_p w_p \, \delta^2(U^\top X_i U, U^\top X_j U)` and its gradient.

    The rows of ``pairs (P, 2)`` are the indices :math:`i, j`; the gradient has the shape of ``U``.
    """
    XU = X @ U
    A = symmetrize(U.mT @ XU)
    i, j = pairs.unbind(1)
    value, G = metric.sum_over_pairs(A, i, j, weights)
    return float(value), 2 * (XU @ G).sum(0)
