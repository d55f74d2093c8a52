"""Metrics that are Euclidean in some coordinates."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from spdnet._checks import require_square
from spdnet._precision import accurately
from spdnet.linalg import expm, symmetrize, vech
from spdnet.manifolds.mean_weights import normalized_weights
from spdnet.manifolds.metric import Metric
from spdnet.manifolds.normalization import FlatNormalization, Normalization, powered
from spdnet.manifolds.pairs import euclidean

_PIECE = 1024


def _precisely(method: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Run a method in float64, unless its metric works in the dtype of the input."""
    lifted = accurately(method)

    @wraps(method)
    def chosen(self: "FlatMetric", *args: Any, **kwargs: Any) -> Tensor:
        return (lifted if self.in_float64 else method)(self, *args, **kwargs)

    return chosen


class FlatMetric(Metric):
    r"""Metric that is the Euclidean one in coordinates :math:`\varphi(X)`.

    A subclass gives ``coordinates`` and ``from_coordinates``; distances, means, geodesics, batch
    normalisation and logistic regression follow from them. If the coordinates are not symmetric
    matrices that are zero for the identity, further methods have to be replaced, as
    ``log_cholesky`` does.

    Attributes
    ----------
    in_float64 : bool
        Compute in float64 and round to the dtype of the first argument; otherwise compute in the
        dtype of the input.

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg import expm, logm
    >>> from spdnet.manifolds import FlatMetric
    >>> class Doubled(FlatMetric):
    ...     name = "doubled"
    ...
    ...     def coordinates(self, X, *, check=True, who=None, name="X"):
    ...         return 2 * logm(X, check=check)
    ...
    ...     def from_coordinates(self, C):
    ...         return expm(C / 2)
    >>> Doubled().distance(torch.eye(2), torch.e * torch.eye(2))
    tensor(2.8284)
    """

    in_float64 = True

    @_precisely
    def distance(self, X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute the distance :math:`\lVert \varphi(X) - \varphi(Y) \rVert_F`.

        Parameters
        ----------
        X, Y : Tensor, shape (..., n, n)

        Returns
        -------
        Tensor, shape (...)

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import log_cholesky, log_euclidean
        >>> log_euclidean.distance(torch.eye(2), torch.eye(2).mul(torch.e))
        tensor(1.4142)
        >>> log_cholesky.distance(torch.eye(2), torch.eye(2).mul(torch.e**2))
        tensor(1.4142)
        """
        C, D = self._both("distance", X, Y, check)
        return (C - D).flatten(-2).norm(dim=-1)

    @_precisely
    def squared_distance(self, X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute the squared distance :math:`\lVert \varphi(X) - \varphi(Y) \rVert_F^2`.

        It is smooth everywhere.

        Parameters
        ----------
        X, Y : Tensor, shape (..., n, n)

        Returns
        -------
        Tensor, shape (...)

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import log_cholesky, log_euclidean
        >>> log_euclidean.squared_distance(torch.eye(2), 2 * torch.eye(2)).round(decimals=4)
        tensor(0.9609)
        >>> log_cholesky.squared_distance(torch.eye(2), torch.eye(2).mul(torch.e**2))
        tensor(2.)
        """
        C, D = self._both("squared_distance", X, Y, check)
        return (C - D).square().sum((-2, -1))

    def vectors(self, X: Tensor) -> Tensor:
        """Compute the coordinates as vectors with the same inner product; nothing is checked.

        Parameters
        ----------
        X : Tensor, shape (N, n, n)

        Returns
        -------
        Tensor, shape (N, n (n + 1) / 2)

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import log_euclidean
        >>> log_euclidean.vectors(torch.eye(3).expand(4, 3, 3)).shape
        torch.Size([4, 6])
        """
        parts = X.split(_PIECE)
        return torch.cat([self._vectorize(self.coordinates(part, check=False)) for part in parts])

    def _pairwise(
        self, X: Tensor, Y: Tensor | None, progress: Callable[[int, int], None]
    ) -> Tensor:
        A = self.vectors(X)
        return euclidean(A, A if Y is None else self.vectors(Y)).square()

    @_precisely
    def geodesic(self, X: Tensor, Y: Tensor, t: float | Tensor, *, check: bool = True) -> Tensor:
        r"""Compute the point :math:`\varphi^{-1}((1 - t) \varphi(X) + t \varphi(Y))`.

        Parameters
        ----------
        X, Y : Tensor, shape (..., n, n)
        t : float or Tensor, shape (...)
            0 gives ``X``, 1 gives ``Y``; a tensor has the leading shape of the points.

        Returns
        -------
        Tensor, shape (..., n, n)

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import log_cholesky, log_euclidean
        >>> log_euclidean.geodesic(torch.eye(2), 4 * torch.eye(2), 0.5).diagonal().round(decimals=4)
        tensor([2., 2.])
        >>> log_cholesky.geodesic(torch.eye(2), 16 * torch.eye(2), 0.5).diagonal()
        tensor([4., 4.])
        """
        C, D = self._both("geodesic", X, Y, check)
        t = t[..., None, None] if isinstance(t, Tensor) else t
        return self.from_coordinates(C + t * (D - C))

    @_precisely
    def mean(self, X: Tensor, weights: Tensor | None = None, *, check: bool = True) -> Tensor:
        r"""Compute the weighted Frechet mean :math:`\varphi^{-1}(\sum_i w_i \varphi(X_i))`.

        Parameters
        ----------
        X : Tensor, shape (..., N, n, n)
        weights : Tensor, shape (..., N), optional
            Not negative; scaled to sum 1. Equal when not given.

        Returns
        -------
        Tensor, shape (..., n, n)

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import log_cholesky, log_euclidean
        >>> M = log_euclidean.mean(torch.stack([torch.eye(2), 4 * torch.eye(2)]))
        >>> M.diagonal().round(decimals=4)
        tensor([2., 2.])
        >>> log_cholesky.mean(torch.stack([torch.eye(2), 16 * torch.eye(2)])).diagonal()
        tensor([4., 4.])
        """
        who = f"{self.name}.mean"
        w = normalized_weights(who, X, weights)
        C = self.coordinates(X, check=check, who=who)
        return self.from_coordinates((w[..., None, None] * C).sum(-3))

    def normalization(
        self, *, power: float = 1.0, root: str = "symmetric", karcher_steps: int | None = None
    ) -> Normalization:
        """Make the operations of a batch normalisation; see :class:`spdnet.nn.SPDBatchNorm`."""
        return FlatNormalization(self, power)

    def logits(
        self, X: Tensor, S: Tensor, A: Tensor, *, power: float, alpha: float, beta: float
    ) -> Tensor:
        """Compute the logits of :class:`spdnet.nn.SPDMLR`."""
        A = self._normals(A)
        C = self.coordinates(powered(X, power), check=False)
        K = self._coordinates_of_exp(power * S)
        flat = _inner(C, A, alpha, beta) - _inner(K, A, alpha, beta).diagonal()
        return flat / power

    def project_coordinates(self, S: Tensor) -> Tensor:
        """Compute the coordinates that a matrix of free parameters stands for.

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import log_euclidean
        >>> log_euclidean.project_coordinates(torch.tensor([[1.0, 2.0], [0.0, 1.0]]))
        tensor([[1., 1.],
                [1., 1.]])
        """
        return symmetrize(S)

    def _vectorize(self, C: Tensor) -> Tensor:
        """Coordinates as vectors with the same inner product."""
        return vech(C)

    def _normals(self, A: Tensor) -> Tensor:
        """Tangent vectors ``A`` at the identity in coordinates."""
        return A

    def _coordinates_of_exp(self, S: Tensor) -> Tensor:
        """Coordinates of the matrix exponential of ``S``."""
        return self.coordinates(expm(S, check=False), check=False)

    def _both(self, verb: str, X: Tensor, Y: Tensor, check: bool) -> tuple[Tensor, Tensor]:
        who = f"{self.name}.{verb}"
        require_square(who, X)
        require_square(who, Y, "Y", n=X.shape[-1])
        C = self.coordinates(X, check=check, who=who)
        return C, self.coordinates(Y, check=check, who=who, name="Y")


def _inner(X: Tensor, A: Tensor, alpha: float, beta: float) -> Tensor:
    """Inner products ``(..., classes)`` of every ``X (..., n, n)`` with every ``A``."""
    product = X.flatten(-2) @ A.flatten(-2).mT
    if beta == 0:
        return alpha * product
    return alpha * product + beta * trace(X)[..., None] * trace(A)


def trace(X: Tensor) -> Tensor:
    """Compute traces ``(...)``."""
    return X.diagonal(dim1=-2, dim2=-1).sum(-1)
