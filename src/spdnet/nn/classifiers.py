"""Classifiers on the manifold of SPD matrices."""

import math

import torch
from torch import Tensor

from spdnet._checks import require_count, require_number, require_same_kind, require_square
from spdnet.linalg import expm, logm, symmetrize
from spdnet.manifolds import Metric, get_metric
from spdnet.nn.batch_norm import require_power
from spdnet.nn.layer import SPDLayer


class SPDMLR(SPDLayer):
    r"""Multinomial logistic regression on a manifold of SPD matrices.

    Each class has a hyperplane through a point :math:`P_k` with a symmetric normal :math:`A_k`. Its
    logit is :math:`\langle \log_{P_k} X, \Gamma_{I \to P_k} A_k \rangle_{P_k}`; in flat metrics,
    this is the signed distance to the hyperplane times the length of the normal:

    =====================  =========================================================================
    ``log_euclidean``      :math:`\langle \log X - \log P, A \rangle`, a linear classifier with bias
                           on the matrix logarithm
    ``affine_invariant``   :math:`\tfrac1\theta \langle \log(P^{-\theta/2} X^\theta P^{-\theta/2}),
                           A \rangle`
    ``log_cholesky``       :math:`\tfrac1\theta \langle \varphi(X^\theta) - \varphi(P^\theta),
                           \lfloor A \rfloor + \tfrac12 \mathrm{diag} A \rangle`
    ``power_euclidean``    :math:`\tfrac1\theta \langle X^\theta - P^\theta, A \rangle`
    ``bures_wasserstein``  :math:`\tfrac1{4\theta} \langle \log_{P^{2\theta}} X^{2\theta},
                           \mathcal L_{P^{2\theta}}(L A L^\top) \rangle`, :math:`L` the Cholesky
                           factor of :math:`P^{2\theta}`
    =====================  =========================================================================

    The inner product of ``log_euclidean``, ``affine_invariant`` and ``power_euclidean`` is
    :math:`\alpha \langle U, V \rangle + \beta\, \mathrm{tr} U\, \mathrm{tr} V`.

    Parameters
    ----------
    n : int
        Size of the matrices.
    n_classes : int
    metric : str or Metric
        One of the metrics above, or another metric with ``logits``. ``affine_invariant`` and
        ``bures_wasserstein`` decompose every matrix once per class.
    power : float, optional
        :math:`\theta \ne 0`; by default 1, and 1/2 for ``bures_wasserstein``, which is the metric
        itself.
    alpha, beta : float
        Coefficients of the inner product, with ``alpha > 0`` and ``alpha + n * beta > 0``.
    check, device, dtype : see :class:`BiMap`

    Attributes
    ----------
    points : Parameter, shape (n_classes, n, n)
        Unconstrained; the symmetric parts are :math:`\log P_k`, initially zero.
    normals : Parameter, shape (n_classes, n, n)
        Unconstrained; the symmetric parts are :math:`A_k`.

    References
    ----------
    Z. Chen et al., "Riemannian multinomial logistics regression for SPD neural networks", CVPR
    2024; "RMLR: Extending multinomial logistic regression into general geometries", NeurIPS 2024.

    Examples
    --------
    >>> import torch
    >>> from spdnet.nn import SPDMLR
    >>> SPDMLR(5, 3, metric="log_cholesky")(torch.eye(5).expand(8, 5, 5)).shape
    torch.Size([8, 3])
    """

    def __init__(
        self,
        n: int,
        n_classes: int,
        metric: str | Metric = "log_euclidean",
        *,
        power: float | None = None,
        alpha: float = 1.0,
        beta: float = 0.0,
        check: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(check=check)
        require_count("SPDMLR", "n", n)
        require_count("SPDMLR", "n_classes", n_classes)
        metric = get_metric(metric, "logits", who="SPDMLR")
        power = metric.default_power if power is None else power
        require_number("SPDMLR", "alpha", alpha, above=0)
        require_number("SPDMLR", "beta", beta, above=-alpha / n)
        require_power("SPDMLR", metric, power)
        if beta != 0 and not metric.has_trace_term:
            raise ValueError(
                f"SPDMLR: expected beta = 0 for the metric {metric.name!r}, got {beta}"
            )
        self.n, self.n_classes, self.metric = n, n_classes, metric
        self.power, self.alpha, self.beta = float(power), alpha, beta
        shape = (n_classes, n, n)
        self.points = torch.nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.normals = torch.nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        r"""Set the points to the identity and draw normals uniform in :math:`\pm \sqrt 6 / n`."""
        bound = math.sqrt(6) / self.n
        self.points.zero_()
        entries = torch.view_as_real(self.normals) if self.normals.is_complex() else self.normals
        entries.uniform_(-bound, bound)
        self.normals.copy_(self.normals.tril() + self.normals.tril(-1).mH)

    def forward(self, X: Tensor, check: bool | None = None) -> Tensor:
        """Map matrices ``(..., n, n)`` to logits ``(..., n_classes)``."""
        self._require_input(X, check, n=self.n, like=self.normals, positive=True)
        S, A = symmetrize(self.points), symmetrize(self.normals)
        return self.metric.logits(X, S, A, power=self.power, alpha=self.alpha, beta=self.beta)

    def extra_repr(self) -> str:
        """Return the settings for ``repr``."""
        return f"{self.n}, {self.n_classes}, metric={self.metric.name!r}, power={self.power:g}"


class MinimumDistance(SPDLayer):
    r"""Nearest-point classifier with the logits :math:`-d(X, M_k)^2`.

    The points are parameters. After :meth:`fit`, which sets them to the class means, this is the
    minimum-distance-to-mean classifier.

    Parameters
    ----------
    n : int
        Size of the matrices.
    n_classes : int
    metric : str or Metric
        Any of :data:`spdnet.manifolds.METRICS`.
    check, device, dtype : see :class:`BiMap`

    Attributes
    ----------
    points : Parameter, shape (n_classes, n, n)
        Unconstrained; the symmetric parts are :math:`\log M_k`.

    Examples
    --------
    >>> import torch
    >>> from spdnet.nn import MinimumDistance
    >>> X = torch.stack([torch.eye(2), 2 * torch.eye(2), 8 * torch.eye(2), 9 * torch.eye(2)])
    >>> layer = MinimumDistance(2, 2).fit(X, torch.tensor([0, 0, 1, 1]))
    >>> layer(X).argmax(-1)
    tensor([0, 0, 1, 1])
    """

    def __init__(
        self,
        n: int,
        n_classes: int,
        metric: str | Metric = "affine_invariant",
        *,
        check: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(check=check)
        require_count("MinimumDistance", "n", n)
        require_count("MinimumDistance", "n_classes", n_classes)
        self.n, self.n_classes = n, n_classes
        self.metric = get_metric(metric, who="MinimumDistance")
        shape = (n_classes, n, n)
        self.points = torch.nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw points near the identity."""
        self.points.normal_(std=0.1 / math.sqrt(self.n))

    @torch.no_grad()
    def fit(self, X: Tensor, y: Tensor) -> "MinimumDistance":
        """Set the points to the class means and return the layer.

        ``X`` has shape ``(N, n, n)``; ``y (N,)`` holds class indices from 0, each at least once.
        """
        require_square("MinimumDistance.fit", X, n=self.n)
        require_same_kind("MinimumDistance.fit", points=self.points, X=X)
        counts = torch.bincount(y, minlength=self.n_classes)
        if len(y) != len(X) or len(counts) != self.n_classes or (counts == 0).any():
            raise ValueError(
                f"MinimumDistance.fit: expected a class from 0 to {self.n_classes - 1} for each of "
                f"{len(X)} matrices, and each class at least once, got {len(y)} with the counts "
                f"{counts.tolist()}"
            )
        means = [self.metric.mean(X[y == k]) for k in range(self.n_classes)]
        self.points.copy_(logm(torch.stack(means)))
        return self

    def forward(self, X: Tensor, check: bool | None = None) -> Tensor:
        """Map matrices ``(..., n, n)`` to logits ``(..., n_classes)``."""
        self._require_input(X, check, n=self.n, like=self.points, positive=True)
        M = expm(symmetrize(self.points), check=False)
        return -self.metric.squared_distance(X[..., None, :, :], M, check=False)

    def extra_repr(self) -> str:
        """Return the settings for ``repr``."""
        return f"{self.n}, {self.n_classes}, metric={self.metric.name!r}"
