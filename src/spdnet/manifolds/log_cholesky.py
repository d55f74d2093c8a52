"""The log-Cholesky metric."""

import torch
from torch import Tensor

from spdnet._checks import require_square
from spdnet._precision import in_float64
from spdnet.linalg import cholesky, symmetrize
from spdnet.linalg.cholesky import whiten
from spdnet.linalg.pencil import cholesky_pair
from spdnet.linalg.symmetric import frobenius, real_vector
from spdnet.linalg.validate import require_tangent
from spdnet.manifolds.flat import FlatMetric
from spdnet.manifolds.metric import register_metric


class LogCholesky(FlatMetric):
    r"""Log-Cholesky metric: Euclidean in the Cholesky factor with a logarithmic diagonal.

    For :math:`X = L L^\top` the coordinates are :math:`\varphi(X) = \lfloor L \rfloor + \log
    \mathrm{diag}(L)`, the strictly lower part of the factor and the logarithm of its diagonal. The
    metric needs no eigenvalues, which makes it the cheapest; unlike the others, it depends on the
    order of the features.

    References
    ----------
    Z. Lin, "Riemannian Geometry of Symmetric Positive Definite Matrices via Cholesky
    Decomposition", SIAM J. Matrix Anal. Appl., 2019. https://doi.org/10.1137/18M1221084
    """

    name = "log_cholesky"
    has_trace_term = False

    @in_float64
    def coordinates(
        self, X: Tensor, *, check: bool = True, who: str | None = None, name: str = "X"
    ) -> Tensor:
        r"""Compute :math:`\lfloor L \rfloor + \log \mathrm{diag}(L)` for :math:`X = LL^\top`."""
        who = who or "log_cholesky.coordinates"
        return _to_coordinates(cholesky(X, check=check, who=who, name=name))

    @in_float64
    def from_coordinates(self, C: Tensor) -> Tensor:
        """Compute the point with the coordinates ``C``.

        The strictly upper part and the imaginary part of the diagonal are ignored.
        """
        require_square("log_cholesky.from_coordinates", C, "C")
        return _to_matrix(C)

    @in_float64
    def inner(self, X: Tensor, U: Tensor, V: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute :math:`\langle D\varphi(X)[U], D\varphi(X)[V] \rangle`."""
        who = "log_cholesky.inner"
        L = cholesky(X, check=check, who=who)
        left, right = (_push_forward(who, L, T, name, check) for T, name in ((U, "U"), (V, "V")))
        return frobenius(left, right)

    @in_float64
    def exp(self, X: Tensor, V: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute :math:`\varphi^{-1}(\varphi(X) + D\varphi(X)[V])`."""
        who = "log_cholesky.exp"
        L = cholesky(X, check=check, who=who)
        return _to_matrix(_to_coordinates(L) + _push_forward(who, L, V, "V", check))

    @in_float64
    def log(self, X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute :math:`D\varphi(X)^{-1}[\varphi(Y) - \varphi(X)]`."""
        L, K = cholesky_pair(X, Y, check=check, who="log_cholesky.log")
        return _pull_back(L, _to_coordinates(K) - _to_coordinates(L))

    @in_float64
    def transport(self, X: Tensor, Y: Tensor, V: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute :math:`D\varphi(Y)^{-1}[D\varphi(X)[V]]`."""
        who = "log_cholesky.transport"
        L, K = cholesky_pair(X, Y, check=check, who=who)
        return _pull_back(K, _push_forward(who, L, V, "V", check))

    def project_coordinates(self, S: Tensor) -> Tensor:
        """Return the lower triangle, with a real diagonal."""
        return S.tril(-1) + torch.diag_embed(_diagonal(S).real) if S.is_complex() else S.tril()

    def _vectorize(self, C: Tensor) -> Tensor:
        rows, columns = torch.tril_indices(C.shape[-1], C.shape[-1], device=C.device)
        return real_vector(C[..., rows, columns], rows > columns)

    def _normals(self, A: Tensor) -> Tensor:
        return A.tril(-1) + torch.diag_embed(_diagonal(A)) / 2


log_cholesky = register_metric(LogCholesky())


def _to_coordinates(L: Tensor) -> Tensor:
    return L.tril(-1) + torch.diag_embed(_diagonal(L).real.log())


def _to_matrix(C: Tensor) -> Tensor:
    L = C.tril(-1) + torch.diag_embed(_diagonal(C).real.exp())
    return symmetrize(L @ L.mH)


def _push_forward(who: str, L: Tensor, V: Tensor, name: str, check: bool) -> Tensor:
    r"""Compute :math:`D\varphi(X)[V]` at :math:`X = L L^\top`."""
    P = whiten(L, symmetrize(require_tangent(who, V, name, L, check)))
    below, diagonal = P.tril(-1), torch.diag_embed(_diagonal(P) / 2)
    return (L @ (below + diagonal)).tril(-1) + diagonal


def _pull_back(L: Tensor, C: Tensor) -> Tensor:
    r"""Compute the tangent vector at :math:`L L^\top` that changes the coordinates by ``C``."""
    W = C.tril(-1) + torch.diag_embed(_diagonal(L) * _diagonal(C))
    V = W @ L.mH
    return V + V.mH


def _diagonal(A: Tensor) -> Tensor:
    return A.diagonal(dim1=-2, dim2=-1)
