"""Results of a training run: the schema of ``results.json``."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

import numpy

from spdnet import metrics
from spdnet.runs.confusion import ClassScore, Confusion
from spdnet.runs.record import Record
from spdnet.training import Choice

Part = Literal["train", "val", "test"]
PART_TITLES: dict[str, str] = {"train": "training", "val": "validation", "test": "test"}


@dataclass(frozen=True)
class Spread(Record):
    """Mean and standard deviation over repeats; ``std`` of a single value is None.

    ``values`` has one entry per repeat, None for a repeat that failed or was not run.

    Examples
    --------
    >>> from spdnet.runs.results import Spread
    >>> Spread.of([0.25, None, 0.75]).mean
    0.5
    >>> str(Spread.of([0.5]))
    '50.00'
    """

    mean: float
    std: float | None
    values: tuple[float | None, ...]

    @classmethod
    def of(cls, values: Sequence[float | None]) -> "Spread":
        """Compute mean and standard deviation of the values that are not None."""
        known = [value for value in values if value is not None]
        mean, std = metrics.spread(known)
        return cls(mean, std if len(known) > 1 else None, tuple(values))

    @property
    def known(self) -> list[float]:
        """The values that are not None."""
        return [value for value in self.values if value is not None]

    def percent(self, sign: str = "±") -> str:
        """Return text such as ``"97.10 ± 0.52"``."""
        text = f"{100 * self.mean:.2f}"
        return text if self.std is None else f"{text} {sign} {100 * self.std:.2f}"

    __str__ = percent


@dataclass(frozen=True)
class PartScore(Record):
    """Score on the training, validation or test set; ``groups`` is the number of its groups."""

    n: int
    loss: float
    accuracy: float
    groups: int | None = None


@dataclass(frozen=True)
class LayerSpectrum(Record):
    """Eigenvalues of the output of a layer in descending order: percentiles 5, 50 and 95.

    ``clipped`` is the fraction of the eigenvalues that a ReEig raised, None for other layers.
    """

    layer: str
    low: tuple[float, ...]
    median: tuple[float, ...]
    high: tuple[float, ...]
    clipped: float | None = None

    def __post_init__(self) -> None:
        if not len(self.low) == len(self.median) == len(self.high) > 0:
            raise ValueError(f"expected as many low as median and high values of {self.layer!r}")


@dataclass(frozen=True)
class Orthonormality(Record):
    """Shape of a Stiefel weight, and the largest entry of :math:`|W^T W - I|`."""

    layer: str
    shape: tuple[int, ...]
    gap: float


@dataclass(frozen=True)
class BaselineScore(Record):
    """Score of the log-Euclidean linear classifier, fitted to ``fitted`` training matrices."""

    name: str
    accuracy: dict[Part, float]
    fitted: int
    converged: bool
    seconds: float


@dataclass(frozen=True)
class StoredChoice(Choice, Record):
    """Contents of ``choice.json``: the members of the portfolio and their accuracies."""


@dataclass(frozen=True)
class BadTrials(Record):
    """Outlier trials of each part, as positions in the file.

    If ``dropped`` is true, those of the training and validation parts were removed.
    ``n_unscreened`` is the number of trials that were not screened, because their group is too
    small or channels are missing.
    """

    parts: dict[Part, tuple[int, ...]]
    dropped: bool
    n_unscreened: int


@dataclass(frozen=True)
class Seconds(Record):
    """Wall-clock time of the steps of a run."""

    training: float
    evaluation: float
    baseline: float | None = None


@dataclass(frozen=True, kw_only=True)
class Summary(Record):
    """Base class of the results of one or several trainings.

    ``scored`` is the part that the result refers to: the test set if there is one. ``chance`` is
    the accuracy of always predicting the most frequent class. ``linear`` states whether the network
    is a linear classifier, and ``structure`` describes why.
    """

    data: str
    signals: bool
    scored: Part
    chance: float
    classes: tuple[str, ...]
    confusion: Confusion
    network: str
    dims: tuple[int, ...]
    notes: tuple[str, ...] = ()
    linear: bool = False
    structure: str = ""

    def __post_init__(self) -> None:
        if self.confusion.n_classes != len(self.classes):
            raise ValueError(f"expected counts of {len(self.classes)} classes in confusion")


@dataclass(frozen=True, kw_only=True)
class RunResults(Summary):
    """Results of one training.

    ``spectra`` are those of the first ``spectra_of`` matrices of the scored part, and
    ``raised_in_training`` the fractions of the eigenvalues raised by the ReEigs for the first
    ``raised_of`` training matrices. ``choice`` states how the members of a portfolio were chosen.
    ``bad_trials`` are the outlier trials, if they were searched for.
    """

    parts: dict[Part, PartScore]
    per_class: tuple[ClassScore, ...]
    parameters: int
    epochs: int
    best_epoch: int
    seconds: Seconds
    matrices_per_second: float
    device: str
    orthonormality: tuple[Orthonormality, ...]
    spectra_of: int
    spectra: tuple[LayerSpectrum, ...]
    raised_in_training: tuple[float, ...]
    raised_of: int
    baseline: BaselineScore | None = None
    choice: StoredChoice | None = None
    bad_trials: BadTrials | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not {self.scored, "train"} <= self.parts.keys():
            raise ValueError(f"expected scores of train and {self.scored} in parts")
        if self.baseline is not None and self.baseline.accuracy.keys() != self.parts.keys():
            raise ValueError("expected baseline.accuracy of the same parts as in parts")

    @property
    def accuracy(self) -> float:
        """Accuracy on the part that is scored."""
        return self.parts[self.scored].accuracy

    @property
    def raised(self) -> list[float]:
        """Fraction of the eigenvalues that each ReEig raised, on the part that is scored."""
        return [layer.clipped for layer in self.spectra if layer.clipped is not None]


@dataclass(frozen=True)
class RepeatBaseline(Record):
    """Accuracy of the log-Euclidean linear classifier over the repeats."""

    name: str
    accuracy: Spread


@dataclass(frozen=True, kw_only=True)
class RepeatResults(Summary):
    """Results of several trainings with consecutive seeds."""

    seeds: tuple[int, ...]
    accuracy: Spread
    seconds: Spread
    baseline: RepeatBaseline | None

    def __post_init__(self) -> None:
        super().__post_init__()
        spreads = [self.accuracy, self.seconds]
        spreads += [] if self.baseline is None else [self.baseline.accuracy]
        if any(len(s.known) != len(self.seeds) for s in spreads):
            raise ValueError(f"expected a value for each of {len(self.seeds)} seeds")

    @classmethod
    def of(cls, runs: Sequence[RunResults], seeds: Sequence[int]) -> "RepeatResults":
        """Summarize the results of several trainings."""
        first = runs[0]
        found = {f.name: getattr(first, f.name) for f in fields(Summary)}
        for run in runs[1:]:
            found["confusion"] += run.confusion
        found["linear"] = all(run.linear for run in runs)
        found["structure"] = first.structure if len({r.structure for r in runs}) == 1 else ""
        found["chance"] = float(numpy.mean([run.chance for run in runs]))
        scores = [run.baseline.accuracy[first.scored] for run in runs if run.baseline is not None]
        baseline = None
        if first.baseline is not None and len(scores) == len(runs):
            baseline = RepeatBaseline(first.baseline.name, Spread.of(scores))
        return cls(
            **found,
            seeds=tuple(seeds),
            accuracy=Spread.of([run.accuracy for run in runs]),
            seconds=Spread.of([run.seconds.training for run in runs]),
            baseline=baseline,
        )
