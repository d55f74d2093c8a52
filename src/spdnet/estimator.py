"""SPDNet as a scikit-learn classifier."""

import copy
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
from spdnet.models import SPDNet
from spdnet.training import (
    RECIPES,
    LabelledMatrices,
    Recipe,
    Trainer,
    build,
    choose_dims,
    make_fabric,
)
from spdnet.training.loop import describe

DTYPES = ("float64", "float32")


class SPDNetClassifier(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    ClassifierMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """SPDNet with the conventions of scikit-learn.

    Parameters
    ----------
    dims : sequence of int, optional
        Sizes of the matrices: of the input, then after each BiMap. The input's may be left out if
        the first BiMap reduces the size. Chosen from the data when not given: see
        :func:`spdnet.training.choose_dims`.
    recipe : {"default", "paper"}
        Settings under one name: see :class:`spdnet.training.Recipe`. Each one below replaces that
        of the recipe where it is given.
    epochs, batch_size, lr, optimizer, schedule, momentum, weight_decay, label_smoothing, eps
        Settings of the recipe.
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
    model_ : SPDNet
    n_features_in_ : int
        Size of the matrices.
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
    model_: SPDNet

    def __init__(
        self,
        dims: Any = None,
        *,
        recipe: str = "default",
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
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> "SPDNetClassifier":
        """Train the network.

        Parameters
        ----------
        X : array, shape (n_matrices, n, n)
            Symmetric positive definite.
        y : array, shape (n_matrices,)
            Classes, of any type that sorts.
        sample_weight : array, shape (n_matrices,), optional

        Returns
        -------
        SPDNetClassifier
        """
        recipe = self._recipe()
        data, classes = self._labelled(X, y, sample_weight)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        train, val = self._split(data, seed)
        model = self._start(recipe, train, len(classes), seed)
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
        self.n_features_in_ = model.dims[0]
        self.dims_ = model.dims
        self.history_ = progress.history
        self.n_iter_ = progress.epoch
        return self

    def decision_function(self, X: ArrayLike) -> NDArray[Any]:
        """Logits ``(n_matrices, n_classes)``; for two classes the difference ``(n_matrices,)``."""
        logits = self._run(X, self._model().forward)
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Probabilities ``(n_matrices, n_classes)`` in the order of ``classes_``."""
        logits = torch.from_numpy(self._run(X, self._model().forward))
        return logits.softmax(-1).numpy()

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class of each matrix."""
        best = self._run(X, self._model().forward).argmax(-1)
        return self.classes_[best]

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """The LogEig features ``(n_matrices, d * d)`` that the linear classifier sees."""
        return self._run(X, self._model().features)

    def _model(self) -> SPDNet:
        check_is_fitted(self, "model_")
        return self.model_

    @torch.no_grad()
    def _run(self, X: ArrayLike, function: Any) -> NDArray[Any]:
        matrices = self._matrices(X, n=self.n_features_in_)
        return (
            torch.cat([function(part, check=False) for part in matrices.split(256)]).cpu().numpy()
        )

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
            )
        }
        return RECIPES[self.recipe].changed(**settings).centered(self.center)

    @property
    def _n_features_out(self) -> int:
        """Of :meth:`transform`, for ``get_feature_names_out``."""
        return int(self.model_.dims[-1]) ** 2

    def _start(self, recipe: Recipe, train: LabelledMatrices, n_classes: int, seed: int) -> SPDNet:
        """A new network, or with a warm start a copy of the last one."""
        dims = self._dims(train.X.shape[-1])
        if not (self.warm_start and hasattr(self, "model_")):
            return build(recipe, dims, n_classes, train, seed=seed)
        if self.model_.dims != dims:
            raise ValueError(
                f"SPDNetClassifier: expected the dims of the last fit, {self.model_.dims}, with "
                f"warm_start=True, got {dims}; set warm_start=False"
            )
        return copy.deepcopy(self.model_).to(train.X.device)

    def _dims(self, n: int) -> tuple[int, ...]:
        if self.dims is None:
            return choose_dims(n)
        dims = tuple(self.dims)
        return dims if dims[:1] == (n,) else (n, *dims)

    def _matrices(self, X: ArrayLike, n: int | None = None) -> torch.Tensor:
        """The matrices on the device, after checking them."""
        require_choice("SPDNetClassifier", "dtype", self.dtype, DTYPES)
        X = numpy.asarray(X)
        if X.ndim != 3:
            raise ValueError(
                f"SPDNetClassifier: expected X of shape (n_matrices, n, n), got {X.shape}; compute "
                "covariance matrices with spdnet.covariance.estimate"
            )
        if len(X) == 0:
            raise ValueError("SPDNetClassifier: expected at least one matrix, got none")
        if not numpy.issubdtype(X.dtype, numpy.number) or numpy.iscomplexobj(X):
            raise TypeError(f"SPDNetClassifier: expected X with real numbers, got dtype {X.dtype}")
        where = make_fabric(self.device).device
        matrices = torch.from_numpy(X.astype(self.dtype)).to(where)  # of the machine's byte order
        require_square("SPDNetClassifier", matrices, n=n)
        cholesky(matrices, who="SPDNetClassifier")  # refuses what is not SPD
        return matrices

    def _labelled(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None
    ) -> tuple[LabelledMatrices, NDArray[Any]]:
        matrices = self._matrices(X)
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
            require_square("SPDNetClassifier", matrices, n=self.n_features_in_)
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
        return data, classes

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
