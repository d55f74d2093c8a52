"""A trained network with all that is needed to use it: label names and preprocessing."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from spdnet.experiments.data import Matrices, Preprocessing
from spdnet.experiments.run_folder import RunFolder
from spdnet.models import SPDNet
from spdnet.training import Recipe, checkpoint, make_fabric
from spdnet.training.device import threads_for

_PIECE = 256


@dataclass
class Trained:
    """A network, the names of its classes, and what is done to data before it sees them.

    Attributes
    ----------
    model : SPDNet
    classes : list of str
    preprocessing : Preprocessing
    data : dict
        ``digest`` of the data it was trained on, and ``parts``: the indices of ``train``, ``val``
        and ``test`` in them.
    warnings : list of str
        What was wrong with a checkpoint that had to be passed over.
    """

    model: SPDNet
    classes: list[str]
    preprocessing: Preprocessing
    data: dict[str, Any]
    warnings: tuple[str, ...] = ()

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto") -> "Trained":
        """From a run folder, or from a checkpoint in one; the best epoch where there is one.

        Parameters
        ----------
        path : path
            A folder that ``spdnet train`` made, or a ``.pt`` file in it.
        device : str

        Raises
        ------
        FileNotFoundError, CheckpointError
        """
        where = make_fabric(device).device
        path = Path(path)
        if path.suffix == ".pt":
            return cls._from_state(checkpoint.load(path, device=where), ())
        folder = RunFolder(path)
        if not folder.exists:
            raise FileNotFoundError(
                f"run: expected a run folder of spdnet train, got {path}; it has no settings.toml"
            )
        if folder.seeds():
            one = folder.seeds()[0].path
            raise ValueError(
                f"run: expected one trained network, but {path} holds {len(folder.seeds())} "
                f"repeats; choose one, such as {one}"
            )
        files = folder.checkpoints()
        warnings: list[str] = []
        if files.best.exists():
            try:
                return cls._from_state(checkpoint.load(files.best, device=where), ())
            except checkpoint.CheckpointError as error:
                warnings.append(str(error))
        state, faults = files.load_last(device=where, needs=("network", "classes", "trainer"))
        return cls._from_state(state, (*warnings, *faults))

    @classmethod
    def _from_state(cls, state: dict[str, Any], warnings: tuple[str, ...]) -> "Trained":
        try:
            network, classes = state["network"], state["classes"]
            weights = state.get("model")
            if weights is None:  # of a training under way: its best epoch, or where it stands
                trainer = state["trainer"]
                weights = trainer["best_state"] or trainer["model"]
            preprocessing = Preprocessing(**state["preprocessing"])
            model = SPDNet(
                network["dims"],
                len(classes),
                eps=network["eps"],
                bias=network["bias"],
                center=network["center"],
                dtype=getattr(torch, network["dtype"]),
                device=next(iter(weights.values())).device,
            )
            model.load_state_dict(weights)
        except (KeyError, TypeError, RuntimeError, AttributeError) as error:
            raise checkpoint.CheckpointError(
                f"checkpoint: expected that of a run of spdnet train, got another: {error}"
            ) from error
        return cls(model.eval(), classes, preprocessing, state["data"], warnings)

    def state(self, recipe: Recipe) -> dict[str, Any]:
        """Plain values and tensors for a checkpoint, without the weights."""
        return {
            "network": {
                "dims": list(self.model.dims),
                "eps": recipe.eps,
                "bias": recipe.bias,
                "center": recipe.center,
                "dtype": self.dtype,
            },
            "classes": self.classes,
            "preprocessing": self.preprocessing.as_dict(),
            "data": self.data,
            "recipe": asdict(recipe),
        }

    def codes(self, y: NDArray[Any]) -> NDArray[numpy.int64]:
        """Labels as numbers; names that training did not know are an error."""
        place = {name: i for i, name in enumerate(self.classes)}
        unknown = sorted({str(label) for label in y} - set(place))
        if unknown:
            raise ValueError(
                f"data: expected the classes of the training, {_some(self.classes)}, got "
                f"{_some(unknown)}"
            )
        return numpy.array([place[str(label)] for label in y])

    @property
    def dtype(self) -> str:
        """Of the weights, by name."""
        return str(next(self.model.parameters()).dtype).removeprefix("torch.")

    @torch.no_grad()
    def logits(self, matrices: Matrices) -> Tensor:
        """``(N, n_classes)`` on the CPU.

        Raises
        ------
        FloatingPointError
            They are not finite.
        """
        weight = next(self.model.parameters())
        X = torch.as_tensor(matrices.X, dtype=weight.dtype)
        with threads_for(X.shape[-1]):
            parts = [self.model(part.to(weight.device)).cpu() for part in X.split(_PIECE)]
        logits = torch.cat(parts)
        bad = matrices.index[~logits.isfinite().all(-1).numpy()]
        if len(bad):
            raise FloatingPointError(
                f"network: expected finite outputs, got others for matrix {bad[0]} and "
                f"{len(bad) - 1} more; the training diverged, or the matrices are too large"
            )
        return logits


def _some(names: list[str]) -> str:
    return ", ".join(map(repr, names[:8])) + (f" and {len(names) - 8} more" if names[8:] else "")
