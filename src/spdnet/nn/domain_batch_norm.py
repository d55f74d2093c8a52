"""Riemannian batch normalization with separate statistics for each domain."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from spdnet._autograd import can_branch
from spdnet._checks import require_choice, require_count, require_number, require_square
from spdnet._precision import real_dtype
from spdnet._warnings import warn_user
from spdnet.linalg.validate import require_symmetric
from spdnet.manifolds import Metric
from spdnet.manifolds.normalization import CongruenceNormalization, Deviation, Groups
from spdnet.nn.batch_norm import NormalizationLayer
from spdnet.nn.distributed import gather_rows, is_distributed

WHO = "SPDDomainBatchNorm"


class SPDDomainBatchNorm(NormalizationLayer):
    r"""Batch normalization with separate statistics for each subject, session or device.

    With the mean :math:`M_d` and the variance :math:`v_d` of its domain, a matrix becomes

    .. math:: B^{1/2} \bigl( M_d^{-1/2} X M_d^{-1/2} \bigr)^{s / \sqrt{v_d + \mathrm{eps}}} B^{1/2},

    and likewise in the other metrics: see :class:`SPDBatchNorm`. Training uses the running
    statistics after the update with the current batch, and gradients flow through the contribution
    of the batch. Evaluation has its own running statistics. :meth:`refit` computes those of a
    domain without labels, assuming that the classes are as frequent as in training. If all
    matrices of a new domain are equal, its variance is the mean variance of the known domains, or 1
    if there are none.

    Parameters
    ----------
    n, n_domains : int
        Size of the matrices, and number of domains, which are indices from 0.
    variance : bool
        Normalize the variance.
    momentum, eval_momentum : float
        Weight of a batch in the statistics of training (with :meth:`anneal`: in the last epoch) and
        of evaluation.
    affine, bias : bool
        Learn the scale and the bias, shared by all domains.
    metric, power, root, karcher_steps, eps : see :class:`SPDBatchNorm`
    dispersion : {"exact", "tangent"}
        Variance of a batch: the mean squared distance from the running mean, or, as in the original
        method, the variance of the logarithms in the tangent space at the arithmetic mean (with
        several ``karcher_steps``, at the last iterate before the mean). ``tangent`` requires
        ``affine_invariant`` and ``karcher_steps``.
    start : {"batch", "identity"}
        Initialize the statistics of a domain with its first batch, or, as in the original method,
        with the identity and variance 1. With ``identity``, :meth:`refit` also sets the training
        statistics.
    check, device, dtype : see :class:`BiMap`
        ``check`` also raises an error for unknown domains.

    Attributes
    ----------
    running_mean, eval_mean : Tensor, shape (n_domains, n, n)
        Buffers of training and evaluation, in coordinates.
    running_var, eval_var : Tensor, shape (n_domains,)
        Buffers; None without variance.

    References
    ----------
    R. Kobler et al., "SPD domain-specific batch normalization to crack interpretable unsupervised
    domain adaptation in EEG", NeurIPS 2022.

    Examples
    --------
    >>> import torch
    >>> from spdnet.nn import SPDDomainBatchNorm
    >>> layer = SPDDomainBatchNorm(2, n_domains=2, variance=False)
    >>> X = torch.stack([torch.eye(2), 16 * torch.eye(2), 4 * torch.eye(2), 64 * torch.eye(2)])
    >>> layer(X, torch.tensor([0, 0, 1, 1]))[:, 0, 0].round(decimals=4)
    tensor([0.2500, 4.0000, 0.2500, 4.0000])
    """

    eval_mean: Tensor
    eval_var: Tensor | None

    def __init__(
        self,
        n: int,
        n_domains: int,
        metric: str | Metric = "affine_invariant",
        *,
        variance: bool = True,
        momentum: float = 0.1,
        eval_momentum: float = 0.1,
        affine: bool = True,
        bias: bool = False,
        power: float = 1.0,
        root: str = "symmetric",
        karcher_steps: int | None = None,
        eps: float = 1e-5,
        dispersion: str = "exact",
        start: str = "batch",
        check: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        settings: dict[str, Any] = {"power": power, "root": root, "karcher_steps": karcher_steps}
        super().__init__(n, metric, eps=eps, check=check, **settings)
        require_count(WHO, "n_domains", n_domains)
        if not isinstance(variance, bool):
            raise TypeError(f"{WHO}: expected variance to be True or False, got {variance!r}")
        require_number(WHO, "momentum", momentum, above=0, at_most=1)
        require_number(WHO, "eval_momentum", eval_momentum, above=0, at_most=1)
        require_choice(WHO, "dispersion", dispersion, ("exact", "tangent"))
        require_choice(WHO, "start", start, ("batch", "identity"))
        is_congruence = isinstance(self._normalization, CongruenceNormalization)
        if dispersion == "tangent" and not (is_congruence and karcher_steps is not None):
            raise ValueError(
                f"{WHO}: expected metric='affine_invariant' and karcher_steps with "
                f"dispersion='tangent', got {self.metric.name!r} and {karcher_steps}"
            )
        self.final_momentum = self.momentum = momentum
        self.eval_momentum, self.variance = eval_momentum, variance
        self.dispersion, self.start = dispersion, start
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        real: dict[str, Any] = {"device": device, "dtype": real_dtype(dtype)}
        for name in ("running", "eval"):
            var = torch.ones(n_domains, **real) if variance else None
            self.register_buffer(f"{name}_mean", torch.zeros(n_domains, n, n, **where))
            self.register_buffer(f"{name}_var", var)
        counts = torch.zeros(n_domains, device=device, dtype=torch.long)
        self.register_buffer("num_batches_tracked", counts)
        factor = torch.nn.Parameter(torch.empty((), **real)) if affine and variance else None
        self.register_parameter("scale", factor)
        mean = torch.nn.Parameter(torch.empty(n, n, **where)) if bias else None
        self.register_parameter("bias", mean)
        self.reset_parameters()

    @property
    def n_domains(self) -> int:
        """Number of domains."""
        return len(self.num_batches_tracked)

    def anneal(self, epoch: int, epochs: int) -> None:
        r"""Set the training momentum for an epoch, which decreases from 1 to the final momentum.

        :math:`\eta = 1 - \rho^{(K - k) / (K - 1)} + \rho` in epoch :math:`k` of :math:`K`, counted
        from 1, with the final momentum :math:`\rho`.
        """
        require_count("SPDDomainBatchNorm.anneal", "epoch", epoch)
        require_count("SPDDomainBatchNorm.anneal", "epochs", epochs)
        rho = self.final_momentum
        left = max(epochs - epoch, 0) / max(epochs - 1, 1)
        self.momentum = 1 - rho**left + rho

    @torch.no_grad()
    def refit(self, X: Tensor, domain: int, check: bool | None = None) -> None:
        """Set the evaluation statistics of a domain to those of all its matrices ``X``."""
        who = "SPDDomainBatchNorm.refit"
        require_square(who, X, n=self.n)
        if isinstance(domain, bool) or not isinstance(domain, int):
            raise TypeError(f"{who}: expected domain to be an integer, got {domain!r}")
        if not 0 <= domain < self.n_domains:
            raise ValueError(
                f"{who}: expected a domain from 0 to {self.n_domains - 1}, got {domain}; "
                "add_domain() adds one"
            )
        if X.numel() == 0:
            raise ValueError(f"{who}: expected matrices of the domain, got none")
        check = self._checks(check)
        if check:
            require_symmetric(who, X)
        X = X.to(self.eval_mean.dtype)
        F = self._normalization.coordinates(X, check=check, who=who)
        F = F.reshape(-1, self.n, self.n)
        if len(F) == 1:
            warn_user(
                f"{who}: expected several matrices of domain {domain}, got one, which is its own "
                "mean; pass all matrices of the domain at once",
            )
        M = self.metric.normalization(power=self.power).mean(F)  # exact
        targets = [(self.eval_mean, self.eval_var)]
        if int(self.num_batches_tracked[domain]) == 0 or self.start == "identity":
            targets.append((self.running_mean, self.running_var))
        deviation = self._normalization.deviation(F, self._normalization.frame(M))
        v = self._squared_distances(deviation.logs).mean()
        if self.eval_var is not None:
            known = self._known_variances(self.eval_var)[domain]
            v = known if len(F) == 1 else self._known_if_zero(v, known)
        for mean, var in targets:
            mean[domain] = M
            if var is not None:
                var[domain] = v
        self.num_batches_tracked[domain].add_(1)

    @torch.no_grad()
    def add_domain(self) -> int:
        """Add a domain and return its index."""
        origin = self._normalization.origin(self.running_mean[0])
        for name, buffer in list(self.named_buffers(recurse=False)):
            value = torch.full_like(buffer[0], int(name.endswith("_var")))
            value = origin if name.endswith("_mean") else value
            setattr(self, name, torch.cat([buffer, value[None]]))
        return self.n_domains - 1

    def forward(self, X: Tensor, domain: Tensor | None = None, check: bool | None = None) -> Tensor:
        """Map ``(..., n, n)`` to ``(..., n, n)``, given the domain of each matrix.

        The shape of ``domain`` is that of the leading dimensions of ``X``, or of the first of them,
        for example ``(B,)`` for ``(B, channels, n, n)``. It is optional for a single domain.
        """
        check = self._require_input(X, check, n=self.n, like=self.running_mean)
        X = X.to(self.running_mean.dtype)  # from half precision
        domain = self.expand_domain(X, domain, check)
        F = self._normalization.coordinates(X, check=check, who=WHO)
        if self.training and (X.numel() > 0 or is_distributed()):
            deviation, v = self._update(F, domain)
        else:
            frame = self._normalization.frame(self.eval_mean)[domain]  # (..., n, n)
            deviation = self._normalization.deviation(F, frame)
            v = None if self.eval_var is None else self.eval_var[domain]
        v = None if v is None else v[..., None, None]
        shift = self._normalization.shift(self.bias)
        return self._normalization.from_coordinates(self._normalize(deviation, v, shift))

    def _update(self, F: Tensor, domain: Tensor) -> tuple[Deviation, Tensor | None]:
        """Update the statistics of all domains in the batch at once.

        Return the deviations from the running means, and the running variance of each matrix.
        """
        space = self._normalization
        gathered = gather_rows(F.reshape(-1, self.n, self.n))[0]
        domains, local = gather_rows(domain.reshape(-1))
        present, index, sizes = domains.unique(return_inverse=True, return_counts=True)
        groups, own = Groups(index, sizes), index[local].reshape(domain.shape)
        is_first = (self.num_batches_tracked[present] == 0) & (self.start == "batch")
        batch = _Batch(present, groups, own, is_first, space.mean(gathered, groups))
        if self.dispersion == "tangent" and isinstance(space, CongruenceNormalization):
            frame = space.frame(space.base(gathered, groups))
            batch.tangents = frame, space.deviation(F, frame[own]).logs
        deviation, v = self._move(self.running_mean, self.running_var, self.momentum, F, batch)
        with torch.no_grad():
            self._move(self.eval_mean, self.eval_var, self.eval_momentum, F, batch)
            self.num_batches_tracked[present] += 1
        return deviation, None if v is None else v[own]

    def _move(
        self, mean: Tensor, var: Tensor | None, eta: float, F: Tensor, batch: "_Batch"
    ) -> tuple[Deviation, Tensor | None]:
        """Move statistics toward those of a batch; return the deviations and the variances."""
        space, present, M = self._normalization, batch.present, batch.means
        if eta != 1:
            old, is_first = mean[present], batch.is_first[:, None, None]
            # no step toward a first mean, because its derivative could be NaN instead of 0
            moved = space.interpolate(old, torch.where(is_first, old, M), eta)
            M = torch.where(is_first, M, moved)
        deviation = space.deviation(F, space.frame(M)[batch.own])
        mean[present] = M.detach()
        if var is None:
            return deviation, None
        if batch.tangents is None:
            logs = deviation.logs
        else:
            frame, tangents = batch.tangents
            logs = tangents - space.deviation(M, frame).logs[batch.own]
        v = batch.groups.mean(gather_rows(self._squared_distances(logs))[0])
        known = self._known_variances(var)[present]
        # the distance of a single matrix from itself depends on rounding errors
        is_own_mean = (batch.groups.sizes == 1) & (batch.is_first | (eta == 1))
        first = torch.where(is_own_mean, known, self._known_if_zero(v, known))
        if batch.tangents is None:  # the original method has variances of zero
            v = first
        v = torch.where(batch.is_first, first, torch.lerp(var[present], v, eta))
        var[present] = v.detach()
        return deviation, v

    def _known_variances(self, var: Tensor) -> Tensor:
        """Return the variances; a domain without statistics gets the mean of the others."""
        seen = self.num_batches_tracked > 0
        mean = torch.where(seen, var, 0).sum() / seen.sum()
        return torch.where(seen | ~seen.any(), var, mean)

    def expand_domain(self, X: Tensor, domain: Tensor | None, check: bool) -> Tensor:
        """Return the domain of each matrix, with the leading shape of ``X``.

        With ``check``, raise an error for unknown domains.
        """
        leading = X.shape[:-2]
        if domain is None and self.n_domains == 1:
            return torch.zeros(leading, dtype=torch.long, device=X.device)
        integers = isinstance(domain, Tensor) and not (
            domain.is_floating_point() or domain.is_complex() or domain.dtype == torch.bool
        )
        if domain is None or not integers or domain.shape != leading[: domain.ndim]:
            got: Any = domain
            if isinstance(domain, Tensor):
                got = f"{tuple(domain.shape)} of {domain.dtype}"
            raise ValueError(
                f"{WHO}: expected the domains of the matrices {tuple(X.shape)}, a tensor of "
                f"integers of shape {tuple(leading[:1])}, got {got}"
            )
        domain = domain.to(X.device, torch.long)
        domain = domain.reshape((*domain.shape, *(1,) * (len(leading) - domain.ndim)))
        if check:
            self._require_known(domain)
        return domain.expand(leading)

    def _require_known(self, domain: Tensor) -> None:
        if not can_branch(domain) or domain.numel() == 0:
            return
        lowest, highest = int(domain.min()), int(domain.max())
        if lowest < 0 or highest >= self.n_domains:
            raise ValueError(
                f"{WHO}: expected domains from 0 to {self.n_domains - 1}, got "
                f"{lowest if lowest < 0 else highest}; add_domain() adds one"
            )
        unseen = domain[self.num_batches_tracked[domain] == 0]
        if not self.training and len(unseen):
            raise ValueError(
                f"{WHO}: expected domains that were trained or refitted, got {int(unseen[0])}, "
                "which has no statistics; call refit with its matrices"
            )

    def extra_repr(self) -> str:
        """Return the settings for ``repr``."""
        return (
            f"{self.n}, n_domains={self.n_domains}, metric={self.metric.name!r}, "
            f"variance={self.variance}, momentum={self.final_momentum}, "
            f"eval_momentum={self.eval_momentum}"
        )


@dataclass(eq=False)
class _Batch:
    """The domains of a batch."""

    present: Tensor  #: domains in the batch of all processes
    groups: Groups  #: which of them each matrix of all processes belongs to
    own: Tensor  #: the same for the matrices of this process
    is_first: Tensor  #: whether the batch sets the statistics of a domain
    means: Tensor  #: of each domain
    #: for the variance in tangent spaces: frames of their points, logarithms of the local matrices
    tangents: tuple[Tensor, Tensor] | None = None
