r"""Methods with the Stein kernel :math:`\exp(-\beta S(X, Y))`: sparse codes, and a support vector
machine.

The kernel is positive definite for every set of matrices only at certain :math:`\beta`; where a
Gram matrix has a negative eigenvalue it is taken for zero.
"""

import warnings
from typing import Any

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso
from sklearn.svm import SVC
from torch import Tensor

from spdnet._checks import require_choice, require_count, require_number
from spdnet.baselines.estimator import SPDClassifier, one_column_for_two, subsample
from spdnet.baselines.progress import Progress
from spdnet.manifolds import stein

_SMALLEST = 1e-10  # eigenvalue of a Gram matrix whose diagonal is 1


class _SteinKernel(SPDClassifier):
    """Keeps the training matrices, and knows the kernel."""

    beta: float | str
    max_train: int | None
    verbose: bool

    def _require_settings(self) -> None:
        if self.beta != "scale":
            require_number(type(self).__name__, "beta", self.beta, above=0)

    def _start(
        self, X: Tensor, codes: NDArray[numpy.int64]
    ) -> tuple[NDArray[Any], NDArray[numpy.int64]]:
        """The Gram matrix of the training matrices that are kept, and their classes."""
        kept = subsample(codes, self.max_train)
        X, codes = X[torch.from_numpy(kept)], codes[kept]
        self.matrices_ = X.cpu()
        S = self._divergences(X)
        self.beta_ = _scale(S) if self.beta == "scale" else float(self.beta)
        return torch.exp(-self.beta_ * S).cpu().numpy(), codes

    def _kernel(self, X: Tensor) -> NDArray[Any]:
        """``(M, N)`` with the training matrices."""
        S = self._divergences(X, self.matrices_.to(X.device))
        return torch.exp(-self.beta_ * S).cpu().numpy()

    def _divergences(self, X: Tensor, Y: Tensor | None = None) -> Tensor:
        with Progress(self.verbose, "Stein divergences") as progress:
            return stein.pairwise(X, Y, progress=progress, check=False)


def _scale(S: Tensor) -> float:
    """One over the median divergence of different training matrices."""
    rows, cols = torch.triu_indices(len(S), len(S), 1, device=S.device)
    middle = float(S[rows, cols].median())
    return 1 / middle if middle > 0 else 1.0


class SteinSVC(_SteinKernel):
    """Support vector machine with the Stein kernel.

    Fitting costs N^2 n^3 / 6 operations for the kernel.

    Parameters
    ----------
    C : float
        As in :class:`sklearn.svm.SVC`.
    beta : float or "scale"
        Of the kernel; one over the median divergence of the training matrices by default.
    max_train, device, verbose
        As in :class:`NearestNeighbor`.

    Attributes
    ----------
    classes_ : array, shape (n_classes,)
    beta_ : float

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

    def __init__(
        self,
        C: float = 10.0,
        *,
        beta: float | str = "scale",
        max_train: int | None = None,
        device: str = "cpu",
        verbose: bool = False,
    ) -> None:
        self.C = C
        self.beta = beta
        self.max_train = max_train
        self.device = device
        self.verbose = verbose

    def _require_settings(self) -> None:
        super()._require_settings()
        require_number("SteinSVC", "C", self.C, above=0)

    def _learn(self, X: Tensor, codes: NDArray[numpy.int64]) -> None:
        K, codes = self._start(X, codes)
        s, U = numpy.linalg.eigh(K)
        self.projection_ = None
        if s[0] < -_SMALLEST * len(K):  # a kernel only on the other eigenvectors
            V = U[:, s > 0]
            self.projection_ = V @ V.T
            K = K @ self.projection_
        machine = SVC(
            C=self.C, kernel="precomputed", random_state=0
        )  # a number is drawn for nothing
        self.machine_ = machine.fit(K, codes)

    def _seen(self, X: Tensor) -> NDArray[Any]:
        K = self._kernel(X)
        return K if self.projection_ is None else K @ self.projection_

    def decision_function(self, X: ArrayLike) -> NDArray[Any]:
        """As in :class:`sklearn.svm.SVC`."""
        kernel = self._seen(self._matrices(X))
        return self.machine_.decision_function(kernel)

    def _codes(self, X: Tensor) -> NDArray[numpy.int64]:
        return self.machine_.predict(self._seen(X))


class RSR(_SteinKernel):
    r"""Riemannian sparse representation (Harandi et al., 2012).

    A matrix is coded by few of the training matrices, in the space of the Stein kernel:
    :math:`\min_a a^\top K a - 2 a^\top k_x + 2 \alpha \lVert a \rVert_1`. Its class is the one
    whose part of the code alone comes nearest.

    Fitting costs N^2 n^3 / 6 + N^3 operations, prediction a lasso with N unknowns for each matrix.

    Parameters
    ----------
    alpha : float
        Weight of the penalty.
    beta : float or "scale"
        Of the kernel; one over the median divergence of the training matrices by default. With a
        beta that is too large every code is zero.
    normalize : {"columns"}, optional
        Divide the columns of the kernel matrices by their norms, as the authors' code does.
    max_iter : int
        Of the lasso.
    max_train, device, verbose
        As in :class:`NearestNeighbor`.

    Attributes
    ----------
    classes_ : array, shape (n_classes,)
    beta_ : float

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

    def __init__(
        self,
        alpha: float = 0.01,
        *,
        beta: float | str = "scale",
        normalize: str | None = None,
        max_iter: int = 1000,
        max_train: int | None = None,
        device: str = "cpu",
        verbose: bool = False,
    ) -> None:
        self.alpha = alpha
        self.beta = beta
        self.normalize = normalize
        self.max_iter = max_iter
        self.max_train = max_train
        self.device = device
        self.verbose = verbose

    def _require_settings(self) -> None:
        super()._require_settings()
        self._require_coding()
        if self.normalize is not None:
            require_choice("RSR", "normalize", self.normalize, ("columns",))

    def _require_coding(self) -> None:
        """Of prediction, where they may be others than in fit."""
        require_number("RSR", "alpha", self.alpha, above=0)
        require_count("RSR", "max_iter", self.max_iter)

    def _learn(self, X: Tensor, codes: NDArray[numpy.int64]) -> None:
        K, self.codes_ = self._start(X, codes)
        self.normalize_ = self.normalize
        if self.normalize:
            U, s, _ = numpy.linalg.svd(K / numpy.linalg.norm(K, axis=0))
        else:
            s, U = numpy.linalg.eigh(K)
        s = numpy.maximum(s, _SMALLEST)
        self.dictionary_ = numpy.sqrt(s)[:, None] * U.T  # |b - A a|^2 = a^T K a - 2 a^T k + const
        self.to_target_ = U.T / numpy.sqrt(s)[:, None]

    def codes(self, X: ArrayLike) -> NDArray[Any]:
        """The sparse codes ``(M, N)``."""
        return self._code(self._targets(self._matrices(X)))

    def decision_function(self, X: ArrayLike) -> NDArray[Any]:
        """Minus the residual ``(M, n_classes)`` of the part of each class.

        For two classes the difference ``(M,)``.
        """
        return one_column_for_two(self._scores(self._matrices(X)))

    def _scores(self, X: Tensor) -> NDArray[Any]:
        B = self._targets(X)
        codes = self._code(B)
        residuals = [
            numpy.linalg.norm(B - codes[:, of_class] @ self.dictionary_[:, of_class].T, axis=1)
            for of_class in (self.codes_ == c for c in range(len(self.classes_)))
        ]
        return -numpy.stack(residuals, 1)

    def _codes(self, X: Tensor) -> NDArray[numpy.int64]:
        return self._scores(X).argmax(1)

    def _targets(self, X: Tensor) -> NDArray[Any]:
        k = self._kernel(X)
        if self.normalize_:
            length = numpy.linalg.norm(k, axis=1, keepdims=True)
            k = k / numpy.where(length > 0, length, 1)
        return k @ self.to_target_.T

    def _code(self, B: NDArray[Any]) -> NDArray[Any]:
        self._require_coding()
        A = self.dictionary_
        lasso = Lasso(
            alpha=self.alpha / len(A),
            fit_intercept=False,
            precompute=A.T @ A,
            max_iter=self.max_iter,
            random_state=0,  # nothing is random, but a number is drawn
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            codes = numpy.atleast_2d(lasso.fit(A, B.T).coef_)
        if any(issubclass(w.category, ConvergenceWarning) for w in caught):
            warnings.warn(
                f"RSR: some codes have not converged after {self.max_iter} iterations; raise "
                "max_iter or alpha",
                ConvergenceWarning,
                stacklevel=3,
            )
        n_zero = int((codes == 0).all(1).sum())
        if n_zero:
            warnings.warn(
                f"RSR: {n_zero} of {len(codes)} codes are zero, and their classes mere chance; "
                "lower alpha, or beta if few training matrices are near",
                RuntimeWarning,
                stacklevel=3,
            )
        return codes
