"""Batch normalisation of SPD matrices in a metric."""

from typing import Any

import torch
from torch import Tensor

from spdnet._checks import (
    require_choice,
    require_count,
    require_number,
    require_same_dtype,
    require_square,
)
from spdnet.linalg.validate import require_symmetric
from spdnet.manifolds import FlatMetric, Metric, get_metric
from spdnet.manifolds.normalization import Normalization
from spdnet.nn.layer import SPDLayer
from spdnet.nn.processes import all_gather, is_distributed


class SPDBatchNorm(SPDLayer):
    r"""Move the mean of a batch to a learned bias, and its dispersion to a learned scale.

    All happens in coordinates of the metric, with the mean :math:`M` and the Frechet variance
    :math:`v` of the batch, or in evaluation those seen in training:

    ====================  ========================  ================================================
    ``log_euclidean``     :math:`L = \log X`        :math:`L \mapsto f (L - M) + \beta`, as the
                                                    paper suggests for after the logarithm
    ``log_cholesky``      :math:`L` of              the same; the cheapest
                          :math:`X^\theta`, its
                          diagonal as a logarithm
    ``affine_invariant``  :math:`P = X^\theta`      :math:`P \mapsto B^{\theta/2} Q^f B^{\theta/2}`
                                                    with :math:`Q = M^{-1/2} P M^{-1/2}`
    ====================  ========================  ================================================

    with :math:`f = s / \sqrt{v + \mathrm{eps}}`, or 1 without variance. These are LieBN's, with its
    power :math:`\theta`; ``affine_invariant`` without variance is Riemannian batch normalisation as
    by Brooks et al.

    The statistics are over all leading dimensions. With several processes they are those of all
    processes together. They count as constants in the derivative, as in the originals. A single
    matrix has no dispersion: in training it is normalised by the running statistics, and copies of
    one matrix by the running variance.

    Parameters
    ----------
    n : int
        Size of the matrices.
    metric : str or Metric
        As above, or another that has a ``normalization``.
    variance : bool or "entrywise"
        Normalise the dispersion, or leave it, or normalise the variance of every coordinate by
        itself as for vectors (not for ``affine_invariant``; it depends on the basis).
    momentum : float, optional
        Weight of the latest batch in the running statistics; None: all batches count equally.
    affine : bool
        Learn the bias and the scale; otherwise the identity and 1.
    power : float
        :math:`\theta`, not zero, for ``affine_invariant`` and ``log_cholesky``.
    root : {"symmetric", "cholesky"}
        With which factor of the mean matrices are centred, for ``affine_invariant``: Brooks et al.
        take the symmetric root, LieBN the Cholesky factor. The same factor of the bias is applied.
        Both give the same mean and the same dispersion. The results differ by one rotation of all
        matrices if the bias is a multiple of the identity, and by more otherwise.
    karcher_steps : int, optional
        For ``affine_invariant``: so many steps towards the mean from the arithmetic one, 1 as in
        the originals, which is several times cheaper; the exact mean when not given.
    eps : float
        Added to the variance.
    check : bool
        Refuse input that is not finite, symmetric and positive definite.
    device, dtype : optional
        Of the parameters and buffers.

    Attributes
    ----------
    bias : Parameter, shape (n, n)
        Free; its symmetric part is :math:`\log B`, for ``log_cholesky`` its lower triangle the
        coordinates of :math:`B^\theta`.
    scale : Parameter, shape () or (n, n)
        :math:`s`, only with variance; of a matrix the part counts that counts of the bias.
    running_mean : Tensor, shape (n, n)
        In coordinates, a buffer.
    running_var : Tensor, shape () or (n, n)
        A buffer, only with variance.

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

    bias: torch.nn.Parameter | None
    scale: torch.nn.Parameter | None
    running_mean: Tensor
    running_var: Tensor | None
    num_batches_tracked: Tensor

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
        super().__init__(check=check)
        who = "SPDBatchNorm"
        require_count(who, "n", n)
        metric = get_metric(metric, "normalization", who=who)
        normalization = make_normalization(who, metric, power, root, karcher_steps)
        if not isinstance(variance, bool):
            require_choice(who, "variance", variance, ("entrywise",))
        require_number(who, "eps", eps, at_least=0)
        if momentum is not None:
            require_number(who, "momentum", momentum, above=0, at_most=1)
        if variance == "entrywise" and not isinstance(metric, FlatMetric):
            raise ValueError(
                f"{who}: expected variance=True or False for the metric {metric.name!r}, which "
                "has no coordinates, got 'entrywise'"
            )
        self.n = n
        self.metric = metric
        self.variance = variance
        self.momentum = momentum
        self.affine = affine
        self.power = float(power)
        self.root = root
        self.karcher_steps = karcher_steps
        self.eps = eps
        self._normalization = normalization
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        shape = (n, n) if variance == "entrywise" else ()
        self.register_buffer("running_mean", torch.zeros(n, n, **where))
        self.register_buffer("running_var", torch.ones(shape, **where) if variance else None)
        self.register_buffer(
            "num_batches_tracked", torch.zeros((), device=device, dtype=torch.long)
        )
        for name, size in (("bias", (n, n)), ("scale", shape)):
            wanted = affine and (name == "bias" or bool(variance))
            parameter = torch.nn.Parameter(torch.empty(size, **where)) if wanted else None
            self.register_parameter(name, parameter)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Bias at the identity, scale 1, and no batch seen."""
        if self.bias is not None:
            self.bias.zero_()
        if self.scale is not None:
            self.scale.fill_(1)
        self.running_mean.copy_(self._normalization.origin(self.running_mean))
        if self.running_var is not None:
            self.running_var.fill_(1)
        self.num_batches_tracked.zero_()

    def forward(self, X: Tensor, check: bool | None = None) -> Tensor:
        """``(..., n, n)`` to ``(..., n, n)``."""
        require_square("SPDBatchNorm", X, n=self.n)
        require_same_dtype("SPDBatchNorm", X, self.running_mean)
        check = self._checks(check)
        X = X.to(self.running_mean.dtype)  # half types are lifted
        if check:
            require_symmetric("SPDBatchNorm", X)
        F = self._normalization.coordinates(X, check=check, who="SPDBatchNorm")
        if self.training and (X.numel() > 0 or is_distributed()):
            frame, v = self._update(F.detach())
        else:
            frame, v = self._normalization.frame(self.running_mean), self.running_var
        f = None
        if v is not None:
            f = (v + self.eps).rsqrt()
            f = f if self.scale is None else self._scale() * f
        F = self._normalization.normalized(F, frame, f, self.bias)
        return self._normalization.from_coordinates(F)

    @torch.no_grad()
    def _update(self, F: Tensor) -> tuple[Tensor, Tensor | None]:
        """Where the mean is, and variance, of all matrices of all processes; they are tracked."""
        F = all_gather(F.reshape(-1, self.n, self.n))
        if len(F) < 2:  # it would be put on the bias, at no distance from it
            return self._normalization.frame(self.running_mean), self.running_var
        M = self._normalization.mean(F)
        frame = self._normalization.frame(M)
        v = self._variance(F, frame) if self.variance else None
        self._track(M, v)
        return frame, v

    def _variance(self, F: Tensor, frame: Tensor) -> Tensor:
        squares = self._normalization.logs(F, frame).square()
        if self.variance == "entrywise":
            return squares.mean(0)
        v = squares.sum((-2, -1)).mean() / self.power**2
        # copies of one matrix have none; divided by it, their derivative would be out of bounds
        if self.running_var is None:
            return v
        return torch.where(is_rounding(v, self.n), self.running_var, v)

    def _track(self, M: Tensor, v: Tensor | None) -> None:
        self.num_batches_tracked.add_(1)
        eta = self.momentum
        if eta is None:
            eta = 1 / float(self.num_batches_tracked)
        self.running_mean.copy_(self._normalization.interpolate(self.running_mean, M, eta))
        if v is not None and self.running_var is not None:
            self.running_var.copy_(torch.lerp(self.running_var, v, eta))

    def _scale(self) -> Any:
        if isinstance(self.metric, FlatMetric) and self.scale is not None and self.scale.ndim:
            return self.metric.project_coordinates(self.scale)
        return self.scale

    def extra_repr(self) -> str:
        """Settings for ``repr``."""
        return (
            f"{self.n}, metric={self.metric.name!r}, variance={self.variance!r}, "
            f"momentum={self.momentum}, affine={self.affine}, power={self.power:g}"
        )


def make_normalization(
    who: str, metric: Metric, power: float, root: str, karcher_steps: int | None
) -> Normalization:
    """Make the operations of a normalisation; ``who`` refuses invalid settings."""
    require_choice(who, "root", root, ("symmetric", "cholesky"))
    require_power(who, metric, power)
    if karcher_steps is not None:
        require_count(who, "karcher_steps", karcher_steps)
    return metric.normalization(power=float(power), root=root, karcher_steps=karcher_steps)


def require_power(who: str, metric: Metric, power: float) -> None:
    """Refuse the power 0, and powers that do not change the metric."""
    require_number(who, "power", power)
    if power == 0 or (power != 1 and not metric.depends_on_power):
        raise ValueError(
            f"{who}: expected power != 0, and 1 for the log-Euclidean metric, which it does "
            f"not change, got metric={metric.name!r} and power={power}"
        )


def is_rounding(v: Tensor, n: int) -> Tensor:
    """Whether a variance of ``n`` by ``n`` matrices is zero up to rounding."""
    return v <= (64 * n * torch.finfo(v.dtype).eps) ** 2
