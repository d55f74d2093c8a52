"""Recipes: named sets of hyperparameters."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from spdnet.models.model import get_trait
from spdnet.models.registry import class_name, find_model, is_registered
from spdnet.optim import RiemannianAdam, RiemannianSGD
from spdnet.options.option import NETWORK, RECIPE_NAMES, check_options, document, options
from spdnet.options.recipe import RecipeOptions
from spdnet.options.run import RunOptions


@document
@dataclass(frozen=True, kw_only=True)
class Recipe(RecipeOptions):
    """Hyperparameters of the network and of its training.

    The defaults are those of ``RECIPES["fast"]``. ``"none"`` is stored as None.

    Parameters
    ----------
    {options}

    See Also
    --------
    spdnet.SPDNet : The network, with ``norm``, ``head``, ``hidden``, ``dropout`` and ``log``.
    spdnet.nn.ReEig : The meaning of ``eps``.
    spdnet.nn.Center : The meaning of ``center``.
    spdnet.optim.RiemannianAdam, spdnet.optim.RiemannianSGD : The optimizers.

    Examples
    --------
    >>> from spdnet.training import RECIPES
    >>> RECIPES["paper"].lr
    0.01
    """

    def __post_init__(self) -> None:
        who = "Recipe"
        check_options(who, self)
        for name in options(self):
            if getattr(self, name) == "none":
                object.__setattr__(self, name, None)
        if not self.log and self.head not in ("linear", "mlp"):
            raise ValueError(
                f"{who}: expected head='linear' or 'mlp' without LogEig, got head={self.head!r}"
            )
        if is_registered(self.model):
            neutral = {n: o.neutral for n, o in options(self).items() if o.neutral is not ...}
            given = {n: getattr(self, n) for n in neutral if getattr(self, n) != neutral[n]}
            require_taken(who, self.model, given)
            has_no_mlp = "head" in taken(self.model) and self.head != "mlp"
            if unused := [name for name in ("hidden", "dropout") if has_no_mlp and name in given]:
                raise ValueError(
                    f"{who}: expected no {unused[0]} with head={self.head!r}, got {unused[0]}="
                    f"{given[unused[0]]!r}; omit it, or choose head='mlp'"
                )
        if self.optimizer == "adam" and self.momentum:
            raise ValueError(
                f"{who}: expected momentum = 0 with optimizer='adam', which has its own, got "
                f"{self.momentum}; choose optimizer='sgd' or omit it"
            )

    def changed(self, **settings: Any) -> "Recipe":
        """Return the recipe with other settings; None keeps a value, ``"none"`` sets None.

        Raise an error for hyperparameters that a registered model does not have.
        """
        unknown = set(settings) - {field.name for field in fields(self)}
        if unknown:
            raise TypeError(f"Recipe: expected settings of a recipe, got {sorted(unknown)}")
        given = {name: value for name, value in settings.items() if value is not None}
        model = given.get("model", self.model)
        if is_registered(model):
            require_taken("Recipe", model, given)
        if is_registered(model) and model != self.model:
            own = get_trait(find_model(model), "hyperparameters")
            for name in NETWORK_OPTIONS.keys() - given.keys() - set(own) - {"dims"}:
                found = NETWORK_OPTIONS[name]
                if found.neutral is not ... and getattr(self, name) in found.recipes.values():
                    given[name] = found.neutral  # the recipe's value is for other models
        return replace(self, **given)

    @property
    def takes_signals(self) -> bool:
        """Whether the network takes signals ``(N, channels, T)`` instead of matrices."""
        return bool(get_trait(find_model(self.model), "takes") == "signals")

    @property
    def uses_domains(self) -> bool:
        """Whether the network uses domains."""
        return self.norm == "domain" or bool(get_trait(find_model(self.model), "uses_domains"))

    @property
    def network(self) -> str:
        """Description of the network, such as ``SPDNet, norm brooks``."""
        parts = [class_name(self.model)]
        if self.needs_choice:
            return f"{parts[0]}, members not chosen yet"
        if self.members is not None:  # such as log, all (2 of each)
            times = math.ceil(self.ensemble / len(self.members))
            each = " of each" if len(self.members) > 1 else " networks"
            return ", ".join((*parts, *self.members)) + (f" ({times}{each})" if times > 1 else "")
        if is_registered(self.model):
            parts += [] if self.norm is None else [f"norm {self.norm}"]
            parts += [] if self.head == "linear" else [f"head {self.head}"]
            parts += [] if self.log else ["no LogEig"]
        parts += [] if self.ensemble == 1 else [f"{self.ensemble} networks"]
        return ", ".join(parts)

    @property
    def needs_choice(self) -> bool:
        """Whether the members of a portfolio still have to be chosen."""
        return self.members == "auto"

    def make_optimizer(
        self, params: Iterable[Any], *, capturable: bool = False
    ) -> torch.optim.Optimizer:
        """Construct the optimizer; with ``capturable``, for steps in a CUDA graph."""
        if self.optimizer == "adam":
            return RiemannianAdam(
                params,
                lr=self.lr,
                weight_decay=self.weight_decay,
                capturable=capturable,
                fused=True,
            )
        return RiemannianSGD(
            params, lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay
        )


#: options of the network, which not all models have
NETWORK_OPTIONS = {
    name: found
    for name, found in options(RunOptions).items()
    if found.panel == NETWORK and name not in ("model", "recipe")
}


def require_taken(who: str, model: str, given: Mapping[str, Any]) -> None:
    """Raise an error if a given hyperparameter of the network is not one of the model."""
    names = taken(model)
    for name, value in given.items():
        if name in NETWORK_OPTIONS and name not in names and _is_given(name, value):
            own = ", ".join(name for name in names if name in NETWORK_OPTIONS)
            raise ValueError(
                f"{who}: expected no {name} with model={model!r}, which has only {own}, got "
                f"{name}={value!r}; omit it"
            )


def taken(model: str) -> tuple[str, ...]:
    """Return the hyperparameters of the network that a model has; all have ``ensemble``."""
    names: tuple[str, ...] = get_trait(find_model(model), "hyperparameters")
    return names if "ensemble" in names else (*names, "ensemble")


def find_recipe(name: str, given: Mapping[str, Any]) -> str:
    """Return the name of the recipe for given options.

    ``auto`` chooses the network. It becomes ``fast`` if another network, or an option of one, is
    given.
    """
    if name != "auto":
        return name
    if given.get("model") is not None:
        return "auto" if given["model"] == RECIPES["auto"].model else "fast"
    others = NETWORK_OPTIONS.keys() - taken(RECIPES["auto"].model)
    return "fast" if any(_is_given(name, given.get(name)) for name in others) else "auto"


def _is_given(name: str, value: Any) -> bool:
    """Return whether a value is neither None nor the neutral one that all models accept."""
    neutral = NETWORK_OPTIONS[name].neutral
    return value not in (None, "none" if neutral is None else neutral)


#: Recipes by name. "paper" has the settings of the paper, and the gradient of the released code,
#: which differs from Eq. 7 as printed.
RECIPES = {
    recipe: Recipe(**{name: found.recipes[recipe] for name, found in options(Recipe).items()})
    for recipe in RECIPE_NAMES
}
