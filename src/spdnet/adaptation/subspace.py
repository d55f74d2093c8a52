"""Common subspace and shrinkage of matrices of deficient rank."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from spdnet._checks import as_array, require_choice, require_count, require_number
from spdnet._inputs import TakesMatrices, as_tensor, encode_labels
from spdnet.adaptation.rank import checked_semidefinite, count_dimensions, range_basis
from spdnet.adaptation.shrinkage import GRID, cross_validate, shrink
from spdnet.covariance.estimators import oas_shrinkage
from spdnet.linalg import congruence
from spdnet.linalg.symmetric import fix_signs, trace
from spdnet.linalg.validate import (
    chunk_size,
    find_faults,
    require_positive_trace,
    singular_ratio,
)


@dataclass(eq=False, repr=False)
class Subspace(TakesMatrices, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    r"""Make matrices of deficient rank positive definite: common subspace and shrinkage.

    Directions without variance in all training matrices, such as the mean of the channels after an
    average reference, are removed: :math:`Y = F^\top X F`, where the columns of :math:`F` are the
    eigenvectors of the mean of the training matrices. If some matrices are still singular, because
    they have fewer observations than channels or lack other directions, all matrices are shrunk by
    the same factor:

    .. math:: (1 - \rho) Y + \rho \frac{\mathrm{tr} Y}{r} I

    Matrices of full rank are not changed.

    Parameters
    ----------
    rank : "auto", "full" or int
        Size of the subspace: the numerical rank of the mean, the number of channels, or this number
        of directions of largest variance.
    shrinkage : "auto", "none" or float
        The factor :math:`\rho`, from 0 to less than 1. By default, it is 0 if no training matrix is
        singular in the subspace. Otherwise it is chosen by cross-validation of ridge regression on
        the logarithms. Without labels, it is the median over the singular matrices of the oracle
        approximating shrinkage, for one observation more than the rank.

    Attributes
    ----------
    basis_ : array, shape (n, r), or None
        The matrix :math:`F`, or None for the identity.
    shrinkage_ : float
        The factor used.
    shrinkage_curve_ : dict of float to float
        Accuracy of the cross-validation for each factor; empty if there was none.
    rank_ : int
        Size of the transformed matrices.
    ranks_ : array, shape (N,)
        Ranks of the training matrices in the subspace.
    n_features_in_ : int
        Size of the matrices.

    Notes
    -----
    The mean is that of the matrices divided by their traces, so that recordings with large
    amplitudes do not dominate. Candidates for the factor have log-spaced ratios
    :math:`\rho/(1-\rho)` from 1e-5 to 10, excluding values below the rounding errors of the
    training matrices. All matrices have the same factor, also those of full rank, since logarithms
    are comparable only after the same transformation.

    References
    ----------
    D. Sabbagh, P. Ablin, G. Varoquaux, A. Gramfort, D. A. Engemann, "Manifold-regression to predict
    from MEG/EEG brain signals without source modeling", NeurIPS 2019.
    https://doi.org/10.48550/arXiv.1906.02687

    O. Ledoit, M. Wolf, "A well-conditioned estimator for large-dimensional covariance matrices",
    J. Multivar. Anal., 2004. https://doi.org/10.1016/S0047-259X(03)00096-4

    Examples
    --------
    >>> import numpy
    >>> from spdnet.adaptation import Subspace
    >>> signals = numpy.random.default_rng(0).normal(size=(5, 8, 100))
    >>> signals -= signals.mean(1, keepdims=True)  # average reference
    >>> subspace = Subspace().fit(signals @ signals.swapaxes(1, 2))
    >>> print(subspace.describe())
    rank 7 of 8: 1 direction without variance in all training matrices removed
    """

    rank: str | int = "auto"
    shrinkage: str | float = "auto"

    #: cross-validation by groups passes them to fit, too, without set_fit_request
    __metadata_request__fit = {"groups": True}  # noqa: RUF012, as scikit-learn reads it

    def fit(
        self, X: ArrayLike, y: ArrayLike | None = None, *, groups: ArrayLike | None = None
    ) -> Self:
        """Find the subspace and the shrinkage for positive semi-definite ``X (N, n, n)``.

        The cross-validation for the classes ``y (N,)`` keeps the matrices of each of the
        ``groups (N,)`` together.
        """
        self.require_settings()
        return self.fit_tensor(checked_semidefinite("Subspace", X), y, groups)

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """Transform positive semi-definite matrices ``(N, n, n)`` to ``(N, r, r)``."""
        check_is_fitted(self)
        return self.transform_tensor(
            checked_semidefinite("Subspace", X, self.n_features_in_)
        ).numpy()

    def inverse_transform(self, Y: ArrayLike) -> NDArray[Any]:
        r"""Return matrices of the original size, :math:`F Y F^\top`; shrinkage is not undone."""
        check_is_fitted(self)
        values = as_array("Subspace", Y, "Y").astype(float)
        if values.shape[-2:] != (self.rank_, self.rank_):
            raise ValueError(
                f"Subspace: expected Y of shape (..., {self.rank_}, {self.rank_}), got "
                f"{values.shape}; pass matrices that were transformed"
            )
        return values if self.basis_ is None else self.basis_ @ values @ self.basis_.T

    def fit_tensor(
        self,
        X: Tensor,
        y: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        *,
        others: Tensor | None = None,
    ) -> Self:
        """Fit to valid matrices of any floating-point type, on any device.

        Matrices are also shrunk if no matrix of ``X``, but one of the ``others``, is singular.
        """
        require_positive_trace("Subspace", X)
        n, (ranks, errors) = X.shape[-1], count_dimensions(X)
        basis = self._find_basis(X.double(), ranks, errors)
        Y = X.double() if basis is None else congruence(X.double(), basis)
        self.n_features_in_, self.rank_ = n, int(Y.shape[-1])
        self.basis_ = None if basis is None else basis.cpu().numpy()
        ranks = torch.minimum(_definite_rank(Y, X.dtype), ranks)
        self.ranks_ = ranks.cpu().numpy()
        self.shrinkage_curve_: dict[float, float] = {}
        self.shrinkage_ = 0.0
        if self.shrinkage == "auto":
            r = self.rank_
            if (ranks < r).any() or (others is not None and (self._ranks(others) < r).any()):
                self.shrinkage_ = self._choose(Y, ranks, errors, y, groups)
        else:
            self.shrinkage_ = 0.0 if self.shrinkage == "none" else float(self.shrinkage)
            self._require_full(_definite_rank(shrink(Y, self.shrinkage_).to(X.dtype), X.dtype))
        return self

    def transform_tensor(self, X: Tensor) -> Tensor:
        """Transform valid matrices of any floating-point type, on any device."""
        Y = self._transformed(X)
        self._require_full(_definite_rank(Y, Y.dtype))
        return Y

    def require_definite(self, parts: Iterable[Tensor]) -> None:
        """Raise a ValueError unless all matrices, given in parts, become positive definite."""
        self._require_full(torch.cat([self._ranks(X) for X in parts]))

    def _transformed(self, X: Tensor) -> Tensor:
        require_positive_trace("Subspace", X)
        Y = X
        if self.basis_ is not None:
            Y = congruence(X.double(), as_tensor(self.basis_).to(X.device))
        if self.shrinkage_ > 0:
            Y = shrink(Y.double(), self.shrinkage_)
        return Y.to(X.dtype)

    def describe(self) -> str:
        """Return one line that states how matrices are transformed, and why."""
        check_is_fitted(self)
        n, r, dropped = self.n_features_in_, self.rank_, self.n_features_in_ - self.rank_
        text = f"rank {r} of {n}"
        if self.rank == "auto" and dropped:
            text += (
                f": {dropped} direction{'s' * (dropped > 1)} without variance in all training "
                "matrices removed"
            )
        elif dropped:
            text += ": directions of the largest variance in the training matrices"
        singular = self.ranks_[self.ranks_ < r]
        if len(singular):
            low, high = singular.min(), singular.max()
            span = f"{low}" if low == high else f"{low} to {high}"
            text += f"; {len(singular)} of {len(self.ranks_)} matrices are singular (rank {span})"
        return text + self._describe_shrinkage()

    def _describe_shrinkage(self) -> str:
        if self.shrinkage_ == 0:
            return ""
        text = f"; shrinkage {self.shrinkage_:.2g}"
        if self.shrinkage_curve_:
            low, high = (100 * f(self.shrinkage_curve_.values()) for f in (min, max))
            return (
                f"{text} chosen by cross-validation within the training set ({low:.1f} to "
                f"{high:.1f} % over the grid)"
            )
        return text + (" estimated from the eigenvalues" if self.shrinkage == "auto" else " as set")

    def require_settings(self) -> None:
        """Raise an error for invalid parameters."""
        if isinstance(self.rank, str):
            require_choice("Subspace", "rank", self.rank, ("auto", "full"))
        else:
            require_count("Subspace", "rank", self.rank)
        if isinstance(self.shrinkage, str):
            require_choice("Subspace", "shrinkage", self.shrinkage, ("auto", "none"))
        else:
            require_number("Subspace", "shrinkage", self.shrinkage, at_least=0, below=1)

    def _find_basis(self, X: Tensor, ranks: Tensor, errors: Tensor) -> Tensor | None:
        """Return an orthonormal basis of the subspace, or None for the whole space."""
        n = X.shape[-1]
        if self.rank == "full" or (self.rank == "auto" and ranks.max() == n):
            return None
        mean = (X.flatten(1).mT @ trace(X).reciprocal()).reshape(n, n) / len(X)
        F = range_basis(mean, errors.mean())  # errors of a mean are at most the mean of the errors
        most = F.shape[-1]
        r = most if self.rank == "auto" else int(self.rank)
        if r > most:
            raise ValueError(
                f"Subspace: expected rank <= {most}, the rank of the mean of the training "
                f"matrices, got {r}; use rank='auto', or rank='full' with shrinkage"
            )
        if r == n:
            return None
        # coordinates in the subspace do not depend on directions without variance
        return fix_signs(F[:, :r], X @ F[:, 0] / trace(X)[:, None])

    def _choose(
        self,
        Y: Tensor,
        ranks: Tensor,
        errors: Tensor,
        y: ArrayLike | None,
        groups: ArrayLike | None,
    ) -> float:
        """Choose the shrinkage of matrices in the subspace."""
        r, singular = Y.shape[-1], ranks < Y.shape[-1]
        # the shrinkage has to exceed the rounding errors of the eigenvalues
        least = float((2 * r * errors * Y.norm(dim=(-2, -1)) / trace(Y)).max())
        candidates = tuple(rho for rho in GRID if rho > least * (1 - rho)) or GRID[-1:]
        if y is not None:
            _, codes = encode_labels("Subspace", y, len(Y))
            group_of = None if groups is None else as_array("Subspace", groups, "groups")
            if group_of is not None and group_of.shape != codes.shape:
                raise ValueError(
                    f"Subspace: expected groups of shape {codes.shape}, one for each matrix, got "
                    f"{group_of.shape}"
                )
            self.shrinkage_curve_ = cross_validate(Y, codes, group_of, candidates)
        if self.shrinkage_curve_:
            return max(self.shrinkage_curve_, key=lambda rho: (self.shrinkage_curve_[rho], rho))
        if not singular.any():
            return candidates[0]
        rho = float(oas_shrinkage(Y[singular], ranks[singular] + 1).median())
        return max(candidates[0], min(rho, GRID[-1]))  # 1 would discard all but the trace

    def _ranks(self, X: Tensor) -> Tensor:
        """Return the ranks of matrices after the transformation."""
        return _definite_rank(self._transformed(X), X.dtype)

    def _require_full(self, ranks: Tensor) -> None:
        """Raise a ValueError unless all ranks are those of positive definite matrices."""
        singular = (ranks < self.rank_).nonzero().flatten()
        if len(singular):
            given = "shrinkage=0" if self.shrinkage_ == 0 else f"shrinkage={self.shrinkage_:.2g}"
            raise ValueError(
                f"Subspace: expected matrices of rank {self.rank_}, but X[{int(singular[0])}] is "
                f"singular in the subspace with {given}; {len(singular)} of {len(ranks)} matrices "
                "are affected; set a larger shrinkage, such as 0.1, or include singular matrices "
                "in the training set and use shrinkage='auto'"
            )


def _definite_rank(X: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the number of eigenvalues of matrices that are not singular in this dtype."""
    n, unit = X.shape[-1], torch.finfo(dtype).eps
    found = find_faults(X.split(chunk_size(n, X.device)), len(X), unit=unit, dtype=dtype)
    ranks, bad = torch.full((len(X),), n), found.code >= 0
    if bad.any():
        s = torch.linalg.eigvalsh(X[bad.to(X.device)].double()).cpu()
        ranks[bad] = (s > singular_ratio(n, unit) * s[:, -1:]).sum(-1).clamp(max=n - 1)
    return ranks.to(X.device)
