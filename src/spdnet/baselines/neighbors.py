"""Nearest-neighbor and nearest-mean classifiers."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import TransformerMixin
from torch import Tensor

from spdnet.baselines.estimator import (
    IntArray,
    SPDClassifier,
    SubsetClassifier,
    count,
    show_progress,
)
from spdnet.manifolds import FlatMetric, Metric, get_metric
from spdnet.manifolds.pairs import euclidean


def vote(D: Tensor, codes: IntArray, k: int = 1) -> IntArray:
    """Return the most frequent class of the k nearest samples; the nearest one breaks ties.

    ``D (M, N)`` are distances to ``N`` samples with classes ``codes``.
    """
    k = min(k, D.shape[1])
    nearest = codes[D.topk(k, largest=False).indices.cpu().numpy()]  # (M, k)
    if k == 1:
        return nearest[:, 0]
    n_classes = int(codes.max()) + 1
    counts = numpy.stack([numpy.bincount(row, minlength=n_classes) for row in nearest])
    is_best = numpy.take_along_axis(counts, nearest, 1) == counts.max(1, keepdims=True)
    return nearest[numpy.arange(len(nearest)), is_best.argmax(1)]


@dataclass(eq=False, repr=False)
class NearestNeighbor(SubsetClassifier):
    """Nearest-neighbor classifier.

    Prediction computes the distance to each training matrix: n^2 operations for a flat metric such
    as ``log_euclidean``, n^3 / 3 for ``stein``, about 10 n^3 for ``affine_invariant``.

    Parameters
    ----------
    metric : str or Metric
        Any of :data:`spdnet.manifolds.METRICS`.
    k : int
        Number of neighbors that vote; the nearest one breaks ties.
    max_train : int, optional
        Keep at most this many training matrices, stratified by class.
    device : str
        Device of the computation.
    verbose : bool
        Show progress.

    Attributes
    ----------
    points_ : Tensor, shape (N, n, n) or (N, n (n + 1) / 2)
        Training matrices, or their coordinates if the metric is flat.

    Examples
    --------
    >>> from spdnet.baselines import NearestNeighbor
    >>> from spdnet.data import load_digits_spd
    >>> X, y = load_digits_spd()
    >>> bool(NearestNeighbor("stein").fit(X[:300], y[:300]).score(X[300:400], y[300:400]) > 0.85)
    True
    """

    supports_complex: ClassVar[bool] = True

    metric: str | Metric = "log_euclidean"
    _: KW_ONLY
    k: int = count(1)

    def _fit(self, X: Tensor, codes: IntArray) -> None:
        self.metric_ = get_metric(self.metric, who="NearestNeighbor")
        X, self.codes_ = self._subset(X, codes)
        self.points_ = self._points(X).cpu()

    def _points(self, X: Tensor) -> Tensor:
        return self.metric_.vectors(X) if isinstance(self.metric_, FlatMetric) else X

    def _predict(self, X: Tensor) -> IntArray:
        self._require_settings("k")
        A, B = self._points(X), self.points_.to(X.device)
        if isinstance(self.metric_, FlatMetric):
            return vote(euclidean(A, B), self.codes_, self.k)
        with show_progress(self.verbose, "distances") as progress:
            D = self.metric_.pairwise(A, B, progress=progress, check=False)
        return vote(D, self.codes_, self.k)


@dataclass(eq=False, repr=False)
class MinimumDistanceToMean(TransformerMixin, SPDClassifier):  # type: ignore[misc]
    """Nearest class mean classifier.

    Equal to ``pyriemann.classification.MDM`` with the default metrics.

    Parameters
    ----------
    metric : str or Metric
        Any of :data:`spdnet.manifolds.METRICS`, for the means and the distances.

    Attributes
    ----------
    means_ : array, shape (n_classes, n, n)

    Examples
    --------
    >>> from spdnet.baselines import MinimumDistanceToMean
    >>> from spdnet.data import load_digits_spd
    >>> X, y = load_digits_spd()
    >>> bool(MinimumDistanceToMean().fit(X[:900], y[:900]).score(X[900:], y[900:]) > 0.8)
    True
    """

    supports_complex: ClassVar[bool] = True

    metric: str | Metric = "affine_invariant"

    def _fit(self, X: Tensor, codes: IntArray) -> None:
        self.metric_ = get_metric(self.metric, who="MinimumDistanceToMean")
        parts = (X[torch.from_numpy(codes == c)] for c in range(len(self.classes_)))
        means = [self.metric_.mean(part, check=False) for part in parts]
        self.means_ = torch.stack(means).numpy()

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """Compute the distances ``(N, n_classes)`` to the means."""
        return self._distances(self._validate_fitted(X))

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Compute the softmax ``(N, n_classes)`` of the negative squared distances to the means."""
        return torch.from_numpy(-(self.transform(X) ** 2)).softmax(-1).numpy()

    def _distances(self, X: Tensor) -> NDArray[Any]:
        distance = self.metric_.distance
        columns = [distance(M, X, check=False) for M in torch.from_numpy(self.means_)]
        return torch.stack(columns, -1).numpy()

    def _predict(self, X: Tensor) -> IntArray:
        return self._distances(X).argmin(1)
