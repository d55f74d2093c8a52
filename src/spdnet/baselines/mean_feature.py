"""The mean direction of a set of vectors."""

from typing import Any

import numpy
from numpy.typing import ArrayLike, NDArray
from sklearn.base import TransformerMixin

from spdnet.baselines.sets import OnSets, Sets


class MeanFeatureVerifier(TransformerMixin, OnSets):  # type: ignore[misc]
    """The mean direction of the vectors of a set, compared by the cosine.

    What a face network does with a video once it has a feature of each frame: nothing is learnt.

    Examples
    --------
    >>> import numpy
    >>> from spdnet.baselines import MeanFeatureVerifier
    >>> A, B = [numpy.array([[1.0, 0.0], [0.0, 1.0]])], [numpy.array([[2.0, 2.0]])]
    >>> MeanFeatureVerifier().fit(A).pair_score(A, B).round(6)
    array([1.])
    """

    def fit(self, X: Sets, y: ArrayLike | None = None) -> "MeanFeatureVerifier":
        """Note the number of features."""
        self.n_features_in_ = self._checked(X)[0].shape[1]
        return self

    def transform(self, X: Sets) -> NDArray[Any]:
        """Mean directions ``(N, d)``; the vectors count by direction, not by length."""
        means = []
        for values in self._sets(X):
            length = numpy.linalg.norm(values, axis=1, keepdims=True)
            mean = (values / numpy.where(length > 0, length, 1)).mean(0)
            size = numpy.linalg.norm(mean)
            means.append(mean / size if size > 0 else mean)
        return numpy.stack(means)

    def pair_score(self, A: Sets, B: Sets) -> NDArray[Any]:
        """Cosines ``(N,)`` of the pairs ``A[i], B[i]``."""
        return (self.transform(A) * self.transform(B)).sum(1)
