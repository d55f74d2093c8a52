"""Classifiers that take SPD matrices as they are, without vectors in between."""

import math
from types import ModuleType

import torch
from torch import Tensor

from spdnet._checks import (
    require_choice,
    require_count,
    require_number,
    require_same_dtype,
    require_square,
)
from spdnet._precision import accurate_dtype
from spdnet.linalg import cholesky, expm, logm, lyapunov, powm, symmetrize
from spdnet.linalg.log_congruence import log_congruence
from spdnet.linalg.validate import require_symmetric
from spdnet.manifolds import SPD_METRICS, bures_wasserstein, log_cholesky
from spdnet.nn.layer import SPDLayer

MLR_METRICS = (
    "log_euclidean",
    "affine_invariant",
    "log_cholesky",
    "power_euclidean",
    "bures_wasserstein",
)


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
    metric : str
        As above. ``affine_invariant`` and ``bures_wasserstein`` decompose every matrix once for
        each class.
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
        metric: str = "log_euclidean",
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
        require_choice("SPDMLR", "metric", metric, MLR_METRICS)
        if power is None:
            power = 0.5 if metric == "bures_wasserstein" else 1.0
        require_number("SPDMLR", "power", power)
        require_number("SPDMLR", "alpha", alpha, above=0)
        require_number("SPDMLR", "beta", beta, above=-alpha / n)
        if power == 0 or (power != 1 and metric == "log_euclidean"):
            raise ValueError(
                "SPDMLR: expected power != 0, and 1 for the log-Euclidean metric, which it does "
                f"not change, got metric={metric!r} and power={power}"
            )
        if beta != 0 and metric in ("log_cholesky", "bures_wasserstein"):
            raise ValueError(f"SPDMLR: expected beta = 0 for the metric {metric!r}, got {beta}")
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
        S, A, theta = symmetrize(self.points), symmetrize(self.normals), self.power
        if self.metric == "log_euclidean":
            return self._inner(logm(X, check=False), A) - self._inner(S, A).diagonal()
        if self.metric == "bures_wasserstein":
            return self._bures_wasserstein(
                _power(X, 2 * theta), expm(2 * theta * S, check=False), A
            )
        if self.metric == "affine_invariant":
            return self._affine_invariant(X, S, A)
        X = _power(X, theta)
        if self.metric == "power_euclidean":
            flat = self._inner(X, A) - self._inner(expm(theta * S, check=False), A).diagonal()
        else:  # log_cholesky
            A = A.tril(-1) + torch.diag_embed(A.diagonal(dim1=-2, dim2=-1)) / 2
            C = log_cholesky.coordinates(X, check=False)
            K = log_cholesky.coordinates(expm(theta * S, check=False), check=False)
            flat = self._inner(C, A) - self._inner(K, A).diagonal()
        return flat / theta

    def _inner(self, X: Tensor, A: Tensor) -> Tensor:
        """Of every ``X (..., n, n)`` with every ``A (classes, n, n)``: ``(..., classes)``."""
        product = X.flatten(-2) @ A.flatten(-2).mT
        if self.beta == 0:
            return self.alpha * product
        return self.alpha * product + self.beta * _trace(X)[..., None] * _trace(A)

    def _affine_invariant(self, X: Tensor, S: Tensor, A: Tensor) -> Tensor:
        dtype = A.dtype
        X, S, A = (Z.to(accurate_dtype(Z)) for Z in (X, S, A))
        W = expm(-self.power / 2 * S, check=False)
        T = log_congruence(X[..., None, :, :], W, self.power)  # (..., classes, n, n)
        flat = self.alpha * (T * A).sum((-2, -1)) + self.beta * _trace(T) * _trace(A)
        return (flat / self.power).to(dtype)

    def _bures_wasserstein(self, X: Tensor, P: Tensor, A: Tensor) -> Tensor:
        L = cholesky(P, check=False)
        towards = bures_wasserstein.log(P, X[..., None, :, :], check=False)
        normal = lyapunov(P, L @ A @ L.mT, check=False)
        return self.alpha * (towards * normal).sum((-2, -1)) / (4 * self.power)

    def extra_repr(self) -> str:
        """Settings for ``repr``."""
        return f"{self.n}, {self.n_classes}, metric={self.metric!r}, power={self.power:g}"


class MinimumDistance(SPDLayer):
    r"""Logits :math:`-d(X, M_k)^2`: the class with the nearest point.

    The points are parameters; :meth:`fit` puts them at the means of the classes, which makes it
    the classifier by minimum distance to the mean.

    Parameters
    ----------
    n : int
        Size of the matrices.
    n_classes : int
    metric : str
        ``log_euclidean``, ``affine_invariant``, ``log_cholesky``, ``bures_wasserstein`` or
        ``stein``.
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
        metric: str = "affine_invariant",
        *,
        check: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(check=check)
        require_count("MinimumDistance", "n", n)
        require_count("MinimumDistance", "n_classes", n_classes)
        require_choice("MinimumDistance", "metric", metric, SPD_METRICS)
        self.n = n
        self.n_classes = n_classes
        self.metric = metric
        shape = (n_classes, n, n)
        self.points = torch.nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Points near the identity, no two of them equal."""
        self.points.normal_(std=0.1 / math.sqrt(self.n))

    @property
    def _manifold(self) -> ModuleType:
        return SPD_METRICS[self.metric]

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
        means = [self._manifold.mean(X[y == k]) for k in range(self.n_classes)]
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
        return -(self._manifold.distance(X[..., None, :, :], M, check=False) ** 2)

    def extra_repr(self) -> str:
        """Settings for ``repr``."""
        return f"{self.n}, {self.n_classes}, metric={self.metric!r}"


def _power(X: Tensor, p: float) -> Tensor:
    return X if p == 1 else powm(X, p, check=False)


def _trace(X: Tensor) -> Tensor:
    return X.diagonal(dim1=-2, dim2=-1).sum(-1)
