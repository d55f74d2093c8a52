"""Base classes of the baselines."""

import copy
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, ClassVar, Self

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from spdnet._checks import require_choice, require_count, require_number
from spdnet._inputs import TakesMatrices, checked_matrices, encode_labels
from spdnet.training.device import resolve_device

IntArray = NDArray[numpy.int64]


def checked(default: Any, require: Callable[..., None], **bounds: Any) -> Any:
    """Declare a dataclass field that ``fit`` validates; the default is always valid."""

    def check(who: str, name: str, value: Any) -> None:
        if value is not default and not (isinstance(value, str) and value == default):
            require(who, name, value, **bounds)

    return field(default=default, metadata={"check": check})


#: fields for an integer of at least 1, for a positive number, and for one of several ``choices``
count = partial(checked, require=require_count)
positive = partial(checked, require=require_number, above=0)
choice = partial(checked, require=require_choice)


class Baseline(TakesMatrices, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base class of the classifiers.

    A subclass is a dataclass that defines ``_validate``, ``_fit`` and ``_predict``. Codes are
    indices into ``classes_``.
    """

    classes_: NDArray[Any]
    n_features_in_: int
    _is_complex = False

    def fit(self, X: Any, y: ArrayLike, **more: Any) -> Self:
        """Fit to samples ``X`` with classes ``y (N,)``."""
        self._require_settings()
        samples = self._validate(X)
        fitted = copy.copy(self)  # a failed fit leaves the estimator unchanged
        fitted.classes_, codes = encode_labels(type(self).__name__, y, len(samples))
        fitted.n_features_in_ = samples[0].shape[-1]
        fitted._is_complex = isinstance(samples, Tensor) and samples.is_complex()
        fitted._fit(samples, codes, **more)
        self.__dict__.update(vars(fitted))
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the class of each sample."""
        samples = self._validate_fitted(X)
        return self.classes_[self._predict(samples)]

    def _require_settings(self, *names: str) -> None:
        """Check all settings, or those with the given names."""
        for f in fields(self):
            if "check" in f.metadata and (not names or f.name in names):
                f.metadata["check"](type(self).__name__, f.name, getattr(self, f.name))

    def _validate(self, X: Any, n: int | None = None) -> Any:
        """Convert the samples; raise an error if they are not valid or do not have size ``n``."""
        raise NotImplementedError

    def _validate_fitted(self, X: Any) -> Any:
        check_is_fitted(self)
        return self._validate(X, self.n_features_in_)

    def _fit(self, X: Any, codes: IntArray) -> None:
        raise NotImplementedError

    def _predict(self, X: Any) -> IntArray:
        raise NotImplementedError


class SPDClassifier(Baseline):
    """Base class of classifiers of SPD matrices ``(N, n, n)`` in float64.

    Computes on ``device`` if the subclass has one. Fitted attributes are on the CPU. A subclass
    with ``supports_complex`` also takes complex Hermitian matrices, in complex128.
    """

    supports_complex: ClassVar[bool] = False

    def _validate(self, X: ArrayLike, n: int | None = None) -> Tensor:
        device, who = resolve_device(getattr(self, "device", "cpu")), type(self).__name__
        if n is None:  # in fit
            return checked_matrices(who, X, device=device, allow_complex=self.supports_complex)
        dtype = torch.complex128 if self._is_complex else torch.float64
        return checked_matrices(
            who, X, n=n, dtype=dtype, device=device, allow_complex=self._is_complex
        )


@dataclass(eq=False, repr=False, kw_only=True)
class SubsetClassifier(SPDClassifier):
    """Base class of classifiers that compare with all training matrices, or with some of them."""

    max_train: int | None = count(None)
    device: str = "cpu"
    verbose: bool = False

    def _subset(self, X: Tensor, codes: IntArray) -> tuple[Tensor, IntArray]:
        kept = subsample(codes, self.max_train)
        return X[torch.from_numpy(kept)], codes[kept]


class ScoresMixin:
    """Prediction of the class with the largest score; a subclass defines ``_scores``."""

    def decision_function(self, X: ArrayLike) -> NDArray[Any]:
        """Compute the scores ``(N, n_classes)``; for two classes their difference ``(N,)``."""
        scores = self._scores(self._validate_fitted(X))  # type: ignore[attr-defined]
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def _scores(self, X: Any) -> NDArray[Any]:
        raise NotImplementedError

    def _predict(self, X: Any) -> IntArray:
        return self._scores(X).argmax(1)


def subsample(codes: IntArray, max_train: int | None, seed: int = 0) -> IntArray:
    """Draw at most ``max_train`` indices (all for None), stratified, at least one per class."""
    if max_train is None or len(codes) <= max_train:
        return numpy.arange(len(codes))
    rng = numpy.random.default_rng(seed)
    exact = numpy.bincount(codes) * max_train / len(codes)
    take = numpy.maximum(numpy.floor(exact).astype(int), exact > 0)
    for c in numpy.argsort(take - exact)[: max(0, max_train - int(take.sum()))]:
        take[c] += 1
    kept = [rng.permutation(numpy.flatnonzero(codes == c))[:n] for c, n in enumerate(take)]
    return numpy.sort(numpy.concatenate(kept))


@contextmanager
def show_progress(enabled: bool, what: str) -> Iterator[Callable[[int, int], None]]:
    """Print the progress to standard error every two seconds, if enabled."""
    last, printed = time.monotonic(), False

    def update(done: int, total: int) -> None:
        nonlocal last, printed
        now = time.monotonic()
        if enabled and now - last > 2:
            last, printed = now, True
            print(f"\r{what} {done} of {total}", end="", file=sys.stderr, flush=True)

    try:
        yield update
    finally:
        if printed:
            print(file=sys.stderr)
