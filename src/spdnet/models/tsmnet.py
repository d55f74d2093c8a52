"""TSMNet: a network for signals, with separate statistics for each subject or session."""

from typing import Any

import torch
from torch import Tensor, nn

from spdnet._checks import require_choice, require_count, require_same_dtype
from spdnet.manifolds.stiefel import project
from spdnet.models.domains import DomainModel
from spdnet.nn import BiMap, CovPool, LogEig, ReEig, SPDDomainBatchNorm, Vech


class TSMNet(DomainModel):
    r"""Network for signals, with batch normalization by domain.

    Convolutions in time and over channels, covariance, BiMap, ReEig, domain-specific batch
    normalization, LogEig and a linear classifier, for multichannel signals ``(B, n_channels, T)``
    such as EEG, from several subjects or sessions, the domains. A matrix :math:`Y` of domain
    :math:`j` becomes :math:`(M_j^{-1/2} Y M_j^{-1/2})^{s / \sqrt{v_j}}` before the logarithm, with
    the mean :math:`M_j` and variance :math:`v_j` of its domain and one learned :math:`s`.
    :meth:`refit` estimates the mean and variance of a domain without labels.

    ``variant="authors"`` is the network of the authors' code. The default differs:

    * The temporal convolution pads with zeros instead of reflecting the signal, so that a signal
      may be shorter than the kernel.
    * The covariance is regularized, :math:`C + 10^{-3} \frac{\mathrm{tr}\, C}{n} I`.
    * The dispersion of a batch is exact, and the first batch of a domain sets its statistics: see
      ``dispersion`` and ``start`` of :class:`spdnet.nn.SPDDomainBatchNorm`.
    * The final momentum of training is 0.1, instead of one over the number of domains in a batch.
    * A single matrix of a domain takes its dispersion from the other domains, instead of 0.
    * The weight of the BiMap is uniformly distributed. The authors draw :math:`R (R^\top
      R)^{-1/2}` with the entries of :math:`R` uniform between 0 and 1.

    Both variants compute everything in one dtype, and keep ``eval_momentum`` at the 0.1 that the
    authors' network declares, whereas their scheduler sets it to about 0.9.

    Parameters
    ----------
    n_channels : int
    n_classes : int
    n_domains : int
        Number of domains, which have the indices 0, 1, ...
    temporal_filters, kernel : int
        Number and length of the convolutions in time.
    spatial_filters : int
        Combinations of all channels and temporal filters; the size of the covariance.
    dim : int
        Size of the matrices after the BiMap.
    eps : float or str
        Threshold of the ReEig.
    momentum, eval_momentum : float
        Momentum of the normalization: see :class:`spdnet.nn.SPDDomainBatchNorm`. ``momentum`` is
        0.1 by default, and 1 for the authors' variant.
    karcher_steps : int, optional
        Steps toward the mean of each domain in training, 1 as in the original; None for the exact
        mean, which the authors' variant does not support.
    variant : {"default", "authors"}
    check : bool
        Whether to check that signals are finite and domains are known.
    device, dtype : optional

    Attributes
    ----------
    gain : Tensor, shape ()
        Buffer with the factor that multiplies the signals: see :meth:`calibrate`.
    temporal, spatial, pool, bimap, reeig, norm, classifier : Module

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

    takes = "signals"
    uses_domains = True
    hyperparameters = ("dims", "eps")
    is_random = False

    gain: Tensor

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
        counts = {"n_channels": n_channels, "n_classes": n_classes, "kernel": kernel}
        for name, value in {**counts, "temporal_filters": temporal_filters}.items():
            require_count("TSMNet", name, value)
        require_choice("TSMNet", "variant", variant, ("default", "authors"))
        original = variant == "authors"
        self.n_channels = n_channels
        self.n_classes = n_classes
        self.dims = (spatial_filters, dim)
        self.variant = variant
        self.check = check
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.register_buffer("gain", torch.ones((), **where))
        self.temporal = nn.Conv2d(
            *(1, temporal_filters, (1, kernel)),
            padding="same",
            padding_mode="reflect" if original else "zeros",
            **where,
        )
        self.spatial = nn.Conv2d(temporal_filters, spatial_filters, (n_channels, 1), **where)
        self.pool = CovPool(mode="none") if original else CovPool()
        self.bimap = BiMap(spatial_filters, dim, **where)
        self.reeig = ReEig(eps, **where)
        self.norm = SPDDomainBatchNorm(
            dim,
            n_domains,
            momentum=(1.0 if original else 0.1) if momentum is None else momentum,
            eval_momentum=eval_momentum,
            karcher_steps=karcher_steps,
            dispersion="tangent" if original else "exact",
            start="identity" if original else "batch",
            **where,
        )
        self.logeig = LogEig(check=False)
        self.vectorize = Vech()
        self.classifier = nn.Linear(dim * (dim + 1) // 2, n_classes, **where)
        if original:
            self._draw_bimap()

    @classmethod
    def choose_dims(cls, n: int) -> tuple[int, ...]:
        """Return the sizes of the covariance and after the BiMap."""
        return 40, 20

    @classmethod
    def from_recipe(
        cls, recipe: Any, n: int, n_classes: int, *, dims: tuple[int, ...] = (), **settings: Any
    ) -> "TSMNet":
        """Construct the network for a recipe: see :class:`spdnet.models.Model`."""
        if len(dims) != 2:
            raise ValueError(
                f"TSMNet: expected two sizes in dims, of the covariance and after the BiMap, such "
                f"as 40,20, got {','.join(map(str, dims))}"
            )
        return cls(n, n_classes, spatial_filters=dims[0], dim=dims[1], eps=recipe.eps, **settings)

    @property
    def n_features(self) -> int:
        """Number of inputs of the classifier."""
        return self.classifier.in_features

    def reset_parameters(self) -> None:
        """Draw new weights, and reset all statistics."""
        nn.init.ones_(self.gain)
        for name in ("temporal", "spatial", "bimap", "reeig", "norm", "classifier"):
            getattr(self, name).reset_parameters()
        if self.variant == "authors":
            self._draw_bimap()

    @torch.no_grad()
    def _draw_bimap(self) -> None:
        self.bimap.weight.copy_(project(torch.rand_like(self.bimap.weight, dtype=torch.float64)))

    @torch.no_grad()
    def calibrate(self, X: Tensor) -> "TSMNet":
        """Set the gain so that signals ``(N, n_channels, T)`` have variance 1, whatever their unit.

        The threshold of the ReEig is absolute; covariances of signals in volts would be below it.
        """
        X = self._prepared(X, check=True).double()
        rms = (X - X.mean(-1, keepdim=True)).square().mean().sqrt()
        if not rms > 0:
            raise ValueError("TSMNet.calibrate: expected signals that are not constant")
        self.gain.copy_(1 / rms)
        return self

    def fit_buffers(self, X: Any, y: Tensor | None = None, weight: Tensor | None = None) -> None:
        """Fit the gain to the training data."""
        self.calibrate(X[:])

    def forward(self, X: Tensor, domain: Tensor | None = None, check: bool | None = None) -> Tensor:
        """Compute the logits ``(B, n_classes)`` of signals ``(B, n_channels, T)``."""
        return self.classifier(self.features(X, domain, check))

    def features(
        self, X: Tensor, domain: Tensor | None = None, check: bool | None = None
    ) -> Tensor:
        """Compute the input of the classifier, logarithms ``(B, dim * (dim + 1) / 2)``."""
        check = self.check if check is None else check
        Y = self._matrices(self._prepared(X, check))  # (B, dim, dim)
        Y = self.norm(Y, domain, check=check)
        return self.vectorize(self.logeig(Y))

    def _prepared(self, X: Tensor, check: bool | None) -> Tensor:
        if not isinstance(X, Tensor) or X.ndim != 3 or X.shape[1] != self.n_channels:
            shape = tuple(X.shape) if isinstance(X, Tensor) else type(X).__name__
            raise ValueError(f"TSMNet: expected signals (B, {self.n_channels}, T), got {shape}")
        require_same_dtype("TSMNet", X, self.gain.dtype)
        if check and not torch.compiler.is_compiling() and not X.isfinite().all():
            i, c, t = (~X.isfinite()).nonzero()[0].tolist()
            raise ValueError(
                f"TSMNet: expected finite signals, got {X[i, c, t].item()} at X[{i}, {c}, {t}]"
            )
        return X.to(self.gain.dtype)

    def _stages(self) -> list[Any]:
        return [(self._matrices, self.norm)]

    def _matrices(self, X: Tensor) -> Tensor:
        maps = self.spatial(self.temporal(self.gain * X[:, None]))  # (B, filters, 1, T)
        return self.reeig(self.bimap(self.pool(maps), check=False), check=False)  # (B, dim, dim)
