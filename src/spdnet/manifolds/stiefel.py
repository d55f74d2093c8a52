r"""The Stiefel manifold: matrices ``(n, k)`` with orthonormal columns, :math:`W^\top W = I`.

Points ``W`` and tangent vectors, for which :math:`W^\top V` is skew-symmetric, have the shape
``(..., n, k)``. Complex points have :math:`W^{\mathsf H} W = I`, and all transposes are conjugate
transposes. ``metric`` is one of ``"embedded"``, ``"canonical"`` and ``"grassmann"``.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from spdnet._autograd import can_branch, is_concrete, is_differentiated
from spdnet._checks import require_choice, require_same_shape, require_tall
from spdnet._precision import accurate_dtype, disable_autocast, without_autocast, working_dtype
from spdnet.linalg.cholesky import diagonal_signs
from spdnet.linalg.matrix_functions import invsqrtm
from spdnet.linalg.products import multiply
from spdnet.linalg.symmetric import frobenius

METRICS = ("embedded", "canonical", "grassmann")
RETRACTIONS = ("qr", "polar", "cayley")


class StiefelParameter(torch.nn.Parameter):
    """Parameter whose last two dimensions ``(n, k)`` have orthonormal columns.

    Optimizers recognize it by its type, which survives ``deepcopy``, pickling, ``.to()`` and
    ``load_state_dict``. In a ``state_dict`` it is a plain tensor.

    Examples
    --------
    >>> from spdnet.manifolds.stiefel import StiefelParameter, is_orthonormal, random_point
    >>> W = StiefelParameter(random_point(6, 3))
    >>> W.shape, is_orthonormal(W)
    (torch.Size([6, 3]), True)
    """

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _rebuild, (self.data, self.requires_grad)


def is_stiefel(p: Any) -> bool:
    """Return whether a parameter is a Stiefel parameter, whole or sharded.

    Examples
    --------
    >>> import torch
    >>> from spdnet.manifolds.stiefel import StiefelParameter, is_stiefel
    >>> is_stiefel(StiefelParameter(torch.eye(3, 2))), is_stiefel(torch.eye(3, 2))
    (True, False)
    """
    return isinstance(p, StiefelParameter) or getattr(p, "is_sharded_stiefel", False)


def _rebuild(data: Tensor, requires_grad: bool) -> StiefelParameter:
    return StiefelParameter(data, requires_grad)


torch.serialization.add_safe_globals([_rebuild])  # for torch.load(weights_only=True)


def random_point(
    *size: int | Sequence[int],
    generator: torch.Generator | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Draw uniformly (Haar) distributed points.

    ``size`` is ``(..., n, k)`` with ``n >= k``; it and the other parameters are as in
    :func:`torch.randn`.

    Examples
    --------
    >>> import torch
    >>> from spdnet.manifolds import stiefel
    >>> W = stiefel.random_point(5, 3)
    >>> (W.mT @ W - torch.eye(3)).abs().max() < 1e-6
    tensor(True)
    """
    shape: Any = size[0] if len(size) == 1 and isinstance(size[0], Sequence) else size
    A = torch.empty(shape, device=device, dtype=dtype)
    require_tall("random_point", A, "points")
    A.normal_(generator=generator)
    return _orthonormalize(A.to(accurate_dtype(A))).to(A.dtype)


def project(A: Tensor) -> Tensor:
    r"""Compute the nearest point, the polar factor :math:`A (A^\top A)^{-1/2}`.

    ``A (..., n, k)`` must have full column rank.

    Examples
    --------
    >>> import torch
    >>> from spdnet.manifolds import stiefel
    >>> stiefel.project(torch.tensor([[2.0, 0.0], [0.0, 3.0], [0.0, 0.0]]))
    tensor([[1., 0.],
            [0., 1.],
            [0., 0.]])
    """
    require_tall("project", A, "A")
    return _polar(A.to(accurate_dtype(A))).to(A.dtype)


@disable_autocast
def project_tangent(W: Tensor, V: Tensor) -> Tensor:
    r"""Project ``V`` to the tangent space at ``W``, :math:`V - W \, \mathrm{sym}(W^\top V)`.

    Examples
    --------
    >>> import torch
    >>> from spdnet.manifolds import stiefel
    >>> stiefel.project_tangent(torch.eye(3)[:, :2], torch.ones(3, 2))
    tensor([[0., 0.],
            [0., 0.],
            [1., 1.]])
    """
    require_same_shape("project_tangent", W=W, V=V)
    S = multiply(W.mH, V)
    return torch.sub(V, multiply(W, S + S.mH), alpha=0.5)


@disable_autocast
def inner(W: Tensor, U: Tensor, V: Tensor, metric: str = "embedded") -> Tensor:
    r"""Compute the inner product ``(...)`` of tangent vectors at ``W``.

    :math:`\mathrm{tr}(U^\top V)`, or for the canonical metric
    :math:`\mathrm{tr}(U^\top (I - \tfrac12 W W^\top) V)`.

    Examples
    --------
    >>> import torch
    >>> from spdnet.manifolds import stiefel
    >>> stiefel.inner(torch.eye(3)[:, :2], torch.ones(3, 2), torch.ones(3, 2))
    tensor(6.)
    """
    require_choice("inner", "metric", metric, METRICS)
    require_same_shape("inner", W=W, U=U, V=V)
    product = frobenius(U, V)
    if metric == "canonical":
        product = product - frobenius(W.mH @ U, W.mH @ V) / 2
    return product


@disable_autocast
def riemannian_gradient(W: Tensor, G: Tensor, metric: str = "embedded") -> Tensor:
    r"""Compute the Riemannian gradient from the Euclidean gradient ``G``.

    =============  =====================================  ============================
    ``embedded``   :math:`G - W\,\mathrm{sym}(W^\top G)`  the authors' released code
    ``canonical``  :math:`G - W G^\top W`                 Edelman et al., 1998
    ``grassmann``  :math:`G - W W^\top G`                 Eq. 7 of the paper as printed
    =============  =====================================  ============================

    The Grassmann gradient never rotates the columns within their span; a later layer can absorb
    such a rotation.

    Examples
    --------
    >>> import torch
    >>> from spdnet.manifolds import stiefel
    >>> W = torch.eye(3)[:, :2]
    >>> stiefel.riemannian_gradient(W, torch.tensor([[1.0, 2.0], [0.0, 1.0], [5.0, 5.0]]))
    tensor([[ 0.,  1.],
            [-1.,  0.],
            [ 5.,  5.]])
    """
    require_choice("riemannian_gradient", "metric", metric, METRICS)
    require_same_shape("riemannian_gradient", W=W, G=G)
    if metric == "embedded":
        return project_tangent(W, G)
    if metric == "canonical":
        return G - W @ (G.mH @ W)
    return G - W @ (W.mH @ G)


def retract(W: Tensor, V: Tensor, method: str = "qr") -> Tensor:
    r"""Move from ``W`` along the tangent vector ``V`` and return to the manifold.

    ``qr``: the Q factor of :math:`W + V` with :math:`\mathrm{diag}(R) > 0`; ``polar``: the point
    nearest to :math:`W + V`; ``cayley``: :math:`(I - \tfrac12 A)^{-1} (I + \tfrac12 A) W` with the
    skew-symmetric :math:`A` for which :math:`A W = V`. All agree with the geodesic to first order.
    The result is orthonormal to the precision of the dtype, so rounding errors do not accumulate
    over many steps; single precision is computed in double precision.

    Examples
    --------
    >>> import torch
    >>> from spdnet.manifolds import stiefel
    >>> stiefel.retract(torch.eye(3)[:, :1], torch.tensor([[0.0], [1.0], [0.0]]))
    tensor([[0.7071],
            [0.7071],
            [0.0000]])
    """
    require_choice("retract", "method", method, RETRACTIONS)
    require_tall("retract", W)
    require_same_shape("retract", W=W, V=V)
    dtype, accurate = W.dtype, accurate_dtype(W)
    if method == "cayley":
        return _cayley(W.to(accurate), V.to(accurate)).to(dtype)
    moved = (W.to(working_dtype(dtype)) + V).to(accurate)
    return (_orthonormalize_near if method == "qr" else _polar)(moved).to(dtype)


@disable_autocast
def transport(W: Tensor, target: Tensor, V: Tensor, metric: str = "embedded") -> Tensor:
    """Transport a tangent vector from ``W`` to ``target`` by projection to the tangent space there.

    The Grassmann metric projects to horizontal vectors, which do not rotate the columns within
    their span.

    Examples
    --------
    >>> import torch
    >>> from spdnet.manifolds import stiefel
    >>> W, target = stiefel.random_point(4, 2), stiefel.random_point(4, 2)
    >>> V = stiefel.transport(W, target, stiefel.project_tangent(W, torch.randn(4, 2)))
    >>> bool((target.mT @ V + V.mT @ target).abs().max() < 1e-5)
    True
    """
    require_choice("transport", "metric", metric, METRICS)
    require_same_shape("transport", W=W, target=target, V=V)
    if metric == "grassmann":
        return V - target @ (target.mH @ V)
    return project_tangent(target, V)


@torch.no_grad()
def is_orthonormal(W: Tensor) -> bool:
    """Return whether the columns of ``W (n, k)`` are orthonormal up to rounding.

    Return False where values are not available: in compilation, under vmap and in graph capture.

    Examples
    --------
    >>> import torch
    >>> from spdnet.manifolds import stiefel
    >>> stiefel.is_orthonormal(torch.eye(3)[:, :2]), stiefel.is_orthonormal(torch.ones(3, 2))
    (True, False)
    """
    if not can_branch(W):
        return False
    S = _gram_minus_identity(W)
    return bool(S.abs().max() <= 4 * math.sqrt(len(W)) * torch.finfo(S.dtype).eps)


@torch.no_grad()
def deviation(W: Tensor) -> Tensor:
    r"""Compute the largest :math:`\lVert W^\top W - I \rVert` of matrices ``(..., n, k)``.

    Examples
    --------
    >>> import torch
    >>> from spdnet.manifolds.stiefel import deviation
    >>> deviation(2 * torch.eye(3, 1))
    tensor(3.)
    """
    return torch.linalg.matrix_norm(_gram_minus_identity(W)).max()


def _gram_minus_identity(W: Tensor) -> Tensor:
    W = W.to(working_dtype(W.dtype))
    with without_autocast(W):
        S = W.mH @ W
    S.diagonal(dim1=-2, dim2=-1).sub_(1)
    return S


def _orthonormalize(A: Tensor) -> Tensor:
    Q, R = torch.linalg.qr(A)
    return Q * diagonal_signs(R)[..., None, :]


def _orthonormalize_near(A: Tensor) -> Tensor:
    r"""Orthonormalize well separated columns, such as a point plus a tangent vector.

    There :math:`A^\top A = I + V^\top V`, whose Cholesky factor is :math:`R^\top`, the better
    conditioned the shorter the step. After a long step, one Newton step for the nearest orthonormal
    matrix removes the rounding error. Products are several times faster than reflections. On
    accelerators, where a test would synchronize, every step counts as long, and dependent columns
    give NaN.
    """
    S = A.mH @ A
    L, info = torch.linalg.cholesky_ex(S)
    can_test = info.device.type == "cpu" and is_concrete(info)
    if can_test and info.any():
        return _orthonormalize(A)
    Q = torch.linalg.solve_triangular(L, A.mH, upper=False)  # (..., k, n): nothing to copy
    if can_test and S.numel() > 0 and float(S.detach().diagonal(dim1=-2, dim2=-1).real.max()) < 2:
        return Q.mH
    return (1.5 * Q - 0.5 * (Q @ Q.mH) @ Q).mH


def _polar(A: Tensor) -> Tensor:
    U, _, Vh = torch.linalg.svd(A.detach(), full_matrices=False)
    if not is_differentiated(A):
        return U @ Vh
    # singular vectors have no derivative where singular values coincide, as they do at W itself
    smooth = A @ invsqrtm(A.mH @ A, check=False)
    return smooth + (U @ Vh - smooth).detach()


def _cayley(W: Tensor, V: Tensor) -> Tensor:
    # A = left @ right^T has rank 2k: a system of that size instead of n (Sherman-Morrison-Woodbury)
    horizontal = V - W @ (W.mH @ V) / 2
    left, right = torch.cat([horizontal, W], -1), torch.cat([W, -horizontal], -1)
    eye = torch.eye(left.shape[-1], dtype=W.dtype, device=W.device)
    moved = W + left @ torch.linalg.solve(eye - right.mH @ left / 2, right.mH @ W)
    return _orthonormalize_near(moved)  # the transform preserves the error of W^T W
