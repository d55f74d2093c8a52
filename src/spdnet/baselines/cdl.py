"""Covariance discriminative learning."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import TransformerMixin
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

from spdnet._checks import require_number
from spdnet.baselines.estimator import IntArray, ScoresMixin, SPDClassifier, choice, count
from spdnet.baselines.neighbors import vote
from spdnet.manifolds import log_euclidean
from spdnet.manifolds.pairs import euclidean

#: candidates for ``reg="auto"``
GRID = tuple(10.0**e for e in range(-2, 5))
#: smallest singular value, relative to the largest
_RANK = 1e-12


@dataclass(eq=False, repr=False)
class CDL(ScoresMixin, TransformerMixin, SPDClassifier):  # type: ignore[misc]
    r"""Covariance discriminative learning.

    ``lda``: kernel discriminant analysis
    :math:`K Z Z^\top K \alpha = \lambda (K^2 + \epsilon I) \alpha` with the kernel
    :math:`\mathrm{tr}(\log X \log Y)` and the class indicators :math:`Z`, scaled to unit columns,
    and the nearest neighbor in its space; the scores are negative distances. ``pls``: partial
    least squares regression from the logarithms to the classes; the scores are its responses.

    The kernel is linear in the logarithms. With their centered singular value decomposition
    :math:`F = U S V^\top`, the analysis is the singular value decomposition of
    :math:`(S^4 + \epsilon)^{-1/2} S^2 U^\top Z`; no N by N matrix is needed.

    Parameters
    ----------
    discriminant : {"lda", "pls"}
    reg : float or "auto"
        :math:`\epsilon` of ``lda``. The authors use 0.01, but it scales with the fourth power of
        the logarithms and matters. ``"auto"`` selects from 10^-2 to 10^4 by three-fold
        cross-validation on the training data.
    n_components : int, optional
        Dimension of the space; by default the number of classes minus one.

    Attributes
    ----------
    reg_ : float
        The regularization used by ``lda``.
    eigenvalues_ : array, shape (n_components,)
        :math:`\lambda` of ``lda``.

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

    discriminant: str = choice("lda", choices=("lda", "pls"))
    _: KW_ONLY
    reg: float | str = 0.01
    n_components: int | None = count(None)

    def _fit(self, X: Tensor, codes: IntArray) -> None:
        if self.reg != "auto":
            require_number("CDL", "reg", self.reg, above=0)
        F = log_euclidean.vectors(X).numpy()
        if numpy.abs(F - F[0]).max() <= _RANK * max(1.0, numpy.abs(F).max()):
            raise ValueError("CDL: expected matrices that differ, but all are equal")
        self.discriminant_ = self.discriminant
        most = int(codes.max())  # the number of classes minus one
        if self.discriminant == "pls":
            n = min(self.n_components or most, *F.shape)
            Y = numpy.eye(most + 1)[codes]
            self.mean_, self.response_ = F.mean(0), Y.mean(0)
            self.weights_, self.loadings_ = _partial_least_squares(F - self.mean_, Y, n)
            return
        n = most if self.n_components is None else min(self.n_components, most)
        self.reg_ = _choose_reg(F, codes, n) if self.reg == "auto" else float(self.reg)
        self.weights_, self.eigenvalues_ = _discriminant(F, codes, self.reg_, n)
        self.codes_, self.embedded_ = codes, F @ self.weights_

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """Project to the space ``(N, n_components)``."""
        return self._embed(self._validate_fitted(X))

    def similarity(self, A: ArrayLike, B: ArrayLike) -> NDArray[Any]:
        """Compute the negative distances ``(N, M)`` of all pairs in the space."""
        one, other = (torch.from_numpy(self.transform(X)) for X in (A, B))
        return -euclidean(one, other).numpy()

    def _scores(self, X: Tensor) -> NDArray[Any]:
        Z = self._embed(X)
        if self.discriminant_ == "pls":
            return Z @ self.loadings_ + self.response_
        D = euclidean(torch.from_numpy(Z), torch.from_numpy(self.embedded_))
        index = torch.from_numpy(self.codes_).expand_as(D)
        nearest = D.new_full((len(D), len(self.classes_)), torch.inf)  # of each class
        return -nearest.scatter_reduce(1, index, D, "amin").numpy()

    def _embed(self, X: Tensor) -> NDArray[Any]:
        F = log_euclidean.vectors(X).numpy()
        return (F - self.mean_ if self.discriminant_ == "pls" else F) @ self.weights_


def _discriminant(
    F: NDArray[Any], codes: IntArray, reg: float, n: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Compute the weights ``(p, n)`` of the logarithms and the eigenvalues."""
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
    """Compute weights ``(p, n)`` of centered ``F`` and loadings ``(n, classes)`` of ``Y``."""
    # each direction is the leading left singular vector of F^T Y; power iterations (NIPALS) would
    # converge slowly if singular values are close
    directions, features, loadings = [], [], []
    first = 0.0
    for _ in range(n):
        C = F.T @ Y
        w = C @ numpy.linalg.eigh(C.T @ C)[1][:, -1]
        size = float(numpy.linalg.norm(w))
        first = max(first, size)
        if size <= _RANK * first:  # the residual is zero
            break
        w *= numpy.sign(w[numpy.abs(w).argmax()]) / size
        t = F @ w
        t_dual = t / (t @ t)
        directions.append(w)
        features.append(F.T @ t_dual)
        loadings.append(Y.T @ t_dual)
        F = F - numpy.outer(t, features[-1])  # deflation
    W, P = numpy.stack(directions, 1), numpy.stack(features, 1)
    return W @ numpy.linalg.inv(P.T @ W), numpy.stack(loadings)


def _choose_reg(F: NDArray[Any], codes: IntArray, n: int) -> float:
    """Choose the regularization by three-fold cross-validation; the smallest value breaks ties."""
    fewest = int(numpy.bincount(codes).min())
    if fewest < 2:
        raise ValueError(
            "CDL: expected at least two matrices per class for reg='auto', got a class with one; "
            "pass reg as a number"
        )
    n_correct = numpy.zeros(len(GRID))
    folds = StratifiedKFold(min(3, fewest), shuffle=True, random_state=0)
    for train, test in folds.split(F, codes):
        for i, reg in enumerate(GRID):
            W, _ = _discriminant(F[train], codes[train], reg, n)
            D = euclidean(torch.from_numpy(F[test] @ W), torch.from_numpy(F[train] @ W))
            n_correct[i] += (vote(D, codes[train]) == codes[test]).sum()
    return GRID[int(n_correct.argmax())]
