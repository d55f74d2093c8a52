"""Shrinkage of matrices, and its selection by cross-validation."""

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot

from spdnet.data.split import scored_folds
from spdnet.linalg import eigh, vech
from spdnet.linalg.symmetric import trace

IntArray = NDArray[numpy.int64]

#: candidates: the ratio rho / (1 - rho) is log-spaced, from 1e-5 to 10
GRID = tuple(odds / (1 + odds) for odds in (10.0 ** (e / 2) for e in range(-10, 3)))
#: penalties of the ridge regression, relative to the mean squared norm of the features
_PENALTIES = (100.0, 10.0, 1.0, 0.1, 0.01)
#: smallest number of matrices for cross-validation, and the largest number that it uses
_FEWEST, _MOST = 8, 1000
#: maximum number of entries of all matrices in the cross-validation, to bound memory
_ENTRIES = 2**27
_TINY = torch.finfo(torch.float64).tiny


def shrink(X: Tensor, rho: float) -> Tensor:
    r"""Compute :math:`(1 - \rho) X + \rho \frac{\mathrm{tr} X}{n} I`."""
    Y = (1 - rho) * X
    Y.diagonal(dim1=-2, dim2=-1).add_((rho / X.shape[-1]) * trace(X)[..., None])
    return Y


def cross_validate(
    X: Tensor, codes: IntArray, groups: NDArray[numpy.generic] | None, candidates: tuple[float, ...]
) -> dict[float, float]:
    """Return the accuracy of ridge regression on the logarithms for each shrinkage.

    For each shrinkage, the best penalty is used. The result is empty if there are too few matrices
    or classes for cross-validation.
    """
    most = min(_MOST, max(_FEWEST, _ENTRIES // X[0].numel()))
    if len(codes) > most:  # a stratified subset
        by_class = numpy.argsort(codes, kind="stable")
        few = numpy.sort(by_class[numpy.linspace(0, len(codes) - 1, most).astype(int)])
        X, codes = X[torch.from_numpy(few).to(X.device)], codes[few]
        groups = None if groups is None else groups[few]
    folds = list(scored_folds(codes, groups)) if len(codes) >= _FEWEST else []
    if not folds:
        return {}
    s, U = eigh(X, check=False)  # shrinkage keeps the eigenvectors
    U = U.float()  # precise enough to compare candidates
    labels = torch.from_numpy(codes).to(X.device)
    targets, curve = 2 * one_hot(labels).to(X) - 1, {}
    for rho in candidates:
        logs = ((1 - rho) * s + rho * s.mean(-1, keepdim=True)).log().float()
        features = vech((U * logs[:, None]) @ U.mT)
        features -= features.mean(0)
        K = (features @ features.mT).to(X)
        right = [_count_right(K, targets, labels, train, test) for train, test in folds]
        curve[rho] = int(torch.stack(right).sum(0).max()) / sum(len(test) for _, test in folds)
    return curve


def _count_right(
    K: Tensor, targets: Tensor, codes: Tensor, train: IntArray, test: IntArray
) -> Tensor:
    """Count the right predictions for each penalty; ``K`` contains the inner products."""
    K = K - K[train].mean(0) - K[:, train].mean(1, keepdim=True) + K[train][:, train].mean()
    inside, mean = K[train][:, train], targets[train].mean(0)
    penalties = torch.tensor(_PENALTIES).to(K)[:, None] * inside.diagonal().mean().clamp(min=_TINY)
    L = torch.linalg.cholesky(inside + torch.diag_embed(penalties.expand(-1, len(inside))))
    scores = mean + K[test][:, train] @ torch.cholesky_solve(targets[train] - mean, L)
    return (scores.argmax(-1) == codes[test]).sum(-1)
