"""The nearest neighbour, and the nearest mean."""

from typing import Any

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import TransformerMixin
from torch import Tensor

from spdnet._checks import require_choice, require_count
from spdnet.baselines.estimator import SPDClassifier, euclidean, log_vectors, subsample
from spdnet.baselines.pairwise import METRICS, squared_distances
from spdnet.baselines.progress import Progress
from spdnet.manifolds import SPD_METRICS


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

    Prediction costs a distance to each of N training matrices: n^2 operations for the log-Euclidean
    metric, n^3 / 3 for Stein's, about 10 n^3 for the affine-invariant one.

    Parameters
    ----------
    metric : {"log_euclidean", "affine_invariant", "stein"}
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
    metric_ : str
    points_ : Tensor, shape (N, n, n) or (N, n (n + 1) / 2)
        The training matrices that are kept; of the log-Euclidean metric their logarithms.

    Examples
    --------
    >>> from spdnet.baselines import NearestNeighbor
    >>> from spdnet.datasets import load_digits_spd
    >>> X, y = load_digits_spd()
    >>> bool(NearestNeighbor("stein").fit(X[:300], y[:300]).score(X[300:400], y[300:400]) > 0.85)
    True
    """

    def __init__(
        self,
        metric: str = "log_euclidean",
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
        require_choice("NearestNeighbor", "metric", self.metric, METRICS)
        require_count("NearestNeighbor", "k", self.k)

    def _learn(self, X: Tensor, codes: NDArray[numpy.int64]) -> None:
        kept = subsample(codes, self.max_train)
        matrices, self.codes_ = X[torch.from_numpy(kept)], codes[kept]
        self.metric_ = self.metric
        self.points_ = self._points(matrices).cpu()

    def _points(self, X: Tensor) -> Tensor:
        """Between which distances are taken: logarithms, once and for all, or the matrices."""
        return log_vectors(X) if self.metric_ == "log_euclidean" else X

    def _codes(self, X: Tensor) -> NDArray[numpy.int64]:
        require_count("NearestNeighbor", "k", self.k)
        A, B = self._points(X), self.points_.to(X.device)
        if self.metric_ == "log_euclidean":
            return vote(euclidean(A, B), self.codes_, self.k)
        with Progress(self.verbose, "distances") as progress:
            D = squared_distances(A, B, self.metric_, progress=progress)
        return vote(D, self.codes_, self.k)


class MinimumDistanceToMean(TransformerMixin, SPDClassifier):  # type: ignore[misc]
    """Predict the class whose mean is nearest.

    With the default metric it equals ``pyriemann.classification.MDM`` with its default metric.
    Prediction costs one distance for each class.

    Parameters
    ----------
    metric : str
        Metric of the means and of the distances: ``affine_invariant``, ``log_euclidean``,
        ``log_cholesky``, ``bures_wasserstein`` or ``stein``.

    Attributes
    ----------
    classes_ : array, shape (n_classes,)
    metric_ : str
    means_ : array, shape (n_classes, n, n)

    Examples
    --------
    >>> from spdnet.baselines import MinimumDistanceToMean
    >>> from spdnet.datasets import load_digits_spd
    >>> X, y = load_digits_spd()
    >>> bool(MinimumDistanceToMean().fit(X[:900], y[:900]).score(X[900:], y[900:]) > 0.8)
    True
    """

    def __init__(self, metric: str = "affine_invariant") -> None:
        self.metric = metric

    def _require_settings(self) -> None:
        require_choice("MinimumDistanceToMean", "metric", self.metric, SPD_METRICS)

    def _learn(self, X: Tensor, codes: NDArray[numpy.int64]) -> None:
        self.metric_ = self.metric
        mean = SPD_METRICS[self.metric].mean
        parts = [X[torch.from_numpy(codes == c)] for c in range(len(self.classes_))]
        self.means_ = torch.stack([mean(part, check=False) for part in parts]).numpy()

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """Distances ``(N, n_classes)`` to the means."""
        return self._distances(self._matrices(X))

    def _distances(self, X: Tensor) -> NDArray[Any]:
        distance = SPD_METRICS[self.metric_].distance
        columns = [distance(M, X, check=False) for M in torch.from_numpy(self.means_)]
        return torch.stack(columns, -1).numpy()

    def _codes(self, X: Tensor) -> NDArray[numpy.int64]:
        return self._distances(X).argmin(1)
