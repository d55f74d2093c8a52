"""Trained networks with their class names and preprocessing."""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from spdnet._checks import require_choice, require_count, require_number, require_shrinking
from spdnet._inputs import MATRIX_DTYPES, encode_domains, numeric_array
from spdnet._warnings import warn_user
from spdnet.adaptation import Conditioner
from spdnet.covariance import ESTIMATORS
from spdnet.data import Dataset, Preprocessing, StoredArray, prepare
from spdnet.data.dataset import SPLITS, as_integers, require_channel_names
from spdnet.data.names import shorten
from spdnet.models.model import dims_of, get_trait, input_dtype
from spdnet.models.registry import import_model, is_registered
from spdnet.runs.checkpoints import reading
from spdnet.runs.conditioning import transform
from spdnet.runs.results import LayerSpectrum
from spdnet.runs.run_folder import RunFolder
from spdnet.runs.scores import layer_spectra
from spdnet.training import InputScale, Recipe, checkpoint, make_network
from spdnet.training.data import as_tensor
from spdnet.training.device import resolve_device, threads_for
from spdnet.training.evaluation import chunk_rows
from spdnet.training.scale import log_variance

_EXPECTED = "checkpoint: expected a checkpoint of spdnet train, got another"


@dataclass(repr=False)
class TrainedModel:
    """Trained network with its class names and preprocessing.

    :meth:`load` reads a run of ``spdnet train``. :meth:`predict` and :meth:`predict_proba` are the
    equivalent of ``spdnet predict`` for arrays.

    Attributes
    ----------
    model : Module
    classes : list of str
    preprocessing : Preprocessing
    recipe : Recipe
    data : dict
        ``digest`` of the training data, ``digest_of_inputs`` of their ``X`` alone, and ``parts``:
        the indices of ``train``, ``val`` and ``test``.
    domains : list of str
        Groups of the training part, for a network that uses domains; otherwise empty.
    scale : InputScale
        Scale of the training part.
    conditioner : Conditioner
        Steps between the matrices and the network: missing channels, rank, shrinkage and domains.
    warnings : list of str
        Errors in damaged checkpoints that were skipped.
    bad : {"refuse", "drop", "repair"}
        Treatment of matrices that are not SPD in training.

    Examples
    --------
    >>> import tempfile
    >>> from spdnet.data import load_digits_spd
    >>> from spdnet.runs import RunFolder, Settings, TrainedModel, train
    >>> X, y = load_digits_spd()
    >>> with tempfile.TemporaryDirectory() as place:
    ...     settings = Settings(data="digits", recipe="fast", epochs=1, device="cpu")
    ...     found = train(settings, RunFolder(f"{place}/run"))
    ...     trained = TrainedModel.load(f"{place}/run", device="cpu")
    >>> trained
    TrainedModel(SPDNet, dims 17,17,17, 10 classes, for matrices of 17 x 17)
    >>> trained.predict(X[:3]).shape, trained.predict_proba(X[:3]).shape
    ((3,), (3, 10))
    """

    model: torch.nn.Module
    classes: list[str]
    preprocessing: Preprocessing
    recipe: Recipe
    data: dict[str, Any]
    domains: list[str]
    scale: InputScale
    conditioner: Conditioner
    warnings: tuple[str, ...] = ()
    bad: str = "refuse"

    def __repr__(self) -> str:
        n = self.preprocessing.n
        kind = (
            f"signals of {n} channels" if self.preprocessing.signals else f"matrices of {n} x {n}"
        )
        dims = ",".join(map(str, dims_of(self.model)))
        network = f"{self.recipe.network}, dims {dims}" if dims else self.recipe.network
        return f"TrainedModel({network}, {len(self.classes)} classes, for {kind})"

    @property
    def size(self) -> int:
        """Size of the first matrices in the network."""
        return (*dims_of(self.model), self.preprocessing.n)[0]

    @classmethod
    def load(
        cls, path: str | Path, *, device: str = "auto", model: str | type | None = None
    ) -> "TrainedModel":
        """Load a run, in the state of its best epoch.

        Parameters
        ----------
        path : path
            Run folder of ``spdnet train``, or a checkpoint file in it.
        device : str
        model : str or type, optional
            Class of the network, or ``"package.module:Class"``. Required for a model that is not
            registered, since a checkpoint does not import code on its own.
        """
        where = resolve_device(device)
        name = None if model is None else import_model(model)
        path = Path(path)
        folder = RunFolder(path.parent.parent if path.is_file() else path)
        try:
            bad = folder.settings().bad
        except (OSError, ValueError, TypeError):
            bad = "refuse"
        if path.is_file():
            return cls._from_state(checkpoint.load(path, device=where), name, bad)
        if not folder.exists:
            raise FileNotFoundError(
                f"run: expected a run folder of spdnet train or a checkpoint in one, got {path}"
                f"; {'it has no settings.toml' if path.is_dir() else 'there is no such file'}"
            )
        if seeds := folder.seeds():
            raise ValueError(
                f"run: expected one trained network, but {path} contains {len(seeds)} repeats; "
                f"choose one, such as {seeds[0].path}"
            )
        files = folder.checkpoints()
        try:
            return cls._from_state(checkpoint.load(files.best, device=where), name, bad)
        except FileNotFoundError:
            warnings = []
        except checkpoint.CheckpointError as error:
            warnings = [str(error)]
        state, faults = files.load_last(device=where, needs=("network", "classes", "trainer"))
        return cls._from_state(state, name, bad, (*warnings, *faults))

    @classmethod
    def _from_state(
        cls, state: dict[str, Any], name: str | None, bad: str, warnings: tuple[str, ...] = ()
    ) -> "TrainedModel":
        with reading(_EXPECTED):
            recipe = Recipe(**state["recipe"])
        _require_named(recipe.model, name)
        with reading(_EXPECTED):
            weights = state.get("model")
            if weights is None:  # the training is unfinished
                weights = state["trainer"]["best_state"] or state["trainer"]["model"]
            preprocessing = Preprocessing(**state["preprocessing"])
            scale = InputScale(**state["scale"])
            conditioner = Conditioner.from_state(state["conditioner"])
            _require_valid(state, preprocessing, recipe)
            classes, domains, dims = state["classes"], state["domains"], state["network"]["dims"]
            make = partial(
                make_network,
                recipe,
                conditioner.size(preprocessing.n),
                len(classes),
                dims=require_shrinking("checkpoint", dims) if dims else (),
                n_domains=max(1, len(domains)),
                dtype=MATRIX_DTYPES[state["network"]["dtype"]],
            )
            if is_registered(recipe.model):
                # memory is allocated only if the weights have the declared sizes
                expected = {k: v.shape for k, v in make(device="meta").state_dict().items()}
                if {k: v.shape for k, v in weights.items()} != expected:
                    raise ValueError("shapes of weights that do not match the network")
            if invalid := [k for k, v in weights.items() if not v.isfinite().all()]:
                raise ValueError(f"{invalid[0]} that is not finite")
            model = make(device=next(iter(weights.values())).device)
            model.load_state_dict(weights)
        common = (classes, preprocessing, recipe, state["data"], domains, scale, conditioner)
        return cls(model.eval(), *common, warnings, bad)

    def state(self) -> dict[str, Any]:
        """Return the contents of a checkpoint except the weights."""
        return {
            "network": {"dims": list(dims_of(self.model)), "dtype": self.dtype},
            "classes": self.classes,
            "preprocessing": asdict(self.preprocessing),
            "data": self.data,
            "domains": self.domains,
            "scale": asdict(self.scale),
            "conditioner": self.conditioner.state(),
            "recipe": asdict(self.recipe),
        }

    def predict(
        self,
        X: ArrayLike | StoredArray | Dataset,
        *,
        groups: ArrayLike | None = None,
        channels: ArrayLike | None = None,
    ) -> NDArray[numpy.str_]:
        """Return the names of the most probable classes ``(N,)``.

        Parameters
        ----------
        X : array, StoredArray or Dataset, shape (N, n, n) or (N, channels, T)
            Matrices or signals as in training; the same preprocessing is applied. Matrices that are
            not SPD are an error, or repaired if the run was trained with ``bad = "repair"``.
            Missing channels are NaN or zero, in signals NaN or constant. Matrices on disk are read
            in parts, those of a new group as a whole. A Dataset has its own groups and channels.
        groups : array, shape (N,), optional
            Group of each sample, required if the training used domains (``adapt``,
            ``norm="domain"`` or TSMNet). New groups are adapted to without labels: pass all samples
            of a group at once.
        channels : sequence of str, optional
            Names of the channels, to arrange them as in training, if the training data had names.
            Channels that ``X`` lacks are estimated, and others are dropped.
        """
        best = self.predict_proba(X, groups=groups, channels=channels).argmax(-1)
        return numpy.array(self.classes)[best]

    def predict_proba(
        self,
        X: ArrayLike | StoredArray | Dataset,
        *,
        groups: ArrayLike | None = None,
        channels: ArrayLike | None = None,
    ) -> NDArray[numpy.float64]:
        """Return probabilities ``(N, n_classes)`` in the order of ``classes``."""
        matrices = self._matrices(X, groups, channels)
        for note in matrices.notes if self.uses_groups or channels is not None else ():
            _warn(note)
        return self.probabilities(matrices, on_warning=_warn)

    def probabilities(self, matrices: Dataset, **callbacks: Any) -> NDArray[numpy.float64]:
        """Return probabilities ``(N, n_classes)`` for prepared data."""
        return self.logits(matrices, **callbacks).double().softmax(-1).numpy()

    def _matrices(
        self,
        X: ArrayLike | StoredArray | Dataset,
        groups: ArrayLike | None,
        channels: ArrayLike | None,
    ) -> Dataset:
        if isinstance(X, Dataset):
            groups = X.groups if groups is None and self.uses_groups else groups
            channels = X.channels if channels is None else channels
            X = X.X
        kind = "(N, channels, T)" if self.preprocessing.signals else "(N, n, n)"
        some: Any = X[:1] if isinstance(X, StoredArray) else X
        array, _ = numeric_array(
            "predict", some, kind, allow_complex=input_dtype(self.model).is_complex
        )
        values = X if isinstance(X, StoredArray) else array
        if groups is not None and not self.uses_groups:
            raise ValueError("predict: expected no groups, since the network does not use them")
        if groups is None and self.uses_groups:
            raise ValueError(
                f"predict: expected groups of the {len(values)} samples, since the network was "
                "trained with groups, got none; if all belong to one new group, pass groups = "
                "['new'] * len(X)"
            )
        if groups is not None:
            codes, names = encode_domains("predict", groups, len(values), what="groups")
            groups = as_integers(names, "predict: expected groups that are names or integers")[
                codes
            ]
        if channels is not None:
            channels = require_channel_names("predict", channels, values.shape[1])
        bad = "repair" if self.bad == "repair" else "refuse"  # one row per input
        return self.prepare(Dataset(values, groups=groups, channels=channels), bad)

    @property
    def uses_groups(self) -> bool:
        """Whether the network or its inputs are adapted to groups."""
        return bool(self.domains) or self.conditioner.uses_domains

    def prepare(
        self, data: Dataset, bad: str, on_matrix: Callable[[int, int], None] | None = None
    ) -> Dataset:
        """Prepare the contents of a file as in training; pass all samples of a new group at once.

        ``on_matrix`` is called with the number of matrices checked and their total.
        """
        missing = self.conditioner.completes
        prepared = prepare(
            self.preprocessing.arrange(data, missing=missing and bad != "repair"),
            self.preprocessing,
            bad,
            self.dtype,
            singular=self.conditioner.makes_definite,
            missing=missing,
            on_matrix=on_matrix,
        )
        made, notes = transform(self.conditioner, prepared, stream=True)
        return replace(made, notes=(*made.notes, *notes))

    def codes(self, y: NDArray[Any]) -> NDArray[numpy.int64]:
        """Return labels as class indices; raise an error for unknown labels."""
        names = list(map(str, y))
        if unknown := sorted({*names} - {*self.classes}):
            expected, got = (shorten([*map(repr, some)]) for some in (self.classes, unknown))
            raise ValueError(f"data: expected the classes of the training, {expected}, got {got}")
        index = {name: i for i, name in enumerate(self.classes)}
        return numpy.array([index[name] for name in names])

    @property
    def dtype(self) -> str:
        """Name of the type of the matrices."""
        return str(input_dtype(self.model)).removeprefix("torch.")

    def logits(self, matrices: Dataset, **callbacks: Any) -> Tensor:
        """Return the logits ``(N, n_classes)`` on the CPU: see :meth:`predict_in_parts`."""
        found, start = torch.empty(0), 0
        for logits in self.predict_in_parts(matrices, **callbacks):
            # allocated first: small results between large temporaries would fragment memory
            if start == 0:
                found = logits.new_empty(len(matrices), logits.shape[1])
            found[start : (start := start + len(logits))] = logits
        return found

    @torch.no_grad()
    def predict_in_parts(
        self,
        matrices: Dataset,
        *,
        on_matrix: Callable[[int, int], None] | None = None,
        on_warning: Callable[[str], None] | None = None,
    ) -> Iterator[Tensor]:
        """Yield the logits of chunks of matrices, on the CPU.

        Of matrices on disk, only one chunk is in memory. After the last chunk, raise an error if a
        result was not finite, or call ``on_warning`` with a message if the scale of the data
        differs from that of the training data. ``on_matrix`` is called with the number of matrices
        done and their total.
        """
        model, (X, *codes) = self._adapted(matrices)
        signals, stop, size = self.preprocessing.raw, 0, chunk_rows(model, X)
        scales = torch.empty(len(X), dtype=torch.float64)
        bad = numpy.zeros(len(X), dtype=bool)
        for chunk, *rest in zip(*(values.split(size) for values in (X, *codes)), strict=True):
            with threads_for(self.size):
                logits = model(chunk, *rest).cpu()
            part = slice(stop, stop := stop + len(chunk))
            scales[part] = log_variance(chunk, signals)
            bad[part] = ~logits.isfinite().all(-1).numpy()
            yield logits
            if on_matrix is not None:
                on_matrix(stop, len(X))
        if bad.any():
            raise FloatingPointError(
                f"network: expected finite outputs, got NaN or infinity for matrix "
                f"{matrices.index[bad][0]} and {bad.sum() - 1} more; the training diverged, or the "
                "matrices are too large"
            )
        if on_warning is not None and (text := self.scale.describe(scales, signals=signals)):
            on_warning(text)

    def spectra(self, matrices: Dataset) -> tuple[LayerSpectrum, ...]:
        """Compute quantiles of the eigenvalues of the output of each layer."""
        model, inputs = self._adapted(matrices)
        with threads_for(self.size):
            return layer_spectra(model, *(values[:] for values in inputs))

    def _adapted(self, matrices: Dataset) -> tuple[torch.nn.Module, list[Any]]:
        """Return the network, adapted to the domains of the data, and its inputs."""
        weight = next(self.model.parameters())
        X = as_tensor(matrices.inputs).to(weight.device)  # prepare() sets the dtype
        if not self.domains:
            return self.model, [X]
        codes = torch.from_numpy(matrices.group_codes(self.domains)).to(weight.device)
        return get_trait(self.model, "adapt")(X, codes), [X, codes]


def _require_named(model: str, name: str | None) -> None:
    """Raise an error unless a model that is not registered is named by the caller."""
    if name is None and not is_registered(model):
        raise ValueError(
            f"run: expected the class of the network, since the model {model!r} is not part of "
            f"spdnet and a checkpoint does not import code on its own; set --model {model}, or use "
            "TrainedModel.load(..., model=Class)"
        )
    if name not in (None, model):
        raise ValueError(f"run: expected the model of the run, {model}, got {name}")


def _warn(text: str) -> None:
    warn_user(f"predict: {text}", UserWarning)


def _require_valid(state: dict[str, Any], preprocessing: Preprocessing, recipe: Recipe) -> None:
    """Raise an error unless the contents of a checkpoint have valid types and are consistent."""
    require_count("checkpoint", "n", preprocessing.n)
    require_choice("checkpoint", "estimator", preprocessing.estimator, ESTIMATORS)
    require_number("checkpoint", "reg", preprocessing.reg, at_least=0)
    flags = (preprocessing.signals, preprocessing.raw, recipe.bias, recipe.log)
    lists, parts = (state["classes"], state["domains"]), state["data"]["parts"]
    valid = {
        "flags": all(isinstance(flag, bool) for flag in flags),
        "names": all(isinstance(names, list) for names in lists)
        and all(isinstance(name, str) for names in lists for name in names),
        "scale": all(isinstance(v, float) and math.isfinite(v) for v in state["scale"].values()),
        "digest": isinstance(state["data"]["digest"], str),
        "parts": set(parts) <= set(SPLITS)
        and all(isinstance(i, Tensor) and i.dtype == torch.int64 for i in parts.values()),
        "kind of input": preprocessing.raw == recipe.takes_signals,
        "domains": recipe.uses_domains or not state["domains"],
    }
    if wrong := [name for name, is_valid in valid.items() if not is_valid]:
        raise ValueError(f"invalid {wrong[0]}")
