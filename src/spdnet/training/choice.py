"""Choice of the members of a portfolio by cross-validation within the training set."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy
import torch
from numpy.typing import NDArray

from spdnet.data.split import assign_folds
from spdnet.models.members import MEMBERS
from spdnet.training.data import Samples
from spdnet.training.evaluation import run_in_chunks
from spdnet.training.loop import Trainer
from spdnet.training.many import train_each
from spdnet.training.network import build
from spdnet.training.recipe import Recipe

if TYPE_CHECKING:
    from spdnet.training.device import Fabric

_MANY = 5000  # from this number of samples on, one fold is held out instead of each in turn
_FEW = 8  # fewer samples are not split
_STEPS = 192  # networks are compared after this many steps, if that takes fewer epochs
_LEAST = 1 / 3  # least fraction of the epochs
_SMALL = 1e-6  # bounds the log loss of a sample
#: members if there are too few samples to compare them
FALLBACK = ("linear", "log")


@dataclass(frozen=True)
class Choice:
    """Members that were chosen, and why.

    Attributes
    ----------
    members : tuple of str
        Names of the members.
    accuracy : dict
        Accuracy of each member that was compared, on the folds that were held out, from the first
        to the last rank.
    loss : dict
        Mean log loss of each member on these folds.
    n_folds : int
        Number of folds that were held out; 0 if nothing was compared.
    by_groups : bool
        Whether the folds consist of whole groups.
    seconds : float

    Examples
    --------
    >>> from spdnet.training import Choice
    >>> accuracy, loss = {"log": 0.9, "all": 0.8}, {"log": 0.4, "all": 0.5}
    >>> choice = Choice(("log",), accuracy, loss, 4, False, 2.0)
    >>> choice.describe()[:55]
    'chose log 90.0 %: best of 2 networks by accuracy and lo'
    """

    members: tuple[str, ...]
    accuracy: dict[str, float]
    loss: dict[str, float]
    n_folds: int
    by_groups: bool
    seconds: float

    def describe(self) -> str:
        """Describe the choice in one line."""
        names = self.members
        if not self.n_folds:
            return f"chose {', '.join(names)}: too few samples to compare networks"
        n_folds = self.n_folds
        how = f"in {n_folds}-fold cross-validation" if n_folds > 1 else "on a held-out fold"
        how += " by groups" if self.by_groups else ""
        scores = ", ".join(f"{name} {100 * self.accuracy[name]:.1f} %" for name in names)
        best = "best" if len(names) == 1 else f"best {len(names)}"
        return (
            f"chose {scores}: {best} of {len(self.accuracy)} networks by accuracy and log loss "
            f"{how} within the training set ({self.seconds:.1f} s)"
        )


def choose_members(
    recipe: Recipe,
    train: Samples,
    n_classes: int,
    *,
    groups: Sequence[Any] | NDArray[Any] | None = None,
    seed: int = 0,
    fabric: "Fabric | None" = None,
    jobs: int = 1,
    on_batch: Callable[[int, int], None] = lambda done, total: None,
) -> Choice:
    """Compare the members of a portfolio by cross-validation, and keep the best ones.

    All members are trained side by side on each fold. Each has a rank by its accuracy and one by
    its log loss, which is less noisy; the ``recipe.ensemble`` members with the smallest sum of
    ranks are kept. The comparison ends after a third of the epochs if these are at least 192 steps.

    Folds consist of whole groups if there are at least two. Otherwise they are blocks of
    consecutive samples of each class, so that neighboring windows of a recording are not separated.
    From 5000 samples on, only one fold is held out.

    Parameters
    ----------
    recipe : Recipe
    train : Samples
    n_classes : int
    groups : array, shape (N,), optional
    seed : int
    fabric : Fabric, optional
    jobs : int
        Number of folds that are trained at a time: see :func:`train_many`.
    on_batch : callable, optional
        Called with the number of batches done and their total.

    Examples
    --------
    >>> import torch
    >>> from spdnet.training import RECIPES, Samples, choose_members
    >>> X = torch.eye(3) * torch.linspace(1, 2, 40)[:, None, None]
    >>> y = torch.arange(40) // 20
    >>> choice = choose_members(RECIPES["auto"].changed(epochs=1), Samples(X, y), 2)
    >>> len(choice.accuracy)
    11
    """
    started = time.perf_counter()
    fold, by_groups = assign_folds(train.y.cpu().numpy(), groups)
    held = sorted(set(fold.tolist()))[: 1 if len(fold) >= _MANY else None]
    right = numpy.zeros((len(fold), len(MEMBERS)), dtype=bool)
    losses = numpy.zeros((len(fold), len(MEMBERS)))
    if len(fold) < _FEW or len(set(fold.tolist())) < 2:
        held = []
    n_inner = [int((fold != k).sum()) for k in held]
    epochs = [_epochs(recipe, n) for n in n_inner]
    trainers = (
        _trainer(recipe.changed(epochs=e), _select(train, fold != k), n_classes, seed + k, fabric)
        for e, k in zip(epochs, held, strict=True)
    )
    steps = [e * math.ceil(n / recipe.batch_size) for e, n in zip(epochs, n_inner, strict=True)]
    for i, trainer in train_each(trainers, steps, jobs, on_batch):
        outer = fold == held[i]
        right[outer], losses[outer] = _score(trainer, _select(train, outer))
    if not held:
        return Choice(FALLBACK, {}, {}, 0, False, 0.0)
    used = numpy.isin(fold, held)
    accuracy, loss = right[used].mean(0), losses[used].mean(0)
    ranks = (accuracy > accuracy[:, None]).sum(1) + (loss < loss[:, None]).sum(1)
    order = numpy.argsort(ranks, kind="stable")
    names = [tuple(MEMBERS)[i] for i in order]
    return Choice(
        tuple(names[: recipe.ensemble]),
        dict(zip(names, accuracy[order].tolist(), strict=True)),
        dict(zip(names, loss[order].tolist(), strict=True)),
        len(held),
        by_groups,
        time.perf_counter() - started,
    )


def _epochs(recipe: Recipe, n: int) -> int:
    """Return the number of epochs after which networks are compared, for ``n`` samples."""
    per_epoch = math.ceil(n / recipe.batch_size)
    return min(recipe.epochs, math.ceil(max(_STEPS / per_epoch, _LEAST * recipe.epochs)))


def _select(samples: Samples, mask: NDArray[Any]) -> Samples:
    return samples.take(torch.from_numpy(numpy.flatnonzero(mask)).to(samples.y.device))


def _trainer(
    recipe: Recipe, inner: Samples, n_classes: int, seed: int, fabric: "Fabric | None"
) -> Trainer:
    """Return the trainer of all members on the folds that are not held out."""
    recipe = recipe.changed(members=tuple(MEMBERS), ensemble=1, n_samples=len(inner))
    model = build(recipe, (), n_classes, inner, seed=seed)
    return Trainer(model, inner, recipe, seed=seed, fabric=fabric)


def _score(trainer: Trainer, outer: Samples) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return whether each member is right, and its log loss, for each sample."""
    model: Any = trainer.model.eval()
    with torch.no_grad():
        outputs = run_in_chunks(model.outputs, outer.to(trainer.fabric.device).X, check=False)
    y = outer.y.to(outputs.device)[:, None]
    probability = outputs.double().softmax(1).gather(1, y[:, None].expand(-1, 1, len(MEMBERS)))
    loss = -(probability[:, 0] + _SMALL).log()
    return (outputs.argmax(1) == y).cpu().numpy(), loss.cpu().numpy()
