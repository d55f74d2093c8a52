"""Recipes: all settings of a training under one name."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from spdnet._checks import require_count
from spdnet.optim import RiemannianAdam, RiemannianSGD
from spdnet.options.option import RECIPE_NAMES, check_options, document, options
from spdnet.options.recipe import RecipeOptions

#: classes of the networks
MODELS = {"spdnet": "SPDNet", "multibranch": "MultiBranchSPDNet", "tsmnet": "TSMNet"}


@document()
@dataclass(frozen=True, kw_only=True)
class Recipe(RecipeOptions):
    """Hyperparameters of the network and of its training.

    The defaults are those of ``RECIPES["default"]``. ``"none"`` is stored as None.

    Parameters
    ----------
    {options}

    See Also
    --------
    spdnet.SPDNet : The network, with ``norm``, ``head`` and ``log``.
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
        if not self.log and (self.model, self.head) != ("spdnet", "linear"):
            raise ValueError(
                f"{who}: expected model='spdnet' and head='linear' without LogEig, got "
                f"model={self.model!r}, head={self.head!r}"
            )
        own = (self.center, self.norm, self.head)
        if self.takes_signals and own != (None, None, "linear"):
            raise ValueError(
                f"{who}: expected no center, no norm and head='linear' with model='tsmnet', which "
                f"has its own, got center={self.center!r}, norm={self.norm!r}, head={self.head!r}"
            )
        if self.optimizer == "adam" and self.momentum:
            raise ValueError(
                f"{who}: expected momentum = 0 with optimizer='adam', which has its own, got "
                f"{self.momentum}; choose optimizer='sgd' or leave it out"
            )

    def changed(self, **settings: Any) -> "Recipe":
        """Return the recipe with other settings, where they are not None.

        ``center="none"`` does not centre, ``norm="none"`` does not normalise.
        """
        unknown = set(settings) - {field.name for field in fields(self)}
        if unknown:
            raise TypeError(f"Recipe: expected settings of a recipe, got {sorted(unknown)}")
        given = {name: value for name, value in settings.items() if value is not None}
        if given.get("model", self.model) == "tsmnet":
            given.setdefault("center", None)  # that of the recipe is for matrices
        return replace(self, **given)

    @property
    def takes_signals(self) -> bool:
        """Whether the network takes signals ``(N, channels, T)`` instead of matrices."""
        return self.model == "tsmnet"

    @property
    def network(self) -> str:
        """The network in words, such as ``SPDNet, norm brooks``."""
        norm = "" if self.norm is None else f", norm {self.norm}"
        head = "" if self.head == "linear" else f", head {self.head}"
        return MODELS[self.model] + norm + head + ("" if self.log else ", no LogEig")

    def choose_dims(self, n: int) -> tuple[int, ...]:
        """Sizes of the matrices for data of ``n`` features or channels: see the function."""
        return (40, 20) if self.takes_signals else choose_dims(n)

    def make_optimizer(
        self, params: Iterable[torch.nn.Parameter], *, capturable: bool = False
    ) -> torch.optim.Optimizer:
        """The optimiser of the recipe; with ``capturable`` for steps in a CUDA graph."""
        if self.optimizer == "adam":
            return RiemannianAdam(
                params, lr=self.lr, weight_decay=self.weight_decay, capturable=capturable
            )
        return RiemannianSGD(
            params, lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay
        )


#: "paper" has the settings of the paper, and the gradient of the released code: Eq. 7 as printed
#: is another
RECIPES = {
    recipe: Recipe(**{name: found.recipes[recipe] for name, found in options(Recipe).items()})
    for recipe in RECIPE_NAMES
}


def choose_dims(n: int, n_bimaps: int = 2) -> tuple[int, ...]:
    """Sizes of the matrices from input to LogEig, for data of size ``n``.

    Matrices of up to 64 keep their size; larger ones shrink to 64 in equal ratios, because the
    logarithm of a larger matrix has more entries than a linear classifier makes use of. A square
    BiMap commutes with the logarithm: where no ReEig between them clips, such a network is a linear
    classifier on logarithms.

    Parameters
    ----------
    n : int
    n_bimaps : int
        None of them: the input alone.

    Examples
    --------
    >>> from spdnet.training import choose_dims
    >>> choose_dims(17)
    (17, 17, 17)
    >>> choose_dims(400), choose_dims(400, 3)
    ((400, 160, 64), (400, 217, 118, 64))
    """
    require_count("choose_dims", "n", n)
    ratio = min(n, 64) / n
    return n, *(round(n * ratio ** (i / n_bimaps)) for i in range(1, n_bimaps + 1))
