r"""Dimensionality reduction of SPD matrices by :math:`X \mapsto U^\top X U`."""

from collections.abc import Callable
from typing import Any

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import TransformerMixin
from torch import Tensor

from spdnet._checks import require_choice, require_count, require_number
from spdnet._inputs import seed_of
from spdnet.baselines.estimator import SPDClassifier, subsample
from spdnet.baselines.neighbours import vote
from spdnet.baselines.pairwise import squared_distances
from spdnet.baselines.progress import Progress
from spdnet.linalg import logm, symmetrize
from spdnet.manifolds import stiefel

INITS = ("pca", "identity", "lda", "random")
METRICS = {"aim": "affine_invariant", "affine_invariant": "affine_invariant", "stein": "stein"}
_ARMIJO, _SHORTEST = 1e-4, 1e-14


class SPDML(TransformerMixin, SPDClassifier):  # type: ignore[misc]
    r"""Manifold-to-manifold metric learning (Harandi et al., 2014), and the nearest neighbour.

    Finds :math:`U` with orthonormal columns that minimises
    :math:`\sum_{ij} G_{ij} \, \delta^2(U^\top X_i U, U^\top X_j U)`, where :math:`G` is positive
    for the nearest neighbours of one class and negative for the nearest of others: by conjugate
    gradients on the Grassmann manifold.

    Fitting costs the distances of all pairs (see :class:`NearestNeighbor`), and N n^2 r + P r^3
    operations for each iteration, with r components and P pairs of neighbours.

    Parameters
    ----------
    metric : {"affine_invariant", "stein", "aim"}
        The distance :math:`\delta`; ``"aim"`` is the paper's name of the affine-invariant one.
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
    tol : float
        Length of the gradient, relative to the first, at which it ends.
    random_state : int, RandomState or None
        Of a random start.
    max_train, device, verbose
        As in :class:`NearestNeighbor`; of the training matrices.

    Attributes
    ----------
    classes_ : array, shape (n_classes,)
    metric_ : {"affine_invariant", "stein"}
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
    >>> from spdnet.datasets import load_digits_spd
    >>> X, y = load_digits_spd()
    >>> model = SPDML("stein", n_components=8, max_iter=10).fit(X[:200], y[:200])
    >>> model.transform(X[200:300]).shape
    (100, 8, 8)
    """

    def __init__(
        self,
        metric: str = "aim",
        n_components: int | None = None,
        *,
        k_w: int | None = None,
        k_b: int | None = None,
        balance: bool = True,
        init: str = "pca",
        max_iter: int = 50,
        tol: float = 1e-5,
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
        require_choice("SPDML", "metric", self.metric, METRICS)
        require_choice("SPDML", "init", self.init, INITS)
        require_number("SPDML", "tol", self.tol, at_least=0)
        for name in ("max_iter", "n_components", "k_w", "k_b"):
            if getattr(self, name) is not None:
                require_count("SPDML", name, getattr(self, name))

    def _learn(self, X: Tensor, codes: NDArray[numpy.int64]) -> None:
        self.metric_ = METRICS[self.metric]
        kept = subsample(codes, self.max_train)
        X, codes = X[torch.from_numpy(kept)], codes[kept]
        n = X.shape[-1]
        r = min(20, (n + 1) // 2) if self.n_components is None else self.n_components
        if r > n:
            raise ValueError(f"SPDML: expected n_components <= {n}, got {r}")
        pairs, weights = self._neighbours(X, codes)
        U = self._begin(X, codes, r)
        U = self._descend(X, pairs, weights, U)
        self.U_ = U.cpu().numpy()
        self.codes_ = codes
        self.reduced_ = _reduce(X, U).cpu()

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """SPD matrices ``U^T X U``."""
        return self._reduced(X).cpu().numpy()

    def _codes(self, X: Tensor) -> NDArray[numpy.int64]:
        known = self.reduced_.to(X.device)
        D = squared_distances(_reduce(X, self._U(X)), known, self.metric_)
        return vote(D, self.codes_, 1)

    def pair_score(self, A: ArrayLike, B: ArrayLike) -> NDArray[Any]:
        """How alike the matrices of pairs are, ``(N,)``: minus their distance when reduced."""
        squares = _DIVERGENCES[self.metric_](self._reduced(A), self._reduced(B))
        return -squares.clamp(min=0).sqrt().cpu().numpy()

    def similarity(self, A: ArrayLike, B: ArrayLike) -> NDArray[Any]:
        """Scores ``(N, M)`` of all of ``A`` with all of ``B``: see :meth:`pair_score`."""
        squares = squared_distances(self._reduced(A), self._reduced(B), self.metric_)
        return -squares.clamp(min=0).sqrt().cpu().numpy()

    def _reduced(self, X: ArrayLike) -> Tensor:
        matrices = self._matrices(X)
        return _reduce(matrices, self._U(matrices))

    def _U(self, X: Tensor) -> Tensor:
        return torch.from_numpy(self.U_).to(X.device)

    def _neighbours(
        self, X: Tensor, codes: NDArray[numpy.int64]
    ) -> tuple[NDArray[numpy.int64], NDArray[numpy.float64]]:
        """Ordered pairs ``(P, 2)``, and their weights, negative for different classes."""
        with Progress(self.verbose, "distances") as progress:
            D = squared_distances(X, None, self.metric_, progress=progress).cpu().numpy()
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
            there = numpy.isfinite(far[i, j])
            pairs.append(numpy.stack([i, j], 1)[there])
            n = int(there.sum())
            weights.append(numpy.full(n, sign / n if self.balance and n else sign))
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

    def _descend(
        self,
        X: Tensor,
        pairs: NDArray[numpy.int64],
        weights: NDArray[numpy.float64],
        U: Tensor,
    ) -> Tensor:
        """Conjugate gradients (Polak-Ribiere); the line search never accepts a higher cost."""
        index = torch.from_numpy(pairs).to(X.device)
        weight = torch.from_numpy(weights).to(X.device)
        used, inverse = index.unique(return_inverse=True)
        cost = _cost_function(X[used], inverse, weight, self.metric_)
        value, G = _with_gradient(cost, U)
        self.costs_ = [value]
        first = float(G.norm())
        direction, step = -G, 1.0 / max(first, 1e-300)
        with Progress(self.verbose, "SPDML, iteration") as progress:
            while len(self.costs_) <= self.max_iter and float(G.norm()) > self.tol * first:
                slope = float((G * direction).sum())
                if slope >= 0:  # not downhill: start anew
                    direction, slope = -G, -float(G.square().sum())
                moved, new, step = _line_search(cost, U, direction, value, slope, step)
                if moved is None:  # nothing lower in sight
                    break
                _, G_new = _with_gradient(cost, moved)
                carried = stiefel.transport(U, moved, G, "grassmann")
                beta = float((G_new * (G_new - carried)).sum() / G.square().sum())
                old = stiefel.transport(U, moved, direction, "grassmann")
                direction = -G_new + max(beta, 0.0) * old
                U, G, value = moved, G_new, new
                self.costs_.append(value)
                progress(len(self.costs_) - 1, self.max_iter)
        self.n_iter_ = len(self.costs_) - 1
        return U


def _reduce(X: Tensor, U: Tensor) -> Tensor:
    return symmetrize(U.mT @ X @ U)


def _stein(A: Tensor, B: Tensor) -> Tensor:
    def log_det(X: Tensor) -> Tensor:  # differentiable, unlike that of pairwise
        return 2 * torch.linalg.cholesky(X).diagonal(dim1=-2, dim2=-1).log().sum(-1)

    return log_det((A + B) / 2) - (log_det(A) + log_det(B)) / 2


def _affine_invariant(A: Tensor, B: Tensor) -> Tensor:
    L = torch.linalg.cholesky(B)
    half = torch.linalg.solve_triangular(L, A, upper=False)
    Y = torch.linalg.solve_triangular(L, half.mT, upper=False)
    return torch.linalg.eigvalsh(symmetrize(Y)).log().square().sum(-1)


_DIVERGENCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "affine_invariant": _affine_invariant,
    "stein": _stein,
}


def _cost_function(
    X: Tensor, pairs: Tensor, weights: Tensor, metric: str
) -> Callable[[Tensor], Tensor]:
    divergence = _DIVERGENCES[metric]

    def cost(U: Tensor) -> Tensor:
        A = _reduce(X, U)
        return (weights * divergence(A[pairs[:, 0]], A[pairs[:, 1]])).sum()

    return cost


def _with_gradient(cost: Callable[[Tensor], Tensor], U: Tensor) -> tuple[float, Tensor]:
    """The cost, and its gradient on the Grassmann manifold."""
    U = U.detach().requires_grad_()
    value = cost(U)
    (G,) = torch.autograd.grad(value, U)
    return float(value.detach()), stiefel.riemannian_gradient(U.detach(), G, "grassmann")


@torch.no_grad()
def _line_search(
    cost: Callable[[Tensor], Tensor],
    U: Tensor,
    direction: Tensor,
    value: float,
    slope: float,
    step: float,
) -> tuple[Tensor | None, float, float]:
    """The first of halved steps that lowers the cost enough, its cost, and where to begin next."""
    length = float(direction.norm())
    step = min(2 * step, 1 / max(length, 1e-300))
    while step * length > _SHORTEST:
        moved = stiefel.retract(U, step * direction)
        new = float(cost(moved))
        if new <= value + _ARMIJO * step * slope:
            return moved, new, step
        step /= 2
    return None, value, step
