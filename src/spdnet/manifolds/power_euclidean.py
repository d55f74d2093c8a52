"""The power-Euclidean metric."""

from torch import Tensor

from spdnet._checks import require_number
from spdnet._precision import in_float64
from spdnet.linalg import Power, cholesky, spectral_derivative
from spdnet.linalg.symmetric import frobenius
from spdnet.manifolds.flat import FlatMetric
from spdnet.manifolds.metric import Metric, register_metric
from spdnet.manifolds.normalization import power_of


class PowerEuclidean(FlatMetric):
    r"""Power-Euclidean metric: Euclidean in :math:`\varphi(X) = X^\theta / \theta`.

    It tends to the log-Euclidean metric as :math:`\theta` tends to 0. Powers form a cone, not a
    vector space, so there is no batch normalization.

    Parameters
    ----------
    power : float
        :math:`\theta`, not zero. The registered metric has 1, the Euclidean metric.

    References
    ----------
    I. L. Dryden, X. Pennec, J.-M. Peyrat, "Power Euclidean metrics for covariance matrices with
    application to diffusion tensor imaging", 2010. https://arxiv.org/abs/1009.3045

    Examples
    --------
    >>> import torch
    >>> from spdnet.manifolds.power_euclidean import PowerEuclidean
    >>> PowerEuclidean(0.5).mean(torch.stack([torch.eye(2), 9 * torch.eye(2)])).diagonal()
    tensor([4., 4.])
    """

    name = "power_euclidean"
    normalization = Metric.normalization  # none: differences of powers are not positive definite

    def __init__(self, power: float = 1.0) -> None:
        require_number("PowerEuclidean", "power", power)
        if power == 0:
            raise ValueError("PowerEuclidean: expected power != 0, got 0; use log_euclidean")
        self.power = float(power)

    def __repr__(self) -> str:
        return f"PowerEuclidean({self.power:g})"

    def coordinates(
        self, X: Tensor, *, check: bool = True, who: str | None = None, name: str = "X"
    ) -> Tensor:
        r"""Compute :math:`X^\theta / \theta`."""
        if check:
            cholesky(X.detach(), who=who or "power_euclidean.coordinates", name=name)
        return power_of(X, self.power) / self.power

    def from_coordinates(self, C: Tensor) -> Tensor:
        r"""Compute :math:`(\theta C)^{1/\theta}`, for :math:`\theta C` positive definite."""
        return power_of(self.power * C, 1 / self.power)

    @in_float64
    def inner(self, X: Tensor, U: Tensor, V: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute :math:`\langle D\varphi(X)[U], D\varphi(X)[V] \rangle`."""
        who, f = "power_euclidean.inner", Power(self.power)
        left = spectral_derivative(X, U, f, check=check, who=who, name="U")
        right = spectral_derivative(X, V, f, check=check, who=who, name="V")
        return frobenius(left, right) / self.power**2


power_euclidean = register_metric(PowerEuclidean())
