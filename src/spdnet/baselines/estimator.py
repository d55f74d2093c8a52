"""What all shallow methods on SPD matrices share."""

import copy
from typing import Any, Self

import numpy
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from spdnet._checks import require_count
from spdnet._inputs import checked_matrices, encode_labels
from spdnet.training.device import resolve_device


class SPDClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of SPD matrices ``(N, n, n)``, in float64.

    On the CPU, or on the ``device`` of those that have one; what is learnt is kept on the CPU.
    A method has ``_require_settings``, ``_learn`` and ``_codes``.
    """

    classes_: NDArray[Any]
    n_features_in_: int

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from SPD matrices ``(N, n, n)`` and their classes ``(N,)``."""
        self._require_settings()
        matrices = self._checked(X)
        learnt = copy.copy(self)  # a fit that is refused changes nothing
        learnt.classes_, codes = encode_labels(type(self).__name__, y, len(matrices))
        learnt.n_features_in_ = matrices.shape[-1]
        learnt._learn(matrices, codes)
        self.__dict__.update(vars(learnt))
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The class of each matrix ``(N, n, n)``."""
        matrices = self._matrices(X)
        return self.classes_[self._codes(matrices)]

    def _require_settings(self) -> None:
        """Refuse settings that make no sense."""

    def _learn(self, X: Tensor, codes: NDArray[numpy.int64]) -> None:
        """Set what is learnt from checked matrices, and places in ``classes_``, which is there."""
        raise NotImplementedError

    def _codes(self, X: Tensor) -> NDArray[numpy.int64]:
        """Places in ``classes_`` of checked matrices."""
        raise NotImplementedError

    def _matrices(self, X: ArrayLike) -> Tensor:
        """The matrices as a tensor, all SPD and of the size of the training."""
        check_is_fitted(self)
        return self._checked(X, self.n_features_in_)

    def _checked(self, X: ArrayLike, n: int | None = None) -> Tensor:
        where = resolve_device(getattr(self, "device", "cpu"))
        return checked_matrices(type(self).__name__, X, n=n, device=where)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.two_d_array = False
        return tags


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


def one_column_for_two(scores: NDArray[Any]) -> NDArray[Any]:
    """Scores ``(N, n_classes)`` as scikit-learn wants them: for two classes their difference."""
    return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores
