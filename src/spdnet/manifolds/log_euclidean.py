"""The log-Euclidean metric."""

from torch import Tensor

from spdnet.linalg import Exp, Log, expm, spectral_derivative, spectral_map
from spdnet.linalg.symmetric import frobenius
from spdnet.manifolds.flat import FlatMetric
from spdnet.manifolds.metric import register_metric


class LogEuclidean(FlatMetric):
    r"""Log-Euclidean metric: Euclidean in the matrix logarithm, :math:`\varphi = \log`.

    Computations run in the dtype of the input. ``inner``, ``exp``, ``log`` and ``transport``
    contain the derivative of a matrix function and are differentiable once, the others twice.

    References
    ----------
    V. Arsigny, P. Fillard, X. Pennec, N. Ayache, "Geometric Means in a Novel Vector Space Structure
    on Symmetric Positive-Definite Matrices", SIAM J. Matrix Anal. Appl., 2007.
    https://doi.org/10.1137/050637996
    """

    name = "log_euclidean"
    uses_float64 = False
    has_logarithms = True
    depends_on_power = False

    def coordinates(
        self, X: Tensor, *, check: bool = True, who: str | None = None, name: str = "X"
    ) -> Tensor:
        r"""Compute the matrix logarithm :math:`\log X`."""
        who = who or "log_euclidean.coordinates"
        return spectral_map(X, Log(), check=check, who=who, name=name)

    def from_coordinates(self, C: Tensor) -> Tensor:
        r"""Compute the matrix exponential :math:`\exp C`."""
        return expm(C, check=False)

    def inner(self, X: Tensor, U: Tensor, V: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute :math:`\langle D\log(X)[U], D\log(X)[V] \rangle`."""
        who = "log_euclidean.inner"
        left = spectral_derivative(X, U, Log(), check=check, who=who, name="U")
        right = spectral_derivative(X, V, Log(), check=check, who=who, name="V")
        return frobenius(left, right)

    def exp(self, X: Tensor, V: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute :math:`\exp(\log X + D\log(X)[V])`."""
        step = spectral_derivative(X, V, Log(), check=check, who="log_euclidean.exp", name="V")
        return expm(spectral_map(X, Log(), check=False) + step, check=False)

    def log(self, X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute :math:`D\exp(\log X)[\log Y - \log X]`."""
        S, T = self._coordinates_of_pair("log", X, Y, check)
        return spectral_derivative(S, T - S, Exp(), check=False)

    def transport(self, X: Tensor, Y: Tensor, V: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute :math:`D\exp(\log Y)[D\log(X)[V]]`."""
        who = "log_euclidean.transport"
        _, T = self._coordinates_of_pair("transport", X, Y, check)
        flat = spectral_derivative(X, V, Log(), check=check, who=who, name="V")
        return spectral_derivative(T, flat, Exp(), check=False)

    def _coordinates_of_exp(self, S: Tensor) -> Tensor:
        return S


log_euclidean = register_metric(LogEuclidean())
