"""Riemannian batch normalization of SPD matrices."""

from typing import Any, TypeAlias

import torch
from torch import Tensor

from spdnet._checks import require_choice, require_count, require_number
from spdnet._precision import real_dtype
from spdnet.linalg import logm
from spdnet.linalg.symmetric import abs_square
from spdnet.manifolds import FlatMetric, Metric, get_metric
from spdnet.manifolds.normalization import Deviation
from spdnet.nn.distributed import gather_rows, is_distributed
from spdnet.nn.layer import SPDLayer


class NormalizationLayer(SPDLayer):
    """Base class of the batch normalization layers: see :class:`SPDBatchNorm`."""

    bias: torch.nn.Parameter | None
    scale: torch.nn.Parameter | None
    running_mean: Tensor
    running_var: Tensor | None
    num_batches_tracked: Tensor

    def __init__(
        self,
        n: int,
        metric: str | Metric,
        *,
        power: float,
        root: str,
        karcher_steps: int | None,
        eps: float,
        check: bool,
    ) -> None:
        super().__init__(check=check)
        who = type(self).__name__
        require_count(who, "n", n)
        require_choice(who, "root", root, ("symmetric", "cholesky"))
        if karcher_steps is not None:
            require_count(who, "karcher_steps", karcher_steps)
        require_number(who, "eps", eps, at_least=0)
        self.metric = get_metric(metric, "normalization", who=who)
        require_power(who, self.metric, power)
        self.n, self.power, self.eps = n, float(power), eps
        self._normalization = self.metric.normalization(
            power=self.power, root=root, karcher_steps=karcher_steps
        )

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Reset the bias to the identity, the scale to 1 and the statistics."""
        if self.bias is not None:
            self.bias.zero_()
        if self.scale is not None:
            self.scale.fill_(1)
        origin = self._normalization.origin(self.running_mean.view(-1, self.n, self.n)[0])
        for name, buffer in self.named_buffers(recurse=False):
            if name.endswith("_mean"):
                buffer.copy_(origin)
            elif name.endswith("_var"):
                buffer.fill_(1)
        self.num_batches_tracked.zero_()

    def _normalize(self, deviation: Deviation, v: Tensor | None, shift: Tensor | None) -> Tensor:
        """Compute the coordinates of the result: divide by the root of the variance, and shift."""
        factor = None if v is None else (v + self.eps).rsqrt()
        if factor is not None and self.scale is not None:
            scale: Tensor = self.scale
            if scale.ndim and isinstance(self.metric, FlatMetric):
                scale = self.metric.project_coordinates(scale)
            factor = scale * factor
        return deviation.normalized(factor, shift)

    def _squared_distances(self, logs: Tensor) -> Tensor:
        """Compute the squared distances ``(N,)`` from the mean."""
        return abs_square(logs).sum((-2, -1)).reshape(-1) / self.power**2

    def _known_if_zero(self, v: Tensor, known: Tensor) -> Tensor:
        """Return the variance ``v``, or a known one if it is zero up to rounding."""
        # dividing by the variance of equal matrices would make the derivative unbounded
        return torch.where(v <= (64 * self.n * torch.finfo(v.dtype).eps) ** 2, known, v)


class SPDBatchNorm(NormalizationLayer):
    r"""Riemannian batch normalization with a learned mean and scale.

    In coordinates of the metric, with the mean :math:`M` and the Frechet variance :math:`v` of the
    batch (in evaluation: the running statistics), and :math:`f = s / \sqrt{v + \mathrm{eps}}`, or 1
    without variance:

    ====================  =========================================================================
    ``log_euclidean``     :math:`L \mapsto f (L - M) + \beta` with :math:`L = \log X`
    ``log_cholesky``      the same with the Cholesky factor of :math:`X^\theta`, its diagonal as a
                          logarithm; the cheapest
    ``affine_invariant``  :math:`X^\theta \mapsto B^{\theta/2} Q^f B^{\theta/2}` with
                          :math:`Q = M^{-1/2} X^\theta M^{-1/2}`
    ====================  =========================================================================

    This is LieBN with its power :math:`\theta`; ``affine_invariant`` without variance is the method
    of Brooks et al. Statistics are computed over all leading dimensions and processes, and are
    constants in the derivative. In training, a single matrix is normalized by the running
    statistics, and equal matrices by the running variance.

    Parameters
    ----------
    n : int
        Size of the matrices.
    metric : str or Metric
        One of the metrics above, or another metric with a ``normalization``.
    variance : bool or "entrywise"
        Whether to normalize the variance; ``entrywise`` normalizes that of each coordinate (not for
        ``affine_invariant``; the result depends on the basis).
    momentum : float, optional
        Weight of the current batch in the running statistics; None weights all batches equally.
    affine : bool
        Learn the bias and the scale.
    power : float
        :math:`\theta \ne 0`, for ``affine_invariant`` and ``log_cholesky``.
    root : {"symmetric", "cholesky"}
        Factor of the mean and the bias for ``affine_invariant``: the symmetric root (Brooks et al.)
        or the Cholesky factor (LieBN). Both give the same mean and variance.
    karcher_steps : int, optional
        For ``affine_invariant``: number of steps from the arithmetic mean toward the exact mean,
        which is the default. The original methods use 1, which is several times cheaper.
    eps : float
        Added to the variance.
    check, device, dtype : see :class:`BiMap`

    Attributes
    ----------
    bias : Parameter, shape (n, n)
        Unconstrained. The symmetric part is :math:`\log B`; for ``log_cholesky`` the lower triangle
        holds the coordinates of :math:`B^\theta`.
    scale : Parameter, shape () or (n, n)
    running_mean, running_var : Tensor
        Buffers, in coordinates.

    References
    ----------
    D. Brooks et al., "Riemannian batch normalization for SPD neural networks", NeurIPS 2019.
    Z. Chen et al., "A Lie group approach to Riemannian batch normalization", ICLR 2024.

    Examples
    --------
    >>> import torch
    >>> from spdnet.nn import SPDBatchNorm
    >>> layer = SPDBatchNorm(2, variance=False)
    >>> layer(torch.stack([torch.eye(2), 16 * torch.eye(2)]))[:, 0, 0]
    tensor([0.2500, 4.0000], grad_fn=<SelectBackward0>)
    """

    def __init__(
        self,
        n: int,
        metric: str | Metric = "log_euclidean",
        *,
        variance: bool | str = True,
        momentum: float | None = 0.1,
        affine: bool = True,
        power: float = 1.0,
        root: str = "symmetric",
        karcher_steps: int | None = None,
        eps: float = 1e-5,
        check: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        settings: dict[str, Any] = {"power": power, "root": root, "karcher_steps": karcher_steps}
        super().__init__(n, metric, eps=eps, check=check, **settings)
        if not isinstance(variance, bool):
            require_choice("SPDBatchNorm", "variance", variance, ("entrywise",))
        if momentum is not None:
            require_number("SPDBatchNorm", "momentum", momentum, above=0, at_most=1)
        if variance == "entrywise" and not isinstance(self.metric, FlatMetric):
            raise ValueError(
                f"SPDBatchNorm: expected variance=True or False for the metric "
                f"{self.metric.name!r}, which has no flat coordinates, got 'entrywise'"
            )
        self.variance, self.momentum, self.affine = variance, momentum, affine
        self.gives_log = isinstance(self.metric, FlatMetric) and self.metric.has_logarithms
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        real: dict[str, Any] = {"device": device, "dtype": real_dtype(dtype)}
        shape = (n, n) if variance == "entrywise" else ()
        self.register_buffer("running_mean", torch.zeros(n, n, **where))
        self.register_buffer("running_var", torch.ones(shape, **real) if variance else None)
        count = torch.zeros((), device=device, dtype=torch.long)
        self.register_buffer("num_batches_tracked", count)
        bias = torch.nn.Parameter(torch.empty(n, n, **where)) if affine else None
        scale = torch.nn.Parameter(torch.empty(shape, **real)) if affine and variance else None
        self.register_parameter("bias", bias)
        self.register_parameter("scale", scale)
        self.reset_parameters()

    @property
    def can_capture(self) -> bool:
        """Whether a CUDA graph can contain the layer: no iteration depends on values."""
        return self.momentum is not None and self._normalization.has_fixed_steps

    def forward(self, X: Tensor, check: bool | None = None, *, log: bool = False) -> Tensor:
        """Map ``(..., n, n)`` to ``(..., n, n)``.

        With ``log``, return the logarithm of the result, which the log-Euclidean metric computes
        first. The next layer may then save a decomposition.
        """
        check = self._require_input(X, check, n=self.n, like=self.running_mean)
        X = X.to(self.running_mean.dtype)  # from half precision
        F = self._normalization.coordinates(X, check=check, who="SPDBatchNorm")
        if self.training and (X.numel() > 0 or is_distributed()):
            deviation, v, shift = self._update(F)
        else:
            deviation, v, shift = self._running_statistics(F)
        F = self._normalize(deviation, v, shift)
        if log and self.gives_log:
            return F
        Y = self._normalization.from_coordinates(F)
        return logm(Y, check=False) if log else Y

    def _running_statistics(self, F: Tensor) -> "_Statistics":
        space = self._normalization
        deviation = space.deviation(F, space.frame(self.running_mean))
        return deviation, self.running_var, space.shift(self.bias)

    def _update(self, F: Tensor) -> "_Statistics":
        """Update the running statistics; return those of the batch."""
        space = self._normalization
        gathered = gather_rows(F.detach().reshape(-1, self.n, self.n))[0]
        if len(gathered) < 2:  # the mean of a single matrix is the matrix
            return self._running_statistics(F)
        with torch.no_grad():
            M = space.mean(gathered)
            self.num_batches_tracked.add_(1)
            momentum = (
                1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
            )
        updated_mean, frame, shift = space.move(self.running_mean, M, momentum, self.bias)
        deviation = space.deviation(F, frame)
        v = None
        with torch.no_grad():
            if self.running_var is not None:
                logs = gather_rows(deviation.logs.reshape(-1, self.n, self.n))[0]
                if self.variance == "entrywise":
                    v = abs_square(logs).mean(0)
                else:
                    v = self._known_if_zero(self._squared_distances(logs).mean(), self.running_var)
                _set_statistic(self.running_var, torch.lerp(self.running_var, v, momentum))
            _set_statistic(self.running_mean, updated_mean)
        return deviation, v, shift

    def extra_repr(self) -> str:
        """Return the settings for ``repr``."""
        return (
            f"{self.n}, metric={self.metric.name!r}, variance={self.variance!r}, "
            f"momentum={self.momentum}, affine={self.affine}, power={self.power:g}"
        )


#: deviations from the mean, their variance, and the shift to the bias
_Statistics: TypeAlias = tuple[Deviation, Tensor | None, Tensor | None]


def _set_statistic(statistic: Tensor, value: Tensor) -> None:
    """Set a running statistic, unless the new value is not finite."""
    statistic.copy_(torch.where(value.isfinite().all(), value, statistic))


def require_power(who: str, metric: Metric, power: float) -> None:
    """Raise an error if the power is 0, or not 1 for a metric that does not depend on it."""
    require_number(who, "power", power)
    if power == 0 or (power != 1 and not metric.depends_on_power):
        raise ValueError(
            f"{who}: expected power != 0, and power=1 for the log-Euclidean metric, which does not "
            f"depend on it, got metric={metric.name!r} and power={power}"
        )
