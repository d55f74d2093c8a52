"""The training loop: one for CPU and GPU, for the estimator and the command line."""

import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # type: ignore[attr-defined]
from torch.nn.functional import cross_entropy

from spdnet.models import SPDNet
from spdnet.nn import SPDDomainBatchNorm
from spdnet.training.data import DiskTensor, LabelledMatrices, read_ahead
from spdnet.training.device import make_fabric, threads_for
from spdnet.training.graphs import GraphedStep
from spdnet.training.network import Network, adapted, in_pieces, make_network, prepare_network
from spdnet.training.recipe import Recipe
from spdnet.training.seed import seeded

if TYPE_CHECKING:  # it takes a second to import, and prediction does without
    from lightning_fabric import Fabric


@dataclass(frozen=True)
class EpochSoFar:
    """An epoch that was stopped between two batches.

    Attributes
    ----------
    batches : int
        Batches done.
    loss : float
        Sum of the losses of their samples.
    correct : int
        Number of their samples that were classified correctly.
    seconds : float
        Time taken.
    """

    batches: int = 0
    loss: float = 0.0
    correct: int = 0
    seconds: float = 0.0


@dataclass
class Progress:
    """Where a training stands: a table of epochs, and the best state so far.

    Attributes
    ----------
    history : list of dict
        One row for each epoch: ``epoch`` from 1, ``loss`` and ``accuracy`` of the training batches
        as they were seen, ``val_loss`` and ``val_accuracy`` where there is validation data,
        ``test_loss`` and ``test_accuracy`` where a test part is watched, ``lr`` and ``seconds``.
        All losses are without label smoothing, so that they can be compared.
    best_epoch : int
        The epoch with the lowest validation loss; the last one without validation data.
    best_state : dict
        The ``state_dict`` of that epoch, with validation data only.
    step : int
        Batches done, in all epochs.
    partial : EpochSoFar, optional
        The current epoch, if the training was stopped inside of one.

    Examples
    --------
    >>> from spdnet.training import Progress
    >>> progress = Progress(history=[{"epoch": 1, "loss": 0.7}], best_epoch=1)
    >>> progress.epoch
    1
    """

    history: list[dict[str, float]] = field(default_factory=list)
    best_epoch: int = 0
    best_state: dict[str, Tensor] | None = None
    step: int = 0
    partial: EpochSoFar | None = None

    @property
    def epoch(self) -> int:
        """Epochs done."""
        return len(self.history)


class Trainer:
    """A training that can be stopped after any batch and resumed, bit for bit on a CPU.

    The data have been checked before: the steps do not look at them again. The order of the batches
    depends on ``seed`` and the epoch alone, and nothing else is random.

    Several processes divide each batch among them: ``batch_size`` is that of all together, so that
    their number changes neither the learning rate nor, but for rounding, the course of the
    training. All of them have all of the data, and the same weights at all times.

    Parameters
    ----------
    model : Network
        Trained in place, from where it stands. With validation data it ends in the state of the
        best epoch.
    train, val : LabelledMatrices
        Of the model's dtype; validation is optional.
    recipe : Recipe
    test : LabelledMatrices, optional
        Scored after each epoch, for curves; nothing is decided by it.
    patience : int, optional
        Stop after this many epochs without a lower validation loss.
    seed : int
        Of the order of the batches.
    fabric : Fabric, optional
        Device and precision; one CPU when not given.
    index : Tensor, shape (N,), optional
        By which a message names the training matrices; their places when not given.

    Attributes
    ----------
    progress : Progress

    Examples
    --------
    >>> import torch
    >>> from spdnet.training import RECIPES, LabelledMatrices, Trainer, build
    >>> X = torch.eye(3).repeat(8, 1, 1) * torch.arange(1, 9)[:, None, None]
    >>> data = LabelledMatrices(X, torch.arange(8) // 4)
    >>> recipe = RECIPES["default"].changed(epochs=2)
    >>> Trainer(build(recipe, (3, 2), 2, data), data, recipe).run().epoch
    2
    """

    def __init__(
        self,
        model: Network,
        train: LabelledMatrices,
        recipe: Recipe,
        *,
        val: LabelledMatrices | None = None,
        test: LabelledMatrices | None = None,
        patience: int | None = None,
        seed: int = 0,
        fabric: "Fabric | None" = None,
        index: Tensor | None = None,
    ) -> None:
        self.fabric = make_fabric("cpu") if fabric is None else fabric
        self.model = model
        self.train = train.to(self.fabric.device)
        self.val = None if val is None else val.to(self.fabric.device)
        self.test = None if test is None else test.to(self.fabric.device)
        self.recipe = recipe
        self.patience = patience
        self.seed = seed
        self.index = torch.arange(len(train)) if index is None else index
        self.progress = Progress()
        on_cuda = self.fabric.device.type == "cuda"
        optimizer = recipe.make_optimizer(model.parameters(), capturable=on_cuda)
        self._net, self._optimizer = self.fabric.setup(model, optimizer)
        # small batches on a GPU are bound by launches, unless the step is a graph
        plain = isinstance(model, SPDNet) and not model.norms and not isinstance(recipe.eps, str)
        plain = plain and train.weight is None and self.fabric.world_size == 1
        self._graphed = None
        if on_cuda and plain:
            shown = cross_entropy if recipe.label_smoothing else None
            self._graphed = GraphedStep(model, optimizer, self._loss, shown)

    def run(
        self,
        on_epoch: Callable[["Trainer"], None] | None = None,
        on_batch: Callable[["Trainer", int, int], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> Progress:
        """Train to the end, from where it stands.

        Parameters
        ----------
        on_epoch : callable, optional
            Called with the trainer after each epoch, for example to save it.
        on_batch : callable, optional
            Called with the trainer after each batch, with how many of the epoch's batches are done
            and how many there are.
        should_stop : callable, optional
            Asked after each batch. If it returns True, in any of several processes, training
            stops, and :attr:`finished` is False. :meth:`state_dict` then holds the position inside
            the epoch.

        Raises
        ------
        FloatingPointError
            The loss or a weight is NaN or infinite, or a matrix could not be decomposed: with
            epoch, batch and the indices of its matrices. The trainer is then of no more use; what
            ``on_epoch`` saved before is.
        """
        self._stopping = False
        while not self.finished:
            with threads_for(self.model.dims[0]):
                whole = self._run_epoch(on_batch, should_stop)
            if whole and on_epoch is not None:
                on_epoch(self)
            if self._stopping and not self.finished:
                return self.progress
        if self.progress.best_state is not None:
            self.model.load_state_dict(self.progress.best_state)
        return self.progress

    @property
    def finished(self) -> bool:
        """Whether all epochs are done, or patience is at its end."""
        waited = self.progress.epoch - self.progress.best_epoch
        impatient = self.patience is not None and waited >= self.patience
        return impatient or self.progress.epoch >= self.recipe.epochs

    def state_dict(self) -> dict[str, Any]:
        """Everything that :meth:`load_state_dict` needs to go on as if there had been no stop."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "history": self.progress.history,
            "best_epoch": self.progress.best_epoch,
            "best_state": self.progress.best_state,
            "step": self.progress.step,
            "partial": None if self.progress.partial is None else asdict(self.progress.partial),
            "seed": self.seed,
            "random_state": torch.get_rng_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state; the data and the recipe have to be those that it was saved with."""
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.seed = state["seed"]
        history = [dict(row) for row in state["history"]]
        partial = None if state["partial"] is None else EpochSoFar(**state["partial"])
        self.progress = Progress(
            history, state["best_epoch"], state["best_state"], state["step"], partial
        )
        torch.set_rng_state(state["random_state"].cpu())

    def _run_epoch(
        self,
        on_batch: Callable[["Trainer", int, int], None] | None,
        should_stop: Callable[[], bool] | None,
    ) -> bool:
        """Train for an epoch, or for the rest of one; return whether it was completed."""
        epoch, recipe, train = self.progress.epoch, self.recipe, self.train
        before = self.progress.partial or EpochSoFar()
        started, total = time.perf_counter() - before.seconds, before.loss
        # the count of all processes goes to the first one
        correct = before.correct if self.fabric.is_global_zero else 0
        per_epoch = math.ceil(len(train) / recipe.batch_size)
        self._net.train()
        for layer in self.model.modules():
            if isinstance(layer, SPDDomainBatchNorm):
                layer.anneal(epoch + 1, recipe.epochs)
        order = list(batches(len(train), recipe.batch_size, self.seed, epoch))[before.batches :]
        world, rank = self.fabric.world_size, self.fabric.global_rank
        own = (batch.tensor_split(world)[rank] for batch in order)
        for number, (batch, (_, part)) in enumerate(
            zip(order, read_ahead(train, own), strict=True), before.batches
        ):
            done = (epoch + number / per_epoch) / recipe.epochs
            lr = _learning_rate(recipe, done)
            for group in self._optimizer.param_groups:
                group["lr"] = lr
            with self._place(f"batch {number + 1}", batch):
                loss, hits = self._step(part, len(batch))
            total += loss * len(batch)
            correct += hits
            self.progress.step += 1
            if on_batch is not None:
                on_batch(self, number + 1, per_epoch)
            if self._is_stopping(should_stop) and number + 1 < per_epoch:
                correct = int(self._sum(torch.tensor(correct)))
                seconds = time.perf_counter() - started
                self.progress.partial = EpochSoFar(number + 1, total, correct, seconds)
                return False
        correct = int(self._sum(torch.tensor(correct)))
        row = {"epoch": epoch + 1, "loss": total / len(train), "accuracy": correct / len(train)}
        with self._place("its end"):
            for name, parameter in self.model.named_parameters():
                _require_finite(parameter, name)
            if self.val is not None:
                known = adapted(self.model, self.val.X, self.val.domain)
                row["val_loss"], row["val_accuracy"] = evaluate(known, self.val, self.fabric)
                _require_finite(row["val_loss"], "validation loss")
        row |= {"lr": lr, "seconds": time.perf_counter() - started}
        if self.test is not None:
            known = adapted(self.model, self.test.X, self.test.domain)
            row["test_loss"], row["test_accuracy"] = evaluate(known, self.test, self.fabric)
        self.progress.history.append(row)
        self.progress.partial = None
        _note_best(self.progress, self.model)
        return True

    def _is_stopping(self, should_stop: Callable[[], bool] | None) -> bool:
        """Whether any process was asked to stop; the same answer in all of them."""
        if should_stop is not None and not self._stopping:
            self._stopping = bool(self._sum(torch.tensor(int(should_stop()))))
        return self._stopping

    def _step(self, part: LabelledMatrices, size: int) -> tuple[float, int]:
        """Update the weights by a batch of a size, of which this process has a part.

        Return the loss of the batch before the update, without label smoothing, and how many of
        the part were classified correctly.
        """
        if self._graphed is not None and len(part) == self.recipe.batch_size:
            loss, hits = self._graphed(part.X[:], part.y)
            _require_finite(loss, "loss")
            return loss, hits
        self._optimizer.zero_grad()
        logits = self._net(*part.inputs, check=False)
        world = self.fabric.world_size
        share = size / world  # the mean over the processes is that of the batch
        smoothing = self.recipe.label_smoothing
        value = weighted_losses(logits, part, smoothing).sum() / share
        known = [value.detach()]
        if smoothing:
            known.append(weighted_losses(logits.detach(), part).sum() / share)
        losses = (self._sum(torch.stack(known)) / world).tolist()
        _require_finite(losses[0], "loss")  # in all processes, or in none
        self.fabric.backward(value)
        self._optimizer.step()
        return losses[-1], int((logits.argmax(-1) == part.y).sum())

    def _sum(self, value: Tensor) -> Tensor:
        """Over all processes."""
        return sum_over(self.fabric, value)

    def _loss(self, logits: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(logits, y, label_smoothing=self.recipe.label_smoothing)

    @contextmanager
    def _place(self, where: str, batch: Tensor | None = None) -> Iterator[None]:
        """Tell where it happened that a number was not finite or a matrix not decomposed."""
        try:
            yield
        except (FloatingPointError, LinAlgError) as error:
            what = str(error) if isinstance(error, FloatingPointError) else "a decomposition failed"
            some = "" if batch is None else f" (matrices {_some(self.index[batch.cpu()])})"
            raise FloatingPointError(
                f"training: {what} in epoch {self.progress.epoch + 1}, {where}{some}; lower the "
                f"learning rate of {self.recipe.lr:g}, raise the threshold eps of "
                f"{self.recipe.eps}, or look for matrices that are nearly singular or much larger "
                "than others with spdnet data info"
            ) from error


def build(
    recipe: Recipe,
    dims: Sequence[int],
    n_classes: int,
    train: LabelledMatrices,
    *,
    n_domains: int | None = None,
    seed: int = 0,
) -> Network:
    """A new network for a recipe, centred at the training data; torch's generator stays as it was.

    Parameters
    ----------
    recipe : Recipe
    dims, n_classes
        See :func:`make_network`.
    train : LabelledMatrices
        Gives the mean and the dtype, and, in memory, the device.
    n_domains : int, optional
        Those of the training data when not given.
    seed : int
        Of the initial weights.

    Returns
    -------
    Network

    Examples
    --------
    >>> import torch
    >>> from spdnet.training import RECIPES, LabelledMatrices, build
    >>> train = LabelledMatrices(torch.eye(4).repeat(6, 1, 1), torch.arange(6) % 2)
    >>> build(RECIPES["default"], (4, 3), 2, train)(train.X).shape
    torch.Size([6, 2])
    """
    where = "cpu" if isinstance(train.X, DiskTensor) else train.X.device
    if n_domains is None:
        n_domains = 1 if train.domain is None else int(train.domain.max()) + 1
    with seeded(seed):
        model = make_network(
            recipe,
            dims,
            n_classes,
            n_channels=train.X.shape[1] if recipe.takes_signals else None,
            n_domains=n_domains,
            dtype=train.X.dtype,
        ).to(where)
    prepare_network(model, train.X, train.weight)
    return model


def batches(n: int, size: int, seed: int, epoch: int) -> Iterator[Tensor]:
    """The indices of one epoch's batches: a permutation that seed and epoch alone decide."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    yield from torch.randperm(n, generator=generator).split(size)


@torch.no_grad()
def evaluate(
    model: torch.nn.Module,
    data: LabelledMatrices,
    fabric: "Fabric | None" = None,
    batch_size: int = 256,
) -> tuple[float, float]:
    """Loss and accuracy over all matrices, each counted once; in evaluation mode.

    Several processes of a ``fabric`` divide the matrices among them.

    Parameters
    ----------
    model : Module
    data : LabelledMatrices
    fabric : Fabric, optional
    batch_size : int
        Matrices at a time.

    Returns
    -------
    tuple of float

    Examples
    --------
    >>> import torch
    >>> from spdnet import SPDNet
    >>> from spdnet.training import LabelledMatrices, evaluate
    >>> data = LabelledMatrices(torch.eye(3).repeat(4, 1, 1), torch.zeros(4, dtype=torch.long))
    >>> loss, accuracy = evaluate(SPDNet((3,), 2), data)
    >>> round(loss, 4)  # all logits are zero: log 2
    0.6931
    """
    was_training = model.training
    model.eval()
    part = data
    if fabric is not None and fabric.world_size > 1:
        places = torch.arange(len(data)).tensor_split(fabric.world_size)[fabric.global_rank]
        part = data.part(places)
    found = torch.zeros(2, dtype=torch.float64, device=data.y.device)
    if len(part):
        logits = in_pieces(model, *part.inputs, size=batch_size, check=False)
        found[0] = weighted_losses(logits, part).double().sum()
        found[1] = (logits.argmax(-1) == part.y).sum()
    model.train(was_training)
    loss, right = (sum_over(fabric, found) / len(data)).tolist()
    return loss, right


def sum_over(fabric: "Fabric | None", value: Tensor) -> Tensor:
    """The sum over the processes; of one, the value itself."""
    if fabric is None or fabric.world_size == 1:
        return value
    total = value.to(fabric.device, copy=True)
    torch.distributed.all_reduce(total)
    return total.to(value.device)


def weighted_losses(logits: Tensor, data: LabelledMatrices, label_smoothing: float = 0.0) -> Tensor:
    """Cross-entropy of each, weighted where the data have weights."""
    losses = cross_entropy(logits, data.y, reduction="none", label_smoothing=label_smoothing)
    return losses if data.weight is None else losses * data.weight


def _learning_rate(recipe: Recipe, done: float) -> float:
    if recipe.schedule == "constant":
        return recipe.lr
    return recipe.lr * (1 + math.cos(math.pi * done)) / 2


def _note_best(progress: Progress, model: torch.nn.Module) -> None:
    losses = [row.get("val_loss") for row in progress.history]
    if losses[-1] is None:
        progress.best_epoch = progress.epoch
    elif progress.best_state is None or losses[-1] < (losses[progress.best_epoch - 1] or 0.0):
        progress.best_epoch = progress.epoch
        progress.best_state = copy.deepcopy(model.state_dict())


def _require_finite(value: Tensor | float, name: str) -> None:
    if not torch.as_tensor(value).isfinite().all():
        got = torch.as_tensor(value).flatten()
        first = got[~got.isfinite()][0].item()
        raise FloatingPointError(f"expected a finite {name}, got {first}")


def _some(index: Tensor) -> str:
    return ", ".join(map(str, index.tolist()[:10])) + (", ..." if len(index) > 10 else "")


def describe(row: dict[str, Any]) -> str:
    """One line about an epoch."""
    text = f"epoch {row['epoch']:>4}  loss {row['loss']:.4f}  accuracy {row['accuracy']:.4f}"
    if "val_loss" in row:
        text += f"  validation {row['val_loss']:.4f} {row['val_accuracy']:.4f}"
    return text + f"  {row['seconds']:.2f} s"
