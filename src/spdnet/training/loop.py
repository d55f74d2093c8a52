"""The training loop, for CPU and GPU."""

import copy
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from spdnet.models.model import average, dims_of, get_trait
from spdnet.training.data import DiskTensor, Samples, read_ahead
from spdnet.training.device import make_fabric, threads_for, threads_for_vectors
from spdnet.training.evaluation import (
    Loss,
    evaluate,
    mean_loss,
    run_in_chunks,
    sum_over,
    unchecked,
    weighted_losses,
)
from spdnet.training.graphs import GraphedStep
from spdnet.training.network import seeded
from spdnet.training.progress import PartialEpoch, Progress
from spdnet.training.recipe import Recipe

if TYPE_CHECKING:  # it takes a second to import, and prediction does not need it
    from spdnet.training.device import Fabric


class Trainer:
    """Training that can be stopped after any batch and resumed, bit for bit on a CPU.

    The order of the batches depends on ``seed`` and the epoch alone, and so do random numbers
    that the model draws. The steps do not check the data.

    Several processes share each batch: their number does not change the results, except for
    rounding. All processes have all data and the same weights.

    Parameters
    ----------
    model : Module
        Any module that maps ``X`` (and domains, if ``train`` has them) to logits, or in training
        mode to the logits of several members ``(B, n_classes, n_members)``, whose losses are
        added. It is trained in place, and ends in the state of the best epoch if there is
        validation data.
    train : Samples
        Training data, in the dtype of the model.
    recipe : Recipe
        Its hyperparameters of the training; those of the network are not used.
    val : Samples, optional
        Validation data, used to select the epoch.
    test : Samples, optional
        Test data, evaluated after each epoch for curves.
    loss : callable, optional
        Function of logits and classes that returns a loss for each sample; cross-entropy with the
        label smoothing of the recipe if not given.
    patience : int, optional
        Number of epochs without a lower validation loss after which training stops.
    seed : int
    fabric : Fabric, optional
        Device and processes; one CPU if not given.
    index : Tensor, shape (N,), optional
        Indices by which messages name the training samples.

    Attributes
    ----------
    progress : Progress

    Examples
    --------
    >>> import torch
    >>> from spdnet.training import RECIPES, Samples, Trainer
    >>> X = torch.eye(3).repeat(8, 1, 1) * torch.arange(1, 9)[:, None, None]
    >>> data = Samples(X, torch.arange(8) // 4)
    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(9, 2))
    >>> Trainer(model, data, RECIPES["fast"].changed(epochs=2)).run().epoch
    2
    """

    def __init__(
        self,
        model: torch.nn.Module,
        train: Samples,
        recipe: Recipe,
        *,
        val: Samples | None = None,
        test: Samples | None = None,
        loss: Loss | None = None,
        patience: int | None = None,
        seed: int = 0,
        fabric: "Fabric | None" = None,
        index: Tensor | None = None,
    ) -> None:
        fabric = make_fabric("cpu") if fabric is None else fabric
        self.model = model
        self.train = train.to(fabric.device)
        self.val = None if val is None else val.to(fabric.device)
        self.test = None if test is None else test.to(fabric.device)
        self.recipe, self.loss, self.patience, self.seed = recipe, loss, patience, seed
        self.index = torch.arange(len(train)) if index is None else index
        self.progress = Progress()
        self._n_classes = int(train.y.max()) + 1
        self._settings = unchecked(model)  # arguments of the model
        self._random_state = torch.get_rng_state()
        self._set_up(fabric)
        self._run_stem()

    def _set_up(self, fabric: "Fabric") -> None:
        """Create what belongs to a device and a process."""
        self.fabric, self._sum = fabric, partial(sum_over, fabric)  # over the processes
        on_cuda = fabric.device.type == "cuda"
        optimizer = self.recipe.make_optimizer(
            get_trait(self.model, "parameter_groups")(), capturable=on_cuda
        )
        self._net, self._optimizer = fabric.setup(self.model, optimizer)
        # the launches of kernels dominate small batches on a GPU, unless the step is a graph
        self._graphed = None
        is_alone = self.train.domain is None and fabric.world_size == 1
        if on_cuda and is_alone and get_trait(self.model, "can_capture")():
            shown = partial(mean_loss, loss=self.loss)
            loss = partial(shown, label_smoothing=self._smoothing)
            self._graphed = GraphedStep(self.model, optimizer, loss, shown, self._settings)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for ``pickle``, without what belongs to a device and a process."""
        own = ("fabric", "_sum", "_net", "_optimizer", "_graphed")
        state = {name: value for name, value in vars(self).items() if name not in own}
        return {**state, "optimizer": self._optimizer.state_dict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a trainer on the same kind of device."""
        optimizer = state.pop("optimizer")
        vars(self).update(state)
        self._set_up(make_fabric(str(self.train.y.device)))
        self._optimizer.load_state_dict(optimizer)

    @torch.no_grad()
    def _run_stem(self) -> None:
        """Replace the samples by the output of the stem of the model, unless they are on disk."""
        stem = get_trait(self.model, "stem")
        if stem is None or isinstance(self.train.X, DiskTensor):
            return
        self._settings["stem"] = False
        with threads_for(self.train.X.shape[1]):
            for name in ("train", "val", "test"):
                part = getattr(self, name)
                if part is not None:
                    X = run_in_chunks(stem, part.X, **unchecked(stem))
                    setattr(self, name, replace(part, X=X))

    def run(
        self,
        on_epoch: Callable[["Trainer"], None] = lambda trainer: None,
        on_batch: Callable[["Trainer", int, int], None] = lambda trainer, done, total: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Progress:
        """Train until the training is finished or stopped.

        Parameters
        ----------
        on_epoch : callable, optional
            Called with the trainer after each epoch, for example to save it.
        on_batch : callable, optional
            Called after each batch with the trainer, the number of batches done in this epoch and
            the number of batches of an epoch.
        should_stop : callable, optional
            Called after each batch. If it returns True in any process, training stops, and
            :attr:`finished` is False. :meth:`state_dict` then holds the position in the epoch.

        Raises
        ------
        FloatingPointError
            The loss or a weight is not finite, or a decomposition failed. The trainer cannot be
            used afterwards.
        """
        self._stopping = False
        shape = self.train.X.shape[1:]
        size = (*dims_of(self.model), *shape)[0]
        while not self.finished:
            with threads_for(size) if len(shape) > 1 else threads_for_vectors(*shape):
                is_complete = self._run_epoch(on_batch, should_stop)
            if is_complete:
                on_epoch(self)
            if self._stopping and not self.finished:
                return self.progress
        if self.progress.best_state is not None:
            self.model.load_state_dict(self.progress.best_state)
        return self.progress

    @property
    def n_steps(self) -> int:
        """Number of batches of the training, unless ``patience`` ends it."""
        return self.recipe.epochs * self._per_epoch

    @property
    def _per_epoch(self) -> int:
        return math.ceil(len(self.train) / self.recipe.batch_size)

    @property
    def finished(self) -> bool:
        """True if all epochs are done, or ``patience`` is exhausted."""
        waited = self.progress.epoch - self.progress.best_epoch
        impatient = self.patience is not None and waited >= self.patience
        return impatient or self.progress.epoch >= self.recipe.epochs

    def state_dict(self) -> dict[str, Any]:
        """Return the state from which :meth:`load_state_dict` continues."""
        partial = self.progress.partial
        return {
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            **vars(self.progress),
            "partial": None if partial is None else asdict(partial),
            "seed": self.seed,
            "random_state": self._random_state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state; data and recipe must be those that it was saved with."""
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.seed = state["seed"]
        history = [dict(row) for row in state["history"]]
        partial = None if state["partial"] is None else PartialEpoch(**state["partial"])
        self.progress = Progress(
            history, state["best_epoch"], state["best_state"], state["step"], partial
        )
        self._random_state = state["random_state"].cpu()
        torch.Generator().set_state(self._random_state)  # raises an error if it is not one

    def _run_epoch(
        self,
        on_batch: Callable[["Trainer", int, int], None],
        should_stop: Callable[[], bool],
    ) -> bool:
        """Train for an epoch, or for the rest of one; return whether it was completed."""
        epoch, recipe, train = self.progress.epoch, self.recipe, self.train
        before = self.progress.partial or PartialEpoch()
        started, total = time.perf_counter() - before.seconds, before.loss
        # the first process counts the samples of all processes before the stop
        correct = before.correct if self.fabric.is_global_zero else 0
        per_epoch = self._per_epoch
        self._net.train()
        get_trait(self.model, "begin_epoch")(epoch + 1, recipe.epochs)
        order = list(batches(len(train), recipe.batch_size, self.seed, epoch))[before.batches :]
        world, rank = self.fabric.world_size, self.fabric.global_rank
        own = (batch.tensor_split(world)[rank] for batch in order)
        with self._random_numbers(epoch):
            for number, (batch, part) in enumerate(
                zip(order, read_ahead(train, own), strict=True), before.batches
            ):
                lr = _learning_rate(recipe, (epoch + number / per_epoch) / recipe.epochs)
                for group in self._optimizer.param_groups:
                    group["lr"] = lr * group.get("lr_factor", 1.0)
                with self._naming(f"batch {number + 1}", batch):
                    loss, hits = self._step(part, len(batch))
                total += loss * len(batch)
                correct += hits
                self.progress.step += 1
                on_batch(self, number + 1, per_epoch)
                if not self._stopping:  # all processes stop if one was asked to
                    self._stopping = bool(self._sum(torch.tensor(int(should_stop()))))
                if self._stopping and number + 1 < per_epoch:
                    correct = int(self._sum(torch.tensor(correct)))
                    seconds = time.perf_counter() - started
                    self.progress.partial = PartialEpoch(number + 1, total, correct, seconds)
                    self._random_state = torch.get_rng_state()
                    return False
        correct = int(self._sum(torch.tensor(correct)))
        row = {"epoch": epoch + 1, "loss": total / len(train), "accuracy": correct / len(train)}
        with self._naming("its end"):
            for name, parameter in self.model.named_parameters():
                _require_finite(parameter, name)
            if self.val is not None:
                row["val_loss"], row["val_accuracy"] = self._evaluate(self.val)
                _require_finite(row["val_loss"], "validation loss")
        row |= {"lr": lr, "seconds": time.perf_counter() - started}
        if self.test is not None:
            row["test_loss"], row["test_accuracy"] = self._evaluate(self.test)
        progress = self.progress
        progress.history.append(row)
        progress.partial = None
        if progress.is_best:
            progress.best_epoch = progress.epoch
            if self.val is not None:
                progress.best_state = copy.deepcopy(self.model.state_dict())
        return True

    @contextmanager
    def _random_numbers(self, epoch: int) -> Iterator[None]:
        """Make the random numbers of the model in an epoch depend on the seed alone."""
        is_random = get_trait(self.model, "is_random")
        with seeded(_epoch_seed(self.seed, epoch)) if is_random else nullcontext():
            if is_random and self.progress.partial is not None:
                torch.set_rng_state(self._random_state)
            yield

    def _evaluate(self, data: Samples) -> tuple[float, float]:
        model = self.model
        if data.domain is not None:
            model = get_trait(model, "adapt")(data.X, data.domain)
        return evaluate(model, data, self.fabric, loss=self.loss, settings=self._settings)

    def _step(self, part: Samples, size: int) -> tuple[float, int]:
        """Update the weights by a batch of ``size`` samples, of which this process has a part.

        Return the loss of the batch before the update, without label smoothing, and the number of
        correct predictions of the part.
        """
        is_full = len(part) == self.recipe.batch_size
        if self._graphed is not None and not self._graphed.failed and is_full:
            loss, hits = self._graphed(part.X[:], part.y, part.weight)
            _require_finite(loss, "loss")
            return loss, hits
        self._optimizer.zero_grad()
        outputs = self._net(*part.inputs, **self._settings)
        logits = average(outputs) if outputs.ndim == 3 else outputs
        if logits.ndim == 2 and logits.shape[1] < self._n_classes:
            raise ValueError(
                f"training: expected at least {self._n_classes} logits for each sample, one for "
                f"each class, got {logits.shape[1]}"
            )
        world = self.fabric.world_size
        share = size / world  # the mean over the processes is that of the batch
        losses = partial(weighted_losses, y=part.y, weight=part.weight, loss=self.loss)
        value = losses(outputs, label_smoothing=self._smoothing).sum() / share
        known = [value.detach()]
        if self._smoothing or outputs.ndim == 3:
            known.append(losses(logits.detach()).sum() / share)
        totals = (self._sum(torch.stack(known)) / world).tolist()
        _require_finite(totals[0], "loss")  # in all processes or in none
        self.fabric.backward(value)
        self._optimizer.step()
        return totals[-1], int((logits.argmax(-1) == part.y).sum())

    @property
    def _smoothing(self) -> float | tuple[float, ...]:
        """Label smoothing of cross-entropy, or of each member; a loss that was given has none."""
        smoothing = self.recipe.label_smoothing if self.loss is None else 0.0
        factors = get_trait(self.model, "smoothing")
        return smoothing if factors is None else tuple(smoothing * factor for factor in factors)

    @contextmanager
    def _naming(self, where: str, batch: Tensor | None = None) -> Iterator[None]:
        """Add epoch, batch and samples to numerical errors."""
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


def batches(n: int, size: int, seed: int, epoch: int) -> Iterator[Tensor]:
    """Return the indices of the batches of an epoch, a permutation."""
    generator = torch.Generator().manual_seed(_epoch_seed(seed, epoch))
    yield from torch.randperm(n, generator=generator).split(size)


def _epoch_seed(seed: int, epoch: int) -> int:
    return seed * 1_000_003 + epoch


def _learning_rate(recipe: Recipe, done: float) -> float:
    if recipe.schedule == "constant":
        return recipe.lr
    return recipe.lr * (1 + math.cos(math.pi * done)) / 2


def _require_finite(value: Tensor | float, name: str) -> None:
    values = torch.as_tensor(value).flatten()
    if not values.isfinite().all():
        raise FloatingPointError(
            f"expected a finite {name}, got {values[~values.isfinite()][0].item()}"
        )


def _some(index: Tensor) -> str:
    return ", ".join(map(str, index.tolist()[:10])) + (", ..." if len(index) > 10 else "")
