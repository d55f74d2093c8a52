r"""SPD matrices with the log-Euclidean metric: flat, through the matrix logarithm.

Points are ``(..., n, n)`` symmetric positive definite, tangent vectors ``(..., n, n)`` symmetric;
leading shapes broadcast. ``check=False`` skips the passes over the data. ``inner``, ``exp``,
``log`` and ``transport`` contain the derivative of a matrix function and are differentiable once,
the others twice.

References
----------
V. Arsigny, P. Fillard, X. Pennec, N. Ayache, "Geometric Means in a Novel Vector Space Structure on
Symmetric Positive-Definite Matrices", SIAM J. Matrix Anal. Appl., 2007.
https://doi.org/10.1137/050637996
"""

from torch import Tensor

from spdnet._checks import require_square
from spdnet.linalg import Exp, Log, expm, spectral_derivative, spectral_map
from spdnet.manifolds.mean_weights import normalized_weights


def inner(X: Tensor, U: Tensor, V: Tensor, *, check: bool = True) -> Tensor:
    r"""Inner product :math:`\langle D\log(X)[U], D\log(X)[V] \rangle` of tangent vectors at ``X``.

    Parameters
    ----------
    X, U, V : Tensor, shape (..., n, n)

    Returns
    -------
    Tensor, shape (...)

    Examples
    --------
    >>> import torch
    >>> from spdnet.manifolds import log_euclidean
    >>> log_euclidean.inner(2 * torch.eye(2), torch.eye(2), torch.eye(2))
    tensor(0.5000)
    """
    who = "log_euclidean.inner"
    left = spectral_derivative(X, U, Log(), check=check, who=who, name="U")
    right = spectral_derivative(X, V, Log(), check=check, who=who, name="V")
    return (left * right).sum((-2, -1))


def distance(X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
    r"""Distance :math:`\lVert \log X - \log Y \rVert_F`.

    Parameters
    ----------
    X, Y : Tensor, shape (..., n, n)

    Returns
    -------
    Tensor, shape (...)

    Examples
    --------
    >>> import torch
    >>> from spdnet.manifolds import log_euclidean
    >>> log_euclidean.distance(torch.eye(2), torch.eye(2).mul(torch.e))
    tensor(1.4142)
    """
    S, T = _logs("log_euclidean.distance", X, Y, check)
    return (S - T).flatten(-2).norm(dim=-1)


def squared_distance(X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
    r"""Squared distance :math:`\lVert \log X - \log Y \rVert_F^2`, smooth everywhere.

    Parameters
    ----------
    X, Y : Tensor, shape (..., n, n)

    Returns
    -------
    Tensor, shape (...)

    Examples
    --------
    >>> import torch
    >>> from spdnet.manifolds import log_euclidean
    >>> log_euclidean.squared_distance(torch.eye(2), 2 * torch.eye(2)).round(decimals=4)
    tensor(0.9609)
    """
    S, T = _logs("log_euclidean.squared_distance", X, Y, check)
    return (S - T).square().sum((-2, -1))


def geodesic(X: Tensor, Y: Tensor, t: float | Tensor, *, check: bool = True) -> Tensor:
    r"""Point :math:`\exp((1 - t) \log X + t \log Y)` on the geodesic from ``X`` to ``Y``.

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
    >>> from spdnet.manifolds import log_euclidean
    >>> log_euclidean.geodesic(torch.eye(2), 4 * torch.eye(2), 0.5).diagonal().round(decimals=4)
    tensor([2., 2.])
    """
    S, T = _logs("log_euclidean.geodesic", X, Y, check)
    t = t[..., None, None] if isinstance(t, Tensor) else t
    return expm(S + t * (T - S), check=False)


def exp(X: Tensor, V: Tensor, *, check: bool = True) -> Tensor:
    r"""Exponential map :math:`\exp(\log X + D\log(X)[V])`: from ``X`` along ``V``.

    Parameters
    ----------
    X, V : Tensor, shape (..., n, n)

    Returns
    -------
    Tensor, shape (..., n, n)

    Examples
    --------
    >>> import torch
    >>> from spdnet.manifolds import log_euclidean
    >>> log_euclidean.exp(torch.eye(2), torch.zeros(2, 2)).diagonal().round(decimals=4)
    tensor([1., 1.])
    """
    step = spectral_derivative(X, V, Log(), check=check, who="log_euclidean.exp", name="V")
    return expm(spectral_map(X, Log(), check=False) + step, check=False)


def log(X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
    r"""Logarithmic map :math:`D\exp(\log X)[\log Y - \log X]`: the tangent vector from X to Y.

    Parameters
    ----------
    X, Y : Tensor, shape (..., n, n)

    Returns
    -------
    Tensor, shape (..., n, n)

    Examples
    --------
    >>> import torch
    >>> from spdnet.manifolds import log_euclidean
    >>> log_euclidean.log(torch.eye(2), torch.eye(2).mul(torch.e)).diagonal().round(decimals=4)
    tensor([1., 1.])
    """
    S, T = _logs("log_euclidean.log", X, Y, check)
    return spectral_derivative(S, T - S, Exp(), check=False)


def transport(X: Tensor, Y: Tensor, V: Tensor, *, check: bool = True) -> Tensor:
    r"""Parallel transport :math:`D\exp(\log Y)[D\log(X)[V]]` of ``V`` from ``X`` to ``Y``.

    Parameters
    ----------
    X, Y, V : Tensor, shape (..., n, n)

    Returns
    -------
    Tensor, shape (..., n, n)

    Examples
    --------
    >>> import torch
    >>> from spdnet.manifolds import log_euclidean
    >>> V = log_euclidean.transport(torch.eye(2), 2 * torch.eye(2), torch.eye(2))
    >>> V.diagonal().round(decimals=4)
    tensor([2., 2.])
    """
    who = "log_euclidean.transport"
    _, T = _logs(who, X, Y, check)
    flat = spectral_derivative(X, V, Log(), check=check, who=who, name="V")
    return spectral_derivative(T, flat, Exp(), check=False)


def mean(X: Tensor, weights: Tensor | None = None, *, check: bool = True) -> Tensor:
    r"""Weighted Frechet mean :math:`\exp(\sum_i w_i \log X_i)`, in closed form.

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
    >>> from spdnet.manifolds import log_euclidean
    >>> M = log_euclidean.mean(torch.stack([torch.eye(2), 4 * torch.eye(2)]))
    >>> M.diagonal().round(decimals=4)
    tensor([2., 2.])
    """
    w = normalized_weights("log_euclidean.mean", X, weights)
    T = spectral_map(X, Log(), check=check, who="log_euclidean.mean")
    return expm((w[..., None, None] * T).sum(-3), check=False)


def _logs(who: str, X: Tensor, Y: Tensor, check: bool) -> tuple[Tensor, Tensor]:
    require_square(who, X)
    require_square(who, Y, "Y", n=X.shape[-1])
    S = spectral_map(X, Log(), check=check, who=who)
    return S, spectral_map(Y, Log(), check=check, who=who, name="Y")
