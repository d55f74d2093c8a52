"""Covariance pooling of features, and matrix square roots."""

import torch
from torch import Tensor

from spdnet._checks import require_choice, require_count, require_number, require_square
from spdnet._precision import without_autocast, working_dtype
from spdnet.covariance import gaussian_embedding, regularize
from spdnet.linalg import sqrtm, symmetrize
from spdnet.linalg.symmetric import trace
from spdnet.linalg.validate import require_positive_trace, require_symmetric
from spdnet.nn.layer import SPDLayer


class CovPool(torch.nn.Module):
    r"""Covariance pooling of features over positions or time into one SPD matrix per sample.

    =============  ==============================================================================
    ``centered``   covariance :math:`\tfrac1M \sum_m (x_m - \bar x)(x_m - \bar x)^\top`
    ``second``     second moment :math:`\tfrac1M \sum_m x_m x_m^\top`, as in DeepO2P
    ``gaussian``   mean and covariance in one matrix, one row and column larger: see
                   :func:`spdnet.covariance.gaussian_embedding`
    =============  ==============================================================================

    Autocast does not lower the precision.

    Parameters
    ----------
    kind : {"centered", "second", "gaussian"}
    reg, mode : float and str
        Regularization that makes the covariance of few positions positive definite: see
        :func:`spdnet.covariance.regularize`.
    eps : float
        Added to the diagonal. The covariance of constant features is zero, and so is a
        regularization relative to it; a positive ``eps`` keeps it positive definite.

    Examples
    --------
    >>> import torch
    >>> from spdnet.nn import CovPool
    >>> CovPool()(torch.randn(8, 5, 7, 7)).shape, CovPool("gaussian")(torch.randn(8, 5, 100)).shape
    (torch.Size([8, 5, 5]), torch.Size([8, 6, 6]))
    """

    def __init__(
        self, kind: str = "centered", *, reg: float = 1e-3, mode: str = "mean", eps: float = 0.0
    ) -> None:
        super().__init__()
        require_choice("CovPool", "kind", kind, ("centered", "second", "gaussian"))
        require_number("CovPool", "reg", reg, at_least=0)
        require_number("CovPool", "eps", eps, at_least=0)
        require_choice("CovPool", "mode", mode, ("mean", "trace", "absolute", "shrinkage", "none"))
        self.kind, self.reg, self.mode, self.eps = kind, reg, mode, eps

    def forward(self, X: Tensor) -> Tensor:
        """Map ``(B, C, T)`` or ``(B, C, H, W)`` to ``(B, C, C)``, one larger for ``gaussian``."""
        if not isinstance(X, Tensor) or X.ndim not in (3, 4):
            shape = tuple(X.shape) if isinstance(X, Tensor) else type(X).__name__
            raise ValueError(
                "CovPool: expected signals (B, C, T) or feature maps (B, C, H, W), got "
                f"{shape}; pass one sample as X[None]"
            )
        X = X.flatten(2).to(working_dtype(X.dtype))  # (B, C, M)
        with without_autocast(X):
            if self.kind == "gaussian":
                C = gaussian_embedding(X, reg=self.reg, mode=self.mode)
            else:
                if self.kind == "centered":
                    X = X - X.mean(-1, keepdim=True)
                C = regularize(symmetrize(X @ X.mT) / X.shape[-1], self.reg, self.mode)
            return regularize(C, self.eps, "absolute") if self.eps else C

    def extra_repr(self) -> str:
        """Return the settings for ``repr``."""
        eps = f", eps={self.eps}" if self.eps else ""
        return f"{self.kind!r}, reg={self.reg}, mode={self.mode!r}{eps}"


class MatrixSqrt(SPDLayer):
    r"""Matrix square root :math:`X^{1/2}`, which reduces the large eigenvalues of a covariance.

    Computed from eigenvalues (MPN-COV), or by Newton-Schulz iterations on
    :math:`X / \mathrm{tr} X` (iSQRT-COV), which need only matrix products. The iterations are
    deliberately stopped before convergence: small eigenvalues stay too small, which is known to
    improve the accuracy.

    Parameters
    ----------
    method : {"eig", "newton_schulz"}
    iterations : int
        Number of Newton-Schulz iterations.
    check : bool
        See :class:`BiMap`. ``newton_schulz`` accepts singular matrices and requires only a positive
        trace: detecting a negative eigenvalue would cost the decomposition that it avoids.

    References
    ----------
    P. Li et al., "Is second-order information helpful for large-scale visual recognition?", ICCV
    2017 (MPN-COV).
    P. Li et al., "Towards faster training of global covariance pooling networks by iterative matrix
    square root normalization", CVPR 2018 (iSQRT-COV).

    Examples
    --------
    >>> import torch
    >>> from spdnet.nn import MatrixSqrt
    >>> MatrixSqrt()(4 * torch.eye(2)).diagonal()
    tensor([2., 2.])
    """

    def __init__(self, method: str = "eig", *, iterations: int = 5, check: bool = True) -> None:
        super().__init__(check=check)
        require_choice("MatrixSqrt", "method", method, ("eig", "newton_schulz"))
        require_count("MatrixSqrt", "iterations", iterations)
        self.method, self.iterations = method, iterations

    def forward(self, X: Tensor, check: bool | None = None) -> Tensor:
        """Map ``(..., n, n)`` to ``(..., n, n)``."""
        require_square("MatrixSqrt", X)
        check = self._checks(check)
        if self.method == "eig":
            return sqrtm(X, check=check)
        if check:
            require_symmetric("MatrixSqrt", X)
            require_positive_trace("MatrixSqrt", X)
        dtype, n = X.dtype, X.shape[-1]
        X = X.to(working_dtype(dtype))
        with without_autocast(X):
            size = trace(X)[..., None, None]
            eye = torch.eye(n, dtype=X.dtype, device=X.device)
            Y, Z = X / size, eye.expand_as(X)
            for _ in range(self.iterations):
                Q = (3 * eye - Z @ Y) / 2
                Y, Z = Y @ Q, Q @ Z
            return symmetrize(size.sqrt() * Y).to(dtype)

    def extra_repr(self) -> str:
        """Return the settings for ``repr``."""
        more = "" if self.method == "eig" else f", iterations={self.iterations}"
        return f"{self.method!r}{more}"
