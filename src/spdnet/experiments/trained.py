"""A trained network with all that is needed to use it: label names and preprocessing."""

from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from spdnet._checks import require_choice, require_count, require_number, require_shrinking
from spdnet.covariance import ESTIMATORS
from spdnet.experiments.data import Matrices, Preprocessing
from spdnet.experiments.results import layer_spectra
from spdnet.experiments.run_folder import RunFolder
from spdnet.training import Network, Recipe, checkpoint, make_fabric, make_network
from spdnet.training.device import threads_for
from spdnet.training.network import adapted, in_pieces


@dataclass
class Trained:
    """A network, the names of its classes, and what is done to data before it sees them.

    Attributes
    ----------
    model : Network
    classes : list of str
    preprocessing : Preprocessing
    recipe : Recipe
    data : dict
        ``digest`` of the data it was trained on, and ``parts``: the indices of ``train``, ``val``
        and ``test`` in them.
    domains : list of str
        Groups of the training part, for a network with statistics of each; empty for others.
    warnings : list of str
        What was wrong with a checkpoint that had to be passed over.
    """

    model: Network
    classes: list[str]
    preprocessing: Preprocessing
    recipe: Recipe
    data: dict[str, Any]
    domains: list[str] = field(default_factory=list)
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
            recipe = Recipe(**state["recipe"])
            data, domains = state["data"], state["domains"]
            _require_agreement(preprocessing, recipe, domains)
            _require_names("classes", classes)
            _require_names("domains", domains)
            _require_data(data)
            make = partial(
                make_network,
                recipe,
                require_shrinking("checkpoint", network["dims"]),
                len(classes),
                n_channels=preprocessing.n if preprocessing.raw else None,
                n_domains=max(1, len(domains)),
                dtype={"float64": torch.float64, "float32": torch.float32}[network["dtype"]],
            )
            # sizes that a file tells get memory only if its weights have them
            _require_weights(weights, make(device="meta"))
            model = make(device=next(iter(weights.values())).device)
            model.load_state_dict(weights)
        except (LookupError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            raise checkpoint.CheckpointError(
                f"checkpoint: expected that of a run of spdnet train, got another: {error}"
            ) from error
        return cls(model.eval(), classes, preprocessing, recipe, data, domains, warnings)

    def state(self) -> dict[str, Any]:
        """Plain values and tensors for a checkpoint, without the weights."""
        return {
            "network": {"dims": list(self.model.dims), "dtype": self.dtype},
            "classes": self.classes,
            "preprocessing": self.preprocessing.as_dict(),
            "data": self.data,
            "domains": self.domains,
            "recipe": asdict(self.recipe),
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
        model, inputs = self._ready(matrices)
        with threads_for(model.dims[0]):
            logits = in_pieces(model, *inputs).cpu()
        bad = matrices.index[~logits.isfinite().all(-1).numpy()]
        if len(bad):
            raise FloatingPointError(
                f"network: expected finite outputs, got others for matrix {bad[0]} and "
                f"{len(bad) - 1} more; the training diverged, or the matrices are too large"
            )
        return logits

    def spectra(self, matrices: Matrices) -> list[dict[str, Any]]:
        """Eigenvalues of what comes out of each layer: median and band, a row for each."""
        model, inputs = self._ready(matrices)
        with threads_for(model.dims[0]):
            return layer_spectra(model, *(values[:] for values in inputs))

    def _ready(self, matrices: Matrices) -> tuple[Network, list[Any]]:
        """The network, which knows the domains of these data now, and what it is called with."""
        weight = next(self.model.parameters())
        X = matrices.tensor.to(weight.device)  # prepare() has given them the dtype
        if not self.domains:
            return self.model, [X]
        codes = torch.from_numpy(matrices.domain_codes(self.domains)).to(weight.device)
        return adapted(self.model, X, codes), [X, codes]


def _require_agreement(preprocessing: Preprocessing, recipe: Recipe, domains: Any) -> None:
    """What is done to data is possible, and what the network takes."""
    flags = (preprocessing.signals, preprocessing.raw, recipe.bias, recipe.log)
    if not all(isinstance(flag, bool) for flag in flags):
        raise TypeError("flags that are neither true nor false")
    require_count("checkpoint", "n", preprocessing.n)
    require_choice("checkpoint", "estimator", preprocessing.estimator, ESTIMATORS)
    require_number("checkpoint", "reg", preprocessing.reg, at_least=0)
    if preprocessing.raw != recipe.takes_signals or (domains and not recipe.takes_signals):
        raise ValueError(f"signals or domains that {recipe.model} does not take")


def _require_names(what: str, names: Any) -> None:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"{what} that are not names")


def _require_data(data: Any) -> None:
    """The digest of the data, and numbers of the matrices in each part."""
    indices = list(data["parts"].values())
    are_numbers = all(isinstance(i, Tensor) and i.dtype == torch.int64 for i in indices)
    if not isinstance(data["digest"], str) or not are_numbers:
        raise TypeError("data without a digest, or parts that are not numbers")


def _require_weights(weights: Any, model: Network) -> None:
    """The weights are tensors of the shapes that the network has, and finite."""
    expected = {name: value.shape for name, value in model.state_dict().items()}
    found = {name: value.shape for name, value in weights.items()}
    if found != expected:
        raise ValueError("weights of other shapes than those of the network")
    strange = [name for name, value in weights.items() if not value.isfinite().all()]
    if strange:
        raise ValueError(f"{strange[0]} that is not finite")


def _some(names: list[str]) -> str:
    return ", ".join(map(repr, names[:8])) + (f" and {len(names) - 8} more" if names[8:] else "")
