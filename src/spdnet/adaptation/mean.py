r"""The affine-invariant mean of SPD matrices with missing channels.

Let :math:`K_i` select the channels of :math:`X_i`, and :math:`M = L L^\top` be an estimate. With
the decomposition :math:`L^\top K_i = Q_i G_i^\top` of the rows of these channels,
:math:`K_i^\top M K_i = G_i G_i^\top`, and :math:`Y_i = G_i^{-1} X_i G_i^{-\top}` is the whitened
matrix. Moving to :math:`L \exp(S) L^\top` changes half of the objective by :math:`-\langle g,
S\rangle + \frac12 \langle S, H[S] \rangle` to second order, where

.. math:: g = \sum_i w_i T_i, \qquad
    H[S] = \sum_i w_i \bigl( Q_i A_i[Q_i^\top S Q_i] Q_i^\top
    - \mathrm{sym}(T_i S (I - Q_i Q_i^\top)) \bigr), \qquad T_i = Q_i \log(Y_i) Q_i^\top,

and :math:`A_i` is the operator of :mod:`spdnet.manifolds.karcher` for :math:`Y_i`. Missing
channels are padded with the identity, so that all matrices have one size: their columns of
:math:`Q_i` are zero.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from spdnet._checks import require_count, require_number
from spdnet._precision import accurate_dtype
from spdnet._warnings import warn_user
from spdnet.covariance.arrays import accept_arrays
from spdnet.linalg import Log, cholesky, expm, logm, symmetrize
from spdnet.linalg.missing import both, fill_diagonal, observed, require_some
from spdnet.linalg.pencil import accurate_svd
from spdnet.manifolds import affine_invariant
from spdnet.manifolds.means import normalized_weights

_CG_ITERATIONS = 200
#: relative tolerance of a Newton step, which only has to make progress
_CG_TOLERANCE = 1e-4
#: largest norm of a step
_MAX_STEP = 3.0
#: fraction of the usual curvature below which the objective is flat
_FLATNESS = 1e-5
_ENTROPY_ITERATIONS = 200
#: tolerance of the Newton decrement, which converges quadratically
_ENTROPY_TOLERANCE = 1e-9


class _Data(NamedTuple):
    """Matrices with missing channels, and what does not depend on the estimate."""

    F: Tensor  #: Cholesky factors (N, n, n) of the matrices, padded with the identity
    patterns: Tensor  #: distinct masks (P, n)
    which: Tensor  #: pattern of each matrix (N,)


class _Estimate(NamedTuple):
    """An estimate of the mean, and its derivatives."""

    L: Tensor  #: factor of the estimate
    value: float  #: half of the objective
    g: Tensor  #: gradient
    error: float  #: norm of the gradient
    rounding: float  #: bound on the rounding error of the gradient
    s: Tensor  #: eigenvalues (N, n) of the whitened matrices
    V: Tensor  #: their eigenvectors (N, n, n), as Q U
    T: Tensor  #: sums (P, n, n) of the gradients of the matrices of each pattern
    span: Tensor  #: projections (P, n, n), Q Q^T


def _evaluate(L: Tensor, data: _Data) -> _Estimate:
    mask = data.patterns
    n, N = L.shape[-1], len(data.F)
    rows = torch.cat([L.mT * mask[:, None, :], torch.diag_embed((~mask).to(L.dtype))], -2)
    Q, R = torch.linalg.qr(rows)  # (P, 2n, n), of the rows of L and of the padding
    Q = Q[:, :n] * mask[:, None, :]
    G = R.mT[data.which]
    sigma, U, _ = accurate_svd(torch.linalg.solve_triangular(G, data.F, upper=False))
    logs, V = 2 * sigma.log(), Q[data.which] @ U
    T = L.new_zeros(len(mask), n, n).index_add_(0, data.which, (V * logs[:, None, :]) @ V.mT / N)
    g = symmetrize(T.sum(0))
    value = float(logs.square().sum() / N) / 2
    sizes = torch.linalg.svdvals(L)
    rounding = 64 * n * torch.finfo(L.dtype).eps * float(sizes[0] / sizes[-1])
    return _Estimate(L, value, g, float(g.norm()), rounding, sigma.square(), V, T, Q @ Q.mT)


def _hessian(current: _Estimate, data: _Data) -> Callable[[Tensor], Tensor]:
    a, b = current.s[:, :, None], current.s[:, None, :]
    K = (a + b) / 2 * Log().first(a, b) / len(data.F)

    def apply(S: Tensor) -> Tensor:
        V = current.V
        straight = (V @ (K * (V.mT @ S @ V)) @ V.mT).sum(0)
        return symmetrize(straight - current.g @ S + (current.T @ S @ current.span).sum(0))

    return apply


def _conjugate_gradients(
    apply: Callable[[Tensor], Tensor], B: Tensor, radius: float = math.inf
) -> Tensor:
    """Solve ``apply(S) = B`` approximately, within a radius.

    A direction of negative curvature is followed up to the radius (Steihaug's method).
    """
    S, R, P = torch.zeros_like(B), B, B
    rho = size = _dot(R, R)
    for _ in range(_CG_ITERATIONS):
        if rho <= _CG_TOLERANCE**2 * size:
            break
        AP = apply(P)
        curvature = _dot(P, AP)
        alpha = rho / curvature if curvature > 0 else math.inf
        far = _to_boundary(S, P, radius)
        if alpha >= far:
            return S + far * P
        S, R = S + alpha * P, R - alpha * AP
        rho, old = _dot(R, R), rho
        P = R + rho / old * P
    return S


def _to_boundary(S: Tensor, P: Tensor, radius: float) -> float:
    """Return the positive root of ``|S + t P| = radius``."""
    a, b, c = _dot(P, P), _dot(S, P), radius**2 - _dot(S, S)
    return (math.sqrt(b * b + a * c) - b) / a if math.isfinite(c) else math.inf


def _dot(A: Tensor, B: Tensor) -> float:
    return float((A * B).sum())


@accept_arrays
def masked_mean(X: Tensor, *, tol: float = 1e-9, max_iter: int = 100) -> Tensor:
    r"""Compute the affine-invariant mean of SPD matrices with missing channels.

    .. math:: \arg\min_M \sum_i d^2(K_i^\top M K_i, K_i^\top X_i K_i)

    where :math:`K_i` selects the observed channels of :math:`X_i`. Without missing channels, this
    is the mean of :data:`spdnet.manifolds.affine_invariant`.

    Parameters
    ----------
    X : Tensor or array, shape (N, n, n)
        SPD matrices; missing channels as in :func:`observed_channels`.
    tol : float
        Norm of the gradient at which the iteration stops.
    max_iter : int
        Maximum number of Newton steps. A RuntimeWarning is issued if the iteration does not
        converge.

    Returns
    -------
    Tensor or array, shape (n, n)
        Not differentiable with respect to ``X`` if channels are missing.

    Notes
    -----
    The entry of two channels that are never observed together is not determined. It is chosen so
    that the determinant is largest: the inverse is zero there, and the two channels are
    conditionally independent given the others. A channel that is missing everywhere raises a
    ValueError, and so do matrices that contradict each other so much that only a singular matrix
    attains the minimum.

    References
    ----------
    F. Yger, S. Chevallier, Q. Barthelemy, S. Sra, "Geodesically-convex Optimization for Averaging
    Partially Observed Covariance Matrices", Asian Conf. Mach. Learn., 2020.
    https://hal.science/hal-02984423

    A. P. Dempster, "Covariance Selection", Biometrics, 1972. https://doi.org/10.2307/2528966

    Examples
    --------
    >>> import numpy
    >>> from spdnet.adaptation import masked_mean
    >>> nan = numpy.nan
    >>> X = [[[1.0, 0.5, nan], [0.5, 1.0, nan], [nan, nan, nan]],
    ...      [[nan, nan, nan], [nan, 1.0, 0.4], [nan, 0.4, 1.0]]]
    >>> masked_mean(X).round(6)
    array([[1. , 0.5, 0.2],
           [0.5, 1. , 0.4],
           [0.2, 0.4, 1. ]])
    """
    who = "masked_mean"
    normalized_weights(who, X, None)
    mask = observed(who, X, torch.finfo(X.dtype).eps)
    require_some(who, mask)
    require_number(who, "tol", tol, above=0)
    require_count(who, "max_iter", max_iter)
    if mask.all():
        return affine_invariant.mean(X, tol=tol, max_iter=max_iter)
    A = fill_diagonal(X.detach().to(accurate_dtype(X)), mask)
    cholesky(A, who=who)
    weight = mask.to(A.dtype)
    together = weight.mT @ weight
    unobserved = (together.diagonal() == 0).nonzero()[:, 0].tolist()
    if unobserved:
        raise ValueError(
            f"{who}: expected every channel to be observed in some matrix, but channels "
            f"{unobserved} are missing in all matrices; drop these channels"
        )
    padded = torch.where(both(mask), A, 0.0) + torch.diag_embed((~mask).to(A.dtype))
    data = _Data(cholesky(padded, check=False), *torch.unique(mask, dim=0, return_inverse=True))
    min_overlap = float(together[together > 0].min()) / len(A)
    M = _minimize(data, _start(A, mask, together), min_overlap, tol, max_iter)
    return (M if (together > 0).all() else _maximize_entropy(M, together > 0)).to(X.dtype)


def _start(A: Tensor, mask: Tensor, together: Tensor) -> Tensor:
    """Compute the factor of the log-Euclidean mean over the matrices that have each entry.

    The channels are first scaled to a variance of 1 in the geometric mean.
    """
    variances = A.diagonal(dim1=-2, dim2=-1).log()
    scale = (torch.where(mask, variances, 0.0).sum(0) / together.diagonal() / 2).exp()
    Z = torch.where(both(mask), A / (scale[:, None] * scale), 0.0)
    logs = logm(Z + torch.diag_embed((~mask).to(A.dtype)), check=False)
    mean = logs.sum(0) / together.clamp(min=1)
    return scale[:, None] * expm(mean / 2, check=False)


def _minimize(data: _Data, L: Tensor, min_overlap: float, tol: float, max_iter: int) -> Tensor:
    """Take Newton steps from ``L L^T`` in a trust region.

    ``min_overlap`` is the smallest fraction of matrices that have two channels in common: the
    curvature at a minimum is at least of this order.
    """
    current, radius = _evaluate(L, data), _MAX_STEP
    for _ in range(max_iter):
        if current.error <= tol:
            break
        hessian = _hessian(current, data)
        S = _conjugate_gradients(hessian, current.g, radius)
        norm = math.sqrt(_dot(S, S))
        if current.error < _FLATNESS * min_overlap and norm > 0.5:
            raise ValueError(
                "masked_mean: expected matrices that determine an SPD mean, but the mean tends to "
                "a singular matrix: entries that few matrices have in common contradict each "
                "other; drop channels that are often missing, or pass more matrices"
            )
        expected = _dot(S, current.g - hessian(S) / 2)
        candidate = _evaluate(current.L @ expm(S / 2, check=False), data)
        gain = current.value - candidate.value
        is_rounding = abs(gain) <= 1e-12 * (1 + current.value)
        if (is_rounding and candidate.error < current.error) or gain > 0.1 * expected:
            current, radius = candidate, min(_MAX_STEP, 2 * radius)
        elif is_rounding:
            break
        else:
            radius = norm / 4
    if current.error > max(tol, current.rounding):
        warn_user(
            f"masked_mean: not converged after at most {max_iter} iterations: the gradient is "
            f"{current.error:.3g}, expected at most tol={tol:g}; increase max_iter or tol, or drop "
            "channels that are often missing, if entries that few matrices have in common "
            "contradict each other",
        )
    return symmetrize(current.L @ current.L.mT)


def _maximize_entropy(M: Tensor, known: Tensor) -> Tensor:
    r"""Choose the entries that are not ``known`` so that :math:`\log\det M` is largest.

    The inverse of the result is zero there. The maximum is found by damped Newton steps for a
    self-concordant function.
    """
    scale = M.diagonal().sqrt()
    C = M / (scale[:, None] * scale)
    for _ in range(_ENTROPY_ITERATIONS):
        P = torch.cholesky_inverse(cholesky(C, check=False))
        free = torch.where(known, 0.0, symmetrize(P))
        V = _conjugate_gradients(_free_hessian(P, known), free)
        decrement = float((V * free).sum()) ** 0.5
        C = C + V / (1 + decrement if decrement > 0.25 else 1)
        if decrement < _ENTROPY_TOLERANCE:
            break
    return symmetrize(C * (scale[:, None] * scale))


def _free_hessian(P: Tensor, known: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda V: torch.where(known, 0.0, symmetrize(P @ V @ P))
