"""What methods on sets of vectors, such as the frames of a video, share."""

import copy
from collections.abc import Sequence
from typing import Any, Self

import numpy
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from spdnet._checks import as_array
from spdnet._inputs import encode_labels

Sets = Sequence[ArrayLike]


class OnSets(BaseEstimator):  # type: ignore[misc]
    """Checks of sets of vectors ``(T_i, d)``."""

    n_features_in_: int

    def _sets(self, X: Sets) -> list[NDArray[Any]]:
        """The sets in float64, of as many features as in fit."""
        check_is_fitted(self)
        return self._checked(X, self.n_features_in_)

    def _checked(self, X: Sets, n: int = 0) -> list[NDArray[Any]]:
        """The sets in float64, of ``n`` features, or of as many as the first."""
        who = type(self).__name__
        sets = []
        for i, values in enumerate(X):
            values = as_array(who, values, f"X[{i}]")
            d = n or (values.shape[-1] if values.ndim == 2 else 0)
            if values.ndim != 2 or values.shape[1] != d or len(values) == 0 or d == 0:
                raise ValueError(
                    f"{who}: expected sets of vectors (frames, {d or 'features'}), got shape "
                    f"{values.shape} at X[{i}]"
                )
            if values.dtype.kind not in "iuf" or not numpy.isfinite(values).all():
                raise ValueError(f"{who}: expected finite numbers, got others in X[{i}]")
            n = d
            sets.append(values.astype(numpy.float64))
        if not sets:
            raise ValueError(f"{who}: expected at least one set of vectors, got none")
        return sets

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        return tags


class SetClassifier(OnSets):
    """A classifier of sets of vectors: has ``_require_settings`` and ``_learn``."""

    classes_: NDArray[Any]

    def fit(self, X: Sets, y: ArrayLike) -> Self:
        """Learn from sets of vectors ``(T_i, d)`` and their classes ``(N,)``."""
        self._require_settings()
        sets = self._checked(X)
        learnt = copy.copy(self)  # a fit that is refused changes nothing
        learnt.classes_, codes = encode_labels(type(self).__name__, y, len(sets))
        learnt.n_features_in_ = sets[0].shape[1]
        learnt._learn(sets, codes)
        self.__dict__.update(vars(learnt))
        return self

    def _require_settings(self) -> None:
        """Refuse settings that make no sense."""
        raise NotImplementedError

    def _learn(self, sets: list[NDArray[Any]], codes: NDArray[numpy.int64]) -> None:
        """Set what is learnt; ``codes`` are places in ``classes_``, which is there."""
        raise NotImplementedError
