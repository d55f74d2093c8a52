r"""Distances between all matrices of one set and all of another, in batches.

==================  ========================================  ==========================
``log_euclidean``   :math:`\lVert \log X - \log Y \rVert^2`    N n^3 + N M n^2
``stein``           :math:`S(X, Y)`, its own root's square     N M n^3 / 3, a Cholesky
                                                              decomposition for each pair
``affine_invariant``  :math:`\sum_k \log^2 \lambda_k(X, Y)`    about 10 N M n^3, eigenvalues
                                                              for each pair
==================  ========================================  ==========================
"""

from collections.abc import Callable

import torch
from torch import Tensor

from spdnet._checks import require_choice, require_square
from spdnet.baselines.estimator import euclidean, log_vectors
from spdnet.linalg.threads import over_slices

METRICS = ("log_euclidean", "affine_invariant", "stein")
#: ratio of eigenvalues beyond which they are computed from factors, more slowly and more exactly
_FAR = 1e8
#: bytes of the matrices of pairs that are there at a time
_ROOM = {"cpu": 2**26, "cuda": 2**30}


def squared_distances(
    X: Tensor,
    Y: Tensor | None = None,
    metric: str = "log_euclidean",
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    """Squared distances between all pairs; of ``X`` with itself when ``Y`` is not given.

    Parameters
    ----------
    X : Tensor, shape (N, n, n)
    Y : Tensor, shape (M, n, n), optional
    metric : {"log_euclidean", "affine_invariant", "stein"}
    progress : callable, optional
        Called with how many rows are done, and how many there are.

    Returns
    -------
    Tensor, shape (N, M)

    Examples
    --------
    >>> import torch
    >>> from spdnet.baselines import squared_distances
    >>> X = torch.stack([torch.eye(2), torch.e * torch.eye(2)]).double()
    >>> squared_distances(X, metric="affine_invariant").round(decimals=6)
    tensor([[0., 2.],
            [2., 0.]], dtype=torch.float64)
    """
    require_choice("squared_distances", "metric", metric, METRICS)
    require_square("squared_distances", X)
    if Y is not None:
        require_square("squared_distances", Y, "Y", n=X.shape[-1])
    if metric == "log_euclidean":
        A = log_vectors(X)
        B = A if Y is None else log_vectors(Y)
        return euclidean(A, B).square()
    rows = _stein if metric == "stein" else _affine_invariant
    return rows(X, Y, progress or (lambda done, total: None))


def _stein(X: Tensor, Y: Tensor | None, progress: Callable[[int, int], None]) -> Tensor:
    a = _log_det(X)
    b = a if Y is None else _log_det(Y)

    def distances(i: int, others: Tensor, j: slice) -> Tensor:
        D = _log_det((X[i] + others) / 2) - (a[i] + b[j]) / 2
        return D.clamp(min=0)  # rounding

    return _by_row(X, Y, distances, progress)


def _affine_invariant(X: Tensor, Y: Tensor | None, progress: Callable[[int, int], None]) -> Tensor:
    eye = torch.eye(X.shape[-1], dtype=X.dtype, device=X.device).expand_as(X)
    factors = torch.linalg.cholesky(X)
    whiteners = torch.linalg.solve_triangular(factors, eye, upper=False)
    if Y is not None:
        factors = torch.linalg.cholesky(Y)

    def distances(i: int, others: Tensor, j: slice) -> Tensor:
        W = whiteners[i]
        s = _eigenvalues(W @ others @ W.mT)
        far = ~(s[:, -1] < _FAR * s[:, 0])  # the small ones have lost their digits
        if far.any():
            s[far] = torch.linalg.svdvals(W @ factors[j][far]).square().flip(-1)
        return s.log().square().sum(-1)

    return _by_row(X, Y, distances, progress)


def _by_row(
    X: Tensor,
    Y: Tensor | None,
    distances: Callable[[int, Tensor, slice], Tensor],
    progress: Callable[[int, int], None],
) -> Tensor:
    """A row at a time, in pieces that fit; of a symmetric table only half."""
    n, others = X.shape[-1], X if Y is None else Y
    piece = max(1, _ROOM.get(X.device.type, 2**26) // (8 * n * n))
    D = X.new_zeros(len(X), len(others))
    for i in range(len(X)):
        start = i + 1 if Y is None else 0
        for first in range(start, len(others), piece):
            j = slice(first, min(first + piece, len(others)))
            D[i, j] = distances(i, others[j], j)
        progress(i + 1, len(X))
    return D + D.mT if Y is None else D


def _log_det(X: Tensor) -> Tensor:
    """Never by the determinant, which leaves the range of numbers at n = 400."""
    L = torch.empty_like(X)

    def factorize(part: slice) -> None:
        torch.linalg.cholesky_ex(X[part], out=(L[part], torch.empty(0, dtype=torch.int32)))

    if X.device.type == "cpu":
        over_slices(factorize, len(X), cost=X.shape[-1] ** 3 / 10)
    else:
        L = torch.linalg.cholesky_ex(X)[0]
    return 2 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def _eigenvalues(X: Tensor) -> Tensor:
    if X.device.type != "cpu":
        return torch.ops.spdnet.eigh(X)[0]
    s = X.new_empty(X.shape[:-1])

    def solve(part: slice) -> None:
        torch.linalg.eigvalsh(X[part], out=s[part])

    over_slices(solve, len(X), cost=X.shape[-1] ** 3)
    return s
