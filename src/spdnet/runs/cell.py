"""One method, fitted and scored once: a cell of a table."""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import NDArray
from sklearn.model_selection import GridSearchCV, StratifiedGroupKFold, StratifiedKFold

from spdnet.runs.methods import Method, Where
from spdnet.training.device import threads_for

_FOLDS = 3  # of a search
Score = Callable[[Any, Any], dict[str, float]]


@dataclass(frozen=True)
class Task:
    """What a method is fitted to and scored on."""

    X: Any
    codes: NDArray[numpy.int64]
    held: NDArray[numpy.bool_]
    groups: NDArray[Any] | None


def fit_and_score(
    method: Method, task: Task, where: Where, tune: bool = False, score: Score | None = None
) -> dict[str, Any]:
    """Fit and score once; an error is what was found.

    Parameters
    ----------
    method : Method
    task : Task
    where : Where
    tune : bool
        Search the method's few parameters on the training part first.
    score : callable, optional
        From the fitted estimator and the matrices that were held out to scores by name; the
        accuracy when not given.
    """
    X, codes = task.X, task.codes
    learn, test = numpy.flatnonzero(~task.held), numpy.flatnonzero(task.held)
    groups = None if task.groups is None else task.groups[learn]
    found: dict[str, Any] = {"error": None, "parameters": {}, "device": where.device}
    with warnings.catch_warnings(record=True) as caught, threads_for(where.n):
        warnings.simplefilter("always")
        try:
            estimator = method.make(where)
            grid = method.grid(where.n) if tune else {}
            more = {}
            if grid:
                estimator = _search(estimator, grid, codes[learn], groups, where.seed)
                more = {} if groups is None else {"groups": groups}
            started = time.perf_counter()
            estimator.fit(_some(X, learn), codes[learn], **more)
            fitted = time.perf_counter()
            if score is None:
                predicted = estimator.predict(_some(X, test))
                scores = {"accuracy": float(numpy.mean(predicted == codes[test]))}
            else:
                scores = score(estimator, _some(X, test))
            found["predict_seconds"] = time.perf_counter() - fitted
            found["fit_seconds"] = fitted - started
            found |= scores
            if grid:
                found["parameters"] = {k: _plain(v) for k, v in estimator.best_params_.items()}
        except Exception as error:  # reported in its cell; the other methods go on
            found |= {"error": f"{type(error).__name__}: {error}"}
    texts = [f"{w.category.__name__}: {w.message}" for w in caught]
    found["warnings"] = list(dict.fromkeys(texts))[:5]
    return found


def _search(
    estimator: Any,
    grid: dict[str, list[Any]],
    codes: NDArray[numpy.int64],
    groups: NDArray[Any] | None,
    seed: int,
) -> GridSearchCV:
    """Folds that keep groups whole where the test part does."""
    fewest = int(numpy.sort(numpy.bincount(codes))[-2])  # two classes in every fold
    most = fewest if groups is None else min(fewest, len(numpy.unique(groups)))
    if most < 2:
        raise ValueError(
            "compare: expected two members, or groups, of two classes to tune with, got fewer"
        )
    kind = StratifiedKFold if groups is None else StratifiedGroupKFold
    folds = kind(min(_FOLDS, most), shuffle=True, random_state=seed)
    return GridSearchCV(estimator, grid, cv=folds, error_score="raise")


def _some(X: Any, index: NDArray[numpy.int64]) -> Any:
    return [X[i] for i in index] if isinstance(X, list) else X[index]


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, numpy.generic) else value
