"""Methods on sets of vectors, such as the frames of a video."""

from collections.abc import Sequence
from typing import Any

import numpy
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from spdnet._checks import as_array
from spdnet.baselines.estimator import Baseline

Sets = Sequence[ArrayLike]


def validate_sets(who: str, X: Sets, n: int | None = None) -> list[NDArray[Any]]:
    """Convert sets ``(T_i, d)`` to float64; raise an error if they do not have ``n`` features."""
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
            raise ValueError(f"{who}: expected finite numbers, got NaN, infinity or text in X[{i}]")
        n = d
        sets.append(values.astype(numpy.float64))
    if not sets:
        raise ValueError(f"{who}: expected at least one set of vectors, got none")
    return sets


class SetClassifier(Baseline):
    """Base class of classifiers of sets of vectors."""

    def _validate(self, X: Sets, n: int | None = None) -> list[NDArray[Any]]:
        return validate_sets(type(self).__name__, X, n)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = False
        return tags


class MeanFeatureVerifier(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Cosine similarity of the mean directions of sets of vectors.

    Face networks compare videos this way, given one feature vector per frame. Nothing is learned.

    Examples
    --------
    >>> import numpy
    >>> from spdnet.baselines import MeanFeatureVerifier
    >>> A, B = [numpy.array([[1.0, 0.0], [0.0, 1.0]])], [numpy.array([[2.0, 2.0]])]
    >>> MeanFeatureVerifier().fit(A).similarity(A, B).round(6)
    array([[1.]])
    """

    def fit(self, X: Sets, y: ArrayLike | None = None) -> "MeanFeatureVerifier":
        """Store the number of features."""
        self.n_features_in_ = validate_sets("MeanFeatureVerifier", X)[0].shape[1]
        return self

    def transform(self, X: Sets) -> NDArray[Any]:
        """Compute the mean directions ``(N, d)``; vectors are normalized before averaging."""
        check_is_fitted(self)
        means = []
        for values in validate_sets("MeanFeatureVerifier", X, self.n_features_in_):
            length = numpy.linalg.norm(values, axis=1, keepdims=True)
            mean = (values / numpy.where(length > 0, length, 1)).mean(0)
            size = numpy.linalg.norm(mean)
            means.append(mean / size if size > 0 else mean)
        return numpy.stack(means)

    def similarity(self, A: Sets, B: Sets) -> NDArray[Any]:
        """Compute the cosines ``(N, M)`` of all pairs."""
        return self.transform(A) @ self.transform(B).T

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        return tags
