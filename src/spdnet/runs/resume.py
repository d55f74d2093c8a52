"""Resume a run from one of its checkpoints."""

from typing import Any

import torch

from spdnet.runs.run_folder import RunFolder, describe_change
from spdnet.training import Trainer
from spdnet.training.checkpoint import CheckpointError


def resume_training(
    trainer: Trainer, state: dict[str, Any], common: dict[str, Any], folder: RunFolder
) -> None:
    """Load the state of a checkpoint into a trainer.

    ``common`` has the expected contents of all checkpoints of this run. An invalid checkpoint
    raises a :class:`CheckpointError`, one of another training a ValueError.
    """
    try:
        change = _find_change(state, common, trainer.seed, folder)
        if change is None:
            trainer.load_state_dict(state["trainer"])
    except torch.OutOfMemoryError:
        raise
    except (LookupError, AttributeError, TypeError, RuntimeError, ValueError) as error:
        raise CheckpointError(
            f"train: expected the checkpoint of a training in {folder.path}, but what it holds "
            f"does not fit: {error or type(error).__name__}; start a new run"
        ) from error
    if change is not None:
        raise ValueError(f"train: {change}")


def _find_change(
    state: dict[str, Any], common: dict[str, Any], seed: int, folder: RunFolder
) -> str | None:
    """Describe why a checkpoint is not one of this training; None if it is."""
    if type(state["trainer"]["seed"]) is not int:
        raise TypeError("a seed that is not an integer")
    before = {**state, "identity": {**state["identity"], "seed": state["trainer"]["seed"]}}
    now = {**common, "identity": {**common["identity"], "seed": seed}}
    for part in ("identity", "network", "recipe", "preprocessing"):
        if (change := describe_change(before[part], now[part], folder.path)) is not None:
            return change
    there, here = before["data"]["parts"], now["data"]["parts"]
    same = {part: before[part] == now[part] for part in ("classes", "domains")}
    same["training, validation and test parts"] = there.keys() == here.keys() and all(
        torch.equal(there[name], here[name]) for name in here
    )
    for part, is_same in same.items():
        if not is_same:
            return (
                f"expected the {part} of the checkpoint in {folder.path}, got others: it belongs "
                "to another training; start a new run"
            )
    return None
