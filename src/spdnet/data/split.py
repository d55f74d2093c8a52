"""Split of a data set into training, validation and test parts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import GroupKFold
from sklearn.utils.class_weight import compute_sample_weight

from spdnet._checks import as_array, require_number
from spdnet.data.dataset import SPLITS, Dataset

_MAX_TRIES = 200  # maximum number of random choices of groups
_TOLERANCE = 0.1  # relative difference from the fraction, averaged over the classes
_FEW = 10  # number of samples below which the accuracy is very uncertain
_FOLDS = 4


@dataclass(frozen=True, eq=False)
class Split:
    """Training, validation and test parts of a data set.

    Examples
    --------
    >>> import numpy
    >>> from spdnet.data import Dataset, make_split
    >>> data = Dataset(numpy.zeros((10, 2, 2)), numpy.arange(10) % 2)
    >>> split = make_split(data, test=0.2)
    >>> split.sizes, split.scored, split.chance
    ('8 train, 2 test', 'test', 0.5)
    """

    codes: NDArray[numpy.int64]  #: class index of each sample
    parts: dict[str, NDArray[numpy.int64]]  #: indices of the samples; a missing part is empty
    groups: dict[str, int]  #: number of groups in each part, if the data have groups
    notes: list[str]  #: messages for the user
    drawn: bool  #: True if the scored part was drawn at random

    @property
    def scored(self) -> str:
        """Name of the part that results refer to: test, else validation, else training."""
        return next(name for name in ("test", "val", "train") if len(self.parts[name]))

    @property
    def chance(self) -> float:
        """Accuracy of always predicting the most frequent training class on the scored part."""
        largest = numpy.bincount(self.codes[self.parts["train"]]).argmax()
        return float(numpy.mean(self.codes[self.parts[self.scored]] == largest))

    @property
    def sizes(self) -> str:
        """Sizes such as ``180 train (6 groups), 30 val (1 group), 30 test (1 group)``."""
        groups = {name: f" ({n} group{'s' * (n != 1)})" for name, n in self.groups.items()}
        sizes = {name: len(index) for name, index in self.parts.items() if len(index)}
        return ", ".join(f"{n} {name}{groups.get(name, '')}" for name, n in sizes.items())

    @property
    def balanced_weights(self) -> NDArray[numpy.float64]:
        """Sample weights ``(N,)`` that give all classes of the training part equal weight."""
        train = self.codes[self.parts["train"]]
        classes, first = numpy.unique(train, return_index=True)
        of_class = numpy.ones(int(self.codes.max()) + 1)
        of_class[classes] = compute_sample_weight("balanced", train)[first]
        return of_class[self.codes]


def make_split(
    data: Dataset, *, test: float = 0.0, val: float = 0.0, seed: int = 0, who: str = "split"
) -> Split:
    """Split a data set according to its ``split`` column, and draw missing parts at random.

    Parameters
    ----------
    data : Dataset
        With labels. Groups stay together in parts that are drawn.
    test, val : float
        Fractions of the data to draw for parts that the data do not define; 0 for none.
    seed : int
        Random seed of the test part; the validation part is drawn with ``seed + 1``.
    who : str
        Name of the caller, for error messages.

    Examples
    --------
    >>> import numpy
    >>> from spdnet.data import Dataset, make_split
    >>> data = Dataset(numpy.zeros((10, 2, 2)), numpy.arange(10) % 2)
    >>> make_split(data, test=0.2).sizes
    '8 train, 2 test'
    """
    codes = data.codes
    if len(data.classes) < 2:
        raise ValueError(f"{who}: expected at least two classes, got one: {data.classes[0]!r}")
    fractions = {"test": test, "val": val}
    parts = draw_parts(codes, **fractions, groups=data.groups, split=data.split, seed=seed)
    if len(parts["train"]) == 0:
        raise ValueError(f"{who}: expected matrices to train on, got none in the part 'train'")
    seen = [data.classes[code] for code in numpy.unique(codes[parts["train"]])]
    if len(seen) < 2:
        raise ValueError(
            f"{who}: expected at least two classes to train on, got only {seen[0]!r} in the part "
            "'train'"
        )
    notes, counts = _notes(data, parts, seen, fractions), {}
    if data.groups is not None:
        inside = {k: set(data.groups[v].tolist()) for k, v in parts.items() if len(v)}
        counts = {name: len(groups) for name, groups in inside.items()}
        if sum(counts.values()) > len(set().union(*inside.values())):
            notes.append("some groups are in more than one part of the split in the data")
    scored = next(name for name in ("test", "val", "train") if len(parts[name]))
    drawn = data.split is None or scored not in data.split
    return Split(codes, parts, counts, notes, drawn)


def draw_parts(
    y: ArrayLike,
    *,
    test: float = 0.0,
    val: float = 0.0,
    groups: NDArray[Any] | None = None,
    split: NDArray[Any] | None = None,
    seed: int = 0,
) -> dict[str, NDArray[numpy.int64]]:
    """Return the indices of ``train``, ``val`` and ``test``: see :func:`make_split`."""
    y = numpy.asarray(y)
    split = numpy.full(len(y), "train") if split is None else split
    parts = {name: numpy.flatnonzero(split == name) for name in SPLITS}
    for offset, (name, fraction) in enumerate((("test", test), ("val", val))):
        if len(parts[name]) == 0 and fraction > 0:
            rest = parts["train"]
            remaining_groups = None if groups is None else groups[rest]
            held = hold_out(y[rest], fraction, groups=remaining_groups, seed=seed + offset)
            parts["train"], parts[name] = rest[~held], rest[held]
    return parts


def _notes(
    data: Dataset,
    parts: Mapping[str, NDArray[numpy.int64]],
    seen: list[str],
    fractions: Mapping[str, float],
) -> list[str]:
    notes = []
    if missing := [name for name in data.classes if name not in set(seen)]:
        notes.append(
            f"{len(missing)} of {len(data.classes)} classes have no matrix to train on, such as "
            f"{missing[0]!r}"
        )
    if len(parts["test"]) == 0:
        which = "there is no test part: the validation accuracy is optimistic, because it selected "
        neither = "there is neither a test part nor a validation part: the accuracy is that on the "
        notes.append(f"{which}the epoch" if len(parts["val"]) else f"{neither}training data")
    scored = next((name for name in ("test", "val") if len(parts[name])), None)
    if scored is not None and (n := len(parts[scored])) < _FEW:
        samples = f"{n} sample{'s' * (n != 1)}"
        notes.append(f"the part {scored!r} has {samples}, so its accuracy is very uncertain")
    for name, fraction in fractions.items():
        actual = len(parts[name]) / len(data)
        why = "classes are small" if data.groups is None else "whole groups are held out"
        if data.split is None and fraction > 0 and not 0.5 < actual / fraction < 2:
            notes.append(
                f"the part {name!r} has {len(parts[name])} of {len(data)} matrices instead of "
                f"{100 * fraction:g} %, because {why}"
            )
    return notes


def hold_out(
    y: ArrayLike, fraction: float, *, groups: ArrayLike | None = None, seed: int = 0
) -> NDArray[numpy.bool_]:
    """Draw a random part, stratified by class, as a mask ``(N,)`` that is True where held out.

    At least one sample of every class is not held out.

    Parameters
    ----------
    y : array, shape (N,)
        Classes.
    fraction : float
        Between 0 and 1.
    groups : array, shape (N,), optional
        Groups that stay together, such as subjects. Groups are chosen at random until the class
        fractions differ from ``fraction`` by at most a tenth on average; after 200 choices, the
        closest one is used.
    seed : int

    Examples
    --------
    >>> from spdnet.data import hold_out
    >>> hold_out(["a", "a", "b", "b", "b", "c"], 0.4).sum()
    np.int64(2)
    """
    require_number("hold_out", "fraction", fraction, above=0, below=1)
    y = as_array("hold_out", y, "y")
    _, codes = numpy.unique(y, return_inverse=True)
    rng = numpy.random.default_rng(seed)
    if groups is None:
        return _by_class(codes, fraction, rng)
    groups = as_array("hold_out", groups, "groups")
    if groups.shape != y.shape:
        raise ValueError(
            f"hold_out: expected groups of shape {y.shape}, one for each of y, got {groups.shape}"
        )
    return _by_group(codes, fraction, groups, rng)


def _by_class(
    codes: NDArray[numpy.int64], fraction: float, rng: numpy.random.Generator
) -> NDArray[numpy.bool_]:
    counts = numpy.bincount(codes)
    exact = fraction * counts
    take = numpy.minimum(numpy.floor(exact), counts - 1).astype(int)
    wanted = round(fraction * len(codes)) - take.sum()
    # classes with the largest remainders get the rest, ties in random order
    order = numpy.lexsort((rng.permutation(len(counts)), take - exact))
    for c in [c for c in order if take[c] < counts[c] - 1][: max(wanted, 0)]:
        take[c] += 1
    held = numpy.zeros(len(codes), dtype=bool)
    for c, n in enumerate(take):
        held[rng.permutation(numpy.flatnonzero(codes == c))[:n]] = True
    return held


def _by_group(
    codes: NDArray[numpy.int64], fraction: float, groups: NDArray[Any], rng: numpy.random.Generator
) -> NDArray[numpy.bool_]:
    names, group = numpy.unique(groups, return_inverse=True)
    if len(names) == len(group):  # every sample is its own group
        return _by_class(codes, fraction, rng)
    table = numpy.zeros((len(names), codes.max() + 1))
    numpy.add.at(table, (group, codes), 1)
    total, sizes = table.sum(0), table.sum(1).tolist()
    smallest = min(sizes)
    most = max(fraction * len(codes), smallest)
    best, best_miss, tries = None, numpy.inf, 0
    enough = _TOLERANCE * fraction * len(total)
    while tries < _MAX_TRIES and best_miss > enough:
        tries += 1
        chosen, have, count = numpy.zeros(len(table), dtype=bool), numpy.zeros(len(total)), 0.0
        for g in rng.permutation(len(table)).tolist():
            # stop at the fraction; keep a member of every class
            if count + smallest > most:
                break
            if count + sizes[g] <= most and ((with_it := have + table[g]) < total).all():
                chosen[g] = True
                have, count = with_it, count + sizes[g]
        miss = numpy.abs(have / total - fraction).sum()
        if chosen.any() and miss < best_miss:
            best, best_miss = chosen, miss
    if best is None:
        raise ValueError(
            "hold_out: expected groups that can be held out while every class remains in the rest, "
            f"got {len(table)} group{'s' * (len(table) != 1)} for {len(total)} classes; add "
            "groups, remove them, or define the split in the data"
        )
    return best[group]


def assign_folds(
    y: NDArray[Any], groups: ArrayLike | None = None
) -> tuple[NDArray[numpy.int64], bool]:
    """Return the fold of each sample, and whether the folds consist of whole groups.

    There are four folds, fewer if there are fewer groups. Without groups, folds are blocks of
    consecutive samples of each class, so that neighboring windows of a recording are not separated.

    Examples
    --------
    >>> import numpy
    >>> from spdnet.data.split import assign_folds
    >>> assign_folds(numpy.array([0, 0, 0, 0, 1, 1, 1, 1]))[0].tolist()
    [0, 1, 2, 3, 0, 1, 2, 3]
    """
    fold = numpy.zeros(len(y), dtype=numpy.int64)
    if groups is not None:
        names, codes = numpy.unique(numpy.asarray(groups), return_inverse=True)
        if 2 <= len(names) < len(y):
            parts = GroupKFold(min(_FOLDS, len(names))).split(codes, groups=codes)
            for k, (_, held_out) in enumerate(parts):
                fold[held_out] = k
            return fold, True
    for label in numpy.unique(y):
        index = numpy.flatnonzero(y == label)
        # small classes start at different folds, so that no fold is left without samples
        blocks = numpy.arange(len(index)) * _FOLDS // max(len(index), _FOLDS)
        fold[index] = (blocks + (label if len(index) < _FOLDS else 0)) % _FOLDS
    return fold, False


def scored_folds(
    codes: NDArray[numpy.int64], groups: ArrayLike | None = None
) -> Iterator[tuple[NDArray[numpy.int64], NDArray[numpy.int64]]]:
    """Yield training and test indices of the folds of :func:`assign_folds` that can be scored.

    The training part has at least two classes, and at least one test sample belongs to one of them.
    """
    fold, _ = assign_folds(codes, groups)
    for k in numpy.unique(fold):
        train, test = numpy.flatnonzero(fold != k), numpy.flatnonzero(fold == k)
        if len(numpy.unique(codes[train])) > 1 and numpy.isin(codes[test], codes[train]).any():
            yield train, test
