"""Experiments of the paper, described by TOML files, and the settings of a reproduction."""

import tomllib
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Literal

from spdnet._checks import require_number
from spdnet.options.option import check_options, document
from spdnet.options.run import ReproduceOptions
from spdnet.runs.record import Record


@dataclass(frozen=True)
class Row(Record):
    """One network of a table.

    ``dims`` are those for the data of the paper; ``paper`` has the reported scores, in percent.
    """

    title: str
    dims: tuple[int, ...]
    paper: dict[str, float]
    eps: float | None = None
    log: bool = True

    @property
    def is_timed(self) -> bool:
        """Whether the paper reports the time of this network."""
        return len(self.dims) == 4 and self.log and self.eps in (None, 1e-4)

    def dims_for(self, n: int) -> tuple[int, ...]:
        """Return sizes in the same ratios for matrices of size ``n``, at least 2."""
        if n == self.dims[0]:
            return self.dims
        return n, *(min(n, max(2, round(n * d / self.dims[0]))) for d in self.dims[1:])


@dataclass(frozen=True)
class Cited(Record):
    """A method of a table that is not run, and the reason."""

    title: str
    paper: dict[str, float]
    why: str


@dataclass(frozen=True)
class Experiment(Record):
    """One data set of :data:`spdnet.paper.published.PUBLISHED`, a protocol, and a table.

    ``minutes`` is the time of an epoch of SPDNet-3BiRe in the paper. ``baselines`` maps names in
    :data:`spdnet.runs.methods.METHODS` to the scores in the paper.
    """

    data: str
    protocol: Literal["fixed", "random-halves", "verification"]
    epochs: int
    minutes: float
    rows: tuple[Row, ...]
    repeats: int = 1
    baselines: dict[str, dict[str, float]] = field(default_factory=dict)
    cited: tuple[Cited, ...] = ()

    @property
    def measures(self) -> list[str]:
        """The accuracy, or the verification rates of the tasks."""
        return [name for name in self.rows[0].paper if name != "std"]


@document
@dataclass(frozen=True, kw_only=True)
class Reproduction(ReproduceOptions):
    """Settings of a reproduction: the experiment, and how it differs from the paper.

    Parameters
    ----------
    {options}

    Examples
    --------
    >>> from spdnet.paper import Reproduction
    >>> experiments = Reproduction(experiment="afew").experiments()
    >>> experiments[0].rows[-1].dims_for(93)
    (93, 46, 23, 12)
    """

    def __post_init__(self) -> None:
        who = "reproduce"
        check_options(who, self)
        if self.classes is not None:
            require_number(who, "classes", self.classes, at_least=2)

    @property
    def title(self) -> str:
        """Title of the experiment."""
        return _describe(self.experiment).title

    def experiments(self) -> tuple[Experiment, ...]:
        """Return the parts of the experiment, one for each data set."""
        return _describe(self.experiment).experiments


@dataclass(frozen=True)
class _Description(Record):
    """Contents of a TOML file."""

    title: str
    experiments: tuple[Experiment, ...]


def _describe(name: str) -> _Description:
    file = files("spdnet.paper").joinpath("experiments", f"{name}.toml")
    return _Description.from_json(tomllib.loads(file.read_text("utf-8")), file.name)
