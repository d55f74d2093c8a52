"""What an experiment of the paper is: recipes as TOML files, and what a person may change."""

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from spdnet._checks import require_choice, require_count, require_number
from spdnet.datasets import Descriptor
from spdnet.datasets.published import PUBLISHED
from spdnet.experiments.settings import DTYPES
from spdnet.training import RECIPES

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
        A name of :data:`spdnet.datasets.published.PUBLISHED`.
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
        return [name for name in self.rows[0].paper if name != "deviation"]


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """What to reproduce, and how it differs from the paper.

    Parameters
    ----------
    experiment : {"afew", "hdm05", "pasc", "no-logeig", "epsilon", "convergence"}
    standin : str, optional
        Other data in place of the paper's: ``digits``, ``generated``, or a file of sequences or of
        matrices.
    quick : bool
        Two epochs on a few sequences: to see that everything runs. The figures mean nothing.
    baselines : bool
        Also run the other methods of the paper's table.
    recipe : {"paper", "default"}
        The training of the paper, or that of ``spdnet train``.
    repeats, epochs : int, optional
        Instead of those of the paper.
    classes : int, optional
        Keep so many classes, those with the most sequences: 117 is what most later work uses of
        HDM05.
    root : int, optional
        Joint that positions are relative to; those of the paper are absolute as far as it tells.
    clips : bool
        Whether training sequences are cut into clips.
    score : {"features", "logits"}
        What pairs are compared by in verification: what LogEig gives, or the outputs.
    seed : int
    device : str
    dtype : {"float64", "float32"}

    Examples
    --------
    >>> from spdnet.experiments import Reproduction
    >>> experiments = Reproduction(experiment="afew").experiments()
    >>> experiments[0].rows[-1].dims_for(93)
    (93, 46, 23, 12)
    """

    experiment: str
    standin: str | None = None
    quick: bool = False
    baselines: bool = False
    recipe: str = "paper"
    repeats: int | None = None
    epochs: int | None = None
    classes: int | None = None
    root: int | None = None
    clips: bool = True
    score: str = "features"
    seed: int = 0
    device: str = "auto"
    dtype: str = "float64"

    def __post_init__(self) -> None:
        who = "reproduce"
        require_choice(who, "experiment", self.experiment, EXPERIMENTS)
        require_choice(who, "recipe", self.recipe, RECIPES)
        require_choice(who, "score", self.score, SCORES)
        require_choice(who, "dtype", self.dtype, DTYPES)
        for name in ("repeats", "epochs"):
            if getattr(self, name) is not None:
                require_count(who, name, getattr(self, name))
        if self.classes is not None:
            require_number(who, "classes", self.classes, at_least=2)
            require_count(who, "classes", self.classes)
        if type(self.seed) is not int or not 0 <= self.seed < 2**31:
            raise ValueError(
                f"{who}: expected seed to be a whole number from 0 to 2147483647, got {self.seed!r}"
            )

    @property
    def title(self) -> str:
        """Of the recipe."""
        return str(_read(self.experiment)["title"])

    def experiments(self) -> list[Experiment]:
        """The experiments of the recipe."""
        return [_experiment(table) for table in _read(self.experiment)["experiments"]]


def _read(name: str) -> dict[str, Any]:
    text = files("spdnet.experiments").joinpath("recipes", f"{name}.toml").read_text("utf-8")
    return tomllib.loads(text)


def _experiment(table: dict[str, Any]) -> Experiment:
    rows = tuple(Row(**{**row, "dims": tuple(row["dims"])}) for row in table["rows"])
    lists = {name: tuple(table.get(name, ())) for name in ("baselines", "cited")}
    return Experiment(**{**table, **lists, "rows": rows})
