"""Everything that a run can be told, from flags or from a TOML file."""

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from spdnet._checks import (
    did_you_mean,
    require_choice,
    require_count,
    require_number,
    require_shrinking,
)
from spdnet.covariance import ESTIMATORS
from spdnet.datasets import load_digits_spd
from spdnet.datasets.examine import REMEDIES
from spdnet.manifolds import METRICS
from spdnet.models.spdnet import NORMS
from spdnet.training import RECIPES, Recipe

#: data sets that have a name instead of a file
EMBEDDED = {"digits": load_digits_spd}
DTYPES = ("float64", "float32")
_LARGEST = 3.4e38  # that float32 holds
#: held out where the data do not name their parts
FRACTIONS = {"test": 0.2, "val": 0.1}
#: settings that may be "none"
_WITH_NONE: dict[str, Iterable[str]] = {
    "center": METRICS,
    "norm": NORMS,
    "class_weight": ("balanced",),
}
#: settings that do not decide the result
_FREE = ("labels", "groups", "device", "baseline")
#: settings that a recipe has and a run may replace
OF_THE_RECIPE = (
    "epochs",
    "batch_size",
    "lr",
    "schedule",
    "optimizer",
    "momentum",
    "weight_decay",
    "label_smoothing",
    "eps",
    "center",
    "model",
    "norm",
    "head",
    "log",
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What to train on what, and how.

    Parameters
    ----------
    data : str
        ``"digits"``, or a file or folder: see :func:`spdnet.datasets.read`.
    labels : str, optional
        File of labels for a ``.npy`` file.
    groups : str, optional
        File of groups, such as subjects, for data that have none with them.
    signals : bool
        Take square ``X`` for signals; ``X`` that is not square is taken for signals anyway.
    estimator, reg
        How covariances of signals are estimated: see :func:`spdnet.covariance.estimate`.
    bad : {"refuse", "drop", "repair"}
        What to do with matrices that are not SPD: see :func:`spdnet.datasets.treat`.
    recipe : {"default", "paper"}
        Gives the settings from ``epochs`` to ``log`` that are None.
    epochs, batch_size, lr, schedule, optimizer, momentum, weight_decay, label_smoothing, eps, model
        See :class:`spdnet.training.Recipe`.
    center, norm : str, optional
        See :class:`spdnet.training.Recipe`; ``center="none"`` does not centre, ``norm="none"`` does
        not normalise.
    head : str, optional
        See :class:`spdnet.training.Recipe`.
    log : bool, optional
        See :class:`spdnet.training.Recipe`.
    class_weight : {"balanced", "none"}, optional
        With ``"balanced"`` the classes count alike in the loss of training and validation, however
        many matrices each has; the baseline beside it has no weights.
    dims : sequence of int, optional
        Sizes of the matrices, the input's included; chosen from the data when not given.
    seed : int
        Of the random parts, the initial weights and the order of the batches.
    device : str
        ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:1"``.
    dtype : {"float64", "float32"}
    test, val : float, optional
        Parts of the data that are held out: ``test`` for the result, then ``val``, of what is left,
        to choose the best epoch. 0.2 and 0.1 when not given; none if the data name their parts
        themselves. Parts that the data name are taken as they are.
    patience : int, optional
        Stop after so many epochs without a lower validation loss.
    repeat : int
        Train so often, each time with the next seed, and give mean and deviation.
    baseline : bool
        Fit the log-Euclidean linear baseline beside the network.

    Examples
    --------
    >>> from spdnet.experiments import Settings
    >>> Settings(data="digits", lr=0.1).make_recipe().lr
    0.1
    """

    data: str
    labels: str | None = None
    groups: str | None = None
    signals: bool = False
    estimator: str = "sample"
    reg: float = 1e-3
    bad: str = "refuse"
    recipe: str = "default"
    epochs: int | None = None
    batch_size: int | None = None
    lr: float | None = None
    schedule: str | None = None
    optimizer: str | None = None
    momentum: float | None = None
    weight_decay: float | None = None
    label_smoothing: float | None = None
    eps: float | str | None = None
    center: str | None = None
    model: str | None = None
    norm: str | None = None
    head: str | None = None
    log: bool | None = None
    class_weight: str | None = None
    dims: tuple[int, ...] | None = None
    seed: int = 0
    device: str = "auto"
    dtype: str = "float64"
    test: float | None = None
    val: float | None = None
    patience: int | None = None
    repeat: int = 1
    baseline: bool = True

    def __post_init__(self) -> None:
        who = "train"
        for name, kind in (("data", str), ("device", str), ("signals", bool), ("baseline", bool)):
            if not isinstance(getattr(self, name), kind):
                raise TypeError(
                    f"{who}: expected {name} to be {'text' if kind is str else 'true or false'}, "
                    f"got {getattr(self, name)!r}"
                )
        for name in ("labels", "groups"):
            if not isinstance(getattr(self, name), str | None):
                raise TypeError(f"{who}: expected {name} to be a path, got {getattr(self, name)!r}")
        for name in ("data", "labels", "groups"):
            path = getattr(self, name) or ""
            if "\0" in path or not _is_text(path):
                raise ValueError(
                    f"{who}: expected {name} to be a path in UTF-8, which settings can hold, got "
                    f"{path!r}; rename it"
                )
        for name in ("epochs", "batch_size", "patience", "repeat"):
            value = getattr(self, name)
            if isinstance(value, int) and value >= 2**31:
                raise ValueError(f"{who}: expected {name} of at most 2147483647, got {value}")
        require_choice(who, "estimator", self.estimator, ESTIMATORS)
        require_number(who, "reg", self.reg, at_least=0)
        require_choice(who, "bad", self.bad, REMEDIES)
        require_choice(who, "recipe", self.recipe, RECIPES)
        require_choice(who, "dtype", self.dtype, DTYPES)
        for name, choices in _WITH_NONE.items():
            if getattr(self, name) is not None:
                require_choice(who, name, getattr(self, name), (*choices, "none"))
        for name in FRACTIONS:
            if getattr(self, name) is not None:
                require_number(who, name, getattr(self, name), at_least=0, below=1)
        if type(self.seed) is not int or not 0 <= self.seed < 2**31:
            raise ValueError(
                f"{who}: expected seed to be a whole number from 0 to 2147483647, got {self.seed!r}"
            )
        require_count(who, "repeat", self.repeat)
        if self.patience is not None:
            require_count(who, "patience", self.patience)
        if self.dims is not None:
            object.__setattr__(self, "dims", require_shrinking(who, self.dims))
        recipe = self.make_recipe()  # complains about what is wrong with its settings
        for name in ("eps", "lr", "momentum", "weight_decay"):
            value = getattr(recipe, name)
            if self.dtype == "float32" and not isinstance(value, str) and value > _LARGEST:
                raise ValueError(
                    f"{who}: expected {name} of at most {_LARGEST:g} with dtype float32, got "
                    f"{value!r}; use float64"
                )

    def make_recipe(self) -> Recipe:
        """The recipe with the settings that replace its own."""
        changes = {name: getattr(self, name) for name in OF_THE_RECIPE}
        return RECIPES[self.recipe].changed(**changes)

    def replaces(self, name: str) -> bool:
        """Whether a setting is another than that of the recipe."""
        value = getattr(self, name)
        return value is not None and value != getattr(RECIPES[self.recipe], name)

    def fractions(self, *, named_parts: bool) -> dict[str, float]:
        """What to hold out for ``test`` and ``val``."""
        given = {name: getattr(self, name) for name in FRACTIONS}
        return {
            name: (0.0 if named_parts else FRACTIONS[name]) if value is None else value
            for name, value in given.items()
        }

    def with_absolute_paths(self) -> "Settings":
        """The same from every working directory."""
        data = self.data if self.data in EMBEDDED else str(Path(self.data).resolve())
        labels = None if self.labels is None else str(Path(self.labels).resolve())
        groups = None if self.groups is None else str(Path(self.groups).resolve())
        return replace(self, data=data, labels=labels, groups=groups)

    def as_dict(self) -> dict[str, Any]:
        """The settings that are not None, with those of the recipe filled in."""
        recipe = self.make_recipe()
        filled = {name: getattr(recipe, name) for name in OF_THE_RECIPE}
        nothing = {name: "none" for name in ("center", "norm") if filled[name] is None}
        settings = {**asdict(self), **filled, **nothing}
        return {name: value for name, value in settings.items() if value is not None}

    def identity(self, digest: str) -> dict[str, Any]:
        """Return the settings that decide the result, as plain values.

        The data are identified by the digest of their contents, wherever they lie.
        """
        plain = {**json.loads(json.dumps(self.as_dict())), "data": digest}
        return {name: value for name, value in plain.items() if name not in _FREE}

    def paths(self) -> dict[str, Any]:
        """Return the settings that say where the data lie."""
        return {name: getattr(self, name) for name in ("data", "labels", "groups")}

    def to_toml(self) -> str:
        """A TOML file with everything said, as ``spdnet train --settings`` reads it."""
        return "".join(
            f"{name} = {json.dumps(value, ensure_ascii=False)}\n"
            for name, value in self.as_dict().items()
        )


def from_mapping(values: Mapping[str, Any], where: str) -> Settings:
    """Settings by name; an unknown name is an error that suggests the nearest one."""
    names = [field.name for field in fields(Settings)]
    values = {name.replace("-", "_"): value for name, value in values.items()}
    for name in values:
        if name not in names:
            hint = did_you_mean(name, names) or f"; known are {', '.join(names)}"
            raise ValueError(f"train: expected settings in {where}, got {name!r}{hint}")
    if "data" not in values:
        raise ValueError(
            "train: expected data: the name 'digits', a .npz or .npy file or a folder, got none"
        )
    return Settings(**values)


def read_toml(path: str | Path) -> dict[str, Any]:
    """The settings in a TOML file, by name."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"train: expected a TOML file of settings at {path}, got none")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"train: expected a TOML file of settings, but {path}: {error}") from error


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
