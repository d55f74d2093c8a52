"""TSMNet: from signals to classes, with statistics of each person, day or device."""

import torch
from torch import Tensor, nn

from spdnet._checks import require_choice, require_count, require_same_dtype
from spdnet.linalg import invsqrtm
from spdnet.nn import BiMap, CovPool, LogEig, ReEig, SPDDomainBatchNorm, Vech

VARIANTS = ("default", "authors")
_PIECE = 256


class TSMNet(nn.Module):
    r"""Convolutions in time and over channels, covariance, BiMap, ReEig, domain-specific batch
    normalisation, LogEig and a linear classifier; trained from the signals on.

    For EEG and other signals of many channels from several people or sessions, the domains: ``(B,
    n_channels, T)`` to ``(B, n_classes)``. A matrix :math:`Y` of domain :math:`j` becomes
    :math:`(M_j^{-1/2} Y M_j^{-1/2})^{s / \sqrt{v_j}}` before the logarithm, with mean :math:`M_j`
    and variance :math:`v_j` of its domain and one learned :math:`s`. For a domain without labels,
    :meth:`refit` finds where its covariances lie, and nothing else.

    ``variant="authors"`` is the network of the authors' code. The default departs from it:

    * The temporal convolution pads with zeros instead of reflecting the signal. A signal may then
      be shorter than the kernel.
    * The covariance is regularised, :math:`C + 10^{-3} \frac{\mathrm{tr}\, C}{n} I`, so that it is
      positive definite for short signals. The authors leave small eigenvalues to the ReEig.
    * The dispersion of a batch is the mean squared distance from the running mean. The authors
      approximate it in the tangent space at the arithmetic mean of the batch.
    * The first batch of a domain sets its statistics. The authors start them at the identity and a
      variance of 1, which leaves a trace of the start in the statistics of evaluation.
    * The momentum of training is 0.1 without a schedule, and with
      :meth:`spdnet.nn.SPDDomainBatchNorm.anneal` ends there. The authors start at 1 and anneal to
      one over the number of domains in a batch: give that as ``momentum``.
    * A single matrix of a domain takes its dispersion from what is known of the others. The
      authors' formula gives 0.
    * The weight of the BiMap is uniformly distributed. The authors draw :math:`R (R^\top
      R)^{-1/2}` with the entries of :math:`R` uniform between 0 and 1, so that a direction near
      the mean of all spatial filters always remains.

    Both variants differ from the authors' code in what does not change the function: there the
    convolutions are in float32 and the rest in float64, and the diagonal comes first in the vector
    of logarithms. The authors' scheduler sets the momentum of evaluation to its complement, about
    0.9; ``eval_momentum`` stays at the 0.1 that their network declares. Unlike there, a domain
    without statistics is refused in evaluation.

    Parameters
    ----------
    n_channels : int
        Of the signals.
    n_classes : int
    n_domains : int
        Domains are numbers from 0: see :class:`spdnet.nn.SPDDomainBatchNorm`.
    temporal_filters, kernel : int
        Convolutions in time, and how many samples they span.
    spatial_filters : int
        Combinations of all channels and temporal filters; the size of the covariance.
    dim : int
        Size of the matrices after the BiMap.
    eps : float or str
        Threshold of the ReEig.
    momentum, eval_momentum : float
        Of the normalisation. ``momentum`` is 0.1 when not given, and 1 for the authors' variant.
    karcher_steps : int, optional
        Towards the mean of each domain in training, 1 as in the original; None for the exact mean,
        which the authors' variant does not have.
    variant : {"default", "authors"}
        See above.
    check : bool
        Refuse signals that are not finite, and domains that are not known.
    device, dtype : optional
        Of weights and buffers.

    Attributes
    ----------
    gain : Tensor, shape ()
        By which signals are multiplied, a buffer: see :meth:`calibrate`.
    temporal, spatial : Conv2d
    pool : CovPool
    bimap : BiMap
    reeig : ReEig
    norm : SPDDomainBatchNorm
    classifier : Linear

    References
    ----------
    R. Kobler et al., "SPD domain-specific batch normalization to crack interpretable unsupervised
    domain adaptation in EEG", NeurIPS 2022.

    Examples
    --------
    >>> import torch
    >>> from spdnet.models import TSMNet
    >>> model = TSMNet(8, 3, n_domains=2, spatial_filters=12, dim=6)
    >>> model(torch.randn(10, 8, 100), torch.arange(10) % 2).shape
    torch.Size([10, 3])
    """

    gain: Tensor
    variant = "default"  # of what was pickled before there was a choice

    def __init__(
        self,
        n_channels: int,
        n_classes: int,
        *,
        n_domains: int = 1,
        temporal_filters: int = 4,
        kernel: int = 25,
        spatial_filters: int = 40,
        dim: int = 20,
        eps: float | str = 1e-4,
        momentum: float | None = None,
        eval_momentum: float = 0.1,
        karcher_steps: int | None = 1,
        variant: str = "default",
        check: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        for name, value in (
            ("n_channels", n_channels),
            ("n_classes", n_classes),
            ("temporal_filters", temporal_filters),
            ("kernel", kernel),
        ):
            require_count("TSMNet", name, value)
        require_choice("TSMNet", "variant", variant, VARIANTS)
        original = variant == "authors"
        if momentum is None:
            momentum = 1.0 if original else 0.1
        self.n_channels = n_channels
        self.n_classes = n_classes
        self.dims = (spatial_filters, dim)
        self.variant = variant
        self.check = check
        self.register_buffer("gain", torch.ones((), device=device, dtype=dtype))
        self.temporal = nn.Conv2d(
            *(1, temporal_filters, (1, kernel)),
            padding="same",
            padding_mode="reflect" if original else "zeros",
            device=device,
            dtype=dtype,
        )
        self.spatial = nn.Conv2d(
            *(temporal_filters, spatial_filters, (n_channels, 1)), device=device, dtype=dtype
        )
        self.pool = CovPool(mode="none") if original else CovPool()
        self.bimap = BiMap(spatial_filters, dim, device=device, dtype=dtype)
        self.reeig = ReEig(eps, device=device, dtype=dtype)
        self.norm = SPDDomainBatchNorm(
            dim,
            n_domains,
            momentum=momentum,
            eval_momentum=eval_momentum,
            karcher_steps=karcher_steps,
            dispersion="tangent" if original else "exact",
            start="identity" if original else "batch",
            device=device,
            dtype=dtype,
        )
        self.logeig = LogEig(check=False)
        self.vectorize = Vech()
        self.classifier = nn.Linear(dim * (dim + 1) // 2, n_classes, device=device, dtype=dtype)
        if original:
            self._draw_bimap()

    def reset_parameters(self) -> None:
        """Draw new weights, and forget all statistics."""
        nn.init.ones_(self.gain)
        layers = (self.temporal, self.spatial, self.bimap, self.reeig, self.norm, self.classifier)
        for layer in layers:
            layer.reset_parameters()
        if self.variant == "authors":
            self._draw_bimap()

    @torch.no_grad()
    def _draw_bimap(self) -> None:
        R = torch.rand_like(self.bimap.weight, dtype=torch.float64)
        self.bimap.weight.copy_(R @ invsqrtm(R.mT @ R))

    @torch.no_grad()
    def calibrate(self, X: Tensor) -> "TSMNet":
        """Bring signals ``(N, n_channels, T)`` to a variance of 1, whatever their unit.

        The threshold of the ReEig is absolute: covariances of volts would lie below it.
        """
        X = self._signals(X, check=True).double()
        rms = (X - X.mean(-1, keepdim=True)).square().mean().sqrt()
        if not rms > 0:
            raise ValueError("TSMNet.calibrate: expected signals that are not constant")
        self.gain.copy_(1 / rms)
        return self

    @torch.no_grad()
    def refit(self, X: Tensor, domain: int, check: bool | None = None) -> "TSMNet":
        """Adapt to a domain by its signals ``(N, n_channels, T)``, without labels.

        A domain that is one more than there are is made.
        """
        check = self.check if check is None else check
        X = self._signals(X, check)
        if isinstance(domain, bool) or not isinstance(domain, int):
            raise TypeError(f"TSMNet.refit: expected domain to be a whole number, got {domain!r}")
        if len(X) == 0 or not 0 <= domain <= self.norm.n_domains:
            raise ValueError(
                f"TSMNet.refit: expected signals, and a domain from 0 to {self.norm.n_domains}, "
                f"got {len(X)} and {domain}"
            )
        was_training = self.training
        self.eval()  # a ReEig with a percentage does not learn here
        try:
            Y = torch.cat([self._matrices(part) for part in X.split(_PIECE)])
        finally:
            self.train(was_training)
        if domain == self.norm.n_domains:
            self.norm.add_domain()
        self.norm.refit(Y, domain, check=False)
        return self

    def forward(self, X: Tensor, domain: Tensor | None = None, check: bool | None = None) -> Tensor:
        """Logits ``(B, n_classes)`` of signals ``(B, n_channels, T)``, with domains ``(B,)``."""
        return self.classifier(self.features(X, domain, check))

    def features(
        self, X: Tensor, domain: Tensor | None = None, check: bool | None = None
    ) -> Tensor:
        """What the classifier sees: logarithms as vectors ``(B, dim * (dim + 1) / 2)``."""
        check = self.check if check is None else check
        Y = self._matrices(self._signals(X, check))  # (B, dim, dim)
        Y = self.norm(Y, domain, check=check)
        return self.vectorize(self.logeig(Y))

    def _signals(self, X: Tensor, check: bool) -> Tensor:
        if not isinstance(X, Tensor) or X.ndim != 3 or X.shape[1] != self.n_channels:
            shape = tuple(X.shape) if isinstance(X, Tensor) else type(X).__name__
            raise ValueError(f"TSMNet: expected signals (B, {self.n_channels}, T), got {shape}")
        require_same_dtype("TSMNet", X, self.gain)
        if check and not torch.compiler.is_compiling() and not X.isfinite().all():
            i, c, t = (~X.isfinite()).nonzero()[0].tolist()
            raise ValueError(
                f"TSMNet: expected finite signals, got {X[i, c, t].item()} at X[{i}, {c}, {t}]"
            )
        return X.to(self.gain.dtype)

    def _matrices(self, X: Tensor) -> Tensor:
        maps = self.spatial(self.temporal(self.gain * X[:, None]))  # (B, filters, 1, T)
        return self.reeig(self.bimap(self.pool(maps), check=False), check=False)  # (B, dim, dim)
