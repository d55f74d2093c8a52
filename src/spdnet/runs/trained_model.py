"""A trained network with all that is needed to use it: label names and preprocessing."""

import math
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any
from warnings import warn

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from spdnet._checks import (
    as_array,
    bands_hint,
    require_choice,
    require_count,
    require_number,
    require_shrinking,
)
from spdnet.covariance import ESTIMATORS
from spdnet.data import Dataset, Preprocessing, prepare
from spdnet.data.dataset import SPLITS, is_integer_valued
from spdnet.runs.results import LayerSpectrum
from spdnet.runs.run_folder import RunFolder
from spdnet.runs.scores import layer_spectra
from spdnet.training import InputScale, Network, Recipe, checkpoint, make_network
from spdnet.training.data import as_tensor
from spdnet.training.device import resolve_device, threads_for
from spdnet.training.network import adapted, in_pieces


@dataclass(repr=False)
class TrainedModel:
    """A network, the names of its classes, and what is done to data before it sees them.

    :meth:`load` takes what ``spdnet train`` left in a folder; :meth:`predict` and
    :meth:`predict_proba` do for arrays what ``spdnet predict`` does for files.

    Attributes
    ----------
    model : Network
    classes : list of str
    preprocessing : Preprocessing
    recipe : Recipe
    data : dict
        ``digest`` of the data it was trained on, ``digest_of_inputs`` of their ``X`` alone, and
        ``parts``: the indices of ``train``, ``val`` and ``test`` in them.
    domains : list of str
        Groups of the training part, for a network with statistics of each; empty for others.
    scale : InputScale
        Scale of the training part.
    warnings : list of str
        What was wrong with a checkpoint that had to be passed over.
    bad : {"refuse", "drop", "repair"}
        What was done in training with matrices that are not SPD.

    Examples
    --------
    >>> import tempfile
    >>> from spdnet.data import load_digits_spd
    >>> from spdnet.runs import RunFolder, Settings, TrainedModel, train
    >>> X, y = load_digits_spd()
    >>> with tempfile.TemporaryDirectory() as place:
    ...     settings = Settings(data="digits", epochs=1, baseline=False, device="cpu")
    ...     found = train(settings, RunFolder(f"{place}/run"))
    ...     trained = TrainedModel.load(f"{place}/run", device="cpu")
    >>> trained
    TrainedModel(SPDNet, dims 17,17,17, 10 classes, for matrices of 17 x 17)
    >>> trained.predict(X[:3]).shape, trained.predict_proba(X[:3]).shape
    ((3,), (3, 10))
    """

    model: Network
    classes: list[str]
    preprocessing: Preprocessing
    recipe: Recipe
    data: dict[str, Any]
    domains: list[str]
    scale: InputScale
    warnings: tuple[str, ...] = ()
    bad: str = "refuse"

    def __repr__(self) -> str:
        what = self.preprocessing
        kind = (
            f"signals of {what.n} channels" if what.signals else f"matrices of {what.n} x {what.n}"
        )
        return (
            f"TrainedModel({self.recipe.network}, dims {','.join(map(str, self.model.dims))}, "
            f"{len(self.classes)} classes, for {kind})"
        )

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto") -> "TrainedModel":
        """From a run folder, or from a checkpoint in one; the best epoch where there is one.

        Parameters
        ----------
        path : path
            A run folder of ``spdnet train``, or a checkpoint file in it.
        device : str

        Raises
        ------
        FileNotFoundError, CheckpointError
        """
        where = resolve_device(device)
        path = Path(path)
        if path.is_file():
            bad = _bad_of(RunFolder(path.parent.parent))
            return cls._from_state(checkpoint.load(path, device=where), (), bad)
        folder = RunFolder(path)
        if not folder.exists:
            raise FileNotFoundError(
                f"run: expected a run folder of spdnet train or a checkpoint in one, got {path}"
                f"; {'it has no settings.toml' if path.is_dir() else 'there is no such file'}"
            )
        if folder.seeds():
            one = folder.seeds()[0].path
            raise ValueError(
                f"run: expected one trained network, but {path} holds {len(folder.seeds())} "
                f"repeats; choose one, such as {one}"
            )
        files = folder.checkpoints()
        warnings: list[str] = []
        bad = _bad_of(folder)
        if files.best.exists():
            try:
                return cls._from_state(checkpoint.load(files.best, device=where), (), bad)
            except checkpoint.CheckpointError as error:
                warnings.append(str(error))
        state, faults = files.load_last(device=where, needs=("network", "classes", "trainer"))
        return cls._from_state(state, (*warnings, *faults), bad)

    @classmethod
    def _from_state(
        cls, state: dict[str, Any], warnings: tuple[str, ...], bad: str
    ) -> "TrainedModel":
        try:
            network, classes = state["network"], state["classes"]
            weights = state.get("model")
            if weights is None:  # of a training under way: its best epoch, or where it stands
                trainer = state["trainer"]
                weights = trainer["best_state"] or trainer["model"]
            preprocessing = Preprocessing(**state["preprocessing"])
            recipe = Recipe(**state["recipe"])
            data, domains = state["data"], state["domains"]
            scale = InputScale(**state["scale"])
            _require_scale(scale)
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
        common = (classes, preprocessing, recipe, data, domains, scale)
        return cls(model.eval(), *common, warnings, bad)

    def state(self) -> dict[str, Any]:
        """Plain values and tensors for a checkpoint, without the weights."""
        return {
            "network": {"dims": list(self.model.dims), "dtype": self.dtype},
            "classes": self.classes,
            "preprocessing": self.preprocessing.as_dict(),
            "data": self.data,
            "domains": self.domains,
            "scale": self.scale.as_dict(),
            "recipe": asdict(self.recipe),
        }

    def predict(self, X: ArrayLike, *, groups: ArrayLike | None = None) -> NDArray[numpy.str_]:
        """The names of the most probable classes ``(N,)``.

        Parameters
        ----------
        X : array, shape (N, n, n) or (N, channels, T)
            Matrices or signals, as the run was trained on; what was done to them before training is
            done here. Matrices that are not SPD are refused, or repaired if the run was trained
            with ``bad = "repair"``.
        groups : array, shape (N,), optional
            For ``tsmnet`` that was trained with groups: who or what each signal is from. Those that
            training has not seen are adapted to, so give all signals of one at once.

        Raises
        ------
        ValueError, TypeError
            The arrays are not as in training.
        """
        return numpy.array(self.classes)[self.predict_proba(X, groups=groups).argmax(-1)]

    def predict_proba(
        self, X: ArrayLike, *, groups: ArrayLike | None = None
    ) -> NDArray[numpy.float64]:
        """Return probabilities ``(N, n_classes)`` in the order of ``classes``: see
        :meth:`predict`.
        """
        matrices = self._matrices(X, groups)
        if (warning := self.scale_warning(matrices)) is not None:
            warn(f"predict: {warning}", stacklevel=2)
        return self.probabilities(matrices)

    def scale_warning(self, matrices: Dataset) -> str | None:
        """Return a message if data have another scale than the training data, else None."""
        return self.scale.warning(as_tensor(matrices.inputs), signals=self.preprocessing.raw)

    def probabilities(self, matrices: Dataset) -> NDArray[numpy.float64]:
        """Probabilities ``(N, n_classes)`` for data that are ready."""
        return self.logits(matrices).double().softmax(-1).numpy()

    def _matrices(self, X: ArrayLike, groups: ArrayLike | None) -> Dataset:
        values = as_array("predict", X)
        kind = "(N, channels, T)" if self.preprocessing.signals else "(N, n, n)"
        if values.ndim != 3:
            hint = bands_hint(values)
            raise ValueError(f"predict: expected X of shape {kind}, got {values.shape}{hint}")
        if not numpy.issubdtype(values.dtype, numpy.number) or numpy.iscomplexobj(values):
            raise TypeError(f"predict: expected X with real numbers, got dtype {values.dtype}")
        if groups is not None and not self.domains:
            raise ValueError("predict: expected no groups, since the network does not use them")
        if groups is None and self.domains:
            raise ValueError(
                f"predict: expected groups of the {len(values)} signals, since the network was "
                "trained with groups, got none; if all are of one new person, give groups = "
                "['new'] * len(X)"
            )
        names = None if groups is None else _group_names(groups, len(values))
        bad = "repair" if self.bad == "repair" else "refuse"  # a row for each
        return prepare(Dataset(values, groups=names), self.preprocessing, bad, self.dtype)

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
    def logits(self, matrices: Dataset) -> Tensor:
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

    def spectra(self, matrices: Dataset) -> tuple[LayerSpectrum, ...]:
        """Compute quantiles of the eigenvalues of the output of each layer."""
        model, inputs = self._ready(matrices)
        with threads_for(model.dims[0]):
            return layer_spectra(model, *(values[:] for values in inputs))

    def _ready(self, matrices: Dataset) -> tuple[Network, list[Any]]:
        """The network, which knows the domains of these data now, and what it is called with."""
        weight = next(self.model.parameters())
        X = as_tensor(matrices.inputs).to(weight.device)  # prepare() has given them the dtype
        if not self.domains:
            return self.model, [X]
        codes = torch.from_numpy(matrices.group_codes(self.domains)).to(weight.device)
        return adapted(self.model, X, codes), [X, codes]


def _bad_of(folder: RunFolder) -> str:
    """What a run did with bad matrices; where nobody knows, they are refused."""
    try:
        return folder.settings().bad
    except (OSError, ValueError, TypeError):
        return "refuse"


def _group_names(groups: ArrayLike, n: int) -> NDArray[Any]:
    """Groups as in a file: text, or whole numbers."""
    names = as_array("predict", groups, "groups")
    if names.shape != (n,):
        raise ValueError(f"predict: expected groups of shape ({n},), got {names.shape}")
    if names.dtype.kind == "O" and all(isinstance(name, str) for name in names):
        names = names.astype(str)  # as the column of a table
    if names.dtype.kind == "f" and is_integer_valued(names).all():
        names = names.astype(numpy.int64)  # 1.0 is group 1
    if names.dtype.kind not in "biuU":
        raise TypeError(
            f"predict: expected groups that are names or whole numbers, got dtype {names.dtype}"
        )
    return names


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


def _require_scale(scale: InputScale) -> None:
    """Raise an error unless the range of the training data consists of finite numbers."""
    values = tuple(scale.as_dict().values())
    if not all(isinstance(value, float) and math.isfinite(value) for value in values):
        raise TypeError(f"a scale of {values}")


def _require_names(what: str, names: Any) -> None:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"{what} that are not names")


def _require_data(data: Any) -> None:
    """The digest of the data, and numbers of the matrices in each part."""
    indices = list(data["parts"].values())
    are_numbers = all(isinstance(i, Tensor) and i.dtype == torch.int64 for i in indices)
    if not isinstance(data["digest"], str) or not are_numbers:
        raise TypeError("data without a digest, or parts that are not numbers")
    if not set(data["parts"]) <= set(SPLITS):
        raise ValueError("parts of unknown names")


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
