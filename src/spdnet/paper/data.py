"""Data of an experiment, and their split."""

import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from spdnet.data import DataError, Dataset, build, hold_out, load_digits_spd, read
from spdnet.data.sources import Source, sequence_sources
from spdnet.paper.published import PUBLISHED, data_file, how_to_get
from spdnet.paper.reproduction import Experiment, Reproduction

_N_QUICK = 6  # number of classes, and of sequences per class, in the quick form


@dataclass(frozen=True)
class ExperimentData:
    """Sequences or matrices, of the paper or used as a ``standin``.

    ``samples`` holds the matrices; for sequences, its ``X`` of shape (N, 1, 1) holds indices into
    ``sources``.
    """

    title: str
    standin: bool
    samples: Dataset
    sources: tuple[Source, ...] = ()

    @classmethod
    def of_sources(cls, title: str, standin: bool, sources: list[Source]) -> "ExperimentData":
        """Build the data from sequences; a sequence without a group is its own group."""
        parts = [source.split for source in sources]
        samples = Dataset(
            numpy.arange(len(sources)).reshape(-1, 1, 1),
            y=numpy.array([source.y for source in sources]),
            split=None if None in parts else numpy.array(parts),
            groups=numpy.array([source.group or source.name for source in sources]),
        )
        return cls(title, standin, samples, tuple(sources))

    @property
    def y(self) -> NDArray[Any]:
        """Labels of all sequences or matrices."""
        assert self.samples.y is not None  # read with labels
        return self.samples.y

    def take(self, index: NDArray[numpy.int64]) -> "ExperimentData":
        """Select sequences or matrices by index; classes without members are dropped."""
        fresh: dict[str, Any] = {"index": None, "classes": None}  # to be recomputed
        return replace(self, samples=replace(self.samples.take(index), **fresh))


def load_data(wanted: Reproduction, experiment: Experiment) -> ExperimentData:
    """Load the data of an experiment; if they are missing, the error explains how to get them."""
    name = experiment.data
    if wanted.standin is None:
        file = data_file(name)
        if not file.is_file():
            raise FileNotFoundError(
                f"reproduce: expected the data of the paper, got none.\n{how_to_get(name)}\n"
                "Or run the experiment on other data with --standin digits, --standin generated, "
                "or --standin FILE"
            )
        data = _from_file(file, name, standin=False)
    elif wanted.standin == "digits":
        data = ExperimentData("digits", True, Dataset(*load_digits_spd()))
    elif wanted.standin == "generated":
        data = generated(name, quick=wanted.quick, seed=wanted.seed)
    else:
        file = Path(wanted.standin)
        data = _from_file(file, file.name, standin=True)
    limits = [n for n in (wanted.classes, _N_QUICK if wanted.quick else None) if n is not None]
    if limits:  # the classes with the most members, ties by name
        names, counts = numpy.unique(data.y, return_counts=True)
        kept = names[numpy.lexsort((names, -counts))[: min(limits)]]
        data = data.take(numpy.flatnonzero(numpy.isin(data.y, kept)))
    if wanted.quick:  # the first of each class and part
        split = [""] * len(data.y) if data.samples.split is None else data.samples.split
        index: dict[Any, list[int]] = {}
        for i, key in enumerate(zip(data.y, split, strict=True)):
            index.setdefault(key, []).append(i)
        data = data.take(
            numpy.array(sorted(i for found in index.values() for i in found[:_N_QUICK]))
        )
    return data


def make_matrices(
    data: ExperimentData,
    experiment: Experiment,
    wanted: Reproduction,
    repeat: int,
    file: Path,
    *,
    on_source: Callable[[int, int], None] | None = None,
) -> Dataset:
    """Return the matrices of one repeat, with a split into ``train`` and ``test``.

    Sequences are split first. Then the training sequences are cut into clips, and all matrices are
    written to a file. ``on_source`` is called with the number of sequences done and their total.
    """
    test = held_out(data, experiment.protocol, wanted.seed + repeat)
    split = numpy.where(test, "test", "train")
    if data.sources:
        if not file.exists():
            changes: dict[str, Any] = {"root": wanted.root}
            if data.standin:
                changes["pca"] = None  # stand-ins have few dimensions
            if not wanted.clips:
                changes |= {"clip_length": None, "clip_stride": None, "clips": None}
            index = numpy.asarray(data.samples.X).ravel().tolist()
            chosen = zip(index, split.tolist(), strict=True)
            sources = [replace(data.sources[i], split=part) for i, part in chosen]
            descriptor = replace(PUBLISHED[experiment.data].descriptor, **changes)
            build(sources, file, descriptor, on_source=on_source)
        return read(file)
    if data.samples.names is None:
        return replace(data.samples, split=split)
    # test only on whole sequences, each of which precedes its clips
    first = numpy.zeros(len(test), dtype=bool)
    first[numpy.unique(data.samples.names, return_index=True)[1]] = True
    kept = data.take(numpy.flatnonzero(~test | first)).samples
    return replace(kept, split=split[~test | first])


def tasks(data: Dataset, measures: list[str]) -> dict[str, NDArray[numpy.bool_]]:
    """Return masks of the test matrices of each verification task, identified by their folder.

    Without such folders, there is one task, ``all``.
    """
    assert data.split is not None  # set by make_matrices()
    test = data.split == "test"
    names = numpy.array([""] * len(data)) if data.names is None else data.names
    folders = [set(str(name).lower().split("/")) for name in names]
    found = {m: test & numpy.array([m in f for f in folders]) for m in measures}
    found = {m: chosen for m, chosen in found.items() if chosen.any()}
    if not found:
        return {"all": test}
    n_tasks = sum(chosen.astype(int) for chosen in found.values())
    if (n_tasks[test] != 1).any():
        ambiguous = names[test][n_tasks[test] != 1][0]
        raise DataError(
            f"reproduce: expected every test matrix in a folder of one of {', '.join(found)}, got "
            f"{ambiguous}"
        )
    return found


def generated(name: str, *, quick: bool = False, seed: int = 0) -> ExperimentData:
    """Generate sequences of the shape of a data set of the paper.

    The frames of a class are mixed from directions of the class and common ones, with noise in each

    With ``quick``, they are few and short.
    """
    # dimensions, classes, sequences of each, frames
    full = {"afew": (400, 7, 40, 50), "hdm05": (93, 130, 10, 120), "pasc": (400, 20, 8, 40)}
    small = {"afew": (20, 4, 8, 30), "hdm05": (15, 5, 8, 40), "pasc": (16, 12, 8, 30)}
    d, n_classes, each, frames = (small if quick else full)[name]
    make = partial(_generate_sequence, d, frames, seed)
    sources = []
    for c in range(n_classes):
        for i in range(each):
            task = ("control", "handheld")[i % 2]
            label = f"{task}/{c}/{i}" if name == "pasc" else f"{c}/{i}"
            noise = 0.3 if name == "pasc" and task == "handheld" else 0.2
            sources.append(Source(label, partial(make, c, i, noise), str(c), None, label))
    return ExperimentData.of_sources(f"generated, {d} dimensions", True, sources)


def _generate_sequence(
    d: int, frames: int, seed: int, c: int, i: int, noise: float
) -> NDArray[Any]:
    common = numpy.random.default_rng((seed, 0)).normal(size=(d, d)) / d**0.5
    own = numpy.random.default_rng((seed, 1, c)).normal(size=(d, d)) / d**0.5
    rng = numpy.random.default_rng((seed, 2, c, i))
    T = int(rng.integers(frames // 2, 2 * frames))
    mixing = common + 0.3 * own + noise * rng.normal(size=(d, d)) / d**0.5
    scales = numpy.geomspace(1, 1e-2, d)  # as in real frames
    return 0.3 * own[0] + (rng.normal(size=(T, d)) * scales) @ mixing


def _from_file(path: Path, title: str, *, standin: bool) -> ExperimentData:
    """Read a file of sequences, of signals or of matrices."""
    if path.suffix.lower() == ".npz" and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as file:
            is_sequences = "frames.npy" in file.namelist()
        if is_sequences:
            return ExperimentData.of_sources(title, standin, sequence_sources(path))
    data = read(path)
    if data.is_matrices:
        return ExperimentData(title, standin, data)
    assert data.y is not None  # read with labels
    groups = numpy.arange(len(data)) if data.groups is None else data.groups
    sources = []
    for i, X in enumerate(numpy.asarray(data.X)):
        split = None if data.split is None else str(data.split[i])
        load = partial(numpy.transpose, X)
        sources.append(Source(str(i), load, str(data.y[i]), split, str(groups[i])))
    return ExperimentData.of_sources(title, standin, sources)


def held_out(data: ExperimentData, protocol: str, seed: int) -> NDArray[numpy.bool_]:
    """Return a mask of the sequences or matrices of the test set."""
    y, split = data.y, data.samples.split
    if split is not None and protocol != "random-halves":
        test = split != "train"
    elif protocol == "verification":  # test people must not occur in training
        names = numpy.unique(y)
        rng = numpy.random.default_rng(seed)
        test = numpy.isin(y, rng.permutation(names)[: len(names) // 2])
    else:
        test = hold_out(y, 0.5, groups=data.samples.groups, seed=seed)
    if not test.any() or test.all() or len(set(y[~test].tolist())) < 2:
        raise DataError(
            f"reproduce: expected test samples, and training samples of two classes, got "
            f"{int(test.sum())} test samples, and {int((~test).sum())} training samples of "
            f"{len(set(y[~test].tolist()))} classes"
        )
    if protocol == "verification":
        counts = numpy.unique(y[test], return_counts=True)[1]
        if len(counts) < 2 or counts.max() < 2:
            raise DataError(
                f"reproduce: expected at least two people to verify, one of them with two samples, "
                f"got {len(counts)} people with at most {counts.max()} samples"
            )
    return test
