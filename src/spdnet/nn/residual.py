"""Residual connections between SPD matrices."""

import torch
from torch import Tensor, nn

from spdnet._checks import require_choice, require_same_shape
from spdnet._precision import real_dtype
from spdnet.linalg import expm, logm
from spdnet.manifolds import Metric, get_metric
from spdnet.nn.layer import SPDLayer


class SPDResidual(SPDLayer):
    r"""Residual connection around a block :math:`F`.

    ============  ==============================================================================
    ``log``       :math:`\exp(\log X + \log F(X))`
    ``geodesic``  the point at :math:`t` on the geodesic from :math:`X` to :math:`F(X)`, with a
                  learned :math:`t` in (0, 1)
    ============  ==============================================================================

    Parameters
    ----------
    block : Module
        Maps SPD matrices to SPD matrices of the same size, for example a square BiMap and a ReEig.
    kind : {"log", "geodesic"}
    metric : str or Metric
        Metric of the geodesic, any of :data:`spdnet.manifolds.METRICS` except ``stein``.
    check, device, dtype : see :class:`BiMap`

    Attributes
    ----------
    position : Parameter, shape ()
        For ``geodesic``: :math:`t` is its sigmoid, initially 1/2.

    Examples
    --------
    >>> import torch
    >>> from spdnet.nn import BiMap, SPDResidual
    >>> SPDResidual(BiMap(3, 3))(4 * torch.eye(3)).diagonal().detach().round(decimals=4)
    tensor([16., 16., 16.])
    """

    def __init__(
        self,
        block: nn.Module,
        kind: str = "log",
        metric: str | Metric = "log_euclidean",
        *,
        check: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(check=check)
        require_choice("SPDResidual", "kind", kind, ("log", "geodesic"))
        metric = get_metric(metric, "geodesic", who="SPDResidual")
        if kind == "log" and metric.name != "log_euclidean":
            raise ValueError(
                f"SPDResidual: expected the metric log_euclidean for kind='log', got "
                f"{metric.name!r}; choose kind='geodesic'"
            )
        self.block, self.kind, self.metric = block, kind, metric
        if kind == "geodesic":
            self.position = nn.Parameter(torch.zeros((), device=device, dtype=real_dtype(dtype)))

    def forward(self, X: Tensor, check: bool | None = None) -> Tensor:
        """Map ``(..., n, n)`` to ``(..., n, n)``."""
        self._require_input(X, check, positive=True)
        Y = self.block(X)
        require_same_shape("SPDResidual", X=X, block=Y)
        if self.kind == "log":
            return expm(logm(X, check=False) + logm(Y, check=False), check=False)
        return self.metric.geodesic(X, Y, torch.sigmoid(self.position), check=False)

    def extra_repr(self) -> str:
        """Return the settings for ``repr``."""
        return f"kind={self.kind!r}, metric={self.metric.name!r}"
