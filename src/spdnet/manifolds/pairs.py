"""Tables of distances between all points of two sets, in pieces that fit into memory."""

from collections.abc import Callable

import torch
from torch import Tensor

from spdnet.linalg.threads import over_slices

#: bytes of the matrices of pairs that are held at a time
_ROOM = {"cpu": 2**26, "cuda": 2**30}


def by_row(
    X: Tensor,
    Y: Tensor | None,
    distances: Callable[[int, Tensor, slice], Tensor],
    progress: Callable[[int, int], None],
) -> Tensor:
    """Fill the table row by row, in pieces; only one half of a symmetric one.

    ``distances`` maps the index of a row, the other points ``(P, n, n)`` and their slice to
    ``(P,)``.
    """
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


def euclidean(A: Tensor, B: Tensor) -> Tensor:
    """Distances ``(M, N)`` of the rows; not by products, which lose the digits of close rows."""
    return torch.cdist(A, B, compute_mode="donot_use_mm_for_euclid_dist")


def log_det(X: Tensor) -> Tensor:
    """Logarithms of determinants; a determinant itself leaves the range of numbers at n = 400."""
    L = torch.empty_like(X)

    def factorize(part: slice) -> None:
        torch.linalg.cholesky_ex(X[part], out=(L[part], torch.empty(0, dtype=torch.int32)))

    if X.device.type == "cpu":
        over_slices(factorize, len(X), cost=X.shape[-1] ** 3 / 10)
    else:
        L = torch.linalg.cholesky_ex(X)[0]
    return 2 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def eigenvalues(X: Tensor) -> Tensor:
    """Eigenvalues in ascending order, by several threads on the CPU."""
    if X.device.type != "cpu":
        return torch.ops.spdnet.eigh(X)[0]
    s = X.new_empty(X.shape[:-1])

    def solve(part: slice) -> None:
        torch.linalg.eigvalsh(X[part], out=s[part])

    over_slices(solve, len(X), cost=X.shape[-1] ** 3)
    return s
