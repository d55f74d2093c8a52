r"""SPD matrices with the affine-invariant metric :math:`\mathrm{tr}(X^{-1} U X^{-1} V)`.

Points are ``(..., n, n)`` symmetric positive definite, tangent vectors ``(..., n, n)`` symmetric;
leading shapes broadcast. ``check=False`` skips the passes over the data. Everything is computed in
float64 and rounded to the dtype of the first argument. Because the metric does not change under
congruence, every formula with :math:`X^{1/2}` holds for the Cholesky factor :math:`X = L L^\top`
too, which is cheaper and has no trouble with repeated eigenvalues:
:math:`\tilde Y = L^{-1} Y L^{-\top}` moves ``X`` to the identity.

References
----------
X. Pennec, P. Fillard, N. Ayache, "A Riemannian Framework for Tensor Computing", Int. J. Comput.
Vis., 2006. https://doi.org/10.1007/s11263-005-3222-z
"""

import torch
from torch import Tensor

from spdnet._checks import require_positive_eigenvalues, require_square, require_tangent
from spdnet._precision import accurately
from spdnet.linalg import cholesky, congruence, expm, logm, sqrtm
from spdnet.linalg.cholesky import whiten
from spdnet.manifolds.karcher import karcher_mean
from spdnet.manifolds.mean_weights import normalized_weights


@accurately
def inner(X: Tensor, U: Tensor, V: Tensor, *, check: bool = True) -> Tensor:
    r"""Inner product :math:`\mathrm{tr}(X^{-1} U X^{-1} V)` of tangent vectors at ``X``.

    Parameters
    ----------
    X, U, V : Tensor, shape (..., n, n)

    Returns
    -------
    Tensor, shape (...)

    Examples
    --------
    >>> import torch
    >>> from spdnet.manifolds import affine_invariant
    >>> affine_invariant.inner(2 * torch.eye(2), torch.eye(2), torch.eye(2))
    tensor(0.5000)
    """
    who = "affine_invariant.inner"
    L = cholesky(X, check=check, who=who)
    U, V = (whiten(L, require_tangent(who, T, name, X, check)) for T, name in ((U, "U"), (V, "V")))
    return (U * V).sum((-2, -1))


@accurately
def distance(X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
    r"""Distance :math:`\lVert \log(X^{-1/2} Y X^{-1/2}) \rVert_F`.

    Parameters
    ----------
    X, Y : Tensor, shape (..., n, n)

    Returns
    -------
    Tensor, shape (...)

    Examples
    --------
    >>> import torch
    >>> from spdnet.manifolds import affine_invariant
    >>> affine_invariant.distance(torch.eye(2), torch.eye(2).mul(torch.e))
    tensor(1.4142)
    """
    _, Y = _at_identity("affine_invariant.distance", X, Y, check)
    return logm(Y, check=False).flatten(-2).norm(dim=-1)


@accurately
def geodesic(X: Tensor, Y: Tensor, t: float | Tensor, *, check: bool = True) -> Tensor:
    r"""Point :math:`X^{1/2} (X^{-1/2} Y X^{-1/2})^t X^{1/2}` on the geodesic from ``X`` to ``Y``.

    Parameters
    ----------
    X, Y : Tensor, shape (..., n, n)
    t : float or Tensor
        0 gives ``X``, 1 gives ``Y``; a tensor has the leading shape of the points.

    Returns
    -------
    Tensor, shape (..., n, n)

    Examples
    --------
    >>> import torch
    >>> from spdnet.manifolds import affine_invariant
    >>> affine_invariant.geodesic(torch.eye(2), 4 * torch.eye(2), 0.5).diagonal().round(decimals=4)
    tensor([2., 2.])
    """
    L, Y = _at_identity("affine_invariant.geodesic", X, Y, check)
    t = t[..., None, None] if isinstance(t, Tensor) else t
    return congruence(expm(t * logm(Y, check=False), check=False), L.mT)


@accurately
def exp(X: Tensor, V: Tensor, *, check: bool = True) -> Tensor:
    r"""Exponential map :math:`X^{1/2} \exp(X^{-1/2} V X^{-1/2}) X^{1/2}`.

    Parameters
    ----------
    X, V : Tensor, shape (..., n, n)

    Returns
    -------
    Tensor, shape (..., n, n)

    Examples
    --------
    >>> import torch
    >>> from spdnet.manifolds import affine_invariant
    >>> affine_invariant.exp(torch.eye(2), torch.zeros(2, 2)).diagonal().round(decimals=4)
    tensor([1., 1.])
    """
    who = "affine_invariant.exp"
    L = cholesky(X, check=check, who=who)
    V = require_tangent(who, V, "V", X, check)
    return congruence(expm(whiten(L, V), check=False), L.mT)


@accurately
def log(X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
    r"""Logarithmic map :math:`X^{1/2} \log(X^{-1/2} Y X^{-1/2}) X^{1/2}`.

    Parameters
    ----------
    X, Y : Tensor, shape (..., n, n)

    Returns
    -------
    Tensor, shape (..., n, n)
        The tangent vector at ``X`` that points to ``Y``.

    Examples
    --------
    >>> import torch
    >>> from spdnet.manifolds import affine_invariant
    >>> affine_invariant.log(torch.eye(2), torch.eye(2).mul(torch.e)).diagonal().round(decimals=4)
    tensor([1., 1.])
    """
    L, Y = _at_identity("affine_invariant.log", X, Y, check)
    return congruence(logm(Y, check=False), L.mT)


@accurately
def transport(X: Tensor, Y: Tensor, V: Tensor, *, check: bool = True) -> Tensor:
    r"""Parallel transport :math:`E V E^\top`, :math:`E = (Y X^{-1})^{1/2}`, along the geodesic.

    Parameters
    ----------
    X, Y, V : Tensor, shape (..., n, n)

    Returns
    -------
    Tensor, shape (..., n, n)
        Tangent at ``Y``.

    Examples
    --------
    >>> import torch
    >>> from spdnet.manifolds import affine_invariant
    >>> V = affine_invariant.transport(torch.eye(2), 2 * torch.eye(2), torch.eye(2))
    >>> V.diagonal().round(decimals=4)
    tensor([2., 2.])
    """
    who = "affine_invariant.transport"
    L, Y = _at_identity(who, X, Y, check)
    V = require_tangent(who, V, "V", X, check)
    moved = congruence(whiten(L, V), sqrtm(Y, check=False))
    return congruence(moved, L.mT)


@accurately
def mean(
    X: Tensor,
    weights: Tensor | None = None,
    *,
    tol: float = 1e-9,
    max_iter: int = 50,
    check: bool = True,
) -> Tensor:
    r"""Weighted Frechet (Karcher) mean, the minimiser of :math:`\sum_i w_i \, d(M, X_i)^2`.

    Iterated in float64 until the gradient is below ``tol`` in the metric's own norm, or below what
    rounding leaves of it: the rounding unit times the largest condition in the data. Each mean of a
    batch stops by itself. Once and twice differentiable in reverse and forward mode, through the
    equation that defines the mean and not through the iterations.

    Parameters
    ----------
    X : Tensor, shape (..., N, n, n)
    weights : Tensor, shape (..., N), optional
        Not negative; scaled to sum 1. Equal when not given.
    tol : float
        Bound on :math:`\lVert \sum_i w_i \log(M^{-1/2} X_i M^{-1/2}) \rVert_F`.
    max_iter : int
        Iterations after which a RuntimeWarning says that the bound was not met.

    Returns
    -------
    Tensor, shape (..., n, n)

    Examples
    --------
    >>> import torch
    >>> from spdnet.manifolds import affine_invariant
    >>> M = affine_invariant.mean(torch.stack([torch.eye(2), 4 * torch.eye(2)]))
    >>> M.diagonal().round(decimals=4)
    tensor([2., 2.])
    """
    w = normalized_weights("affine_invariant.mean", X, weights)
    if check:
        cholesky(X.detach(), who="affine_invariant.mean")
    return karcher_mean(X, w, tol=tol, max_iter=max_iter)


def _at_identity(who: str, X: Tensor, Y: Tensor, check: bool) -> tuple[Tensor, Tensor]:
    """The Cholesky factor of ``X``, and ``Y`` seen from there."""
    require_square(who, X)
    require_square(who, Y, "Y", n=X.shape[-1])
    if check:
        cholesky(Y.detach(), who=who, name="Y")
    L = cholesky(X, check=check, who=who)
    Y = whiten(L, Y)
    if check:  # positive definite, and yet not when seen from there: X is too ill-conditioned
        require_positive_eigenvalues(who, torch.linalg.eigvalsh(Y.detach()), "X^(-1/2) Y X^(-1/2)")
    return L, Y
