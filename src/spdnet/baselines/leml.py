"""Log-Euclidean metric learning."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import TransformerMixin
from torch import Tensor

from spdnet._checks import require_count
from spdnet._inputs import seed_of
from spdnet.baselines.estimator import IntArray, SPDClassifier, subsample
from spdnet.baselines.log_det import cyclic_projections, draw_pairs, require_settings, solve_step
from spdnet.baselines.neighbors import vote
from spdnet.linalg import expm, logm
from spdnet.linalg.threads import one_thread
from spdnet.manifolds.pairs import euclidean


@dataclass(eq=False, repr=False)
class LEML(TransformerMixin, SPDClassifier):  # type: ignore[misc]
    r"""Log-Euclidean metric learning with a nearest-neighbor classifier.

    Learns the positive definite :math:`Q` of
    :math:`d^2(X, Y) = \mathrm{tr}(Q (\log X - \log Y)^2)` that is nearest to the identity such that
    pairs of one class are nearer than a bound, and other pairs farther. Fitting costs an
    eigendecomposition of n by n per pair and sweep.

    Parameters
    ----------
    slack : float
        Weight :math:`\eta` of the bounds against the divergence of Q from the identity. A larger
        value fits the pairs more closely and takes longer.
    spread : float
        The bounds are this many standard deviations below and above the mean squared distance.
    n_pairs : int, optional
        Number of pairs, half of them of one class; by default 40 C (C - 1) for C classes, at most
        2000.
    n_components : int, optional
        Size of the matrices of ``transform``; by default the size of the input.
    tol, max_sweeps : float and int
        Relative change of the multipliers at which to stop, and maximum number of sweeps.
    random_state : int, RandomState or None
        Seed of the pairs.
    max_train, verbose : see :class:`NearestNeighbor`

    Attributes
    ----------
    Q_ : array, shape (n, n)
    n_iter_ : int
        Number of sweeps.

    References
    ----------
    Z. Huang et al., "Log-Euclidean metric learning on symmetric positive definite manifold with
    application to image set classification", ICML 2015.

    Examples
    --------
    >>> from spdnet.baselines import LEML
    >>> from spdnet.data import load_digits_spd
    >>> X, y = load_digits_spd()
    >>> model = LEML(n_pairs=200, n_components=8).fit(X[:300], y[:300])
    >>> model.transform(X[300:400]).shape, bool(model.score(X[300:400], y[300:400]) > 0.85)
    ((100, 8, 8), True)
    """

    slack: float = 0.1
    spread: float = 0.1
    _: KW_ONLY
    n_pairs: int | None = None
    n_components: int | None = None
    tol: float = 1e-3
    max_sweeps: int = 100
    random_state: Any = 0
    max_train: int | None = None
    verbose: bool = False

    def _require_settings(self) -> None:
        require_settings(self)
        if self.n_components is not None:
            require_count("LEML", "n_components", self.n_components)

    def _fit(self, X: Tensor, codes: IntArray) -> None:
        T = logm(X, check=False).numpy()
        with one_thread():  # each matrix is small
            self._fit_metric(T, codes)
        kept = subsample(codes, self.max_train)
        self.codes_, self.embedded_ = codes[kept], self._embed(T[kept])

    def _fit_metric(self, T: NDArray[Any], codes: IntArray) -> None:
        pairs, sign = draw_pairs(codes, self.n_pairs, seed_of(self.random_state))
        A = T[pairs[:, 0]] - T[pairs[:, 1]]
        distances = numpy.square(A).sum((1, 2))
        differs = distances > 0  # equal matrices do not constrain the metric
        A, sign, distances = A[differs], sign[differs], distances[differs]
        h = numpy.eye(T.shape[-1])  # Q = h h^T

        def step(c: int, xi: float, multiplier: float) -> tuple[float, float]:
            nonlocal h
            B = A[c] @ h
            m, V = numpy.linalg.eigh(B.T @ B)
            m = numpy.maximum(m, 0)
            a = min(multiplier, sign[c] * solve_step(m, xi, self.slack))
            s = sign[c] * a
            h = (h @ V) / numpy.sqrt(1 - s * m)
            return 1 / (1 / xi + s / self.slack), multiplier - a

        self.n_iter_ = cyclic_projections(self, step, distances, sign)
        self.Q_ = h @ h.T
        s, V = numpy.linalg.eigh(self.Q_)
        k = min(self.n_components or len(s), len(s))
        self.root_ = (V * numpy.sqrt(s)) @ V.T
        self.W_ = V[:, ::-1][:, :k] * s[::-1][:k] ** 0.25

    def _embed(self, T: NDArray[Any]) -> NDArray[Any]:
        """Map logarithms to vectors with the learned distances."""
        return (self.root_ @ T).reshape(len(T), -1)

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """Compute the SPD matrices ``exp(W^T log(X) W)`` of size ``n_components``."""
        T = logm(self._validate_fitted(X), check=False).numpy()
        return expm(torch.from_numpy(self.W_.T @ T @ self.W_), check=False).numpy()

    def similarity(self, A: ArrayLike, B: ArrayLike) -> NDArray[Any]:
        """Compute the negative learned distances ``(N, M)`` of all pairs."""
        logs = (logm(self._validate_fitted(X), check=False).numpy() for X in (A, B))
        one, other = (torch.from_numpy(self._embed(T)) for T in logs)
        return -euclidean(one, other).numpy()

    def _predict(self, X: Tensor) -> IntArray:
        Z = self._embed(logm(X, check=False).numpy())
        return vote(euclidean(torch.from_numpy(Z), torch.from_numpy(self.embedded_)), self.codes_)
