"""One method, fitted and scored once: a cell of a table."""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray
from sklearn.model_selection import GridSearchCV, StratifiedGroupKFold, StratifiedKFold
from sklearn.utils.validation import has_fit_parameter

from spdnet.data import Split
from spdnet.runs.methods import FitSettings, Method
from spdnet.runs.record import Record
from spdnet.training.device import threads_for

_FOLDS = 3  # folds of the hyperparameter search


@dataclass(frozen=True)
class RocCurve(Record):
    """Verification rate at false acceptance rates."""

    far: tuple[float, ...]
    rate: tuple[float, ...]


@dataclass(frozen=True)
class Score(Record):
    """Scores by name: the accuracy, or the verification rate of each task with its ROC."""

    values: dict[str, float]
    roc: dict[str, RocCurve] = field(default_factory=dict)
    equal_error: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Cell(Record):
    """Score, or error, of one method in one repeat; ``parameters`` were selected by the search."""

    score: Score | None
    error: str | None = None
    fit_seconds: float = 0.0
    predict_seconds: float = 0.0
    parameters: dict[str, Any] = field(default_factory=dict)
    device: str = "cpu"
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.score is None) == (self.error is None):
            raise ValueError("expected either a score or an error")

    @property
    def accuracy(self) -> float | None:
        """Accuracy, or None if the method failed or has another score."""
        return None if self.score is None else self.score.values.get("accuracy")

    @classmethod
    def find(cls, file: Path, *measures: str) -> "Cell | None":
        """Read a cell from a file; None if it is missing, damaged, failed or incomplete."""
        try:
            cell = cls.load(file, "")
        except (FileNotFoundError, ValueError):
            return None
        return cell if cell.score and {*measures} <= cell.score.values.keys() else None


def fit_and_score(
    method: Method,
    X: Any,
    split: Split,
    where: FitSettings,
    *,
    groups: NDArray[Any] | None = None,
    tune: bool = False,
    score: Callable[[Any, Any], Score] | None = None,
    notes: tuple[str, ...] = (),
) -> Cell:
    """Fit and score a method once; an exception becomes the error of the cell.

    ``X`` is the input of the method. ``groups`` are kept together by the search of ``tune``, and by
    methods that take groups. ``score`` maps the fitted estimator and the test inputs to a score
    other than the accuracy.
    """
    codes, train, test = split.codes, split.parts["train"], split.parts["test"]
    with warnings.catch_warnings(record=True) as caught, threads_for(where.n):
        warnings.simplefilter("always")
        try:
            estimator = method.make(where)
            grid = method.grid(where.n) if tune else {}
            takes_groups = bool(grid) or has_fit_parameter(estimator, "groups")
            more = {} if groups is None or not takes_groups else {"groups": groups[train]}
            if grid:
                folds = _folds(codes[train], more.get("groups"), where.seed)
                estimator = GridSearchCV(estimator, grid, cv=folds, error_score="raise")
            started = time.perf_counter()
            estimator.fit(_take(X, train), codes[train], **more)
            fitted, given = time.perf_counter(), _take(X, test)
            found: dict[str, Any] = {
                "score": score(estimator, given)
                if score
                else Score({"accuracy": float(estimator.score(given, codes[test]))}),
                "fit_seconds": fitted - started,
                "predict_seconds": time.perf_counter() - fitted,
                "parameters": estimator.best_params_ if grid else {},
            }
        except Exception as error:  # reported in the cell, so that the other methods continue
            found = {"score": None, "error": f"{type(error).__name__}: {error}"}
    texts = [f"{w.category.__name__}: {w.message}" for w in caught]
    distinct = tuple(dict.fromkeys(texts))[:5]
    return Cell(**found, device=where.device, warnings=distinct, notes=notes)


def _folds(codes: NDArray[numpy.int64], groups: NDArray[Any] | None, seed: int) -> Any:
    """Return the folds of a search, which keeps groups together."""
    most = int(numpy.sort(numpy.bincount(codes))[-2])  # for two classes in every fold
    if groups is not None:
        most = min(most, len(numpy.unique(groups)))
    if most < 2:
        raise ValueError(
            "compare: expected at least two samples, or groups, of two classes for the search, got "
            "fewer"
        )
    kind = StratifiedKFold if groups is None else StratifiedGroupKFold
    return kind(min(_FOLDS, most), shuffle=True, random_state=seed)


def _take(X: Any, index: NDArray[numpy.int64]) -> Any:
    return [X[i] for i in index] if isinstance(X, list) else X[index]
