"""What all shallow methods on SPD matrices share."""

from typing import Any

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d
from torch import Tensor

from spdnet._checks import require_count, require_square
from spdnet.linalg import cholesky, logm, vech
from spdnet.training import make_fabric

_PIECE = 1024


class SPDMethod(BaseEstimator):  # type: ignore[misc]
    """Checks of matrices ``(N, n, n)`` and labels, in float64, with errors that name the culprit.

    On the CPU, or on the ``device`` of those that have one.
    """

    n_features_in_: int

    def _matrices(self, X: ArrayLike, *, fitting: bool = False) -> Tensor:
        """The matrices as a tensor, all SPD; of the size of the training unless ``fitting``."""
        who = type(self).__name__
        X = numpy.asarray(X)
        if X.ndim != 3:
            raise ValueError(
                f"{who}: expected X of shape (n_matrices, n, n), got {X.shape}; compute covariance "
                "matrices with spdnet.covariance.estimate"
            )
        if len(X) == 0:
            raise ValueError(f"{who}: expected at least one matrix, got none")
        if not numpy.issubdtype(X.dtype, numpy.number) or numpy.iscomplexobj(X):
            raise TypeError(f"{who}: expected X with real numbers, got dtype {X.dtype}")
        where = make_fabric(getattr(self, "device", "cpu")).device
        matrices = torch.from_numpy(X.astype(numpy.float64)).to(where)
        if fitting:
            require_square(who, matrices)
            self.n_features_in_ = X.shape[-1]
        else:
            check_is_fitted(self)
            require_square(who, matrices, n=self.n_features_in_)
        cholesky(matrices, who=who)
        return matrices

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.two_d_array = False
        return tags


class SPDClassifier(ClassifierMixin, SPDMethod):  # type: ignore[misc]
    """A classifier of SPD matrices."""

    classes_: NDArray[Any]

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The class of each matrix ``(N, n, n)``."""
        matrices = self._matrices(X)
        return self.classes_[self._codes(matrices)]

    def _codes(self, X: Tensor) -> NDArray[numpy.int64]:
        """Places in ``classes_`` of checked matrices."""
        raise NotImplementedError

    def _labels(self, y: ArrayLike, n: int) -> NDArray[numpy.int64]:
        """Classes as numbers from 0; sets ``classes_``."""
        self.classes_, codes = encode_labels(type(self).__name__, y, n)
        return codes


def encode_labels(who: str, y: ArrayLike, n: int) -> tuple[NDArray[Any], NDArray[numpy.int64]]:
    """The classes, and the place of each of ``n`` labels among them."""
    labels = column_or_1d(y, warn=True)
    check_classification_targets(labels)
    if len(labels) != n:
        raise ValueError(f"{who}: expected one label for each of {n} samples, got {len(labels)}")
    classes, codes = numpy.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"{who}: expected at least two classes, got {classes[0]!r} only")
    return classes, numpy.asarray(codes.reshape(-1), dtype=numpy.int64)


def subsample(
    codes: NDArray[numpy.int64], max_train: int | None, seed: int = 0
) -> NDArray[numpy.int64]:
    """At most so many places, each class in its share and at least once; all when None."""
    if max_train is None:
        return numpy.arange(len(codes))
    require_count("subsample", "max_train", max_train)
    if len(codes) <= max_train:
        return numpy.arange(len(codes))
    rng = numpy.random.default_rng(seed)
    exact = numpy.bincount(codes) * max_train / len(codes)
    take = numpy.maximum(numpy.floor(exact).astype(int), exact > 0)
    for c in numpy.argsort(take - exact)[: max(0, max_train - int(take.sum()))]:
        take[c] += 1
    kept = [rng.permutation(numpy.flatnonzero(codes == c))[:n] for c, n in enumerate(take)]
    return numpy.sort(numpy.concatenate(kept))


def euclidean(A: Tensor, B: Tensor) -> Tensor:
    """Distances ``(M, N)`` of the rows; not by products, which lose what is close."""
    return torch.cdist(A, B, compute_mode="donot_use_mm_for_euclid_dist")


def one_column_for_two(scores: NDArray[Any]) -> NDArray[Any]:
    """Scores ``(N, n_classes)`` as scikit-learn wants them: for two classes their difference."""
    return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores


def log_vectors(X: Tensor) -> Tensor:
    """The triangles of logarithms ``(N, n (n + 1) / 2)``; their inner product is that of logs."""
    return torch.cat([vech(logm(part, check=False)) for part in X.split(_PIECE)])
