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

    ``common`` has the expected contents of all checkpoints of this run.

    Raises
    ------
    CheckpointError
        The checkpoint is invalid.
    ValueError
        The checkpoint belongs to another training.
    """
    try:
        difference = _difference(state, common, trainer.seed, folder)
        if difference is None:
            trainer.load_state_dict(state["trainer"])
    except torch.OutOfMemoryError:
        raise
    except (LookupError, AttributeError, TypeError, RuntimeError, ValueError) as error:
        raise CheckpointError(
            f"train: expected the checkpoint of a training in {folder.path}, but what it holds "
            f"does not fit: {error or type(error).__name__}; start a new run"
        ) from error
    if difference is not None:
        raise ValueError(difference)


def _difference(
    state: dict[str, Any], common: dict[str, Any], seed: int, folder: RunFolder
) -> str | None:
    """Describe why a checkpoint is not one of this training; None if it is."""
    if type(state["trainer"]["seed"]) is not int:
        raise TypeError("a seed that is not an integer")
    own = {**common["identity"], "seed": seed}
    before = {**state["identity"], "seed": state["trainer"]["seed"]}
    for old, new in (
        (before, own),
        *((state[part], common[part]) for part in ("network", "recipe", "preprocessing")),
    ):
        if (change := describe_change(old, new, folder.path)) is not None:
            return f"train: {change}"
    for part in ("classes", "domains"):
        if state[part] != common[part]:
            return (
                f"train: expected the {part} of the checkpoint in {folder.path}, got others; start "
                "a new run"
            )
    there, here = state["data"]["parts"], common["data"]["parts"]
    if there.keys() != here.keys() or not all(torch.equal(there[k], here[k]) for k in here):
        return (
            f"train: expected the training, validation and test parts of the checkpoint in "
            f"{folder.path}, got others: it belongs to another training; start a new run"
        )
    return None
