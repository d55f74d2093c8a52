"""The data of an experiment, the paper's or others in their place, and how they are divided."""

import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from spdnet.data import (
    DataError,
    Dataset,
    Descriptor,
    build,
    hold_out,
    load_digits_spd,
    read,
)
from spdnet.data.sources import Source, sequence_sources
from spdnet.paper.published import data_file, how_to_get
from spdnet.paper.reproduction import Experiment, Reproduction

_QUICK = 6  # classes, and sequences of each, in the quick form


@dataclass(frozen=True)
class Problem:
    """Sequences, or matrices, with classes.

    Attributes
    ----------
    title : str
        What they are, for people.
    standin : bool
        Whether they stand in for the data of the paper.
    sequences : list of Source
        Empty where the data are matrices.
    matrices : Dataset, optional
    """

    title: str
    standin: bool
    sequences: tuple[Source, ...] = ()
    matrices: Dataset | None = None

    @property
    def y(self) -> NDArray[Any]:
        """Classes of all sequences or matrices."""
        if self.matrices is None:
            return numpy.array([source.y for source in self.sequences])
        assert self.matrices.y is not None  # read with labels
        return self.matrices.y

    @property
    def split(self) -> NDArray[Any] | None:
        """Parts that the data name."""
        if self.matrices is not None:
            return self.matrices.split
        parts = [source.split for source in self.sequences]
        return None if None in parts else numpy.array(parts)

    @property
    def groups(self) -> NDArray[Any] | None:
        """What must not be divided."""
        if self.matrices is not None:
            return self.matrices.groups
        return numpy.array([source.group or source.name for source in self.sequences])

    def division(self, protocol: str) -> str:
        """The protocol as it is on these data."""
        if self.split is None and protocol == "fixed":
            return "one random half"
        return protocol

    def some(self, index: NDArray[numpy.int64]) -> "Problem":
        """Some of the sequences or matrices."""
        if self.matrices is None:
            return replace(self, sequences=tuple(self.sequences[i] for i in index))
        columns = {
            name: values.take(index, axis=0)
            for name in ("X", "y", "split", "groups", "names")
            if (values := getattr(self.matrices, name)) is not None
        }
        return replace(self, matrices=Dataset(**columns))


def load_problem(wanted: Reproduction, experiment: Experiment) -> Problem:
    """The data that an experiment is run on.

    Raises
    ------
    FileNotFoundError
        The data of the paper are not there; the message says what to put where.
    """
    name = experiment.data
    if wanted.standin is None:
        file = data_file(name)
        if not file.is_file():
            raise FileNotFoundError(
                f"reproduce: expected the data of the paper, got none.\n{how_to_get(name)}\n"
                "Or see the same on other data with: --standin digits, --standin generated, or "
                "--standin FILE"
            )
        problem = _from_file(file, name, standin=False)
    elif wanted.standin == "digits":
        X, y = load_digits_spd()
        problem = Problem("digits", True, matrices=Dataset(X, y))
    elif wanted.standin == "generated":
        problem = generated(name, quick=wanted.quick, seed=wanted.seed)
    else:
        file = Path(wanted.standin)
        problem = _from_file(file, file.name, standin=True)
    if wanted.classes is not None or wanted.quick:
        most = min(c for c in (wanted.classes, _QUICK if wanted.quick else None) if c is not None)
        problem = _largest(problem, most)
    if wanted.quick:
        problem = problem.some(_few(problem, _QUICK))
    return problem


def divide(
    problem: Problem,
    experiment: Experiment,
    wanted: Reproduction,
    repeat: int,
    file: Path,
    *,
    on_source: Callable[[int, int], None] | None = None,
) -> Dataset:
    """The matrices of one repeat, each in the part ``train`` or ``test``.

    Sequences are divided first; then those to train on are cut into clips, and all matrices are
    written to a file, in which they stay where they are many. ``on_source`` is called with how many
    sequences are done, and how many there are.
    """
    test = held_out(problem, experiment.protocol, wanted.seed + repeat)
    if problem.matrices is None:
        descriptor = _descriptor(experiment.descriptor, wanted, problem.standin)
        sources = [
            replace(source, split="test" if held else "train")
            for source, held in zip(problem.sequences, test, strict=True)
        ]
        if not file.exists():
            build(sources, file, descriptor, on_source=on_source)
        return read(file)
    split = numpy.where(test, "test", "train")
    if problem.matrices.names is None:
        return replace(problem.matrices, split=split)
    # of a sequence that is tested on, the whole alone, which comes before its clips
    first = numpy.zeros(len(test), dtype=bool)
    first[numpy.unique(problem.matrices.names, return_index=True)[1]] = True
    kept = problem.some(numpy.flatnonzero(~test | first)).matrices
    assert kept is not None  # they are matrices
    return replace(kept, split=split[~test | first])


def tasks(data: Dataset, measures: list[str]) -> dict[str, NDArray[numpy.bool_]]:
    """The test matrices of each task of verification: those in a folder of its name.

    Without such folders, there is one task, ``all``.
    """
    assert data.split is not None  # divide() has named the parts
    test = data.split == "test"
    names = numpy.array([""] * len(data)) if data.names is None else data.names
    folders = [set(str(name).lower().split("/")) for name in names]
    found = {m: test & numpy.array([m in f for f in folders]) for m in measures}
    found = {m: chosen for m, chosen in found.items() if chosen.any()}
    if not found:
        return {"all": test}
    times = sum(chosen.astype(int) for chosen in found.values())
    if (times[test] != 1).any():
        stray = names[test][times[test] != 1][0]
        raise DataError(
            f"reproduce: expected every test matrix in a folder of one of {', '.join(found)}, got "
            f"{stray}"
        )
    return found


def generated(name: str, *, quick: bool = False, seed: int = 0) -> Problem:
    """Sequences of the shape of a data set of the paper, in which classes differ a little.

    The frames of a class are a mixture of its own and of common directions, and each sequence
    turns them somewhat.

    Parameters
    ----------
    name : {"afew", "hdm05", "pasc"}
    quick : bool
        A few short ones of few dimensions.
    seed : int
    """
    # dimensions, classes, sequences of each, frames
    full = {"afew": (400, 7, 40, 50), "hdm05": (93, 130, 10, 120), "pasc": (400, 20, 8, 40)}
    small = {"afew": (20, 4, 8, 30), "hdm05": (15, 5, 8, 40), "pasc": (16, 12, 8, 30)}
    d, n_classes, each, frames = (small if quick else full)[name]
    make = partial(_made_up, d, frames, seed)
    sources = []
    for c in range(n_classes):
        for i in range(each):
            task = ("control", "handheld")[i % 2]
            label = f"{task}/{c}/{i}" if name == "pasc" else f"{c}/{i}"
            noise = 0.3 if name == "pasc" and task == "handheld" else 0.2
            sources.append(Source(label, partial(make, c, i, noise), str(c), None, label))
    return Problem(f"generated, {d} dimensions", True, tuple(sources))


def _made_up(d: int, frames: int, seed: int, c: int, i: int, noise: float) -> NDArray[Any]:
    common = numpy.random.default_rng((seed, 0)).normal(size=(d, d)) / d**0.5
    own = numpy.random.default_rng((seed, 1, c)).normal(size=(d, d)) / d**0.5
    rng = numpy.random.default_rng((seed, 2, c, i))
    T = int(rng.integers(frames // 2, 2 * frames))
    mixing = common + 0.3 * own + noise * rng.normal(size=(d, d)) / d**0.5
    scales = numpy.geomspace(1, 1e-2, d)  # a few directions carry most, as in real frames
    return 0.3 * own[0] + (rng.normal(size=(T, d)) * scales) @ mixing


def _from_file(path: Path, title: str, *, standin: bool) -> Problem:
    """A file of sequences, or of matrices."""
    if path.suffix.lower() == ".npz" and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as file:
            sequences = "frames.npy" in file.namelist()
        if sequences:
            return Problem(title, standin, tuple(sequence_sources(path)))
    data = read(path)
    if not data.is_matrices:
        X = numpy.asarray(data.X)
        parts = [None] * len(X) if data.split is None else [str(s) for s in data.split]
        assert data.y is not None  # read with labels
        groups = numpy.arange(len(X)) if data.groups is None else data.groups
        loads = [partial(numpy.transpose, signal) for signal in X]
        sources = tuple(
            Source(str(i), loads[i], str(data.y[i]), parts[i], str(groups[i]))
            for i in range(len(X))
        )
        return Problem(title, standin, sources)
    return Problem(title, standin, matrices=data)


def _largest(problem: Problem, n_classes: int) -> Problem:
    """The classes with the most members, ties by name."""
    names, counts = numpy.unique(problem.y, return_counts=True)
    if n_classes > len(names):
        n_classes = len(names)
    kept = names[numpy.lexsort((names, -counts))[:n_classes]]
    return problem.some(numpy.flatnonzero(numpy.isin(problem.y, kept)))


def _few(problem: Problem, each: int) -> NDArray[numpy.int64]:
    """The first few of each class, and of each part."""
    split = numpy.array([""] * len(problem.y)) if problem.split is None else problem.split
    keys = [f"{y} {part}" for y, part in zip(problem.y, split, strict=True)]
    seen: dict[str, int] = {}
    kept = []
    for i, key in enumerate(keys):
        seen[key] = seen.get(key, 0) + 1
        if seen[key] <= each:
            kept.append(i)
    return numpy.array(kept)


def _descriptor(descriptor: Descriptor, wanted: Reproduction, standin: bool) -> Descriptor:
    changes: dict[str, Any] = {"root": wanted.root}
    if standin:
        changes["pca"] = None  # they have as few dimensions as they have
    if not wanted.clips:
        changes |= {"clip_length": None, "clip_stride": None, "clips": None}
    return replace(descriptor, **changes)


def held_out(problem: Problem, protocol: str, seed: int) -> NDArray[numpy.bool_]:
    """Which sequences, or matrices, are tested on.

    Raises
    ------
    DataError
        There is nothing to train on, to test on, or to verify.
    """
    y, split = problem.y, problem.split
    if split is not None and protocol != "random-halves":
        test = split != "train"
    elif protocol == "verification":  # people who are not trained on
        names = numpy.unique(y)
        rng = numpy.random.default_rng(seed)
        test = numpy.isin(y, rng.permutation(names)[: len(names) // 2])
    else:
        test = hold_out(y, 0.5, groups=problem.groups, seed=seed)
    if not test.any() or test.all() or len(set(y[~test].tolist())) < 2:
        raise DataError(
            f"reproduce: expected something to test on, and two classes to train on, got "
            f"{int(test.sum())} to test on, and {len(set(y[~test].tolist()))} classes with "
            f"{int((~test).sum())} members to train on"
        )
    if protocol == "verification":
        counts = numpy.unique(y[test], return_counts=True)[1]
        if len(counts) < 2 or counts.max() < 2:
            raise DataError(
                f"reproduce: expected two people to verify, and one of them twice, got "
                f"{len(counts)} with at most {counts.max()}"
            )
    return test
