"""Progress of a training."""

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class PartialEpoch:
    """Epoch that was stopped after some batches, with sums over their samples."""

    batches: int = 0
    loss: float = 0.0
    correct: int = 0
    seconds: float = 0.0


@dataclass
class Progress:
    """History of a training and its best state.

    Attributes
    ----------
    history : list of dict
        One row per epoch: ``epoch`` from 1, ``loss`` and ``accuracy`` averaged over the training
        batches, ``val_loss``, ``val_accuracy``, ``test_loss`` and ``test_accuracy`` if there are
        such data, ``lr`` and ``seconds``. Losses are without label smoothing.
    best_epoch : int
        Epoch with the lowest validation loss; the last epoch without validation data.
    best_state : dict or None
        The ``state_dict`` of that epoch, with validation data only.
    step : int
        Number of batches done in all epochs.
    partial : PartialEpoch, optional
        Current epoch, if the training was stopped within one.

    Examples
    --------
    >>> from spdnet.training import Progress
    >>> Progress(history=[{"epoch": 1, "loss": 0.7}], best_epoch=1).epoch
    1
    """

    history: list[dict[str, float]] = field(default_factory=list)
    best_epoch: int = 0
    best_state: dict[str, Tensor] | None = None
    step: int = 0
    partial: PartialEpoch | None = None

    @property
    def epoch(self) -> int:
        """Number of completed epochs."""
        return len(self.history)

    @property
    def is_best(self) -> bool:
        """Whether the last epoch has the lowest validation loss so far."""
        *losses, last = [row.get("val_loss") for row in self.history]
        if last is None or self.best_state is None:
            return True
        return last < (losses[self.best_epoch - 1] or 0.0)


def describe_epoch(row: dict[str, Any]) -> str:
    """Describe a row of the history in one line."""
    text = f"epoch {row['epoch']:>4}  loss {row['loss']:.4f}  accuracy {row['accuracy']:.4f}"
    if "val_loss" in row:
        text += f"  validation {row['val_loss']:.4f} {row['val_accuracy']:.4f}"
    return text + f"  {row['seconds']:.2f} s"
