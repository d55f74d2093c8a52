r"""Covariance discriminative learning: discriminant analysis with the log-Euclidean kernel.

The kernel :math:`k(X, Y) = \mathrm{tr}(\log X \log Y)` is linear in the logarithms, so that a
singular value decomposition of them gives exactly what the ``N`` by ``N`` kernel matrix would:
with :math:`F = U S V^\top`, the centred logarithms as rows, and the class indicator :math:`Z`
scaled to unit columns, kernel discriminant analysis
:math:`K Z Z^\top K \alpha = \lambda (K^2 + \epsilon I) \alpha` is the singular value decomposition
of :math:`(S^4 + \epsilon)^{-1/2} S^2 U^\top Z`.
"""

from typing import Any

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import TransformerMixin
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

from spdnet._checks import require_choice, require_count, require_number
from spdnet.baselines.estimator import SPDClassifier, one_column_for_two
from spdnet.baselines.neighbors import vote
from spdnet.manifolds import log_euclidean
from spdnet.manifolds.pairs import euclidean

#: candidates for ``reg="auto"``
GRID = tuple(10.0**e for e in range(-2, 5))
_RANK = 1e-12  # of the largest singular value


class CDL(TransformerMixin, SPDClassifier):  # type: ignore[misc]
    r"""Covariance discriminative learning (Wang et al., 2012).

    ``lda``: kernel discriminant analysis with the kernel :math:`\mathrm{tr}(\log X \log Y)`, and
    the nearest neighbour in its space. ``pls``: partial least squares from the logarithms to the
    classes.

    Fitting costs N eigendecompositions of n by n and one singular value decomposition of the N by
    n (n + 1) / 2 logarithms; prediction needs no training matrices.

    Parameters
    ----------
    discriminant : {"lda", "pls"}
    reg : float or "auto"
        The :math:`\epsilon` of ``lda``; the authors fix it at 0.01, though it has the scale of the
        fourth power of the logarithms and decides much. ``"auto"`` takes the best of 10^-2 to 10^4
        in three-fold cross-validation on the training data.
    n_components : int, optional
        Dimensions of the space, one fewer than classes when not given.

    Attributes
    ----------
    classes_ : array, shape (n_classes,)
    discriminant_ : str
    reg_ : float
        The one that was used, for ``lda``.
    eigenvalues_ : array, shape (n_components,)
        The ratios :math:`\lambda`, for ``lda``.

    References
    ----------
    R. Wang, H. Guo, L. S. Davis, Q. Dai, "Covariance discriminative learning: A natural and
    efficient approach to image set classification", CVPR 2012.

    Examples
    --------
    >>> from spdnet.baselines import CDL
    >>> from spdnet.data import load_digits_spd
    >>> X, y = load_digits_spd()
    >>> bool(CDL().fit(X[:900], y[:900]).score(X[900:], y[900:]) > 0.9)
    True
    """

    def __init__(
        self,
        discriminant: str = "lda",
        *,
        reg: float | str = 0.01,
        n_components: int | None = None,
    ) -> None:
        self.discriminant = discriminant
        self.reg = reg
        self.n_components = n_components

    def _require_settings(self) -> None:
        require_choice("CDL", "discriminant", self.discriminant, ("lda", "pls"))
        if self.reg != "auto":
            require_number("CDL", "reg", self.reg, above=0)
        if self.n_components is not None:
            require_count("CDL", "n_components", self.n_components)

    def _learn(self, X: Tensor, codes: NDArray[numpy.int64]) -> None:
        F = log_euclidean.vectors(X).numpy()
        if numpy.abs(F - F[0]).max() <= _RANK * max(1.0, numpy.abs(F).max()):
            raise ValueError("CDL: expected matrices that differ, got all alike")
        self.discriminant_ = self.discriminant
        if self.discriminant == "pls":
            self._fit_pls(F, codes)
            return
        self.reg_ = _choose(F, codes, self._n(codes)) if self.reg == "auto" else float(self.reg)
        self.weights_, self.eigenvalues_ = _discriminant(F, codes, self.reg_, self._n(codes))
        self.codes_, self.embedded_ = codes, F @ self.weights_

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """Places ``(N, n_components)`` in the space."""
        F = log_euclidean.vectors(self._matrices(X)).numpy()
        return self._embed(F)

    def decision_function(self, X: ArrayLike) -> NDArray[Any]:
        """Responses ``(N, n_classes)`` of ``pls``; for ``lda`` minus the distance to each class.

        For two classes the difference ``(N,)``.
        """
        return one_column_for_two(self._scores(self._matrices(X)))

    def _scores(self, X: Tensor) -> NDArray[Any]:
        F = log_euclidean.vectors(X).numpy()
        if self.discriminant_ == "pls":
            return self._embed(F) @ self.loadings_ + self.response_
        D = euclidean(torch.from_numpy(self._embed(F)), torch.from_numpy(self.embedded_))
        return -_nearest_of_class(D, self.codes_, len(self.classes_)).numpy()

    def _codes(self, X: Tensor) -> NDArray[numpy.int64]:
        return self._scores(X).argmax(1)

    def pair_score(self, A: ArrayLike, B: ArrayLike) -> NDArray[Any]:
        """How alike the matrices of pairs are, ``(N,)``: minus their distance in the space."""
        return -numpy.linalg.norm(self.transform(A) - self.transform(B), axis=1)

    def similarity(self, A: ArrayLike, B: ArrayLike) -> NDArray[Any]:
        """Scores ``(N, M)`` of all of ``A`` with all of ``B``: see :meth:`pair_score`."""
        one, other = (torch.from_numpy(self.transform(X)) for X in (A, B))
        return -euclidean(one, other).numpy()

    def _embed(self, F: NDArray[Any]) -> NDArray[Any]:
        return (F - self.mean_ if self.discriminant_ == "pls" else F) @ self.weights_

    def _n(self, codes: NDArray[numpy.int64]) -> int:
        most = int(codes.max())  # one fewer than classes
        return most if self.n_components is None else min(self.n_components, most)

    def _fit_pls(self, F: NDArray[Any], codes: NDArray[numpy.int64]) -> None:
        Y = numpy.eye(int(codes.max()) + 1)[codes]
        n = min(self.n_components or len(self.classes_) - 1, *F.shape)
        self.mean_, self.response_ = F.mean(0), Y.mean(0)
        self.weights_, self.loadings_ = _partial_least_squares(F - self.mean_, Y, n)


def _nearest_of_class(D: Tensor, codes: NDArray[numpy.int64], n_classes: int) -> Tensor:
    """Distances ``(M, n_classes)`` to the nearest of each class, from those to all ``(M, N)``."""
    place = torch.from_numpy(codes).to(D.device).expand_as(D)
    start = D.new_full((len(D), n_classes), torch.inf)
    return start.scatter_reduce(1, place, D, "amin")


def _discriminant(
    F: NDArray[Any], codes: NDArray[numpy.int64], reg: float, n: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Weights ``(p, n)`` of the logarithms, and the eigenvalues."""
    U, S, Vh = numpy.linalg.svd(F - F.mean(0), full_matrices=False)
    kept = _RANK * S[0] < S
    U, S, Vh = U[:, kept], S[kept], Vh[kept]
    counts = numpy.bincount(codes)
    Z = numpy.eye(len(counts))[codes] / numpy.sqrt(counts)
    r = (S**4 + reg) ** -0.5
    P, sigma, _ = numpy.linalg.svd((r * S**2)[:, None] * (U.T @ Z), full_matrices=False)
    n = min(n, P.shape[1])
    W = Vh.T @ ((S * r)[:, None] * P[:, :n])  # F^T alpha
    return W / numpy.linalg.norm(W, axis=0), sigma[:n] ** 2


def _partial_least_squares(
    F: NDArray[Any], Y: NDArray[Any], n: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    r"""Weights ``(p, n)`` of centred features ``F``, and loadings ``(n, classes)`` of ``Y``.

    The direction of each component is the leading left singular vector of :math:`F^\top Y`, from an
    eigendecomposition of the size of the classes. Power iterations (NIPALS) converge to it slowly
    where singular values are close.
    """
    directions, features, loadings = [], [], []
    first = 0.0
    for _ in range(n):
        C = F.T @ Y
        w = C @ numpy.linalg.eigh(C.T @ C)[1][:, -1]
        size = float(numpy.linalg.norm(w))
        first = max(first, size)
        if size <= _RANK * first:  # nothing is left to explain
            break
        w *= numpy.sign(w[numpy.abs(w).argmax()]) / size
        t = F @ w
        t_dual = t / (t @ t)
        directions.append(w)
        features.append(F.T @ t_dual)
        loadings.append(Y.T @ t_dual)
        F = F - numpy.outer(t, features[-1])  # the part that t explains is removed
    W, P = numpy.stack(directions, 1), numpy.stack(features, 1)
    return W @ numpy.linalg.inv(P.T @ W), numpy.stack(loadings)


def _choose(F: NDArray[Any], codes: NDArray[numpy.int64], n: int) -> float:
    """The regularisation with the best accuracy of three folds; the smallest of equals."""
    if numpy.bincount(codes).min() < 2:
        raise ValueError(
            "CDL: expected at least two matrices of each class for reg='auto', got one of some; "
            "give reg as a number"
        )
    folds = min(3, int(numpy.bincount(codes).min()))
    hits = numpy.zeros(len(GRID))
    parts = StratifiedKFold(folds, shuffle=True, random_state=0).split(F, codes)
    for learn, test in parts:
        for i, reg in enumerate(GRID):
            W, _ = _discriminant(F[learn], codes[learn], reg, n)
            D = euclidean(torch.from_numpy(F[test] @ W), torch.from_numpy(F[learn] @ W))
            hits[i] += (vote(D, codes[learn], 1) == codes[test]).sum()
    return GRID[int(hits.argmax())]
