"""The nearest neighbour, and the nearest mean."""

from typing import Any

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import TransformerMixin
from torch import Tensor

from spdnet._checks import require_count
from spdnet.baselines.estimator import SPDClassifier, subsample
from spdnet.baselines.progress import Progress
from spdnet.manifolds import FlatMetric, Metric, get_metric
from spdnet.manifolds.pairs import euclidean


def vote(D: Tensor, codes: NDArray[numpy.int64], k: int) -> NDArray[numpy.int64]:
    """The most frequent class among the k nearest, the nearest of them where several are.

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


class NearestNeighbor(SPDClassifier):
    """The class of the nearest training matrix.

    Prediction costs a distance to each of N training matrices: n^2 operations for a flat metric
    such as the log-Euclidean one, n^3 / 3 for Stein's, about 10 n^3 for the affine-invariant one.

    Parameters
    ----------
    metric : str or Metric
        Any of :data:`spdnet.manifolds.METRICS`.
    k : int
        Neighbours that vote; the nearest decides where several classes have as many.
    max_train : int, optional
        Keep at most so many training matrices, each class in its share.
    device : str
        Where distances are computed.
    verbose : bool
        Show progress.

    Attributes
    ----------
    classes_ : array, shape (n_classes,)
    metric_ : Metric
    points_ : Tensor, shape (N, n, n) or (N, n (n + 1) / 2)
        The training matrices that are kept, or their coordinates if the metric is flat.

    Examples
    --------
    >>> from spdnet.baselines import NearestNeighbor
    >>> from spdnet.data import load_digits_spd
    >>> X, y = load_digits_spd()
    >>> bool(NearestNeighbor("stein").fit(X[:300], y[:300]).score(X[300:400], y[300:400]) > 0.85)
    True
    """

    def __init__(
        self,
        metric: str | Metric = "log_euclidean",
        *,
        k: int = 1,
        max_train: int | None = None,
        device: str = "cpu",
        verbose: bool = False,
    ) -> None:
        self.metric = metric
        self.k = k
        self.max_train = max_train
        self.device = device
        self.verbose = verbose

    def _require_settings(self) -> None:
        get_metric(self.metric, who="NearestNeighbor")
        require_count("NearestNeighbor", "k", self.k)

    def _learn(self, X: Tensor, codes: NDArray[numpy.int64]) -> None:
        kept = subsample(codes, self.max_train)
        matrices, self.codes_ = X[torch.from_numpy(kept)], codes[kept]
        self.metric_ = get_metric(self.metric)
        self.points_ = self._points(matrices).cpu()

    def _points(self, X: Tensor) -> Tensor:
        """Return what distances are computed from: coordinates, or the matrices themselves."""
        return self.metric_.vectors(X) if isinstance(self.metric_, FlatMetric) else X

    def _codes(self, X: Tensor) -> NDArray[numpy.int64]:
        require_count("NearestNeighbor", "k", self.k)
        A, B = self._points(X), self.points_.to(X.device)
        if isinstance(self.metric_, FlatMetric):
            return vote(euclidean(A, B), self.codes_, self.k)
        with Progress(self.verbose, "distances") as progress:
            D = self.metric_.pairwise(A, B, progress=progress, check=False)
        return vote(D, self.codes_, self.k)


class MinimumDistanceToMean(TransformerMixin, SPDClassifier):  # type: ignore[misc]
    """Predict the class whose mean is nearest.

    With the default metric it equals ``pyriemann.classification.MDM`` with its default metric.
    Prediction costs one distance for each class.

    Parameters
    ----------
    metric : str or Metric
        Metric of the means and of the distances, any of :data:`spdnet.manifolds.METRICS`.

    Attributes
    ----------
    classes_ : array, shape (n_classes,)
    metric_ : Metric
    means_ : array, shape (n_classes, n, n)

    Examples
    --------
    >>> from spdnet.baselines import MinimumDistanceToMean
    >>> from spdnet.data import load_digits_spd
    >>> X, y = load_digits_spd()
    >>> bool(MinimumDistanceToMean().fit(X[:900], y[:900]).score(X[900:], y[900:]) > 0.8)
    True
    """

    def __init__(self, metric: str | Metric = "affine_invariant") -> None:
        self.metric = metric

    def _require_settings(self) -> None:
        get_metric(self.metric, who="MinimumDistanceToMean")

    def _learn(self, X: Tensor, codes: NDArray[numpy.int64]) -> None:
        self.metric_ = get_metric(self.metric)
        mean = self.metric_.mean
        parts = [X[torch.from_numpy(codes == c)] for c in range(len(self.classes_))]
        self.means_ = torch.stack([mean(part, check=False) for part in parts]).numpy()

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """Distances ``(N, n_classes)`` to the means."""
        return self._distances(self._matrices(X))

    def _distances(self, X: Tensor) -> NDArray[Any]:
        distance = self.metric_.distance
        columns = [distance(M, X, check=False) for M in torch.from_numpy(self.means_)]
        return torch.stack(columns, -1).numpy()

    def _codes(self, X: Tensor) -> NDArray[numpy.int64]:
        return self._distances(X).argmin(1)
