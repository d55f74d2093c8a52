"""Estimation of the missing channels of SPD matrices."""

from typing import Any, Self

import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from spdnet._checks import require_square
from spdnet._inputs import TakesMatrices, as_tensor
from spdnet._precision import accurate_dtype
from spdnet.adaptation.mean import masked_mean
from spdnet.adaptation.missing import checked_partial
from spdnet.linalg import cholesky
from spdnet.linalg.missing import fill_in, regression, require_some


def complete(X: Tensor, mask: Tensor, M: Tensor) -> Tensor:
    r"""Estimate the missing channels of SPD matrices from a reference matrix.

    With the observed channels ``o`` and the missing ones ``h``, and :math:`B = M_{ho} M_{oo}^{-1}`,

    .. math:: C_{ho} = B C_{oo}, \qquad C_{hh} = M_{hh} - B M_{oh} + B C_{oo} B^\top .

    This is the covariance of Gaussian signals whose missing channels depend on the observed ones as
    under ``M``. Of all matrices with the observed part :math:`C_{oo}`, it has the smallest
    Kullback-Leibler divergence from ``M``, its determinant is :math:`\det C_{oo} \det(M_{hh} - B
    M_{oh})`, and its inverse equals that of ``M`` in the rows and columns ``h``.

    Parameters
    ----------
    X : Tensor, shape (N, n, n)
        SPD in the observed channels; the entries of the others have no effect.
    mask : Tensor of bool, shape (N, n)
        Observed channels, at least one of each matrix: see :func:`observed_channels`.
    M : Tensor, shape (n, n)
        SPD.

    Returns
    -------
    Tensor, shape (N, n, n)
        Observed entries are unchanged.

    References
    ----------
    A. P. Dempster, N. M. Laird, D. B. Rubin, "Maximum Likelihood from Incomplete Data via the EM
    Algorithm", J. R. Stat. Soc. B, 1977. https://doi.org/10.1111/j.2517-6161.1977.tb01600.x

    Examples
    --------
    >>> import torch
    >>> from spdnet.adaptation import complete
    >>> X = torch.tensor([[[4.0, torch.nan], [torch.nan, torch.nan]]])
    >>> complete(X, torch.tensor([[True, False]]), torch.tensor([[1.0, 0.5], [0.5, 1.0]]))
    tensor([[[4.0000, 2.0000],
             [2.0000, 1.7500]]])
    """
    require_square("complete", X)
    require_square("complete", M, "M", n=X.shape[-1])
    if X.ndim != 3 or mask.shape != X.shape[:-1] or mask.dtype != torch.bool:
        raise ValueError(
            "complete: expected X of shape (N, n, n) and a mask of type bool and shape (N, n), got "
            f"{tuple(X.shape)} and {mask.dtype} {tuple(mask.shape)}; use observed_channels(X)"
        )
    require_some("complete", mask)
    M = M.to(X.device, accurate_dtype(X))
    cholesky(M, who="complete", name="M")
    found = X.clone()
    patterns, which = torch.unique(mask, dim=0, return_inverse=True)
    for i, pattern in enumerate(patterns):
        if not pattern.all():
            own = (which == i).nonzero()[:, 0]
            found[own] = fill_in(X[own], pattern, *regression(pattern, M))
    return found


class Completion(TakesMatrices, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Estimate missing channels from the observed ones and the mean of the training set.

    The mean is :func:`masked_mean`, so training matrices may have missing channels, too. Each
    matrix is completed on its own, as described in :func:`complete`. Matrices without missing
    channels are unchanged.

    Attributes
    ----------
    mean_ : array, shape (n, n)
        Mean of the training set.
    n_features_in_ : int
        Size of the matrices.

    Notes
    -----
    A channel is missing if its row and column are NaN or zero: see :func:`observed_channels`.
    Regularize covariances before their missing channels are marked, because a regularized zero row
    is no longer recognized as missing.

    Examples
    --------
    >>> import numpy
    >>> from spdnet.adaptation import Completion
    >>> X = numpy.array([[[2.0, 1.0], [1.0, 1.0]], [[4.0, numpy.nan], [numpy.nan, numpy.nan]]])
    >>> Completion().fit(X[:1]).transform(X)[1]
    array([[4. , 2. ],
           [2. , 1.5]])
    """

    mean_: NDArray[Any]
    n_features_in_: int

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Compute the mean of SPD matrices ``X (N, n, n)``. ``y`` is ignored."""
        return self.set_mean(masked_mean(checked_partial("Completion", X)))

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """Estimate the missing channels of SPD matrices ``(N, n, n)``."""
        check_is_fitted(self)
        return self.transform_tensor(checked_partial("Completion", X, self.n_features_in_)).numpy()

    def set_mean(self, M: Tensor) -> Self:
        """Set the mean instead of fitting it."""
        self.mean_, self.n_features_in_ = M.cpu().numpy(), int(M.shape[-1])
        return self

    def transform_tensor(self, X: Tensor) -> Tensor:
        """Transform valid matrices, on any device, whose missing channels are NaN."""
        mask = ~X.diagonal(dim1=-2, dim2=-1).isnan()
        return X if mask.all() else complete(X, mask, as_tensor(self.mean_))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
