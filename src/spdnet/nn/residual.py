"""Residual connections between SPD matrices."""

import torch
from torch import Tensor, nn

from spdnet._checks import require_choice, require_same_shape, require_square
from spdnet.linalg import cholesky, expm, logm
from spdnet.linalg.validate import require_symmetric
from spdnet.manifolds import Metric, get_metric
from spdnet.nn.layer import SPDLayer


class SPDResidual(SPDLayer):
    r"""A block and a way around it.

    ============  ================================================================================
    ``log``       :math:`\exp(\log X + \log F(X))`: the sum of vectors, in the flat coordinates of
                  the logarithm
    ``geodesic``  the point at the share :math:`t` of the geodesic from :math:`X` to :math:`F(X)`,
                  with a learned :math:`t` in (0, 1)
    ============  ================================================================================

    Parameters
    ----------
    block : Module
        ``F``, from SPD matrices to SPD matrices of the same size, such as a square BiMap and a
        ReEig.
    kind : {"log", "geodesic"}
    metric : str or Metric
        Of the geodesic: ``log_euclidean``, ``affine_invariant``, ``log_cholesky``,
        ``power_euclidean``, ``bures_wasserstein``, or another that has geodesics.
    check : bool
        Refuse input that is not finite, symmetric and positive definite.
    device, dtype : optional
        Of the parameter.

    Attributes
    ----------
    position : Parameter, shape ()
        For ``geodesic`` only: :math:`t` is its sigmoid, 1/2 at the start.

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
        self.block = block
        self.kind = kind
        self.metric = metric
        if kind == "geodesic":
            self.position = nn.Parameter(torch.zeros((), device=device, dtype=dtype))

    def forward(self, X: Tensor, check: bool | None = None) -> Tensor:
        """``(..., n, n)`` to ``(..., n, n)``."""
        require_square("SPDResidual", X)
        if self._checks(check):
            require_symmetric("SPDResidual", X)
            cholesky(X.detach(), who="SPDResidual")
        Y = self.block(X)
        require_same_shape("SPDResidual", X=X, block=Y)
        if self.kind == "log":
            return expm(logm(X, check=False) + logm(Y, check=False), check=False)
        t = torch.sigmoid(self.position)
        return self.metric.geodesic(X, Y, t, check=False)

    def extra_repr(self) -> str:
        """Settings for ``repr``."""
        return f"kind={self.kind!r}, metric={self.metric.name!r}"
