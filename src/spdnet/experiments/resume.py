"""Going on with a run from a checkpoint of it, which somebody may have made up."""

from typing import Any

import torch

from spdnet.experiments.run_folder import RunFolder
from spdnet.training import Trainer
from spdnet.training.checkpoint import CheckpointError


def take_up(
    trainer: Trainer, state: dict[str, Any], common: dict[str, Any], folder: RunFolder
) -> None:
    """Go on from the state of a checkpoint.

    Parameters
    ----------
    trainer : Trainer
    state : dict
        Of the checkpoint.
    common : dict
        What the checkpoints of this run have in common: see :meth:`Trained.state`.
    folder : RunFolder

    Raises
    ------
    CheckpointError
        It does not fit.
    ValueError
        It is of another training.
    """
    try:
        difference = _difference(state, common, folder)
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


def _difference(state: dict[str, Any], common: dict[str, Any], folder: RunFolder) -> str | None:
    """Why a checkpoint is not of this training: it has other data, network or recipe."""
    if state["data"]["digest"] != common["data"]["digest"]:
        return (
            f"train: expected the data that the run in {folder.path} began with, got others; start "
            "a new run, or bring the data back"
        )
    for part in ("network", "recipe"):
        for name, value in state[part].items():
            if common[part].get(name) != value:
                return (
                    f"train: expected {name} = {value!r}, with which the run in {folder.path} "
                    f"began, got {common[part].get(name)!r} from {folder.settings_file.name}"
                )
    return None
