r"""Dimensionality reduction of SPD matrices by :math:`X \mapsto U^\top X U`."""

import warnings
from typing import Any

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import OptimizeResult, minimize
from sklearn.base import TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from spdnet._checks import require_choice, require_count, require_number
from spdnet._inputs import seed_of
from spdnet.baselines.estimator import SPDClassifier, subsample
from spdnet.baselines.neighbors import vote
from spdnet.baselines.progress import Progress
from spdnet.linalg import logm, symmetrize
from spdnet.manifolds import Metric, get_metric, stiefel

INITS = ("pca", "identity", "lda", "random")


class SPDML(TransformerMixin, SPDClassifier):  # type: ignore[misc]
    r"""Manifold-to-manifold metric learning (Harandi et al., 2014), and the nearest neighbour.

    Find :math:`U` with orthonormal columns that minimises
    :math:`\sum_{ij} G_{ij} \, \delta^2(U^\top X_i U, U^\top X_j U)`. :math:`G_{ij}` is 1 if
    :math:`i` and :math:`j` are of one class and one of them is among the nearest neighbours of the
    other, -1 likewise for different classes, and 0 otherwise. Both distances are invariant under
    congruence, so that the cost depends on the column space of :math:`U` only. It is minimised by
    L-BFGS over all matrices of full rank; the authors use conjugate gradients on the Grassmann
    manifold, which reach the same minima in more iterations.

    Fitting costs the distances of all pairs (see :class:`NearestNeighbor`), and N n^2 r + P r^3
    operations for each iteration, with r components and P pairs of neighbours.

    Parameters
    ----------
    metric : {"affine_invariant", "stein", "aim"} or Metric
        The distance :math:`\delta`, invariant under congruence; ``"aim"`` is the paper's name of
        the affine-invariant one.
    n_components : int, optional
        Columns of U; 20, or half the size if that is less, when not given.
    k_w, k_b : int, optional
        Neighbours of one class, and of others. The size of the smallest class less one, at most 15,
        when ``k_w`` is not given; as many as ``k_w`` when ``k_b`` is not given.
    balance : bool
        Give both sums the same weight. Without it, more neighbours of one class than of others make
        it cheapest to shrink all distances.
    init : {"pca", "identity", "lda", "random"}
        Start from the leading eigenvectors of the mean matrix, from the first features, from
        two-dimensional discriminant analysis of the logarithms, or anywhere.
    max_iter : int
        Iterations after which a ConvergenceWarning says that ``tol`` was not met.
    tol : float
        Largest entry of the gradient at the minimum, relative to that at the start.
    random_state : int, RandomState or None
        Of a random start.
    max_train, device, verbose
        As in :class:`NearestNeighbor`; of the training matrices.

    Attributes
    ----------
    classes_ : array, shape (n_classes,)
    metric_ : Metric
    U_ : array, shape (n, n_components)
    costs_ : list of float
        Of the start and after each iteration; they never grow.
    n_iter_ : int

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

    def __init__(
        self,
        metric: str | Metric = "aim",
        n_components: int | None = None,
        *,
        k_w: int | None = None,
        k_b: int | None = None,
        balance: bool = True,
        init: str = "pca",
        max_iter: int = 1000,
        tol: float = 1e-3,
        random_state: Any = 0,
        max_train: int | None = None,
        device: str = "cpu",
        verbose: bool = False,
    ) -> None:
        self.metric = metric
        self.n_components = n_components
        self.k_w = k_w
        self.k_b = k_b
        self.balance = balance
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.max_train = max_train
        self.device = device
        self.verbose = verbose

    def _require_settings(self) -> None:
        self._metric()
        require_choice("SPDML", "init", self.init, INITS)
        require_number("SPDML", "tol", self.tol, at_least=0)
        for name in ("max_iter", "n_components", "k_w", "k_b"):
            if getattr(self, name) is not None:
                require_count("SPDML", name, getattr(self, name))

    def _metric(self) -> Metric:
        named = "affine_invariant" if self.metric == "aim" else self.metric
        return get_metric(named, "sum_over_pairs", who="SPDML", extra=("aim",))

    def _learn(self, X: Tensor, codes: NDArray[numpy.int64]) -> None:
        self.metric_ = self._metric()
        kept = subsample(codes, self.max_train)
        X, codes = X[torch.from_numpy(kept)], codes[kept]
        n = X.shape[-1]
        r = min(20, (n + 1) // 2) if self.n_components is None else self.n_components
        if r > n:
            raise ValueError(f"SPDML: expected n_components <= {n}, got {r}")
        pairs, weights = self._neighbours(X, codes)
        U = self._begin(X, codes, r)
        U = self._minimise(X, pairs, weights, U)
        self.U_ = U.cpu().numpy()
        self.codes_ = codes
        self.reduced_ = _reduce(X, U).cpu()

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """SPD matrices ``U^T X U``."""
        return self._reduced(X).cpu().numpy()

    def _codes(self, X: Tensor) -> NDArray[numpy.int64]:
        known = self.reduced_.to(X.device)
        D = self.metric_.pairwise(_reduce(X, self._U(X)), known, check=False)
        return vote(D, self.codes_, 1)

    def pair_score(self, A: ArrayLike, B: ArrayLike) -> NDArray[Any]:
        """How alike the matrices of pairs are, ``(N,)``: minus their distance when reduced."""
        distance = self.metric_.distance
        return -distance(self._reduced(A), self._reduced(B), check=False).cpu().numpy()

    def similarity(self, A: ArrayLike, B: ArrayLike) -> NDArray[Any]:
        """Scores ``(N, M)`` of all of ``A`` with all of ``B``: see :meth:`pair_score`."""
        squares = self.metric_.pairwise(self._reduced(A), self._reduced(B), check=False)
        return -squares.clamp(min=0).sqrt().cpu().numpy()

    def _reduced(self, X: ArrayLike) -> Tensor:
        matrices = self._matrices(X)
        return _reduce(matrices, self._U(matrices))

    def _U(self, X: Tensor) -> Tensor:
        return torch.from_numpy(self.U_).to(X.device)

    def _neighbours(
        self, X: Tensor, codes: NDArray[numpy.int64]
    ) -> tuple[NDArray[numpy.int64], NDArray[numpy.float64]]:
        """Pairs ``(P, 2)``, each once, and their weights, negative for different classes."""
        with Progress(self.verbose, "distances") as progress:
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
            pairs.append(numpy.unique(found, axis=0))  # neighbours of each other count once
            n = len(pairs[-1])
            # 2: the sum is over both orders of a pair
            weights.append(numpy.full(n, sign / n if self.balance and n else 2 * sign))
        return numpy.concatenate(pairs), numpy.concatenate(weights)

    def _begin(self, X: Tensor, codes: NDArray[numpy.int64], r: int) -> Tensor:
        n = X.shape[-1]
        if self.init == "identity":
            return torch.eye(n, dtype=X.dtype, device=X.device)[:, :r]
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
        ridge = 1e-10 * size * torch.eye(n, dtype=X.dtype, device=X.device)
        W = torch.linalg.solve_triangular(
            torch.linalg.cholesky(within + ridge), torch.eye(n).to(X), upper=False
        )
        _, V = torch.linalg.eigh(symmetrize(W @ between @ W.mT))
        return torch.linalg.qr(W.mT @ V.flip(-1)[:, :r])[0]

    def _minimise(
        self,
        X: Tensor,
        pairs: NDArray[numpy.int64],
        weights: NDArray[numpy.float64],
        U: Tensor,
    ) -> Tensor:
        """Minimise over all matrices of full rank: the cost depends on the column space only."""
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
        if r == n:  # every basis spans the whole space
            self.n_iter_ = 0
            return U
        with Progress(self.verbose, "SPDML, iteration") as progress:

            def note(intermediate_result: OptimizeResult) -> None:
                self.costs_.append(float(intermediate_result.fun))
                progress(len(self.costs_) - 1, self.max_iter)

            found = minimize(
                cost,
                start,
                jac=True,
                method="L-BFGS-B",
                callback=note,
                options={
                    "maxiter": self.max_iter,
                    "maxfun": 20 * self.max_iter,
                    "maxcor": 20,
                    "ftol": 0.0,
                    "gtol": self.tol * float(numpy.abs(G).max()),
                },
            )
        self.n_iter_ = int(found.nit)
        if not found.success:
            warnings.warn(
                f"SPDML: the minimisation has not converged to tol={self.tol:g} after "
                f"{self.n_iter_} iterations ({found.message}); increase max_iter or tol",
                ConvergenceWarning,
                stacklevel=4,
            )
        return torch.linalg.qr(torch.from_numpy(found.x).to(U).reshape(n, r))[0]


def _reduce(X: Tensor, U: Tensor) -> Tensor:
    return symmetrize(U.mT @ X @ U)


def cost_and_gradient(
    X: Tensor, U: Tensor, pairs: Tensor, weights: Tensor, metric: Metric
) -> tuple[float, Tensor]:
    r"""Compute :math:`\sum_p w_p \, \delta^2(U^\top X_i U, U^\top X_j U)` and its gradient.

    Parameters
    ----------
    X : Tensor, shape (N, n, n)
    U : Tensor, shape (n, r)
    pairs : Tensor, shape (P, 2)
        The indices :math:`i, j` of each pair.
    weights : Tensor, shape (P,)
    metric : Metric

    Returns
    -------
    cost : float
    gradient : Tensor, shape (n, r)
    """
    XU = X @ U
    A = symmetrize(U.mT @ XU)
    i, j = pairs.unbind(1)
    value, G = metric.sum_over_pairs(A, i, j, weights)
    return float(value), 2 * (XU @ G).sum(0)
