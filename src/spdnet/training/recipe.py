"""Recipes: all settings of a training under one name."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from spdnet._checks import (
    require_choice,
    require_count,
    require_number,
    require_threshold,
)
from spdnet.manifolds import METRICS
from spdnet.models.spdnet import HEADS, NORMS
from spdnet.optim import RiemannianAdam, RiemannianSGD

#: by the names of their classes
MODELS = {"spdnet": "SPDNet", "multibranch": "MultiBranchSPDNet", "tsmnet": "TSMNet"}
OPTIMIZERS = ("adam", "sgd")
SCHEDULES = ("constant", "cosine")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a network is built and trained.

    Parameters
    ----------
    optimizer : {"adam", "sgd"}
        :class:`spdnet.optim.RiemannianAdam` or :class:`spdnet.optim.RiemannianSGD`.
    lr : float
        Learning rate at the start.
    schedule : {"constant", "cosine"}
        Keep the learning rate, or let it fall to zero along half a cosine.
    batch_size, epochs : int
    eps : float or str
        Threshold of the ReEigs: see :class:`spdnet.nn.ReEig`.
    center : {"log_euclidean", "affine_invariant"} or None
        Mean of the training data that becomes the identity: see :class:`spdnet.nn.Center`.
    bias : bool
        Whether the classifier has a bias. Centred data need one: their logarithms are near zero, so
        that without it rare classes are as probable as frequent ones.
    momentum : float
        Of SGD.
    weight_decay : float
        Of all weights but those of BiMaps.
    label_smoothing : float
        Part of the target that is spread over all classes in training: small data sets are learnt
        by heart, and this keeps the network from being sure of it.
    model : {"spdnet", "multibranch", "tsmnet"}
        :class:`spdnet.SPDNet`, :class:`spdnet.models.MultiBranchSPDNet`, or
        :class:`spdnet.models.TSMNet`, which takes signals instead of matrices, and of the settings
        of the network only ``eps``.
    norm : {"brooks", "log_euclidean", "affine_invariant", "log_cholesky"} or None
        Batch normalisation after each BiMap: see :class:`spdnet.SPDNet`.
    head : str
        Classifier, ``"linear"`` or a metric: see :class:`spdnet.SPDNet`.
    log : bool
        False leaves LogEig out of SPDNet, the paper's ablation.

    Examples
    --------
    >>> from spdnet.training import RECIPES
    >>> RECIPES["paper"].lr
    0.01
    """

    optimizer: str
    lr: float
    schedule: str
    batch_size: int
    epochs: int
    eps: float | str
    center: str | None
    bias: bool
    momentum: float = 0.0
    weight_decay: float = 0.0
    label_smoothing: float = 0.0
    model: str = "spdnet"
    norm: str | None = None
    head: str = "linear"
    log: bool = True

    def __post_init__(self) -> None:
        who = "Recipe"
        require_choice(who, "optimizer", self.optimizer, OPTIMIZERS)
        require_number(who, "lr", self.lr, at_least=0)
        require_choice(who, "schedule", self.schedule, SCHEDULES)
        require_count(who, "batch_size", self.batch_size)
        require_count(who, "epochs", self.epochs)
        require_threshold(who, self.eps)
        if self.center is not None:
            require_choice(who, "center", self.center, METRICS)
        require_choice(who, "model", self.model, MODELS)
        if self.norm is not None:
            require_choice(who, "norm", self.norm, NORMS)
        require_choice(who, "head", self.head, HEADS)
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
        require_number(who, "label_smoothing", self.label_smoothing, at_least=0, below=1)
        require_number(who, "momentum", self.momentum, at_least=0)
        require_number(who, "weight_decay", self.weight_decay, at_least=0)
        if self.optimizer == "adam" and self.momentum:
            raise ValueError(
                f"{who}: expected momentum = 0 with optimizer='adam', which has its own, got "
                f"{self.momentum}; choose optimizer='sgd' or leave it out"
            )

    def changed(self, **settings: Any) -> "Recipe":
        """The recipe with other settings, where they are not None.

        ``center="none"`` does not centre, ``norm="none"`` does not normalise.
        """
        unknown = set(settings) - {field.name for field in fields(self)}
        if unknown:
            raise TypeError(f"Recipe: expected settings of a recipe, got {sorted(unknown)}")
        given = {name: value for name, value in settings.items() if value is not None}
        for name in ("center", "norm"):
            if given.get(name) == "none":
                given[name] = None
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


RECIPES = {
    "default": Recipe(
        optimizer="adam",
        lr=0.01,
        schedule="cosine",
        batch_size=30,
        epochs=60,
        eps=1e-4,
        center="log_euclidean",
        bias=True,
        label_smoothing=0.1,
    ),
    # its settings, and the gradient of the released code: Eq. 7 as printed is another
    "paper": Recipe(
        optimizer="sgd",
        lr=0.01,
        schedule="constant",
        batch_size=30,
        epochs=500,
        eps=1e-4,
        center=None,
        bias=False,
    ),
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
