"""Detection of outlier trials by their distance to the class means within each group."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy
import torch
from numpy.typing import NDArray

from spdnet.adaptation import Potato
from spdnet.adaptation.outliers import MIN_MATRICES
from spdnet.data import Dataset, Split, StoredArray
from spdnet.runs.results import PART_TITLES, BadTrials, Part

_MAX_BYTES = 2**31  # bytes of the matrices on disk that are read at once
_MANY = 20  # indices per line


def screen_trials(
    data: Dataset,
    split: Split,
    treatment: str,
    incomplete: NDArray[numpy.bool_] | None = None,
) -> tuple[Split, BadTrials | None, list[str]]:
    """Find outlier trials in each part, and drop them if ``treatment`` is ``drop``.

    Each part is screened separately, so that test trials do not affect the training. Test trials
    are never dropped. Trials that are ``incomplete``, with estimated channels, are not screened.
    Return the split, the outliers and notes.
    """
    if treatment == "none":
        return split, None, []
    parts, found, notes, few, missing = dict(split.parts), {}, [], 0, 0
    for name, all_rows in split.parts.items():
        rows = _complete(all_rows, incomplete)
        bad = find_bad_trials(data, rows, who="train")
        few, missing = few + _count_few(data, rows), missing + len(all_rows) - len(rows)
        found[cast(Part, name)] = tuple(data.index[bad].tolist())
        left_out = treatment == "drop" and name != "test"
        if left_out:
            parts[name] = numpy.setdiff1d(all_rows, bad)
        if len(bad):
            treatment_note = ", left out" if left_out else ""
            are = "is an outlier" if len(bad) == 1 else "are outliers"
            notes.append(
                f"{len(bad)} of {len(rows)} {PART_TITLES[name]} trials {are}{treatment_note}: "
                + "; ".join(_list_positions(data, bad))
            )
    notes = _add_unscreened(notes, sum(map(len, split.parts.values())), few, missing)
    return replace(split, parts=parts), BadTrials(found, treatment == "drop", few + missing), notes


def describe_bad_trials(data: Dataset, incomplete: NDArray[numpy.bool_] | None = None) -> list[str]:
    """Describe the outlier trials of valid data, as lines: see :func:`screen_trials`."""
    rows = _complete(numpy.arange(len(data)), incomplete)
    if large := _too_large(data, _groups(data, rows)):
        return [f"outlier trials: not searched, {large}"]
    bad = find_bad_trials(data, rows, who="data")
    lines = [
        f"outlier trials: {len(bad)} of {len(rows)}",
        *(f"  {t}" for t in _list_positions(data, bad)),
    ]
    few, missing = _count_few(data, rows), len(data) - len(rows)
    return _add_unscreened(lines if len(bad) else [], len(data), few, missing)


def find_bad_trials(data: Dataset, rows: NDArray[Any], *, who: str) -> NDArray[numpy.int64]:
    """Return the ``rows`` of valid matrices that are outliers.

    The log-Euclidean metric needs only one eigendecomposition per matrix. A class whose trials
    would all be outliers is kept.
    """
    groups = _groups(data, rows)
    if large := _too_large(data, groups):
        raise ValueError(
            f"{who}: expected groups small enough to screen for outliers, {large}; set "
            "bad_trials to none, or give groups, which are read one at a time"
        )
    labels = numpy.zeros(len(data)) if data.y is None else data.y
    found = [rows[:0]]
    for own in groups.values():
        X, potato = torch.from_numpy(numpy.asarray(data.X[own])), Potato("log_euclidean")
        scores = potato.fit_score_tensor(X, labels[own])
        found.append(own[scores <= potato.offset_])
    bad = numpy.sort(numpy.concatenate(found))
    left = numpy.unique(labels[numpy.setdiff1d(rows, bad)])
    return bad[numpy.isin(labels[bad], left)]


def _groups(data: Dataset, rows: NDArray[Any]) -> dict[str, NDArray[numpy.int64]]:
    """Return the rows of each group."""
    names = numpy.full(len(rows), "") if data.groups is None else data.groups[rows]
    return {str(name): rows[names == name] for name in numpy.unique(names)}


def _too_large(data: Dataset, groups: Mapping[str, NDArray[Any]]) -> str:
    """Describe matrices on disk that are too large to be read at once; empty if they are not."""
    most = max(map(len, groups.values()), default=0)
    size = 8 * most * data.X.shape[-1] ** 2
    if not isinstance(data.X, StoredArray) or size <= _MAX_BYTES:
        return ""
    return f"at most {_MAX_BYTES / 2**30:g} GiB in a group, got {size / 2**30:.1f} GiB on disk"


def _list_positions(data: Dataset, rows: NDArray[Any]) -> Iterator[str]:
    """Yield the positions in the file, by group if there are groups."""
    for name, own in _groups(data, rows).items():
        places: Sequence[int] = data.index[own].tolist()
        text = ", ".join(map(str, places[:_MANY])) + ", ..." * (len(places) > _MANY)
        yield text if data.groups is None else f"{text} (group {name})"


def _complete(
    rows: NDArray[numpy.int64], incomplete: NDArray[numpy.bool_] | None
) -> NDArray[numpy.int64]:
    return rows if incomplete is None else rows[~incomplete[rows]]


def _count_few(data: Dataset, rows: NDArray[Any]) -> int:
    """Count the trials of groups that are too small to be screened."""
    sizes = map(len, _groups(data, rows).values())
    return sum(size for size in sizes if size < MIN_MATRICES)


def _add_unscreened(notes: list[str], n: int, few: int, missing: int) -> list[str]:
    """Append notes on the other trials, of which ``few`` and ``missing`` were not screened."""
    rest = [] if notes or n == few + missing else ["no outlier trials"]
    if few:
        were = "trial was" if few == 1 else "trials were"
        rest.append(
            f"{few} {were} not screened for outliers: groups of fewer than {MIN_MATRICES} trials "
            "are too small"
        )
    if missing:
        were = "trial with missing channels was"
        were = were if missing == 1 else "trials with missing channels were"
        rest.append(f"{missing} {were} not screened for outliers")
    return [*notes, *rest]
