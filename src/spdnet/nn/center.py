"""Centering of SPD matrices at the mean of the training data."""

import torch
from torch import Tensor

from spdnet._checks import require_count, require_same_kind, require_square
from spdnet._precision import accurate_dtype
from spdnet.linalg import congruence, invsqrtm, powm
from spdnet.manifolds import Metric, get_metric
from spdnet.nn.layer import SPDLayer


class Center(SPDLayer):
    r"""Centering :math:`Y = M^{-1/2} X M^{-1/2}` at the mean :math:`M` of the training data.

    Covariance matrices of one source cluster far from the identity, where the logarithm of the
    output of a network is badly conditioned; centering moves them to the identity. Before
    :meth:`fit`, the layer is the identity map.

    Parameters
    ----------
    n : int
        Size of the matrices.
    metric : str or Metric
        Metric of the mean, any of :data:`spdnet.manifolds.METRICS`.
    check, device, dtype : see :class:`BiMap`

    Attributes
    ----------
    whitener : Tensor, shape (n, n)
        Buffer :math:`M^{-1/2}`.

    Examples
    --------
    >>> import torch
    >>> from spdnet.nn import Center
    >>> X = torch.stack([torch.eye(2), 4 * torch.eye(2)])
    >>> center = Center(2).fit(X)
    >>> center(X)[:, 0, 0].round(decimals=4)
    tensor([0.5000, 2.0000])
    """

    whitener: Tensor

    def __init__(
        self,
        n: int,
        metric: str | Metric = "log_euclidean",
        *,
        check: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(check=check)
        require_count("Center", "n", n)
        self.n = n
        self.metric = get_metric(metric, who="Center")
        self.register_buffer("whitener", torch.eye(n, device=device, dtype=dtype))

    @torch.no_grad()
    def fit(self, X: Tensor, weights: Tensor | None = None) -> "Center":
        """Set the center to the weighted mean of ``X (N, n, n)`` and return the layer."""
        require_square("Center.fit", X, n=self.n)
        require_same_kind("Center.fit", whitener=self.whitener, X=X)
        M = self.metric.mean(X, weights)
        self.whitener.copy_(invsqrtm(M.to(accurate_dtype(M))))
        return self

    @property
    def mean(self) -> Tensor:
        """The center ``(n, n)``."""
        return powm(self.whitener, -2.0)

    def reset_parameters(self) -> None:
        """Reset the center to the identity."""
        self.whitener.copy_(torch.eye(self.n))

    def forward(self, X: Tensor, check: bool | None = None) -> Tensor:
        """Map ``(..., n, n)`` to ``(..., n, n)``."""
        self._require_input(X, check, n=self.n, like=self.whitener)
        return congruence(X, self.whitener)

    def extra_repr(self) -> str:
        """Return the settings for ``repr``."""
        return f"{self.n}, metric={self.metric.name!r}"
