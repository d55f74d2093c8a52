"""Center: move the mean of the data to the identity."""

import torch
from torch import Tensor

from spdnet._checks import require_count, require_same_dtype, require_square
from spdnet.linalg import congruence, invsqrtm, powm
from spdnet.linalg.validate import require_symmetric
from spdnet.manifolds import Metric, get_metric
from spdnet.nn.layer import SPDLayer


class Center(SPDLayer):
    r"""Seen from the mean of the training data, :math:`Y = M^{-1/2} X M^{-1/2}`.

    Covariances of one source cluster far from the identity, where the logarithm of a network's
    output is badly conditioned; this moves them there. Without a mean it is the identity map. The
    mean is a buffer and travels in the ``state_dict``.

    Parameters
    ----------
    n : int
        Size of the matrices.
    metric : str or Metric
        Of the mean; any of :data:`spdnet.manifolds.METRICS`.
    check : bool
        Refuse input that is not finite and symmetric.
    device, dtype : optional
        Of the buffer.

    Attributes
    ----------
    whitener : Tensor, shape (n, n)
        :math:`M^{-1/2}`, a buffer.

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
        """Take the weighted mean of ``X (N, n, n)`` as the centre; gives back the layer."""
        require_square("Center.fit", X, n=self.n)
        M = self.metric.mean(X, weights)
        self.whitener.copy_(invsqrtm(M.double()))
        return self

    @property
    def mean(self) -> Tensor:
        """The centre ``(n, n)``."""
        return powm(self.whitener, -2.0)

    def reset_parameters(self) -> None:
        """Forget the centre."""
        self.whitener.copy_(torch.eye(self.n))

    def forward(self, X: Tensor, check: bool | None = None) -> Tensor:
        """``(..., n, n)`` to ``(..., n, n)``."""
        require_square("Center", X, n=self.n)
        require_same_dtype("Center", X, self.whitener)
        if self._checks(check):
            require_symmetric("Center", X)
        return congruence(X, self.whitener)

    def extra_repr(self) -> str:
        """Settings for ``repr``."""
        return f"{self.n}, metric={self.metric.name!r}"
