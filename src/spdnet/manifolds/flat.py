"""Metrics that are Euclidean in some coordinates."""

import torch
from torch import Tensor

from spdnet._checks import require_pair
from spdnet._precision import in_float64
from spdnet.linalg import expm, symmetrize, vech
from spdnet.linalg.symmetric import abs_square, trace
from spdnet.manifolds.means import normalized_weights
from spdnet.manifolds.metric import Metric
from spdnet.manifolds.normalization import FlatNormalization, Normalization, power_of
from spdnet.manifolds.pairs import Progress, euclidean

_CHUNK = 1024


class FlatMetric(Metric):
    r"""Metric that is Euclidean in the coordinates :math:`\varphi(X)`.

    A subclass defines ``coordinates`` and ``from_coordinates``; distances, means, geodesics, batch
    normalization and logistic regression follow from them. Coordinates that are not symmetric
    matrices, or not zero for the identity, need further methods, as in ``log_cholesky``.

    Attributes
    ----------
    uses_float64 : bool
        Compute in float64 and round to the dtype of the first argument; otherwise compute in the
        dtype of the input.
    has_logarithms : bool
        Whether the coordinates are the matrix logarithm.

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

    uses_float64 = True
    has_logarithms = False

    @in_float64
    def distance(self, X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute :math:`\lVert \varphi(X) - \varphi(Y) \rVert_F`."""
        C, D = self._coordinates_of_pair("distance", X, Y, check)
        return (C - D).flatten(-2).norm(dim=-1)

    @in_float64
    def squared_distance(self, X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute :math:`\lVert \varphi(X) - \varphi(Y) \rVert_F^2`."""
        C, D = self._coordinates_of_pair("squared_distance", X, Y, check)
        return abs_square(C - D).sum((-2, -1))

    def vectors(self, X: Tensor) -> Tensor:
        """Compute the coordinates of ``X (N, n, n)`` as real vectors ``(N, n (n + 1) / 2)``.

        The vectors have the inner products of the coordinates; those of complex matrices have the
        length ``n * n``. The input is not validated.
        """
        parts = X.split(_CHUNK)
        return torch.cat([self._vectorize(self.coordinates(part, check=False)) for part in parts])

    def _pairwise(self, X: Tensor, Y: Tensor | None, progress: Progress) -> Tensor:
        A = self.vectors(X)
        return euclidean(A, A if Y is None else self.vectors(Y)).square()

    @in_float64
    def geodesic(self, X: Tensor, Y: Tensor, t: float | Tensor, *, check: bool = True) -> Tensor:
        r"""Compute :math:`\varphi^{-1}((1 - t) \varphi(X) + t \varphi(Y))`."""
        C, D = self._coordinates_of_pair("geodesic", X, Y, check)
        t = t[..., None, None] if isinstance(t, Tensor) else t
        return self.from_coordinates(C + t * (D - C))

    @in_float64
    def mean(self, X: Tensor, weights: Tensor | None = None, *, check: bool = True) -> Tensor:
        r"""Compute the weighted Frechet mean :math:`\varphi^{-1}(\sum_i w_i \varphi(X_i))`."""
        who = f"{self.name}.mean"
        w = normalized_weights(who, X, weights)
        C = self.coordinates(X, check=check, who=who)
        return self.from_coordinates((w[..., None, None] * C).sum(-3))

    def normalization(
        self, *, power: float = 1.0, root: str = "symmetric", karcher_steps: int | None = None
    ) -> Normalization:
        """Create a normalization in the coordinates."""
        return FlatNormalization(self, power)

    def logits(
        self, X: Tensor, S: Tensor, A: Tensor, *, power: float, alpha: float, beta: float
    ) -> Tensor:
        """Compute the logits of :class:`spdnet.nn.SPDMLR`."""
        A = self._normals(A)
        C = self.coordinates(power_of(X, power), check=False)
        K = self._coordinates_of_exp(power * S)
        flat = _inner(C, A, alpha, beta) - _inner(K, A, alpha, beta).diagonal()
        return flat / power

    def project_coordinates(self, S: Tensor) -> Tensor:
        """Project a matrix of free parameters to valid coordinates.

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
        """Return coordinates as vectors with the same inner product."""
        return vech(C)

    def _normals(self, A: Tensor) -> Tensor:
        """Return tangent vectors ``A`` at the identity in coordinates."""
        return A

    def _coordinates_of_exp(self, S: Tensor) -> Tensor:
        """Compute the coordinates of the matrix exponential of ``S``."""
        return self.coordinates(expm(S, check=False), check=False)

    def _coordinates_of_pair(
        self, verb: str, X: Tensor, Y: Tensor, check: bool
    ) -> tuple[Tensor, Tensor]:
        who = f"{self.name}.{verb}"
        require_pair(who, X, Y)
        C = self.coordinates(X, check=check, who=who)
        return C, self.coordinates(Y, check=check, who=who, name="Y")


def _inner(X: Tensor, A: Tensor, alpha: float, beta: float) -> Tensor:
    """Compute the inner products ``(..., classes)`` of every ``X (..., n, n)`` with every ``A``."""
    product = (X.flatten(-2) @ A.flatten(-2).mH).real
    if beta == 0:
        return alpha * product
    return alpha * product + beta * trace(X)[..., None] * trace(A)
