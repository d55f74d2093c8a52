"""Estimation of missing channels inside a network."""

import torch
from torch import Tensor

from spdnet._checks import require_count, require_same_dtype, require_same_kind, require_square
from spdnet._precision import accurate_dtype
from spdnet.linalg import cholesky
from spdnet.linalg.missing import both, fill_in, regression, require_some
from spdnet.linalg.validate import require_symmetric
from spdnet.nn.layer import SPDLayer


class CompleteChannels(SPDLayer):
    r"""Estimate the missing channels of each matrix from its observed ones.

    With the observed channels ``o`` and the missing ones ``h``, and :math:`B = M_{ho} M_{oo}^{-1}`,

    .. math:: C_{ho} = B C_{oo}, \qquad C_{hh} = M_{hh} - B M_{oh} + B C_{oo} B^\top ,

    the conditional expectation for Gaussian signals whose covariance is the reference :math:`M`.
    Observed entries are unchanged, and so are matrices without missing channels. The
    result is SPD. The derivative with respect to missing entries is zero.

    Place the layer before a network for training or prediction with missing channels.

    Parameters
    ----------
    n : int
        Size of the matrices.
    check, device, dtype : see :class:`BiMap`

    Attributes
    ----------
    mean : Tensor, shape (n, n)
        Buffer :math:`M`, the identity before :meth:`set_mean`.

    See Also
    --------
    spdnet.adaptation.Completion : The same as a scikit-learn transformer.
    spdnet.adaptation.masked_mean : A mean of matrices with missing channels.

    Examples
    --------
    >>> import torch
    >>> from spdnet.nn import CompleteChannels
    >>> layer = CompleteChannels(2).set_mean(torch.tensor([[1.0, 0.5], [0.5, 1.0]]))
    >>> layer(torch.tensor([[4.0, torch.nan], [torch.nan, torch.nan]]))
    tensor([[4.0000, 2.0000],
            [2.0000, 1.7500]])
    """

    mean: Tensor

    def __init__(
        self,
        n: int,
        *,
        check: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(check=check)
        require_count("CompleteChannels", "n", n)
        self.n = n
        self.register_buffer("mean", torch.eye(n, device=device, dtype=dtype))

    @torch.no_grad()
    def set_mean(self, M: Tensor) -> "CompleteChannels":
        """Set the reference to an SPD matrix ``(n, n)`` and return the layer."""
        who = "CompleteChannels.set_mean"
        require_square(who, M, "M", n=self.n)
        require_same_kind(who, mean=self.mean, M=M)
        cholesky(M, who=who, name="M")
        self.mean.copy_(M)
        return self

    def reset_parameters(self) -> None:
        """Reset the reference to the identity."""
        self.mean.copy_(torch.eye(self.n))

    def forward(self, X: Tensor, mask: Tensor | None = None, check: bool | None = None) -> Tensor:
        """Map ``(..., n, n)`` to ``(..., n, n)``.

        ``mask (..., n)`` is True for the observed channels, by default for those that are not NaN
        on the diagonal. Entries of missing channels have no effect.
        """
        who = "CompleteChannels"
        require_square(who, X, n=self.n)
        require_same_dtype(who, X, self.mean.dtype)
        if mask is None:
            mask = ~X.diagonal(dim1=-2, dim2=-1).isnan()
        if mask.dtype != torch.bool or mask.shape != X.shape[:-1]:
            raise ValueError(
                f"{who}: expected a mask of type bool and shape {tuple(X.shape[:-1])}, got "
                f"{mask.dtype} {tuple(mask.shape)}"
            )
        if self._checks(check):
            require_some(who, mask)
            require_symmetric(who, torch.where(both(mask), X, 0))
        return fill_in(X, mask, *regression(mask, self.mean.to(accurate_dtype(X))))

    def extra_repr(self) -> str:
        """Return the settings for ``repr``."""
        return f"{self.n}"
