"""Batch normalisation with statistics of each domain: subjects, sessions, devices."""

import warnings
from typing import Any

import torch
from torch import Tensor

from spdnet._autograd import can_branch
from spdnet._checks import (
    require_choice,
    require_count,
    require_number,
    require_same_dtype,
    require_square,
)
from spdnet.linalg.validate import require_symmetric
from spdnet.manifolds import Metric, get_metric
from spdnet.manifolds.normalization import CongruenceNormalization
from spdnet.nn.batch_norm import is_rounding, make_normalization
from spdnet.nn.layer import SPDLayer
from spdnet.nn.processes import all_gather, is_distributed


class SPDDomainBatchNorm(SPDLayer):
    r"""Move the mean of each domain to one bias, and its dispersion to one scale.

    Recordings of different people, days or devices differ by where their covariances lie. With the
    mean :math:`M_d` and the variance :math:`v_d` of its domain, a matrix becomes

    .. math:: B^{1/2} \bigl( M_d^{-1/2} X M_d^{-1/2} \bigr)^{s / \sqrt{v_d + \mathrm{eps}}} B^{1/2},

    and likewise in the other metrics: see :class:`SPDBatchNorm`. As in momentum batch
    normalisation, training itself uses running statistics, which the batch has just moved, and
    derivatives go through the batch's part in them. Evaluation has running statistics of its own,
    with a small momentum. The first batch of a domain sets both, unless ``start`` says otherwise.
    For a domain without labels, :meth:`refit` finds the statistics of evaluation; they are as good
    as the sample is large, and take the classes to be as frequent in it as in training. A single
    matrix has no dispersion: its domain takes the mean one of the others.

    Parameters
    ----------
    n : int
        Size of the matrices.
    n_domains : int
        Domains are numbers from 0; some may be kept for later, and :meth:`add_domain` makes more.
    metric : str or Metric
        As in :class:`SPDBatchNorm`.
    variance : bool
        Normalise the dispersion, or leave it.
    momentum : float
        Weight of a batch in the statistics of training; with :meth:`anneal`, that of the last
        epoch.
    eval_momentum : float
        Weight of a batch in the statistics of evaluation.
    affine : bool
        Learn the scale, which all domains share; otherwise 1.
    bias : bool
        Learn the bias, which all domains share; otherwise the identity.
    power, root, karcher_steps, eps
        As in :class:`SPDBatchNorm`.
    dispersion : {"exact", "tangent"}
        Variance of a batch: the mean squared distance from the running mean, or that of the
        logarithms in the tangent space at the arithmetic mean (with several ``karcher_steps``, at
        the last point before the mean), which the original takes for it. ``tangent`` is for
        ``affine_invariant`` with ``karcher_steps``.
    start : {"batch", "identity"}
        The first batch of a domain sets its statistics. Or, as in the original, the statistics
        start at the identity and the variance 1, and the first batch moves them as all others do;
        :meth:`refit` then sets the statistics of training too.
    check : bool
        Refuse input that is not finite, symmetric and positive definite, and domains that are not
        known.
    device, dtype : optional
        Of parameters and buffers.

    Attributes
    ----------
    running_mean, eval_mean : Tensor, shape (n_domains, n, n)
        In coordinates, buffers.
    running_var, eval_var : Tensor, shape (n_domains,)
        Buffers, only with variance.
    num_batches_tracked : Tensor, shape (n_domains,)
        Batches of each domain that were seen; a domain that was refitted counts as seen.

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

    running_mean: Tensor
    running_var: Tensor | None
    eval_mean: Tensor
    eval_var: Tensor | None
    num_batches_tracked: Tensor
    scale: torch.nn.Parameter | None
    bias: torch.nn.Parameter | None
    dispersion = "exact"  # of what was pickled before there was a choice
    start = "batch"

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
        super().__init__(check=check)
        who = "SPDDomainBatchNorm"
        require_count(who, "n", n)
        require_count(who, "n_domains", n_domains)
        metric = get_metric(metric, "normalization", who=who)
        normalization = make_normalization(who, metric, power, root, karcher_steps)
        if not isinstance(variance, bool):
            raise TypeError(f"{who}: expected variance to be True or False, got {variance!r}")
        require_number(who, "momentum", momentum, above=0, at_most=1)
        require_number(who, "eval_momentum", eval_momentum, above=0, at_most=1)
        require_number(who, "eps", eps, at_least=0)
        require_choice(who, "dispersion", dispersion, ("exact", "tangent"))
        require_choice(who, "start", start, ("batch", "identity"))
        steps = isinstance(normalization, CongruenceNormalization) and karcher_steps is not None
        if dispersion == "tangent" and not steps:
            raise ValueError(
                f"{who}: expected metric='affine_invariant' and karcher_steps with "
                f"dispersion='tangent', got {metric.name!r} and {karcher_steps}"
            )
        self.n = n
        self.metric = metric
        self.variance = variance
        self.final_momentum = self.momentum = momentum
        self.eval_momentum = eval_momentum
        self.power = float(power)
        self.eps = eps
        self.dispersion = dispersion
        self.start = start
        self._normalization = normalization
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        for name in ("running", "eval"):
            var = torch.ones(n_domains, **where) if variance else None
            self.register_buffer(f"{name}_mean", torch.zeros(n_domains, n, n, **where))
            self.register_buffer(f"{name}_var", var)
        self.register_buffer(
            "num_batches_tracked", torch.zeros(n_domains, device=device, dtype=torch.long)
        )
        for name, size, wanted in (("scale", (), affine and variance), ("bias", (n, n), bias)):
            parameter = torch.nn.Parameter(torch.empty(size, **where)) if wanted else None
            self.register_parameter(name, parameter)
        self.reset_parameters()

    @property
    def n_domains(self) -> int:
        """Domains that there is room for."""
        return len(self.num_batches_tracked)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Bias at the identity, scale 1, and no batch seen."""
        if self.bias is not None:
            self.bias.zero_()
        if self.scale is not None:
            self.scale.fill_(1)
        origin = self._normalization.origin(self.running_mean[0])
        for mean, var in (
            (self.running_mean, self.running_var),
            (self.eval_mean, self.eval_var),
        ):
            mean.copy_(origin)
            if var is not None:
                var.fill_(1)
        self.num_batches_tracked.zero_()

    def anneal(self, epoch: int, epochs: int) -> None:
        r"""Set the momentum of training for an epoch, from 1 in the first to the final one.

        :math:`\eta = 1 - \rho^{(K - k) / (K - 1)} + \rho` in epoch :math:`k` of :math:`K`, with the
        final momentum :math:`\rho`: single batches at first, then ever more of what came before.

        Parameters
        ----------
        epoch : int
            From 1.
        epochs : int
        """
        require_count("SPDDomainBatchNorm.anneal", "epoch", epoch)
        require_count("SPDDomainBatchNorm.anneal", "epochs", epochs)
        rho = self.final_momentum
        left = max(epochs - epoch, 0) / max(epochs - 1, 1)
        self.momentum = 1 - rho**left + rho

    @torch.no_grad()
    def refit(self, X: Tensor, domain: int, check: bool | None = None) -> None:
        """Set the statistics of evaluation of one domain to those of ``X``; no labels are needed.

        Parameters
        ----------
        X : Tensor, shape (N, ..., n, n)
            All matrices of the domain that there are.
        domain : int
        check : bool, optional
        """
        who = "SPDDomainBatchNorm.refit"
        require_square(who, X, n=self.n)
        if isinstance(domain, bool) or not isinstance(domain, int):
            raise TypeError(f"{who}: expected domain to be a whole number, got {domain!r}")
        if not 0 <= domain < self.n_domains:
            raise ValueError(
                f"{who}: expected a domain from 0 to {self.n_domains - 1}, got {domain}; "
                "add_domain() makes another"
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
            warnings.warn(
                f"{who}: one matrix is its own mean, so that nothing is known of domain {domain}; "
                "give all its matrices at once",
                RuntimeWarning,
                stacklevel=2,
            )
        M = self.metric.normalization(power=self.power).mean(F)  # exact
        v = self._spread_of(F, M, self.eval_var, domain)
        is_new = int(self.num_batches_tracked[domain]) == 0
        self.eval_mean[domain] = M
        if self.eval_var is not None:
            self.eval_var[domain] = v
        if is_new or self.start == "identity":  # training of it goes on from here
            self.running_mean[domain] = M
            if self.running_var is not None:
                self.running_var[domain] = v
        self.num_batches_tracked[domain].add_(1)

    @torch.no_grad()
    def add_domain(self) -> int:
        """Room for one more domain; its number."""
        origin = self._normalization.origin(self.running_mean[0])
        for name, value in (("mean", origin), ("var", torch.ones_like(origin[0, 0]))):
            for kind in ("running", "eval"):
                self._append(f"{kind}_{name}", value)
        self._append("num_batches_tracked", torch.zeros_like(self.num_batches_tracked[0]))
        return self.n_domains - 1

    def _append(self, name: str, value: Tensor) -> None:
        buffer = getattr(self, name)
        if buffer is not None:
            setattr(self, name, torch.cat([buffer, value[None]]))

    def forward(self, X: Tensor, domain: Tensor | None = None, check: bool | None = None) -> Tensor:
        """``(..., n, n)`` to ``(..., n, n)``, with the domain of each matrix.

        Its shape is that of the leading dimensions of ``X``, or of the first of them, as ``(B,)``
        for ``(B, channels, n, n)``. Where there is only one domain, it need not be given.
        """
        require_square("SPDDomainBatchNorm", X, n=self.n)
        require_same_dtype("SPDDomainBatchNorm", X, self.running_mean)
        check = self._checks(check)
        if check:
            require_symmetric("SPDDomainBatchNorm", X)
        X = X.to(self.running_mean.dtype)  # half types are lifted
        domain = self._domains(X, domain, check)
        F = self._normalization.coordinates(X, check=check, who="SPDDomainBatchNorm")
        if self.training and (X.numel() > 0 or is_distributed()):
            M, v = self._update(F, domain)
        else:
            M, v = self.eval_mean, self.eval_var
        frame = self._normalization.frame(M)[domain]  # (..., n, n)
        f = None
        if v is not None:
            f = (v + self.eps).rsqrt()[domain][..., None, None]
            f = f if self.scale is None else self.scale * f
        F = self._normalization.normalized(F, frame, f, self.bias)
        return self._normalization.from_coordinates(F)

    def _update(self, F: Tensor, domain: Tensor) -> tuple[Tensor, Tensor | None]:
        """The statistics of training after this batch, for all domains."""
        F = all_gather(F.reshape(-1, self.n, self.n))
        domain = all_gather(domain.reshape(-1))
        means = list(self.running_mean.clone().unbind())
        variances = [] if self.running_var is None else list(self.running_var.clone().unbind())
        for d in domain.unique().tolist():
            part = F[domain == d]
            b = self._normalization.mean(part)
            is_first = self.start == "batch" and int(self.num_batches_tracked[d]) == 0
            eta, eval_eta = (1.0, 1.0) if is_first else (self.momentum, self.eval_momentum)
            means[d] = b if eta == 1 else self._normalization.interpolate(means[d], b, eta)
            if variances:
                v = self._batch_variance(part, means[d], self.running_var, d)
                variances[d] = torch.lerp(variances[d], v, eta)
            self._track(d, part.detach(), b.detach(), eval_eta)
        M = torch.stack(means)
        V = torch.stack(variances) if variances else None
        with torch.no_grad():
            self.running_mean.copy_(M)
            if V is not None and self.running_var is not None:
                self.running_var.copy_(V)
        return M, V

    @torch.no_grad()
    def _track(self, d: int, F: Tensor, b: Tensor, eta: float) -> None:
        """Move the statistics of evaluation of one domain."""
        M = b if eta == 1 else self._normalization.interpolate(self.eval_mean[d], b, eta)
        self.eval_mean[d] = M
        if self.eval_var is not None:
            v = self._batch_variance(F, M, self.eval_var, d)
            self.eval_var[d] = torch.lerp(self.eval_var[d], v, eta)
        self.num_batches_tracked[d].add_(1)

    def _batch_variance(self, F: Tensor, M: Tensor, known: Tensor | None, d: int) -> Tensor:
        """The variance of a batch about the mean ``M``, as ``dispersion`` says."""
        space = self._normalization
        if self.dispersion == "exact" or not isinstance(space, CongruenceNormalization):
            return self._spread_of(F, M, known, d)
        frame = space.frame(space.base(F))
        gaps = space.logs(F, frame) - space.logs(M, frame)
        return gaps.square().sum((-2, -1)).mean() / self.power**2

    def _spread_of(self, F: Tensor, M: Tensor, known: Tensor | None, d: int) -> Tensor:
        """The variance about ``M``; where there is none, as of one matrix, what is known of it.

        That is the variance of the domain so far, or the mean one of the others that were seen.
        """
        squares = self._normalization.logs(F, self._normalization.frame(M)).square()
        v = squares.sum((-2, -1)).mean() / self.power**2
        if known is None:
            return v
        seen = self.num_batches_tracked > 0
        before = known[d] if bool(seen[d]) or not bool(seen.any()) else known[seen].mean()
        return torch.where(is_rounding(v, self.n), before.clone(), v)

    def _domains(self, X: Tensor, domain: Tensor | None, check: bool) -> Tensor:
        who = "SPDDomainBatchNorm"
        leading = X.shape[:-2]
        if domain is None and self.n_domains == 1:
            return torch.zeros(leading, dtype=torch.long, device=X.device)
        whole = isinstance(domain, Tensor) and not (
            domain.is_floating_point() or domain.is_complex() or domain.dtype == torch.bool
        )
        if domain is None or not whole or domain.shape != leading[: domain.ndim]:
            got = (
                f"{tuple(domain.shape)} of {domain.dtype}" if isinstance(domain, Tensor) else domain
            )
            raise ValueError(
                f"{who}: expected the domains of the matrices {tuple(X.shape)}, a tensor of whole "
                f"numbers such as {tuple(leading[:1])}, got {got}"
            )
        domain = domain.to(X.device, torch.long)
        domain = domain.reshape(*domain.shape, *(1,) * (len(leading) - domain.ndim))
        if check:
            self._require_known(domain)
        return domain.expand(leading)

    def _require_known(self, domain: Tensor) -> None:
        who = "SPDDomainBatchNorm"
        if not can_branch(domain) or domain.numel() == 0:
            return
        lowest, highest = int(domain.min()), int(domain.max())
        if lowest < 0 or highest >= self.n_domains:
            raise ValueError(
                f"{who}: expected domains from 0 to {self.n_domains - 1}, got "
                f"{lowest if lowest < 0 else highest}; add_domain() makes another"
            )
        unseen = domain[self.num_batches_tracked[domain] == 0]
        if not self.training and len(unseen):
            raise ValueError(
                f"{who}: expected domains that were trained or refitted, got {int(unseen[0])}, "
                "which has no statistics; call refit with its matrices"
            )

    def extra_repr(self) -> str:
        """Settings for ``repr``."""
        return (
            f"{self.n}, n_domains={self.n_domains}, metric={self.metric.name!r}, "
            f"variance={self.variance}, momentum={self.final_momentum}, "
            f"eval_momentum={self.eval_momentum}"
        )
