"""What an experiment of the paper is: recipes as TOML files, and what a person may change."""

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from spdnet._checks import require_choice, require_count, require_number
from spdnet.data import Descriptor
from spdnet.options.option import check_options, document, same
from spdnet.options.run import RunOptions
from spdnet.paper.published import PUBLISHED

EXPERIMENTS = ("afew", "hdm05", "pasc", "no-logeig", "epsilon", "convergence")
PROTOCOLS = ("fixed", "random-halves", "verification")
SCORES = ("features", "logits")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One network of a table.

    Attributes
    ----------
    title : str
    dims : tuple of int
        For the data of the paper; others have theirs in the same ratios.
    paper : dict
        What the paper reports, in percent.
    eps : float, optional
    log : bool
        Whether the network has a LogEig.
    """

    title: str
    dims: tuple[int, ...]
    paper: dict[str, float]
    eps: float | None = None
    log: bool = True

    @property
    def is_timed(self) -> bool:
        """Whether it is the network of which the paper tells the time."""
        return len(self.dims) == 4 and self.log and self.eps in (None, 1e-4)

    def dims_for(self, n: int) -> tuple[int, ...]:
        """Sizes in the same ratios for matrices of size ``n``, never below 2."""
        if n == self.dims[0]:
            return self.dims
        return n, *(min(n, max(2, round(n * d / self.dims[0]))) for d in self.dims[1:])


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One data set with a protocol, and the rows of its table.

    Attributes
    ----------
    data : str
        A name of :data:`spdnet.paper.published.PUBLISHED`.
    protocol : {"fixed", "random-halves", "verification"}
    epochs, repeats : int
    minutes : float
        That an epoch of SPDNet-3BiRe takes in the paper.
    rows : tuple of Row
    baselines : tuple of dict
        ``method``, a name of :data:`METHODS`, and ``paper``.
    cited : tuple of dict
        ``title`` and ``paper`` of methods that are not run, and ``why``.
    """

    data: str
    protocol: str
    epochs: int
    minutes: float
    rows: tuple[Row, ...]
    repeats: int = 1
    baselines: tuple[dict[str, Any], ...] = ()
    cited: tuple[dict[str, Any], ...] = ()

    @property
    def descriptor(self) -> Descriptor:
        """Of sequences, where there are any."""
        return PUBLISHED[self.data].descriptor

    @property
    def measures(self) -> list[str]:
        """What is measured: the accuracy, or the verification rates of the tasks."""
        return [name for name in self.rows[0].paper if name != "std"]


@document()
@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """Settings of a reproduction: the experiment, and how it differs from the paper.

    Parameters
    ----------
    experiment : {"afew", "hdm05", "pasc", "no-logeig", "epsilon", "convergence"}
        Name of the experiment.
    standin : str, optional
        Other data in place of the paper's: ``digits``, ``generated``, or a file of sequences or of
        matrices.
    quick : bool
        Train for two epochs on a few sequences, to test that everything runs. The results are
        meaningless.
    baselines : bool
        Also run the other methods of the paper's table.
    classes : int, optional
        Number of classes to keep, those with the most sequences. Most later work on HDM05 uses 117.
    root : int, optional
        Joint that positions are relative to. Absolute positions if not given, as in the paper.
    clips : bool
        Whether training sequences are cut into clips.
    score : {"features", "logits"}
        What verification compares: the output of LogEig, or the logits.
    {options}

    Examples
    --------
    >>> from spdnet.paper import Reproduction
    >>> experiments = Reproduction(experiment="afew").experiments()
    >>> experiments[0].rows[-1].dims_for(93)
    (93, 46, 23, 12)
    """

    experiment: str
    standin: str | None = None
    quick: bool = False
    baselines: bool = False
    recipe: str = same(RunOptions, "recipe", detail="", default="paper")
    repeats: int | None = same(
        RunOptions, "repeat", default=None, unset="as in the paper, 10 for hdm05 and 1 for others"
    )
    epochs: int | None = same(
        RunOptions, "epochs", unset="as in the paper, 100 for pasc and 500 for others"
    )
    classes: int | None = None
    root: int | None = None
    clips: bool = True
    score: str = "features"
    seed: int = same(RunOptions, "seed")
    device: str = same(RunOptions, "device")
    dtype: str = same(RunOptions, "dtype")

    def __post_init__(self) -> None:
        who = "reproduce"
        require_choice(who, "experiment", self.experiment, EXPERIMENTS)
        require_choice(who, "score", self.score, SCORES)
        check_options(who, self)
        if self.classes is not None:
            require_number(who, "classes", self.classes, at_least=2)
            require_count(who, "classes", self.classes)

    @property
    def title(self) -> str:
        """Of the recipe."""
        return str(_read(self.experiment)["title"])

    def experiments(self) -> list[Experiment]:
        """The experiments of the recipe."""
        return [_experiment(table) for table in _read(self.experiment)["experiments"]]


def _read(name: str) -> dict[str, Any]:
    text = files("spdnet.paper").joinpath("experiments", f"{name}.toml").read_text("utf-8")
    return tomllib.loads(text)


def _experiment(table: dict[str, Any]) -> Experiment:
    rows = tuple(Row(**{**row, "dims": tuple(row["dims"])}) for row in table["rows"])
    lists = {name: tuple(table.get(name, ())) for name in ("baselines", "cited")}
    return Experiment(**{**table, **lists, "rows": rows})
