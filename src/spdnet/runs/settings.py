"""Settings of a run, from options or from a TOML file."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import tomli_w

from spdnet._checks import did_you_mean
from spdnet.models.registry import is_registered
from spdnet.options.option import check_options, document, options
from spdnet.options.run import EMBEDDED, TEST_SIZE, VAL_SIZE, RunOptions
from spdnet.training import RECIPES, Recipe
from spdnet.training.recipe import NETWORK_OPTIONS, find_recipe, taken

_LARGEST = 3.4e38  # largest float32 number
#: settings that do not affect the result
FREE = ("labels", "groups", "device", "jobs", "baseline")


@document
@dataclass(frozen=True, kw_only=True)
class Settings(RunOptions):
    """Settings of a run: data, network and training.

    Hyperparameters that are None have the value of the recipe.

    Parameters
    ----------
    {options}

    See Also
    --------
    spdnet.training.Recipe : The hyperparameters.
    spdnet.data.read : The formats of ``data``.
    spdnet.covariance.estimate : The covariance of signals.
    spdnet.data.clean : The treatment of matrices that are not SPD.

    Examples
    --------
    >>> from spdnet.runs import Settings
    >>> Settings(data="digits", lr=0.1).make_recipe().lr
    0.1
    """

    def __post_init__(self) -> None:
        who = "train"
        check_options(who, self)
        for name, value in asdict(self.make_recipe()).items():
            if self.dtype == "float32" and isinstance(value, int | float) and value > _LARGEST:
                raise ValueError(
                    f"{who}: expected {name} of at most {_LARGEST:g} with dtype float32, got "
                    f"{value!r}; use float64"
                )

    def make_recipe(self) -> Recipe:
        """Return the recipe, with the values that the settings replace."""
        return RECIPES[self.recipe_name].changed(**self._hyperparameters())

    @property
    def recipe_name(self) -> str:
        """Name of the recipe: ``auto`` is ``fast`` if an option of another network is given."""
        given = {name: getattr(self, name) for name in ("model", *NETWORK_OPTIONS)}
        return find_recipe(self.recipe, given)

    def changed(self, **settings: Any) -> "Settings":
        """Return the settings with changes."""
        return replace(self, **settings)

    def fractions(self, *, named_parts: bool) -> dict[str, float]:
        """Return the test and validation fractions; 0 by default if the data have a split.

        A portfolio is chosen by cross-validation within the training set, and has no validation set
        by default.
        """
        test, val = (0.0, 0.0) if named_parts else (TEST_SIZE, VAL_SIZE)
        if self.recipe_name == "auto":
            val = 0.0
        return {
            "test": test if self.test is None else self.test,
            "val": val if self.val is None else self.val,
        }

    def with_absolute_paths(self) -> "Settings":
        """Return the settings with absolute paths."""
        given = {name: path for name, path in self.paths().items() if path is not None}
        if self.data in EMBEDDED:
            del given["data"]
        return self.changed(**{name: str(Path(path).resolve()) for name, path in given.items()})

    def as_dict(self) -> dict[str, Any]:
        """Return the settings that are not None, with those of the recipe filled in.

        Settings that the model does not have are omitted. For a model that is not registered,
        network settings that are not given are omitted.
        """
        recipe = self.make_recipe()
        filled = {name: getattr(recipe, name) for name in self._hyperparameters()}
        nothing = {name: "none" for name, value in filled.items() if value is None}
        settings = {**asdict(self), **filled, **nothing}
        if not is_registered(recipe.model):  # the class may not have been imported
            settings |= {name: getattr(self, name) for name in NETWORK_OPTIONS}
        else:
            settings |= dict.fromkeys(NETWORK_OPTIONS.keys() - set(taken(recipe.model)))
        return {name: value for name, value in settings.items() if value is not None}

    def identity(self, digest: str) -> dict[str, Any]:
        """Return the settings that affect the result; a digest identifies the data."""
        plain = {**json.loads(json.dumps(self.as_dict())), "data": digest}
        return {name: value for name, value in plain.items() if name not in FREE}

    def paths(self) -> dict[str, Any]:
        """Return the paths of the data."""
        return {name: getattr(self, name) for name in ("data", "labels", "groups")}

    def to_toml(self) -> str:
        """Return the settings as TOML, for ``spdnet train --settings``."""
        return tomli_w.dumps(self.as_dict())

    def _hyperparameters(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name, found in options(self).items() if found.recipes}


def from_mapping(values: Mapping[str, Any], where: str) -> Settings:
    """Construct settings from values by name; raise an error for unknown names."""
    names = [field.name for field in fields(Settings)]
    values = {name.replace("-", "_"): value for name, value in values.items()}
    for name in values:
        if name not in names:
            hint = did_you_mean(name, names) or f"; known are {', '.join(names)}"
            raise ValueError(f"train: expected settings in {where}, got {name!r}{hint}")
    if "data" not in values:
        raise ValueError(
            f"train: expected data: the name {' or '.join(map(repr, EMBEDDED))}, a .npz or .npy "
            "file or a folder, got none"
        )
    return Settings(**values)


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a TOML file of settings."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"train: expected a TOML file of settings at {path}, got none")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"train: expected a TOML file of settings, but {path}: {error}") from error
