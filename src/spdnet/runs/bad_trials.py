"""Trials that look bad: far from the others of their group, and from the mean of every class."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy
import torch
from numpy.typing import NDArray

from spdnet.adaptation import Potato
from spdnet.adaptation.outliers import FEWEST
from spdnet.data import Dataset, Split, StoredArray
from spdnet.runs.results import PART_TITLES, BadTrials, Part

_LARGEST = 2**31  # bytes of the matrices on disk that are read at once
_MANY = 20  # indices per line


def judge(
    data: Dataset,
    split: Split,
    treatment: str,
    incomplete: NDArray[numpy.bool_] | None = None,
) -> tuple[Split, BadTrials | None, list[str]]:
    """Find the trials of each part that look bad, and drop those to train on if asked to.

    Each part is judged on its own: neither do test trials affect the training, nor the reverse.
    Those that are ``incomplete``, whose missing channels were estimated, are not judged. Return the
    split, the trials, and notes about them.
    """
    if treatment == "none":
        return split, None, []
    incomplete = numpy.zeros(len(data), dtype=bool) if incomplete is None else incomplete
    parts, found, notes, few = dict(split.parts), {}, [], 0
    for name, all_rows in split.parts.items():
        rows = all_rows[~incomplete[all_rows]]
        bad = find_bad_trials(data, rows, who="train")
        few += sum(map(len, _groups(data, rows, small=True).values()))
        found[cast(Part, name)] = tuple(data.index[bad].tolist())
        left_out = treatment == "drop" and name != "test"
        if left_out:
            parts[name] = numpy.setdiff1d(all_rows, bad)
        if len(bad):
            fate = ", left out" if left_out else ""
            notes.append(
                f"{len(bad)} of {len(rows)} {PART_TITLES[name]} trials look bad{fate}: "
                + "; ".join(_listed(data, bad))
            )
    if not notes:
        notes.append("no trial looks bad")
    notes += [*_on_few(few), *_on_incomplete(int(incomplete.sum()))]
    return replace(split, parts=parts), BadTrials(found, treatment == "drop", few), notes


def describe_bad_trials(data: Dataset, incomplete: NDArray[numpy.bool_] | None = None) -> list[str]:
    """Return lines about the trials of valid data that look bad; see :func:`judge`."""
    incomplete = numpy.zeros(len(data), dtype=bool) if incomplete is None else incomplete
    rows = numpy.flatnonzero(~incomplete)
    if large := _too_large(data, _groups(data, rows)):
        return [f"trials that look bad: not looked for, {large}"]
    bad = find_bad_trials(data, rows, who="data")
    few = _on_few(sum(map(len, _groups(data, rows, small=True).values())))
    few += _on_incomplete(int(incomplete.sum()))
    if len(bad) == 0:
        return few or ["no trial looks bad"]
    return [f"look bad: {len(bad)} of {len(rows)}", *(f"  {t}" for t in _listed(data, bad)), *few]


def find_bad_trials(data: Dataset, rows: NDArray[Any], *, who: str) -> NDArray[numpy.int64]:
    """Return those of the rows that look bad; the matrices are valid.

    The metric is log-Euclidean, which needs one decomposition of each matrix. Rows that are all of
    their class are never bad.
    """
    groups = _groups(data, rows)
    if large := _too_large(data, groups):
        raise ValueError(
            f"{who}: expected matrices to look for bad trials in, {large}; set bad_trials to none, "
            "or give groups, which are read one at a time"
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


def _groups(
    data: Dataset, rows: NDArray[Any], *, small: bool = False
) -> dict[str, NDArray[numpy.int64]]:
    """Return the rows of each group, or only of those that are too small to be judged."""
    if data.groups is None:
        parts = {"": rows} if len(rows) else {}
    else:
        names = data.groups[rows]
        parts = {str(name): rows[names == name] for name in numpy.unique(names)}
    return {name: own for name, own in parts.items() if not small or len(own) < FEWEST}


def _too_large(data: Dataset, groups: Mapping[str, NDArray[Any]]) -> str:
    """Describe matrices on disk that are too large to be read at once; empty if they are not."""
    most = max(map(len, groups.values()), default=0)
    size = 8 * most * data.X.shape[-1] ** 2
    if not isinstance(data.X, StoredArray) or size <= _LARGEST:
        return ""
    return f"at most {_LARGEST / 2**30:g} GiB in a group, got {size / 2**30:.1f} GiB on disk"


def _listed(data: Dataset, rows: NDArray[Any]) -> Iterator[str]:
    """Yield the positions in the file, for each group if there are groups."""
    for name, own in _groups(data, rows).items():
        places: Sequence[int] = data.index[own].tolist()
        text = ", ".join(map(str, places[:_MANY])) + ", ..." * (len(places) > _MANY)
        yield text if data.groups is None else f"{text} (group {name})"


def _on_few(few: int) -> list[str]:
    if few == 0:
        return []
    return [f"{few} trials were not judged for being bad, fewer than {FEWEST} in a group"]


def _on_incomplete(count: int) -> list[str]:
    if count == 0:
        return []
    return [f"{count} trials with missing channels were not judged for being bad"]
