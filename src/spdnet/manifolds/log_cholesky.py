r"""SPD matrices with the log-Cholesky metric: flat, through the Cholesky factor.

For :math:`X = L L^\top` the coordinates are :math:`\varphi(X) = \lfloor L \rfloor + \log
\mathrm{diag}(L)`, the strictly lower part of the factor and the logarithm of its diagonal; the
metric is the Euclidean one of the coordinates. No eigenvalues are needed, which makes it the
cheapest of the metrics; unlike the others it depends on the order of the features.

Points are ``(..., n, n)`` symmetric positive definite, tangent vectors ``(..., n, n)`` symmetric;
leading shapes broadcast. ``check=False`` skips the passes over the data. Everything is computed in
float64 and rounded to the dtype of the first argument.

References
----------
Z. Lin, "Riemannian Geometry of Symmetric Positive Definite Matrices via Cholesky Decomposition",
SIAM J. Matrix Anal. Appl., 2019. https://doi.org/10.1137/18M1221084
"""

import torch
from torch import Tensor

from spdnet._checks import require_square
from spdnet._precision import accurately
from spdnet.linalg import cholesky, symmetrize
from spdnet.linalg.cholesky import whiten
from spdnet.linalg.validate import require_tangent
from spdnet.manifolds.mean_weights import normalized_weights


@accurately
def coordinates(X: Tensor, *, check: bool = True) -> Tensor:
    r"""Lower triangular :math:`\lfloor L \rfloor + \log \mathrm{diag}(L)` for :math:`X = LL^\top`.

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
    return _flat(cholesky(X, check=check, who="log_cholesky.coordinates"))


@accurately
def from_coordinates(C: Tensor) -> Tensor:
    """The SPD matrix with these coordinates; the strictly upper part does not count.

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
def inner(X: Tensor, U: Tensor, V: Tensor, *, check: bool = True) -> Tensor:
    r"""Inner product :math:`\langle D\varphi(X)[U], D\varphi(X)[V] \rangle` of tangent vectors.

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
def distance(X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
    r"""Distance :math:`\lVert \varphi(X) - \varphi(Y) \rVert_F`.

    Parameters
    ----------
    X, Y : Tensor, shape (..., n, n)

    Returns
    -------
    Tensor, shape (...)

    Examples
    --------
    >>> import torch
    >>> from spdnet.manifolds import log_cholesky
    >>> log_cholesky.distance(torch.eye(2), torch.eye(2).mul(torch.e**2))
    tensor(1.4142)
    """
    L, K = _factors("log_cholesky.distance", X, Y, check)
    return (_flat(L) - _flat(K)).flatten(-2).norm(dim=-1)


@accurately
def squared_distance(X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
    r"""Squared distance :math:`\lVert \varphi(X) - \varphi(Y) \rVert_F^2`, smooth everywhere.

    Parameters
    ----------
    X, Y : Tensor, shape (..., n, n)

    Returns
    -------
    Tensor, shape (...)

    Examples
    --------
    >>> import torch
    >>> from spdnet.manifolds import log_cholesky
    >>> log_cholesky.squared_distance(torch.eye(2), torch.eye(2).mul(torch.e**2))
    tensor(2.)
    """
    L, K = _factors("log_cholesky.squared_distance", X, Y, check)
    return (_flat(L) - _flat(K)).square().sum((-2, -1))


@accurately
def geodesic(X: Tensor, Y: Tensor, t: float | Tensor, *, check: bool = True) -> Tensor:
    r"""Point :math:`\varphi^{-1}((1 - t) \varphi(X) + t \varphi(Y))` on the geodesic.

    Parameters
    ----------
    X, Y : Tensor, shape (..., n, n)
    t : float or Tensor, shape (...)
        0 at ``X``, 1 at ``Y``.

    Returns
    -------
    Tensor, shape (..., n, n)

    Examples
    --------
    >>> import torch
    >>> from spdnet.manifolds import log_cholesky
    >>> log_cholesky.geodesic(torch.eye(2), 16 * torch.eye(2), 0.5).diagonal()
    tensor([4., 4.])
    """
    L, K = _factors("log_cholesky.geodesic", X, Y, check)
    t = t[..., None, None] if isinstance(t, Tensor) else t
    start, end = _flat(L), _flat(K)
    return _unflat(start + t * (end - start))


@accurately
def exp(X: Tensor, V: Tensor, *, check: bool = True) -> Tensor:
    r"""Exponential map :math:`\varphi^{-1}(\varphi(X) + D\varphi(X)[V])`.

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
def log(X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
    r"""Logarithm :math:`D\varphi(X)^{-1}[\varphi(Y) - \varphi(X)]`: the tangent vector to ``Y``.

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
def transport(X: Tensor, Y: Tensor, V: Tensor, *, check: bool = True) -> Tensor:
    """Parallel transport of ``V`` from ``X`` to ``Y``: the same change of the coordinates.

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


@accurately
def mean(X: Tensor, weights: Tensor | None = None, *, check: bool = True) -> Tensor:
    r"""Weighted Frechet mean :math:`\varphi^{-1}(\sum_i w_i \varphi(X_i))`, in closed form.

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
    >>> from spdnet.manifolds import log_cholesky
    >>> log_cholesky.mean(torch.stack([torch.eye(2), 16 * torch.eye(2)])).diagonal()
    tensor([4., 4.])
    """
    w = normalized_weights("log_cholesky.mean", X, weights)
    L = cholesky(X, check=check, who="log_cholesky.mean")
    return _unflat((w[..., None, None] * _flat(L)).sum(-3))


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
