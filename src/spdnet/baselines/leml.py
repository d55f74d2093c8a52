"""Log-Euclidean metric learning."""

from typing import Any

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import TransformerMixin
from torch import Tensor

from spdnet._checks import require_count, require_number
from spdnet._inputs import seed_of
from spdnet.baselines.estimator import SPDClassifier, subsample
from spdnet.baselines.log_det import bounds, choose_pairs, project_in_turn, root
from spdnet.baselines.neighbors import vote
from spdnet.baselines.progress import Progress
from spdnet.linalg import expm, logm
from spdnet.linalg.threads import one_thread
from spdnet.manifolds.pairs import euclidean


class LEML(TransformerMixin, SPDClassifier):  # type: ignore[misc]
    r"""Log-Euclidean metric learning (Huang et al., 2015), and the nearest neighbour.

    Learns the positive definite :math:`Q` of
    :math:`d^2(X, Y) = \mathrm{tr}(Q (\log X - \log Y)^2)`, as near to the identity as it can be
    while pairs of one class come nearer than a bound and others farther: by projections onto one
    constraint at a time.

    Fitting costs an eigendecomposition of n by n for each pair and sweep.

    Parameters
    ----------
    slack : float
        Weight :math:`\eta` of the bounds against the distance of Q from the identity; a larger one
        follows the pairs more closely, and takes longer.
    spread : float
        The bounds are so many deviations below and above the mean squared distance of the pairs.
    n_pairs : int, optional
        Half of one class; when not given, 40 C (C - 1) for C classes, at most 2000.
    n_components : int, optional
        Size of the matrices of ``transform``; the size of the input when not given.
    tol : float
        Relative change of the multipliers in a sweep at which it ends.
    max_sweeps : int
        Before convergence the metric can be worse than none, of which a warning tells.
    random_state : int, RandomState or None
        Of the pairs.
    max_train : int, optional
        Keep at most so many training matrices as neighbours, each class in its share.
    verbose : bool
        Show progress.

    Attributes
    ----------
    classes_ : array, shape (n_classes,)
    Q_ : array, shape (n, n)
    n_iter_ : int
        Sweeps.

    References
    ----------
    Z. Huang, R. Wang, S. Shan, X. Li, X. Chen, "Log-Euclidean metric learning on symmetric positive
    definite manifold with application to image set classification", ICML 2015.

    Examples
    --------
    >>> from spdnet.baselines import LEML
    >>> from spdnet.data import load_digits_spd
    >>> X, y = load_digits_spd()
    >>> model = LEML(n_pairs=200, n_components=8).fit(X[:300], y[:300])
    >>> model.transform(X[300:400]).shape, bool(model.score(X[300:400], y[300:400]) > 0.85)
    ((100, 8, 8), True)
    """

    def __init__(
        self,
        slack: float = 0.1,
        spread: float = 0.1,
        *,
        n_pairs: int | None = None,
        n_components: int | None = None,
        tol: float = 1e-3,
        max_sweeps: int = 100,
        random_state: Any = 0,
        max_train: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.slack = slack
        self.spread = spread
        self.n_pairs = n_pairs
        self.n_components = n_components
        self.tol = tol
        self.max_sweeps = max_sweeps
        self.random_state = random_state
        self.max_train = max_train
        self.verbose = verbose

    def _require_settings(self) -> None:
        for name in ("slack", "spread", "tol"):
            require_number("LEML", name, getattr(self, name), above=0)
        for name in ("max_sweeps", "n_pairs", "n_components"):
            if getattr(self, name) is not None:
                require_count("LEML", name, getattr(self, name))

    def _learn(self, X: Tensor, codes: NDArray[numpy.int64]) -> None:
        T = logm(X, check=False).numpy()
        with one_thread():  # each matrix is small
            self._learn_metric(T, codes)
        kept = subsample(codes, self.max_train)
        self.codes_, self.embedded_ = codes[kept], self._embed(T[kept])

    def _learn_metric(self, T: NDArray[Any], codes: NDArray[numpy.int64]) -> None:
        pairs, sign = choose_pairs(codes, self.n_pairs, seed_of(self.random_state))
        A = T[pairs[:, 0]] - T[pairs[:, 1]]
        distances = numpy.square(A).sum((1, 2))
        differs = distances > 0  # a matrix and its copy say nothing
        A, sign, distances = A[differs], sign[differs], distances[differs]
        h = numpy.eye(T.shape[-1])  # Q = h h^T

        def step(c: int, xi: float, multiplier: float) -> tuple[float, float]:
            nonlocal h
            B = A[c] @ h
            m, V = numpy.linalg.eigh(B.T @ B)
            m = numpy.maximum(m, 0)
            a = min(multiplier, sign[c] * root(m, xi, self.slack))
            s = sign[c] * a
            h = (h @ V) / numpy.sqrt(1 - s * m)
            return 1 / (1 / xi + s / self.slack), multiplier - a

        if len(A):
            with Progress(self.verbose, "LEML, sweep") as progress:
                self.n_iter_ = project_in_turn(
                    "LEML",
                    step,
                    bounds(distances, sign, self.spread),
                    sign,
                    tol=self.tol,
                    max_sweeps=self.max_sweeps,
                    progress=progress,
                )
        else:
            self.n_iter_ = 0
        self.Q_ = h @ h.T
        s, V = numpy.linalg.eigh(self.Q_)
        k = min(self.n_components or len(s), len(s))
        self.root_ = (V * numpy.sqrt(s)) @ V.T
        self.W_ = V[:, ::-1][:, :k] * s[::-1][:k] ** 0.25

    def _embed(self, T: NDArray[Any]) -> NDArray[Any]:
        """Vectors whose distance is the learnt one."""
        return (self.root_ @ T).reshape(len(T), -1)

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """SPD matrices ``exp(W^T log(X) W)``, of ``n_components``."""
        T = logm(self._matrices(X), check=False).numpy()
        return expm(torch.from_numpy(self.W_.T @ T @ self.W_), check=False).numpy()

    def _codes(self, X: Tensor) -> NDArray[numpy.int64]:
        Z = self._embed(logm(X, check=False).numpy())
        D = euclidean(torch.from_numpy(Z), torch.from_numpy(self.embedded_))
        return vote(D, self.codes_, 1)

    def pair_score(self, A: ArrayLike, B: ArrayLike) -> NDArray[Any]:
        """How alike the matrices of pairs are, ``(N,)``: minus their learnt distance."""
        one, other = (self._embed(logm(self._matrices(X), check=False).numpy()) for X in (A, B))
        return -numpy.linalg.norm(one - other, axis=1)

    def similarity(self, A: ArrayLike, B: ArrayLike) -> NDArray[Any]:
        """Scores ``(N, M)`` of all of ``A`` with all of ``B``: see :meth:`pair_score`."""
        one, other = (self._embed(logm(self._matrices(X), check=False).numpy()) for X in (A, B))
        return -euclidean(torch.from_numpy(one), torch.from_numpy(other)).numpy()
