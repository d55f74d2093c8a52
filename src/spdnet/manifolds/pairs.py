"""Tables of distances between all points of two sets, in chunks of bounded memory."""

from collections.abc import Callable

import torch
from torch import Tensor

from spdnet.linalg.threads import parallel_for

Progress = Callable[[int, int], None]
#: bytes of the matrices of pairs held in memory at once
_MAX_BYTES = {"cpu": 2**26, "cuda": 2**30}


def by_row(
    X: Tensor,
    Y: Tensor | None,
    distances: Callable[[int, Tensor, slice], Tensor],
    progress: Progress,
) -> Tensor:
    """Fill the table row by row, in chunks; only the upper half if it is symmetric.

    ``distances`` maps a row index, other points ``(P, n, n)`` and their slice to ``(P,)``.
    """
    n, others = X.shape[-1], X if Y is None else Y
    chunk = max(1, _MAX_BYTES.get(X.device.type, 2**26) // (8 * n * n))
    D = X.real.new_zeros(len(X), len(others))
    for i in range(len(X)):
        start = i + 1 if Y is None else 0
        for first in range(start, len(others), chunk):
            j = slice(first, min(first + chunk, len(others)))
            D[i, j] = distances(i, others[j], j)
        progress(i + 1, len(X))
    return D + D.mT if Y is None else D


def euclidean(A: Tensor, B: Tensor) -> Tensor:
    """Compute distances ``(M, N)`` of rows without products, which lose digits of close rows."""
    return torch.cdist(A, B, compute_mode="donot_use_mm_for_euclid_dist")


def log_det(X: Tensor) -> Tensor:
    """Compute the logarithms of determinants; the determinants themselves overflow at n = 400."""
    L = torch.empty_like(X)

    def factorize(part: slice) -> None:
        torch.linalg.cholesky_ex(X[part], out=(L[part], torch.empty(0, dtype=torch.int32)))

    if X.device.type == "cpu":
        parallel_for(factorize, len(X), cost=X.shape[-1] ** 3 / 10)
    else:
        L = torch.linalg.cholesky_ex(X)[0]
    return 2 * L.diagonal(dim1=-2, dim2=-1).real.log().sum(-1)


def eigenvalues(X: Tensor) -> Tensor:
    """Compute eigenvalues in ascending order, with several threads on the CPU."""
    if X.device.type != "cpu":
        return torch.ops.spdnet.eigh(X)[0]
    s = X.real.new_empty(X.shape[:-1])

    def solve(part: slice) -> None:
        torch.linalg.eigvalsh(X[part], out=s[part])

    parallel_for(solve, len(X), cost=X.shape[-1] ** 3)
    return s
