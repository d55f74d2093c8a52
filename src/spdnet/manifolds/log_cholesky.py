"""The log-Cholesky metric."""

import torch
from torch import Tensor

from spdnet._checks import require_square
from spdnet._precision import accurately
from spdnet.linalg import cholesky, symmetrize
from spdnet.linalg.cholesky import whiten
from spdnet.linalg.validate import require_tangent
from spdnet.manifolds.flat import FlatMetric
from spdnet.manifolds.metric import register_metric


class LogCholesky(FlatMetric):
    r"""Log-Cholesky metric: the Euclidean one of the Cholesky factor, its diagonal as a logarithm.

    For :math:`X = L L^\top` the coordinates are :math:`\varphi(X) = \lfloor L \rfloor + \log
    \mathrm{diag}(L)`, the strictly lower part of the factor and the logarithm of its diagonal. No
    eigenvalues are needed, which makes it the cheapest of the metrics; unlike the others it depends
    on the order of the features. Computations run in float64 and are rounded to the dtype of the
    first argument.

    References
    ----------
    Z. Lin, "Riemannian Geometry of Symmetric Positive Definite Matrices via Cholesky
    Decomposition", SIAM J. Matrix Anal. Appl., 2019. https://doi.org/10.1137/18M1221084
    """

    name = "log_cholesky"
    has_trace_term = False

    @accurately
    def coordinates(
        self, X: Tensor, *, check: bool = True, who: str | None = None, name: str = "X"
    ) -> Tensor:
        r"""Compute :math:`\lfloor L \rfloor + \log \mathrm{diag}(L)` for :math:`X = LL^\top`.

        Parameters
        ----------
        X : Tensor, shape (..., n, n)

        Returns
        -------
        Tensor, shape (..., n, n)

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import log_cholesky
        >>> log_cholesky.coordinates(torch.tensor([[1.0, 2.0], [2.0, 5.0]]))
        tensor([[0., 0.],
                [2., 0.]])
        """
        L = cholesky(X, check=check, who=who or "log_cholesky.coordinates", name=name)
        return _flat(L)

    @accurately
    def from_coordinates(self, C: Tensor) -> Tensor:
        """Compute the matrix with these coordinates; the strictly upper part does not count.

        Parameters
        ----------
        C : Tensor, shape (..., n, n)

        Returns
        -------
        Tensor, shape (..., n, n)

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import log_cholesky
        >>> log_cholesky.from_coordinates(torch.tensor([[0.0, 0.0], [2.0, 0.0]]))
        tensor([[1., 2.],
                [2., 5.]])
        """
        require_square("log_cholesky.from_coordinates", C, "C")
        return _unflat(C)

    @accurately
    def inner(self, X: Tensor, U: Tensor, V: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute the inner product :math:`\langle D\varphi(X)[U], D\varphi(X)[V] \rangle`.

        Parameters
        ----------
        X, U, V : Tensor, shape (..., n, n)

        Returns
        -------
        Tensor, shape (...)

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import log_cholesky
        >>> log_cholesky.inner(torch.eye(2), torch.eye(2), torch.eye(2))
        tensor(0.5000)
        """
        who = "log_cholesky.inner"
        L = cholesky(X, check=check, who=who)
        left, right = (_push(who, L, T, name, check) for T, name in ((U, "U"), (V, "V")))
        return (left * right).sum((-2, -1))

    @accurately
    def exp(self, X: Tensor, V: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute the exponential map :math:`\varphi^{-1}(\varphi(X) + D\varphi(X)[V])`.

        Parameters
        ----------
        X, V : Tensor, shape (..., n, n)

        Returns
        -------
        Tensor, shape (..., n, n)

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import log_cholesky
        >>> log_cholesky.exp(torch.eye(2), torch.eye(2)).diagonal().log()
        tensor([1., 1.])
        """
        who = "log_cholesky.exp"
        L = cholesky(X, check=check, who=who)
        return _unflat(_flat(L) + _push(who, L, V, "V", check))

    @accurately
    def log(self, X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
        r"""Compute the logarithmic map :math:`D\varphi(X)^{-1}[\varphi(Y) - \varphi(X)]`.

        Parameters
        ----------
        X, Y : Tensor, shape (..., n, n)

        Returns
        -------
        Tensor, shape (..., n, n)

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import log_cholesky
        >>> log_cholesky.log(torch.eye(2), torch.eye(2).mul(torch.e)).diagonal()
        tensor([1.0000, 1.0000])
        """
        L, K = _factors("log_cholesky.log", X, Y, check)
        return _pull(L, _flat(K) - _flat(L))

    @accurately
    def transport(self, X: Tensor, Y: Tensor, V: Tensor, *, check: bool = True) -> Tensor:
        """Compute the parallel transport: the same change of the coordinates.

        Parameters
        ----------
        X, Y, V : Tensor, shape (..., n, n)

        Returns
        -------
        Tensor, shape (..., n, n)

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import log_cholesky
        >>> log_cholesky.transport(torch.eye(2), 4 * torch.eye(2), torch.eye(2)).diagonal()
        tensor([4., 4.])
        """
        who = "log_cholesky.transport"
        L, K = _factors(who, X, Y, check)
        return _pull(K, _push(who, L, V, "V", check))

    def project_coordinates(self, S: Tensor) -> Tensor:
        """Compute the coordinates that a matrix of free parameters stands for."""
        return S.tril()

    def _vectorize(self, C: Tensor) -> Tensor:
        rows, columns = torch.tril_indices(C.shape[-1], C.shape[-1], device=C.device)
        return C[..., rows, columns]

    def _normals(self, A: Tensor) -> Tensor:
        return A.tril(-1) + torch.diag_embed(_diagonal(A)) / 2


log_cholesky = LogCholesky()
register_metric(log_cholesky)


def _factors(who: str, X: Tensor, Y: Tensor, check: bool) -> tuple[Tensor, Tensor]:
    require_square(who, Y, "Y", n=X.shape[-1])
    L = cholesky(X, check=check, who=who)
    return L, cholesky(Y, check=check, who=who, name="Y")


def _flat(L: Tensor) -> Tensor:
    return L.tril(-1) + torch.diag_embed(_diagonal(L).log())


def _unflat(C: Tensor) -> Tensor:
    L = C.tril(-1) + torch.diag_embed(_diagonal(C).exp())
    return symmetrize(L @ L.mT)


def _push(who: str, L: Tensor, V: Tensor, name: str, check: bool) -> Tensor:
    """The change of the coordinates at ``L L^T`` in the direction ``V``."""
    P = whiten(L, symmetrize(require_tangent(who, V, name, L, check)))
    below, diagonal = P.tril(-1), torch.diag_embed(_diagonal(P) / 2)
    return (L @ (below + diagonal)).tril(-1) + diagonal


def _pull(L: Tensor, C: Tensor) -> Tensor:
    """The tangent vector at ``L L^T`` that changes the coordinates by ``C``."""
    W = C.tril(-1) + torch.diag_embed(_diagonal(L) * _diagonal(C))
    V = W @ L.mT
    return V + V.mT


def _diagonal(A: Tensor) -> Tensor:
    return A.diagonal(dim1=-2, dim2=-1)
