"""Classifiers that take SPD matrices as they are, without vectors in between."""

import math

import torch
from torch import Tensor

from spdnet._checks import (
    require_count,
    require_number,
    require_same_dtype,
    require_square,
)
from spdnet.linalg import cholesky, expm, logm, symmetrize
from spdnet.linalg.validate import require_symmetric
from spdnet.manifolds import Metric, MetricNames, get_metric
from spdnet.nn.batch_norm import require_power
from spdnet.nn.layer import SPDLayer

#: metrics in which there is logistic regression
MLR_METRICS = MetricNames("logits")


class SPDMLR(SPDLayer):
    r"""Multinomial logistic regression on a manifold of SPD matrices.

    Each class has a point :math:`P_k` and a symmetric :math:`A_k`, the normal of a hyperplane
    through the point; its logit is :math:`\langle \log_{P_k} X, \Gamma_{I \to P_k} A_k
    \rangle_{P_k}`. In the flat metrics this is the signed distance to the hyperplane times the
    length of the normal, in the others its analogue in the tangent space at the point:

    =====================  =========================================================================
    ``log_euclidean``      :math:`\langle \log X - \log P, A \rangle`; a linear classifier with bias
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

    The first two, and ``power_euclidean``, have the inner product :math:`\alpha \langle U, V
    \rangle + \beta\, \mathrm{tr} U\, \mathrm{tr} V`.

    Parameters
    ----------
    n : int
        Size of the matrices.
    n_classes : int
    metric : str or Metric
        As above, or another that has ``logits``. ``affine_invariant`` and ``bures_wasserstein``
        decompose every matrix once for each class.
    power : float, optional
        :math:`\theta`, not zero; 1 when not given, for ``bures_wasserstein`` 1/2, the plain metric.
    alpha, beta : float
        Of the inner product; ``alpha > 0`` and ``alpha + n * beta > 0``.
    check : bool
        Refuse input that is not finite, symmetric and positive definite.
    device, dtype : optional
        Of the parameters.

    Attributes
    ----------
    points : Parameter, shape (n_classes, n, n)
        Free; the symmetric parts are :math:`\log P_k`, zero at the start.
    normals : Parameter, shape (n_classes, n, n)
        Free; the symmetric parts are :math:`A_k`.

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
        self.n = n
        self.n_classes = n_classes
        self.metric = metric
        self.power = float(power)
        self.alpha = alpha
        self.beta = beta
        shape = (n_classes, n, n)
        self.points = torch.nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.normals = torch.nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        r"""Set the points to the identity and draw symmetric normals.

        Each entry on and below the diagonal is uniform in :math:`\pm \sqrt 6 / n`, as the authors
        draw them.
        """
        bound = math.sqrt(6) / self.n
        self.points.zero_()
        self.normals.uniform_(-bound, bound)
        self.normals.copy_(self.normals.tril() + self.normals.tril(-1).mT)

    def forward(self, X: Tensor, check: bool | None = None) -> Tensor:
        """Logits ``(..., n_classes)`` of matrices ``(..., n, n)``."""
        require_square("SPDMLR", X, n=self.n)
        require_same_dtype("SPDMLR", X, self.normals)
        check = self._checks(check)
        if check:
            require_symmetric("SPDMLR", X)
            cholesky(X.detach(), who="SPDMLR")
        S, A = symmetrize(self.points), symmetrize(self.normals)
        return self.metric.logits(X, S, A, power=self.power, alpha=self.alpha, beta=self.beta)

    def extra_repr(self) -> str:
        """Settings for ``repr``."""
        return f"{self.n}, {self.n_classes}, metric={self.metric.name!r}, power={self.power:g}"


class MinimumDistance(SPDLayer):
    r"""Logits :math:`-d(X, M_k)^2`: the class with the nearest point.

    The points are parameters; :meth:`fit` puts them at the means of the classes, which makes it
    the classifier by minimum distance to the mean.

    Parameters
    ----------
    n : int
        Size of the matrices.
    n_classes : int
    metric : str or Metric
        Any of :data:`spdnet.manifolds.METRICS`.
    check : bool
        Refuse input that is not finite, symmetric and positive definite.
    device, dtype : optional
        Of the parameters.

    Attributes
    ----------
    points : Parameter, shape (n_classes, n, n)
        Free; the symmetric parts are :math:`\log M_k`.

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
        self.n = n
        self.n_classes = n_classes
        self.metric = get_metric(metric, who="MinimumDistance")
        shape = (n_classes, n, n)
        self.points = torch.nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Points near the identity, no two of them equal."""
        self.points.normal_(std=0.1 / math.sqrt(self.n))

    @torch.no_grad()
    def fit(self, X: Tensor, y: Tensor) -> "MinimumDistance":
        """Put the points at the means of the classes; gives back the layer.

        Parameters
        ----------
        X : Tensor, shape (N, n, n)
        y : Tensor of integers, shape (N,)
            Classes from 0 on, each of them there.
        """
        require_square("MinimumDistance.fit", X, n=self.n)
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
        """Logits ``(..., n_classes)`` of matrices ``(..., n, n)``."""
        require_square("MinimumDistance", X, n=self.n)
        require_same_dtype("MinimumDistance", X, self.points)
        check = self._checks(check)
        if check:
            require_symmetric("MinimumDistance", X)
            cholesky(X.detach(), who="MinimumDistance")
        M = expm(symmetrize(self.points), check=False)
        return -(self.metric.distance(X[..., None, :, :], M, check=False) ** 2)

    def extra_repr(self) -> str:
        """Settings for ``repr``."""
        return f"{self.n}, {self.n_classes}, metric={self.metric.name!r}"
