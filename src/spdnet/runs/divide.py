"""How the data of a run are divided, and what a reader should know about it."""

from dataclasses import dataclass

import numpy
from numpy.typing import NDArray
from sklearn.utils.class_weight import compute_sample_weight

from spdnet.data import hold_out
from spdnet.data.io.readers import SPLITS
from spdnet.runs import findings
from spdnet.runs.data import Matrices, Preprocessing
from spdnet.runs.settings import Settings


@dataclass(frozen=True)
class Division:
    """The parts of the data of a run.

    Attributes
    ----------
    codes : array of int, shape (N,)
        Classes as numbers.
    parts : dict of arrays
        The places of ``train``, ``val`` and ``test`` in the data; those that are not there are
        empty.
    groups : dict of int
        How many groups each part holds; empty where the data have none.
    notes : list of str
        What a reader should know.
    drawn : bool
        Whether the part that is scored was drawn at random.
    """

    codes: NDArray[numpy.int64]
    parts: dict[str, NDArray[numpy.int64]]
    groups: dict[str, int]
    notes: list[str]
    drawn: bool

    @property
    def scored(self) -> str:
        """The part that the result is of."""
        return next(name for name in ("test", "val", "train") if len(self.parts[name]))

    @property
    def chance(self) -> float:
        """Accuracy on the scored part of always naming the largest class of the training."""
        largest = numpy.bincount(self.codes[self.parts["train"]]).argmax()
        return float(numpy.mean(self.codes[self.parts[self.scored]] == largest))

    @property
    def sizes(self) -> str:
        """Such as ``180 train (6 groups), 30 val (1 group), 30 test (1 group)``."""
        return ", ".join(
            f"{len(index)} {name}{self._groups_of(name)}"
            for name, index in self.parts.items()
            if len(index)
        )

    def _groups_of(self, part: str) -> str:
        count = self.groups.get(part)
        return "" if count is None else f" ({count} group{'' if count == 1 else 's'})"

    @property
    def balancing(self) -> NDArray[numpy.float64]:
        """Weights ``(N,)`` with which the classes of the training part count alike."""
        train = self.codes[self.parts["train"]]
        classes, first = numpy.unique(train, return_index=True)
        of_class = numpy.ones(int(self.codes.max()) + 1)
        of_class[classes] = compute_sample_weight("balanced", train)[first]
        return of_class[self.codes]


def divide(data: Matrices, settings: Settings) -> Division:
    """Parts as the data name them, or drawn at random, groups as wholes."""
    assert data.y is not None  # the data were read with labels
    if len(data.classes) < 2:
        raise ValueError(f"train: expected at least two classes, got one: {data.classes[0]!r}")
    place = {name: i for i, name in enumerate(data.classes)}
    codes = numpy.array([place[label] for label in data.y])
    everything = numpy.arange(len(codes))
    if data.split is None:
        parts = {"train": everything, "val": everything[:0], "test": everything[:0]}
    else:
        parts = {name: numpy.flatnonzero(data.split == name) for name in SPLITS}
    named = {name for name, index in parts.items() if len(index) and data.split is not None}
    fractions = settings.fractions(named_parts=data.split is not None)
    for offset, name in enumerate(("test", "val")):
        if len(parts[name]) == 0 and fractions[name] > 0:
            rest = parts["train"]
            groups = None if data.groups is None else data.groups[rest]
            held = hold_out(
                codes[rest], fractions[name], groups=groups, seed=2 * settings.seed + offset
            )
            parts["train"], parts[name] = rest[~held], rest[held]
    if len(parts["train"]) == 0:
        raise ValueError("train: expected matrices to train on, got none in the part 'train'")
    seen = set(codes[parts["train"]].tolist())
    if len(seen) < 2:
        raise ValueError(
            f"train: expected at least two classes to train on, got only "
            f"{data.classes[next(iter(seen))]!r} in the part 'train'"
        )
    if settings.patience is not None and len(parts["val"]) == 0:
        raise ValueError("train: expected validation data with patience, got none; set val above 0")
    groups_in = {
        name: set(data.groups[index].tolist())
        for name, index in parts.items()
        if data.groups is not None and len(index)
    }
    notes = _notes(data, parts, seen, fractions)
    if sum(map(len, groups_in.values())) > len(set().union(*groups_in.values())):
        notes.append("some groups are in more than one part, as the split of the data has it")
    counts = {name: len(groups) for name, groups in groups_in.items()}
    scored = next(name for name in ("test", "val", "train") if len(parts[name]))
    return Division(codes, parts, counts, notes, drawn=scored not in named)


def _notes(
    data: Matrices,
    parts: dict[str, NDArray[numpy.int64]],
    seen: set[int],
    fractions: dict[str, float],
) -> list[str]:
    notes = []
    missing = [name for i, name in enumerate(data.classes) if i not in seen]
    if missing:
        notes.append(
            f"{len(missing)} of {len(data.classes)} classes have no matrix to train on, such as "
            f"{missing[0]!r}"
        )
    if len(parts["test"]) == 0:
        notes.append(
            "there is no test part: the validation accuracy is that of the epoch that was chosen "
            "by it, and so optimistic"
            if len(parts["val"])
            else "there is neither a test part nor a validation part: the accuracy is that on the "
            "matrices of the training itself, and says nothing about others"
        )
    for name, fraction in fractions.items():
        share = len(parts[name]) / len(data.X)
        if data.split is None and fraction > 0 and not 0.5 < share / fraction < 2:
            notes.append(
                f"the part {name!r} holds {100 * share:.1f} % of the matrices instead of "
                f"{100 * fraction:g} %, because classes or groups are few"
            )
    return notes


def advice(
    division: Division, dims: tuple[int, ...], settings: Settings, *, alone: bool
) -> list[str]:
    """What a user may want to do otherwise; a run that is ``alone`` may be repeated."""
    found = []
    if alone and division.groups.get(division.scored) == 1 and division.scored != "train":
        found.append(findings.one_group(division.scored, drawn=division.drawn))
    if settings.replaces("eps") and settings.make_recipe().model == "spdnet" and len(dims) < 3:
        found.append(findings.NO_EFFECT)
    return found


def domains(data: Matrices, train: NDArray[numpy.int64]) -> list[str]:
    """The groups that are trained on, by name; none where the data have no groups."""
    if data.groups is None:
        return []
    return [str(group) for group in numpy.unique(data.groups[train]).tolist()]


def describe(data: Matrices, preprocessing: Preprocessing, division: Division) -> str:
    """How much of what, and how it is divided."""
    what = preprocessing.describe(len(data.X))
    return f"{what}, {len(data.classes)} classes: {division.sizes}"
