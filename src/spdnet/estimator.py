"""SPDNet as a scikit-learn classifier."""

import copy
from typing import Any
from warnings import warn

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.metrics import accuracy_score
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import check_is_fitted, check_random_state

from spdnet._checks import (
    as_array,
    require_choice,
    require_count,
    require_number,
    require_shrinking,
)
from spdnet._inputs import checked_matrices, checked_signals, encode_domains, encode_labels
from spdnet.data.split import hold_out
from spdnet.options.option import document, options
from spdnet.options.run import RunOptions
from spdnet.training import (
    RECIPES,
    InputScale,
    LabelledMatrices,
    Network,
    Recipe,
    Trainer,
    build,
    make_fabric,
)
from spdnet.training.device import resolve_device
from spdnet.training.loop import describe
from spdnet.training.network import adapted, in_pieces

DTYPES = {"float64": torch.float64, "float32": torch.float32}

#: parameters that replace the hyperparameters of the recipe
HYPERPARAMETERS = {
    name: found
    for name, found in options(RunOptions).items()
    if found.recipes and found.in_estimator
}


@document(HYPERPARAMETERS)
class SPDNetClassifier(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    ClassifierMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """SPDNet and related networks with a scikit-learn interface.

    The network of the last epoch is kept, or with ``early_stopping`` that of the epoch with the
    lowest validation loss. Classes are weighted by ``class_weight``, samples by ``sample_weight``
    of :meth:`fit`.

    ``domains``, for ``tsmnet``, are passed through pipelines, searches and cross-validation by the
    metadata routing of scikit-learn: with ``sklearn.set_config(enable_metadata_routing=True)``,
    request them with
    ``classifier.set_fit_request(domains=True).set_score_request(domains=True)``.

    Parameters
    ----------
    dims : sequence of int, optional
        Sizes of the matrices: of the input, then after each BiMap. The input's may be left out if
        the first BiMap reduces the size. Chosen from the data when not given: see
        :func:`spdnet.training.choose_dims`. For ``tsmnet``, of the covariance and after the BiMap.
    recipe : {"default", "paper"}
        Name of a set of hyperparameters: see :class:`spdnet.training.Recipe`. The parameters from
        ``model`` to ``label_smoothing`` replace its values where they are not None.
    {options}
    class_weight : dict or "balanced", optional
        Weights of the classes in the loss, finite and not negative.
    early_stopping : bool
        Whether to hold out a validation part, stop when its loss has not decreased for
        ``n_iter_no_change`` epochs, and keep the epoch with the lowest loss.
    validation_fraction : float
        Validation fraction for ``early_stopping``. The split is stratified, or by whole groups if
        ``groups`` or ``domains`` are given to :meth:`fit`.
    n_iter_no_change : int
        Number of epochs without a lower validation loss after which training stops, with
        ``early_stopping``.
    warm_start : bool
        Whether to continue from the network of the last fit.
    random_state : int, RandomState or None
        Random seed of the initial weights, the order of the batches and the validation split.
    device : str
        Device of fit and prediction; ``"auto"`` selects a CUDA device if there is one. The fitted
        network is kept on the CPU, so that it can be unpickled on any machine.
    dtype : {"float64", "float32"}
        Floating-point type of the network.
    verbose : int
        Number of epochs between printed lines; 0 prints nothing.

    Attributes
    ----------
    classes_ : array, shape (n_classes,)
    dims_ : tuple of int
    history_ : list of dict
        One row for each epoch: see :class:`spdnet.training.Progress`.
    domains_ : array, shape (n_domains,), or None
        The domains of the training, where there were any.
    recipe_ : Recipe
        With all settings.
    model_ : SPDNet, MultiBranchSPDNet or TSMNet
    n_features_in_ : int
        Size of the matrices, or channels of the signals.
    n_iter_ : int
        Epochs of the last fit.
    scale_ : InputScale
        Scale of the training data. Prediction warns if new data are far outside of it.

    Examples
    --------
    >>> from spdnet import SPDNetClassifier
    >>> from spdnet.data import load_digits_spd
    >>> X, y = load_digits_spd()
    >>> classifier = SPDNetClassifier(epochs=5, random_state=0).fit(X[:500], y[:500])
    >>> classifier.predict(X[500:]).shape
    (1297,)
    """

    #: cross-validation by groups passes them to fit, too, without set_fit_request
    __metadata_request__fit = {"groups": True}  # noqa: RUF012, as scikit-learn reads it

    classes_: NDArray[Any]
    n_features_in_: int
    model_: Network

    def __init__(
        self,
        dims: Any = None,
        *,
        recipe: str = "default",
        model: str | None = None,
        norm: str | None = None,
        head: str | None = None,
        eps: float | str | None = None,
        center: str | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        optimizer: str | None = None,
        schedule: str | None = None,
        momentum: float | None = None,
        weight_decay: float | None = None,
        label_smoothing: float | None = None,
        class_weight: Any = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        warm_start: bool = False,
        random_state: Any = None,
        device: str = "auto",
        dtype: str = "float64",
        verbose: int = 0,
    ) -> None:
        self.dims = dims
        self.recipe = recipe
        self.model = model
        self.norm = norm
        self.head = head
        self.eps = eps
        self.center = center
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.optimizer = optimizer
        self.schedule = schedule
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.label_smoothing = label_smoothing
        self.class_weight = class_weight
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.warm_start = warm_start
        self.random_state = random_state
        self.device = device
        self.dtype = dtype
        self.verbose = verbose

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        domains: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> "SPDNetClassifier":
        """Train the network.

        Parameters
        ----------
        X : array, shape (n_matrices, n, n)
            Symmetric positive definite; for ``tsmnet`` signals ``(n_signals, channels, T)``.
        y : array, shape (n_matrices,)
            Classes, of any type that sorts.
        sample_weight : array, shape (n_matrices,), optional
        domains : array, shape (n_signals,), optional
            For ``tsmnet``: who or what each signal is from, such as subjects. Each has statistics
            of its own. In prediction, domains that were not here are adapted to by their signals,
            without labels, so give all that there are of one at once.
        groups : array, shape (n_matrices,), optional
            Group of each sample, such as the subject or session. With ``early_stopping``, whole
            groups are held out, so that the validation loss is not measured on people of the
            training part. ``domains`` if not given.

        Returns
        -------
        SPDNetClassifier
        """
        recipe = self._recipe()
        data, classes, known = self._labelled(recipe, X, y, sample_weight, domains)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        train, val = self._split(data, seed, domains if groups is None else groups)
        n_domains = 1 if known is None else len(known)
        model = self._start(recipe, train, len(classes), n_domains, seed)
        trainer = Trainer(
            model,
            train,
            recipe,
            val=val,
            patience=self.n_iter_no_change if self.early_stopping else None,
            seed=seed,
            fabric=make_fabric(self.device),
        )
        progress = trainer.run(self._report)
        self.scale_ = InputScale.of(data.X, signals=recipe.takes_signals)
        self.model_ = model.eval().cpu()  # to be read where there is no such device
        self.classes_ = classes
        self.domains_ = known
        self.recipe_ = recipe
        self.n_features_in_ = int(data.X.shape[1])
        self.dims_ = model.dims
        self.history_ = progress.history
        self.n_iter_ = progress.epoch
        return self

    def decision_function(self, X: ArrayLike, *, domains: ArrayLike | None = None) -> NDArray[Any]:
        """Logits ``(n_matrices, n_classes)``; for two classes the difference ``(n_matrices,)``."""
        logits = self._run(X, domains, "forward")
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def predict_proba(self, X: ArrayLike, *, domains: ArrayLike | None = None) -> NDArray[Any]:
        """Probabilities ``(n_matrices, n_classes)`` in the order of ``classes_``."""
        logits = torch.from_numpy(self._run(X, domains, "forward"))
        return logits.softmax(-1).numpy()

    def predict(self, X: ArrayLike, *, domains: ArrayLike | None = None) -> NDArray[Any]:
        """The most probable class of each matrix."""
        best = self._run(X, domains, "forward").argmax(-1)
        return self.classes_[best]

    def transform(self, X: ArrayLike, *, domains: ArrayLike | None = None) -> NDArray[Any]:
        """The features ``(n_matrices, n_features)`` that the classifier sees, after LogEig.

        A Riemannian classifier sees matrices; they come row by row.
        """
        return self._run(X, domains, "features")

    @torch.no_grad()
    def _run(self, X: ArrayLike, domains: ArrayLike | None, method: str) -> NDArray[Any]:
        check_is_fitted(self, "model_")
        dtype = next(self.model_.parameters()).dtype
        inputs = [self._inputs(self.recipe_, X, dtype, n=self.n_features_in_)]
        where = inputs[0].device
        warning = self.scale_.warning(inputs[0], signals=self.recipe_.takes_signals)
        if warning is not None:
            warn(f"SPDNetClassifier: {warning}", stacklevel=3)
        if self.domains_ is not None:
            codes, _ = encode_domains("SPDNetClassifier", domains, len(inputs[0]), self.domains_)
            inputs.append(torch.as_tensor(codes, device=where))
        elif domains is not None:
            raise ValueError("SPDNetClassifier: expected no domains, since fit had none")
        model = self.model_ if where.type == "cpu" else copy.deepcopy(self.model_).to(where)
        model = adapted(model, *inputs) if len(inputs) == 2 else model
        found = in_pieces(getattr(model, method), *inputs, check=False).flatten(1).cpu()
        bad = (~found.isfinite().all(1)).nonzero()
        if len(bad):
            raise FloatingPointError(
                f"SPDNetClassifier: expected finite outputs of the network, got others for "
                f"X[{int(bad[0])}] and {len(bad) - 1} more; the training diverged, or X is huge"
            )
        return found.numpy()

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        domains: ArrayLike | None = None,
    ) -> float:
        """Accuracy."""
        predicted = self.predict(X, domains=domains)
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))

    def _recipe(self) -> Recipe:
        require_choice("SPDNetClassifier", "recipe", self.recipe, RECIPES)
        settings = {name: getattr(self, name) for name in HYPERPARAMETERS}
        return RECIPES[self.recipe].changed(**settings)

    @property
    def _n_features_out(self) -> int:
        """Of :meth:`transform`, for ``get_feature_names_out``."""
        d = int(self.model_.dims[-1])
        return d * (d + 1) // 2 if self.recipe_.takes_signals else d * d

    def _start(
        self, recipe: Recipe, train: LabelledMatrices, n_classes: int, n_domains: int, seed: int
    ) -> Network:
        """A new network, or with a warm start a copy of the last one."""
        dims = self._dims(recipe, train.X.shape[1])
        if not (self.warm_start and hasattr(self, "model_")):
            return build(recipe, dims, n_classes, train, n_domains=n_domains, seed=seed)
        for name in ("model", "norm", "head", "eps", "center", "bias"):
            before, now = getattr(self.recipe_, name), getattr(recipe, name)
            if before != now:
                raise ValueError(
                    f"SPDNetClassifier: expected {name} = {before!r} of the last fit, with "
                    f"warm_start=True, got {now!r}; set warm_start=False"
                )
        if self.model_.dims != dims:
            raise ValueError(
                f"SPDNetClassifier: expected the dims of the last fit, {self.model_.dims}, with "
                f"warm_start=True, got {dims}; set warm_start=False"
            )
        return copy.deepcopy(self.model_).to(train.X.device)

    def _dims(self, recipe: Recipe, n: int) -> tuple[int, ...]:
        if self.dims is None:
            return recipe.choose_dims(n)
        dims = require_shrinking("SPDNetClassifier", self.dims)
        return dims if recipe.takes_signals or dims[:1] == (n,) else (n, *dims)

    def _inputs(
        self, recipe: Recipe, X: ArrayLike, dtype: torch.dtype, n: int | None = None
    ) -> torch.Tensor:
        """The matrices or signals on the device, after checking them."""
        where = resolve_device(self.device)
        if recipe.takes_signals:
            return checked_signals("SPDNetClassifier", X, n=n, dtype=dtype, device=where)
        instead = ", or choose model='tsmnet'"
        return checked_matrices(
            "SPDNetClassifier", X, n=n, dtype=dtype, device=where, instead=instead
        )

    def _labelled(
        self,
        recipe: Recipe,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        domains: ArrayLike | None,
    ) -> tuple[LabelledMatrices, NDArray[Any], NDArray[Any] | None]:
        """What to train on, the classes and the domains."""
        require_choice("SPDNetClassifier", "dtype", self.dtype, DTYPES)
        matrices = self._inputs(recipe, X, DTYPES[self.dtype])
        where = matrices.device
        classes, codes = encode_labels("SPDNetClassifier", y, len(matrices))
        self._require_as_before(classes, matrices)
        weight = self._weight(classes[codes], sample_weight)
        domain, known = self._domains(recipe, domains, len(matrices))
        data = LabelledMatrices(
            matrices,
            torch.as_tensor(codes, device=where),
            None if weight is None else torch.as_tensor(weight).to(matrices),
            None if domain is None else torch.as_tensor(domain, device=where),
        )
        return data, classes, known

    def _require_as_before(self, classes: NDArray[Any], matrices: torch.Tensor) -> None:
        """With a warm start: the classes and the size of the last fit."""
        if self.warm_start and hasattr(self, "model_"):
            if not numpy.array_equal(classes, self.classes_):
                raise ValueError(
                    f"SPDNetClassifier: expected the classes of the last fit, {self.classes_}, "
                    f"with warm_start=True, got {classes}; set warm_start=False"
                )
            if matrices.shape[1] != self.n_features_in_:
                raise ValueError(
                    f"SPDNetClassifier: expected X with {self.n_features_in_} features as in the "
                    f"last fit, with warm_start=True, got {matrices.shape[1]}; set warm_start=False"
                )

    def _weight(
        self, labels: NDArray[Any], sample_weight: ArrayLike | None
    ) -> NDArray[numpy.float64] | None:
        """Weights of the samples, 1 on average; None where none were asked for."""
        if self.class_weight is None and sample_weight is None:
            return None
        if isinstance(self.class_weight, dict):
            for label, value in self.class_weight.items():
                require_number("SPDNetClassifier", f"class_weight[{label!r}]", value, at_least=0)
        weight: NDArray[numpy.float64] = compute_sample_weight(self.class_weight, labels)
        if sample_weight is not None:
            given = as_array("SPDNetClassifier", sample_weight, "sample_weight").astype(float)
            n = len(labels)
            if given.shape != (n,) or not numpy.isfinite(given).all() or (given < 0).any():
                raise ValueError(
                    f"SPDNetClassifier: expected sample_weight of shape ({n},), finite and not "
                    f"negative, got shape {given.shape}"
                )
            weight = weight * given
        if not weight.any():
            raise ValueError("SPDNetClassifier: expected weights that are not all zero")
        return weight / weight.mean()

    def _domains(
        self, recipe: Recipe, domains: ArrayLike | None, n: int
    ) -> tuple[NDArray[numpy.int64] | None, NDArray[Any] | None]:
        """Domains as numbers, and their names."""
        before = getattr(self, "domains_", None) if self.warm_start else None
        if domains is None:
            if before is not None:
                raise ValueError(
                    "SPDNetClassifier: expected the domains of the last fit with warm_start=True, "
                    "got none; set warm_start=False"
                )
            return None, None
        if not recipe.takes_signals:
            raise ValueError(
                "SPDNetClassifier: expected domains with model='tsmnet' only, the network that has "
                "statistics of each"
            )
        codes, known = encode_domains("SPDNetClassifier", domains, n)
        again = self.warm_start and hasattr(self, "model_")
        if again and (before is None or not numpy.array_equal(before, known)):
            raise ValueError(
                f"SPDNetClassifier: expected the domains of the last fit, {before}, with "
                f"warm_start=True, got {known}; set warm_start=False"
            )
        return codes, known

    def _split(
        self, data: LabelledMatrices, seed: int, groups: ArrayLike | None
    ) -> tuple[LabelledMatrices, LabelledMatrices | None]:
        """Hold out a validation part for early stopping; whole groups where there are several."""
        codes = None
        if groups is not None:
            codes, names = encode_domains("SPDNetClassifier", groups, len(data), what="groups")
            codes = None if len(names) == 1 else codes
        if not self.early_stopping:
            return data, None
        require_number(
            "SPDNetClassifier", "validation_fraction", self.validation_fraction, above=0, below=1
        )
        require_count("SPDNetClassifier", "n_iter_no_change", self.n_iter_no_change)
        y = data.y.cpu().numpy()
        held = torch.as_tensor(hold_out(y, self.validation_fraction, groups=codes, seed=seed))
        if not held.any():
            raise ValueError(
                f"SPDNetClassifier: expected enough matrices to hold out a part of "
                f"{self.validation_fraction:g}, got {len(data)}; set early_stopping=False"
            )
        return data[~held], data[held]

    def _report(self, trainer: Trainer) -> None:
        if self.verbose and trainer.progress.epoch % self.verbose == 0:
            print(describe(trainer.progress.history[-1]))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.two_d_array = False
        return tags
