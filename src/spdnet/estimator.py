"""SPDNet as a scikit-learn classifier."""

import copy
from dataclasses import replace
from typing import Any

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
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, check_random_state, column_or_1d

from spdnet._checks import (
    require_choice,
    require_count,
    require_number,
    require_square,
)
from spdnet.datasets.split import hold_out
from spdnet.linalg import cholesky
from spdnet.training import (
    RECIPES,
    LabelledMatrices,
    Network,
    Recipe,
    Trainer,
    build,
    make_fabric,
)
from spdnet.training.loop import describe
from spdnet.training.network import adapted, in_pieces

DTYPES = ("float64", "float32")


def _require_signals(X: torch.Tensor, channels: int | None) -> None:
    if channels is not None and X.shape[1] != channels:
        raise ValueError(
            f"SPDNetClassifier: expected signals of {channels} channels as in fit, got {X.shape[1]}"
        )
    if X.shape[1] == X.shape[2] and torch.equal(X, X.mT):
        raise ValueError(
            "SPDNetClassifier: expected signals (n_signals, channels, T) for tsmnet, got symmetric "
            f"matrices {tuple(X.shape)}; choose model='spdnet'"
        )
    bad = (~X.isfinite()).flatten(1).any(1).nonzero()
    if len(bad):
        raise ValueError(
            f"SPDNetClassifier: expected finite signals, got others, the first at X[{int(bad[0])}]"
        )


class SPDNetClassifier(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    ClassifierMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """SPDNet and its relatives with the conventions of scikit-learn.

    Parameters
    ----------
    dims : sequence of int, optional
        Sizes of the matrices: of the input, then after each BiMap. The input's may be left out if
        the first BiMap reduces the size. Chosen from the data when not given: see
        :func:`spdnet.training.choose_dims`. For ``tsmnet``, of the covariance and after the BiMap.
    model : {"spdnet", "multibranch", "tsmnet"}, optional
        The network; ``tsmnet`` takes signals instead of matrices.
    norm : {"brooks", "log_euclidean", "affine_invariant", "log_cholesky", "none"}, optional
        Batch normalisation after each BiMap.
    head : {"linear", "log_euclidean", "affine_invariant", "log_cholesky", ...}, optional
        The classifier: linear after LogEig, or Riemannian logistic regression in a metric.
    recipe : {"default", "paper"}
        Settings under one name: see :class:`spdnet.training.Recipe`. Each one below replaces that
        of the recipe where it is given.
    epochs, batch_size, lr, optimizer, schedule, momentum, weight_decay, label_smoothing, eps
        Settings of the recipe, like ``model``, ``norm`` and ``head``.
    center : {"log_euclidean", "affine_invariant", "none"}, optional
        Setting of the recipe; ``"none"`` does not centre.
    class_weight : dict or "balanced", optional
        Weights of the classes in the loss.
    early_stopping : bool
        Hold out a part of the training data, stop when its loss has not fallen for
        ``n_iter_no_change`` epochs, and keep the best epoch.
    validation_fraction : float
        The part held out, stratified.
    n_iter_no_change : int
    warm_start : bool
        Go on from the last fit instead of starting anew.
    random_state : int, RandomState or None
        Of the initial weights, the order of the batches and the validation split.
    device : str
        ``"auto"`` takes a CUDA device where there is one.
    dtype : {"float64", "float32"}
    verbose : int
        Print a line every so many epochs.

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

    Examples
    --------
    >>> from spdnet import SPDNetClassifier
    >>> from spdnet.datasets import load_digits_spd
    >>> X, y = load_digits_spd()
    >>> classifier = SPDNetClassifier(epochs=5, random_state=0).fit(X[:500], y[:500])
    >>> classifier.predict(X[500:]).shape
    (1297,)
    """

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
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        optimizer: str | None = None,
        schedule: str | None = None,
        momentum: float | None = None,
        weight_decay: float | None = None,
        label_smoothing: float | None = None,
        eps: float | str | None = None,
        center: str | None = None,
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
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.optimizer = optimizer
        self.schedule = schedule
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.label_smoothing = label_smoothing
        self.eps = eps
        self.center = center
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

        Returns
        -------
        SPDNetClassifier
        """
        recipe = self._recipe()
        data, classes, known = self._labelled(X, y, sample_weight, domains)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        train, val = self._split(data, seed)
        model = self._start(recipe, train, len(classes), 1 if known is None else len(known), seed)
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
        self.model_ = model.eval()
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
        inputs = [self._inputs(X, n=self.n_features_in_)]
        if self.domains_ is not None:
            inputs.append(self._domain_codes(domains, self.domains_, inputs[0])[0])
        elif domains is not None:
            raise ValueError("SPDNetClassifier: expected no domains, since fit had none")
        model = adapted(self.model_, *inputs) if len(inputs) == 2 else self.model_
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
        settings = {
            name: getattr(self, name)
            for name in (
                "epochs",
                "batch_size",
                "lr",
                "optimizer",
                "schedule",
                "momentum",
                "weight_decay",
                "label_smoothing",
                "eps",
                "center",
                "model",
                "norm",
                "head",
            )
        }
        return RECIPES[self.recipe].changed(**settings)

    @property
    def _n_features_out(self) -> int:
        """Of :meth:`transform`, for ``get_feature_names_out``."""
        d = int(self.model_.dims[-1])
        return d * (d + 1) // 2 if self._recipe().takes_signals else d * d

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
        dims = tuple(self.dims)
        return dims if recipe.takes_signals or dims[:1] == (n,) else (n, *dims)

    def _inputs(self, X: ArrayLike, n: int | None = None) -> torch.Tensor:
        """The matrices or signals on the device, after checking them."""
        require_choice("SPDNetClassifier", "dtype", self.dtype, DTYPES)
        signals = self._recipe().takes_signals
        X = numpy.asarray(X)
        if X.ndim != 3:
            raise ValueError(
                f"SPDNetClassifier: expected X of shape (n_signals, channels, T), got {X.shape}"
                if signals
                else f"SPDNetClassifier: expected X of shape (n_matrices, n, n), got {X.shape}; "
                "compute covariance matrices with spdnet.covariance.estimate"
            )
        if len(X) == 0:
            raise ValueError("SPDNetClassifier: expected at least one matrix, got none")
        if not numpy.issubdtype(X.dtype, numpy.number) or numpy.iscomplexobj(X):
            raise TypeError(f"SPDNetClassifier: expected X with real numbers, got dtype {X.dtype}")
        where = make_fabric(self.device).device
        matrices = torch.from_numpy(X.astype(self.dtype)).to(where)  # of the machine's byte order
        if signals:
            _require_signals(matrices, n)
            return matrices
        require_square("SPDNetClassifier", matrices, n=n)
        cholesky(matrices, who="SPDNetClassifier")  # refuses what is not SPD
        return matrices

    def _domain_codes(
        self, domains: ArrayLike | None, known: NDArray[Any], X: torch.Tensor
    ) -> tuple[torch.Tensor, NDArray[Any]]:
        """Domains as numbers, those that are not known after the others; and all of them."""
        names = numpy.asarray([] if domains is None else domains)
        if names.shape == (len(X),) and names.dtype.kind not in "biufU":
            raise TypeError(
                f"SPDNetClassifier: expected domains that are numbers or text, got {names.dtype}"
            )
        if names.shape != (len(X),):
            raise ValueError(
                f"SPDNetClassifier: expected domains of the {len(X)} signals, as in fit, got "
                f"{'none' if domains is None else f'shape {names.shape}'}"
            )
        everyone = numpy.concatenate([known, numpy.setdiff1d(names, known)])
        order = numpy.argsort(everyone)
        codes = order[numpy.searchsorted(everyone, names, sorter=order)]
        return torch.as_tensor(codes, device=X.device), everyone

    def _labelled(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        domains: ArrayLike | None,
    ) -> tuple[LabelledMatrices, NDArray[Any], NDArray[Any] | None]:
        matrices = self._inputs(X)
        labels = column_or_1d(y, warn=True)
        check_classification_targets(labels)
        if len(labels) != len(matrices):
            raise ValueError(
                f"SPDNetClassifier: expected one label for each of {len(matrices)} matrices, got "
                f"{len(labels)}"
            )
        classes, codes = numpy.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"SPDNetClassifier: expected at least two classes, got one: {classes[0]!r}"
            )
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
        weight = compute_sample_weight(self.class_weight, labels)
        if sample_weight is not None:
            weight = weight * self._sample_weight(sample_weight, len(labels))
        if not weight.any():
            raise ValueError("SPDNetClassifier: expected weights that are not all zero")
        plain = self.class_weight is None and sample_weight is None
        data = LabelledMatrices(
            matrices,
            torch.as_tensor(codes.reshape(-1), device=matrices.device),
            None if plain else torch.as_tensor(weight / weight.mean()).to(matrices),
        )
        if domains is None:
            if self.warm_start and getattr(self, "domains_", None) is not None:
                raise ValueError(
                    "SPDNetClassifier: expected the domains of the last fit with warm_start=True, "
                    "got none; set warm_start=False"
                )
            return data, classes, None
        if not self._recipe().takes_signals:
            raise ValueError(
                "SPDNetClassifier: expected domains with model='tsmnet' only, the network that has "
                "statistics of each"
            )
        nothing = numpy.atleast_1d(numpy.asarray(domains))[:0]
        domain, known = self._domain_codes(domains, nothing, matrices)
        before = getattr(self, "domains_", known)
        if self.warm_start and not numpy.array_equal(before, known):
            raise ValueError(
                f"SPDNetClassifier: expected the domains of the last fit, {self.domains_}, with "
                f"warm_start=True, got {known}; set warm_start=False"
            )
        return replace(data, domain=domain), classes, known

    @staticmethod
    def _sample_weight(sample_weight: ArrayLike, n: int) -> NDArray[numpy.float64]:
        weight = numpy.asarray(sample_weight, dtype=numpy.float64)
        if weight.shape != (n,) or not numpy.isfinite(weight).all() or (weight < 0).any():
            raise ValueError(
                f"SPDNetClassifier: expected sample_weight of shape ({n},), finite and not "
                f"negative, got shape {weight.shape}"
            )
        return weight

    def _split(
        self, data: LabelledMatrices, seed: int
    ) -> tuple[LabelledMatrices, LabelledMatrices | None]:
        if not self.early_stopping:
            return data, None
        require_number(
            "SPDNetClassifier", "validation_fraction", self.validation_fraction, above=0, below=1
        )
        require_count("SPDNetClassifier", "n_iter_no_change", self.n_iter_no_change)
        held = torch.as_tensor(hold_out(data.y.cpu().numpy(), self.validation_fraction, seed=seed))
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
