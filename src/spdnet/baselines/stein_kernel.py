r"""Sparse representation and support vector machine with the Stein kernel.

The kernel :math:`\exp(-\beta S(X, Y))` is positive definite for all sets of matrices only for
certain :math:`\beta`; negative eigenvalues of a Gram matrix are replaced by zero.
"""

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso
from sklearn.svm import SVC
from torch import Tensor

from spdnet._warnings import warn_user
from spdnet.baselines.estimator import (
    IntArray,
    ScoresMixin,
    SubsetClassifier,
    choice,
    count,
    positive,
    show_progress,
)
from spdnet.manifolds import stein

#: smallest eigenvalue of a Gram matrix with unit diagonal
_SMALLEST = 1e-10


@dataclass(eq=False, repr=False, kw_only=True)
class _SteinKernel(SubsetClassifier):
    """Base class of methods with the Stein kernel."""

    supports_complex: ClassVar[bool] = True

    beta: float | str = positive("scale")

    def _fit_kernel(self, X: Tensor, codes: IntArray) -> tuple[NDArray[Any], IntArray]:
        """Return the Gram matrix of the training matrices and their classes."""
        X, codes = self._subset(X, codes)
        self.matrices_ = X.cpu()
        S = self._divergences(X)
        if self.beta == "scale":
            rows, cols = torch.triu_indices(len(S), len(S), 1, device=S.device)
            middle = float(S[rows, cols].median())
            self.beta_ = 1 / middle if middle > 0 else 1.0
        else:
            self.beta_ = float(self.beta)
        return torch.exp(-self.beta_ * S).cpu().numpy(), codes

    def _kernel(self, X: Tensor) -> NDArray[Any]:
        """Compute the kernel ``(M, N)`` with the training matrices."""
        S = self._divergences(X, self.matrices_.to(X.device))
        return torch.exp(-self.beta_ * S).cpu().numpy()

    def _divergences(self, X: Tensor, Y: Tensor | None = None) -> Tensor:
        with show_progress(self.verbose, "Stein divergences") as progress:
            return stein.pairwise(X, Y, progress=progress, check=False)


@dataclass(eq=False, repr=False)
class SteinSVC(_SteinKernel):
    """Support vector machine with the Stein kernel.

    Fitting costs N^2 n^3 / 6 operations for the kernel.

    Parameters
    ----------
    C : float
        See :class:`sklearn.svm.SVC`.
    beta : float or "scale"
        Parameter of the kernel; by default one over the median divergence of the training matrices.
    max_train, device, verbose : see :class:`NearestNeighbor`

    References
    ----------
    S. Sra, "Positive definite matrices and the S-divergence", Proc. Amer. Math. Soc., 2016.

    Examples
    --------
    >>> from spdnet.baselines import SteinSVC
    >>> from spdnet.data import load_digits_spd
    >>> X, y = load_digits_spd()
    >>> bool(SteinSVC().fit(X[:300], y[:300]).score(X[300:400], y[300:400]) > 0.9)
    True
    """

    C: float = positive(10.0)

    def _fit(self, X: Tensor, codes: IntArray) -> None:
        K, codes = self._fit_kernel(X, codes)
        s, U = numpy.linalg.eigh(K)
        self.projection_ = None
        if s[0] < -_SMALLEST * len(K):  # project onto the positive eigenvalues
            V = U[:, s > 0]
            self.projection_ = V @ V.T
            K = K @ self.projection_
        # the default random_state consumes the global generator
        self.machine_ = SVC(C=self.C, kernel="precomputed", random_state=0).fit(K, codes)

    def _projected_kernel(self, X: Tensor) -> NDArray[Any]:
        K = self._kernel(X)
        return K if self.projection_ is None else K @ self.projection_

    def decision_function(self, X: ArrayLike) -> NDArray[Any]:
        """Compute the scores of the support vector machine."""
        K = self._projected_kernel(self._validate_fitted(X))
        return self.machine_.decision_function(K)

    def _predict(self, X: Tensor) -> IntArray:
        return self.machine_.predict(self._projected_kernel(X))


@dataclass(eq=False, repr=False)
class RSR(ScoresMixin, _SteinKernel):
    r"""Riemannian sparse representation.

    Represents a matrix by few training matrices in the space of the Stein kernel:
    :math:`\min_a a^\top K a - 2 a^\top k_x + 2 \alpha \lVert a \rVert_1`. Predicts the class whose
    part of the code has the smallest residual; the scores are the negative residuals.

    Fitting costs N^2 n^3 / 6 + N^3 operations, prediction a lasso with N unknowns per matrix.

    Parameters
    ----------
    alpha : float
        Weight of the penalty.
    beta : float or "scale"
        As in :class:`SteinSVC`. If it is too large, all codes are zero.
    normalize : {"columns"}, optional
        Divide the columns of the kernel matrices by their norms, as the code of the authors does.
    max_iter : int
        Maximum number of iterations of the lasso.
    max_train, device, verbose : see :class:`NearestNeighbor`

    References
    ----------
    M. Harandi, C. Sanderson, R. Hartley, B. Lovell, "Sparse coding and dictionary learning for
    symmetric positive definite matrices: A kernel approach", ECCV 2012.

    Examples
    --------
    >>> from spdnet.baselines import RSR
    >>> from spdnet.data import load_digits_spd
    >>> X, y = load_digits_spd()
    >>> bool(RSR().fit(X[:300], y[:300]).score(X[300:400], y[300:400]) > 0.9)
    True
    """

    alpha: float = positive(0.01)
    _: KW_ONLY
    normalize: str | None = choice(None, choices=("columns",))
    max_iter: int = count(1000)

    def _fit(self, X: Tensor, codes: IntArray) -> None:
        K, self.codes_ = self._fit_kernel(X, codes)
        self.normalize_ = self.normalize
        if self.normalize:
            U, s, _ = numpy.linalg.svd(K / numpy.linalg.norm(K, axis=0))
        else:
            s, U = numpy.linalg.eigh(K)
        s = numpy.maximum(s, _SMALLEST)
        self.dictionary_ = numpy.sqrt(s)[:, None] * U.T  # |b - A a|^2 = a^T K a - 2 a^T k + const
        self.to_target_ = U.T / numpy.sqrt(s)[:, None]

    def _scores(self, X: Tensor) -> NDArray[Any]:
        B = self._targets(X)
        sparse = self._sparse_codes(B)
        residuals = [
            numpy.linalg.norm(B - sparse[:, of_class] @ self.dictionary_[:, of_class].T, axis=1)
            for of_class in (self.codes_ == c for c in range(len(self.classes_)))
        ]
        return -numpy.stack(residuals, 1)

    def _targets(self, X: Tensor) -> NDArray[Any]:
        k = self._kernel(X)
        if self.normalize_:
            length = numpy.linalg.norm(k, axis=1, keepdims=True)
            k = k / numpy.where(length > 0, length, 1)
        return k @ self.to_target_.T

    def _sparse_codes(self, B: NDArray[Any]) -> NDArray[Any]:
        """Compute the coefficients ``(M, N)`` of the training matrices."""
        self._require_settings("alpha", "max_iter")  # may change after fit
        A = self.dictionary_
        lasso = Lasso(
            alpha=self.alpha / len(A),
            fit_intercept=False,
            precompute=A.T @ A,
            max_iter=self.max_iter,
            random_state=0,  # the default consumes the global generator
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            codes = numpy.atleast_2d(lasso.fit(A, B.T).coef_)
        if any(issubclass(w.category, ConvergenceWarning) for w in caught):
            warn_user(
                f"RSR: some codes have not converged after {self.max_iter} iterations; increase "
                "max_iter or alpha",
                ConvergenceWarning,
            )
        n_zero = int((codes == 0).all(1).sum())
        if n_zero:
            warn_user(
                f"RSR: {n_zero} of {len(codes)} codes are zero, so their classes are arbitrary; "
                "decrease alpha, or beta if few training matrices are near",
            )
        return codes
