"""SPDNet as a scikit-learn classifier."""

import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy
import torch
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted, check_random_state

from spdnet._checks import require_choice, require_count, require_number, require_shrinking
from spdnet._inputs import (
    DTYPES,
    TakesMatrices,
    checked_signals,
    checked_weights,
    encode_domains,
    encode_labels,
    examine_matrices,
)
from spdnet._precision import real_dtype
from spdnet._warnings import warn_user
from spdnet.adaptation import Conditioner
from spdnet.data.split import hold_out
from spdnet.linalg.missing import describe_missing
from spdnet.linalg.validate import MAKE_DEFINITE
from spdnet.models.model import dims_of, get_trait, input_dtype
from spdnet.models.registry import find_model, import_model, is_registered, names_with
from spdnet.options.estimator import HYPERPARAMETERS, EstimatorOptions
from spdnet.options.option import document, options
from spdnet.training import (
    RECIPES,
    Choice,
    InputScale,
    Recipe,
    Samples,
    Trainer,
    build,
    choose_members,
    make_fabric,
)
from spdnet.training.device import resolve_device, threads_for
from spdnet.training.evaluation import run_in_chunks, unchecked
from spdnet.training.progress import describe_epoch
from spdnet.training.recipe import NETWORK_OPTIONS, find_recipe, require_taken

WHO = "SPDNetClassifier"
_EXAMINED = 32  # number of matrices whose scale is compared with the threshold of ReEig


@document
@dataclass(repr=False, eq=False)
class SPDNetClassifier(
    TakesMatrices,
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    ClassifierMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
    EstimatorOptions,  # type: ignore[misc]
):
    """SPDNet and related networks with a scikit-learn interface.

    By default, small networks are compared by cross-validation within the training set, and an
    ensemble of the best ones is trained. ``dims``, ``norm`` and other options of SPDNet train a
    single SPDNet instead: see ``recipe``.

    The network of the last epoch is kept, or with ``early_stopping`` that of the epoch with the
    lowest validation loss. Classes are weighted by ``class_weight``, samples by ``sample_weight``
    of :meth:`fit`.

    To pass ``domains`` through pipelines, searches and cross-validation, enable the metadata
    routing of scikit-learn with ``sklearn.set_config(enable_metadata_routing=True)`` and request
    them with ``classifier.set_fit_request(domains=True).set_score_request(domains=True)``.

    Parameters
    ----------
    {options}

    Attributes
    ----------
    choice_ : Choice or None
        Chosen members of the portfolio, with ``recipe="auto"``: see
        :class:`spdnet.training.Choice`.
    classes_ : array, shape (n_classes,)
    dims_ : tuple of int
    history_ : list of dict
        One row per epoch: see :class:`spdnet.training.Progress`.
    conditioner_ : Conditioner
        Steps between the matrices and the network: missing channels, rank, shrinkage and domains.
    domains_ : array, shape (n_domains,), or None
    recipe_ : Recipe
    model_ : Module
    n_features_in_ : int
        Size of the matrices, or number of channels of the signals.
    n_iter_ : int
        Number of epochs of the last fit.
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
        X : array, shape (N, n, n)
            SPD matrices, or signals ``(N, channels, T)`` for a model that takes signals. Rows and
            columns of missing channels are NaN or zero; channels that are missing in all matrices
            are removed. Singular matrices are made positive definite: see ``rank``. Complex
            Hermitian matrices train a network of complex BiMaps, or of complex spectral features.
        y : array, shape (N,)
            Classes, of any type that can be sorted.
        sample_weight : array, shape (N,), optional
        domains : array, shape (N,), optional
            Origin of each sample, such as the subject or the session. Matrices are recentered by
            domain: see ``adapt``. Networks with ``norm="domain"``, and TSMNet on signals, also
            normalize each domain in their layers. Prediction adapts to new domains without labels:
            pass all samples of a domain at once.
        groups : array, shape (N,), optional
            Group of each sample, for example the subject. Cross-validation and
            ``early_stopping`` hold out whole groups. By default, ``domains``.
        """
        recipe = self._recipe()
        data, classes, known, conditioner, n = self._samples(
            recipe, X, y, sample_weight, domains, groups
        )
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        train, val, codes = self._split(data, domains if groups is None else groups, seed)
        fabric = make_fabric(self.device)
        choice = None
        is_warm = bool(self.warm_start) and hasattr(self, "model_")
        if is_warm and recipe.members is not None:  # continue the training of that network
            choice, last = self.choice_, self.recipe_
            members = last.members if recipe.needs_choice else None
            recipe = recipe.changed(members=members, n_samples=last.n_samples)
        elif recipe.needs_choice:
            choice = choose_members(
                recipe,
                train,
                len(classes),
                groups=codes,
                seed=seed,
                fabric=fabric,
                jobs=effective_n_jobs(self.n_jobs),
            )
            recipe = recipe.changed(members=choice.members, n_samples=len(train))
            if self.verbose:
                print("\n".join([*conditioner.notes_, choice.describe()]))
        elif recipe.members is not None:
            recipe = recipe.changed(n_samples=len(train))
        dims = self._dims(recipe, train.X.shape[1])
        if is_warm:
            self._require_same(recipe, dims, n, classes, known)
            model = copy.deepcopy(self.model_).to(train.X.device)
        else:
            n_domains = 1 if data.domain is None or known is None else len(known)
            model = build(recipe, dims, len(classes), train, n_domains=n_domains, seed=seed)
        trainer = Trainer(
            model,
            train,
            recipe,
            val=val,
            patience=self.n_iter_no_change if self.early_stopping else None,
            seed=seed,
            fabric=fabric,
        )
        progress = trainer.run(self._report)
        if unchecked(model):  # training does not check its input
            with torch.no_grad():
                model.eval()(*train.take(torch.arange(min(_EXAMINED, len(train)))).inputs)
        self.scale_ = InputScale.of(data.X, signals=recipe.takes_signals)
        # on the CPU, so that it can be unpickled without the device
        self.model_: torch.nn.Module = model.eval().cpu()
        self.classes_ = classes
        self.domains_ = known
        self.conditioner_: Conditioner = conditioner
        self.recipe_: Recipe = recipe
        self.choice_: Choice | None = choice
        self.n_features_in_ = n
        self.dims_ = dims_of(model)
        self.history_ = progress.history
        self.n_iter_ = progress.epoch
        return self

    def decision_function(self, X: ArrayLike, *, domains: ArrayLike | None = None) -> NDArray[Any]:
        """Return the logits ``(n_matrices, n_classes)``, or their difference for two classes."""
        logits = self._run(X, domains)
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def predict_proba(self, X: ArrayLike, *, domains: ArrayLike | None = None) -> NDArray[Any]:
        """Return probabilities ``(n_matrices, n_classes)`` in the order of ``classes_``."""
        return torch.from_numpy(self._run(X, domains)).softmax(-1).numpy()

    def predict(self, X: ArrayLike, *, domains: ArrayLike | None = None) -> NDArray[Any]:
        """Return the most probable class of each matrix."""
        best = self._run(X, domains).argmax(-1)
        return self.classes_[best]

    def transform(self, X: ArrayLike, *, domains: ArrayLike | None = None) -> NDArray[Any]:
        """Return the inputs of the classifier, ``(n_matrices, n_features)``.

        The model must have a method ``features``. Matrices are flattened.
        """
        return self._run(X, domains, "features")

    @torch.no_grad()
    def _run(
        self, X: ArrayLike, domains: ArrayLike | None, method: str = "forward"
    ) -> NDArray[Any]:
        check_is_fitted(self, "model_")
        if not hasattr(self.model_, method):
            name = type(self.model_).__name__
            raise ValueError(f"SPDNetClassifier: expected a model with {method}(), got {name}")
        signals, dtype = self.recipe_.takes_signals, input_dtype(self.model_)
        values, _ = self._checked(
            X,
            dtype,
            signals=signals,
            n=self.n_features_in_,
            partial=self.conditioner_.completes,
            allow_complex=dtype.is_complex,
            definite=not self.conditioner_.makes_definite,
            advice="no training matrix was singular: train with some of these matrices, or with "
            "shrinkage=0.1",
        )
        if self.conditioner_.uses_domains:
            encode_domains(WHO, domains, len(values))  # validates them
        inputs = [self.conditioner_.transform(values, domains)]
        where = values.device
        if warning := self.scale_.warning(inputs[0], signals=signals):
            warn_user(f"SPDNetClassifier: {warning}", UserWarning)
        model = self.model_ if where.type == "cpu" else copy.deepcopy(self.model_).to(where)
        if self.recipe_.uses_domains and self.domains_ is not None:
            codes, _ = encode_domains(WHO, domains, len(inputs[0]), self.domains_)
            inputs.append(torch.as_tensor(codes, device=where))
            model = get_trait(model, "adapt")(*inputs)
        elif domains is not None and self.domains_ is None:
            raise ValueError("SPDNetClassifier: expected no domains, since fit had none")
        function = getattr(model, method)
        with threads_for(inputs[0].shape[1], len(inputs[0])):
            found = run_in_chunks(function, *inputs, **unchecked(function)).flatten(1).cpu()
        bad = (~found.isfinite().all(1)).nonzero()
        if len(bad):
            raise FloatingPointError(
                f"SPDNetClassifier: expected finite outputs of the network, got NaN or infinity "
                f"for X[{int(bad[0])}] and {len(bad) - 1} more; the training diverged, or X is huge"
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
        """Return the accuracy."""
        predicted = self.predict(X, domains=domains)
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))

    def _recipe(self) -> Recipe:
        require_choice(WHO, "recipe", self.recipe, RECIPES)
        settings = {name: getattr(self, name) for name in HYPERPARAMETERS}
        given = {name: getattr(self, name, None) for name in ("model", *NETWORK_OPTIONS)}
        recipe = RECIPES[find_recipe(self.recipe, given)]
        if self.model is not None and not is_registered(self.model):
            if isinstance(self.model, str):  # check the name before importing it
                recipe.changed(model=self.model)
            settings["model"] = import_model(self.model)
        recipe = recipe.changed(**settings)
        del given["model"]
        require_taken(WHO, recipe.model, given)
        return recipe

    @property
    def _n_features_out(self) -> int:
        """Number of columns of :meth:`transform`, for ``get_feature_names_out``."""
        return int(getattr(self.model_, "n_features"))  # noqa: B009, its type is unknown

    def _require_same(
        self, recipe: Recipe, dims: tuple[int, ...], n: int, classes: Any, known: Any
    ) -> None:
        """Raise an error unless training of the network of the last fit can continue."""
        changes: dict[str, tuple[Any, Any]] = {
            "classes": (self.classes_, classes),
            "number of features": (self.n_features_in_, n),
            "domains": (self.domains_ if recipe.uses_domains else known, known),
        }
        names = [name for name in ("model", *NETWORK_OPTIONS, "bias") if name != "dims"]
        changes |= {name: (getattr(self.recipe_, name), getattr(recipe, name)) for name in names}
        changes["dims"] = (self.dims_, dims)
        for name, (before, now) in changes.items():
            if not numpy.array_equal(before, now):
                raise ValueError(
                    f"SPDNetClassifier: expected the {name} of the last fit, {before}, with "
                    f"warm_start=True, got {now}; set warm_start=False"
                )

    def _dims(self, recipe: Recipe, n: int) -> tuple[int, ...]:
        if self.dims is None:
            dims: tuple[int, ...] = get_trait(find_model(recipe.model), "choose_dims")(n)
            return dims
        dims = require_shrinking(WHO, self.dims)
        return dims if recipe.takes_signals or dims[:1] == (n,) else (n, *dims)

    def _checked(
        self,
        X: ArrayLike,
        dtype: torch.dtype,
        *,
        signals: bool,
        definite: bool,
        advice: str = MAKE_DEFINITE,
        n: int | None = None,
        **accepted: Any,
    ) -> tuple[torch.Tensor, bool]:
        """Return valid inputs on the device, and whether there are singular matrices.

        Missing channels of matrices become NaN.
        """
        known: Any = {"n": n, "dtype": dtype, "device": resolve_device(self.device)}
        if signals:
            return checked_signals(WHO, X, **known), False
        instead = f", or choose {names_with('takes', 'signals')}"
        examined = examine_matrices(WHO, X, instead=instead, **known, **accepted)
        examined.require(definite=definite or examined.X.is_complex(), advice=advice)
        return examined.X, examined.are_singular

    def _samples(
        self,
        recipe: Recipe,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        domains: ArrayLike | None,
        groups: ArrayLike | None,
    ) -> tuple[Samples, NDArray[Any], NDArray[Any] | None, Conditioner, int]:
        """Return the samples, classes and domains, the fitted conditioner, and the input size."""
        require_choice(WHO, "dtype", self.dtype, DTYPES)
        for name in ("rank", "shrinkage", "adapt"):
            options(EstimatorOptions)[name].check(WHO, name, getattr(self, name))
        conditioner = Conditioner(self.rank, self.shrinkage, self.adapt)
        values, singular = self._checked(
            X,
            DTYPES[self.dtype],
            signals=recipe.takes_signals,
            definite=not conditioner.accepts_singular,
            partial=True,
            allow_complex=get_trait(find_model(recipe.model), "supports_complex"),
        )
        n, where = int(values.shape[1]), values.device
        classes, codes = encode_labels(WHO, y, len(values))
        weight = checked_weights(WHO, classes[codes], self.class_weight, sample_weight)
        domain, known = None, None
        if domains is not None:
            domain, known = encode_domains(WHO, domains, len(values))
            if recipe.takes_signals and not recipe.uses_domains:
                raise ValueError(
                    f"{WHO}: expected domains only with matrices or a model that uses them, such "
                    f"as {names_with('uses_domains', True)}"
                )
        elif self.adapt not in ("none", "auto"):
            raise ValueError(
                f"SPDNetClassifier: expected domains, such as subjects or sessions, for adapt="
                f"{self.adapt!r}, got none; pass fit(X, y, domains=...)"
            )
        if not recipe.takes_signals:  # an unfitted conditioner changes nothing
            note = describe_missing(values)
            conditioner.fit(values, classes[codes], domains, groups=groups, singular=singular)
            conditioner.notes_[:0] = [note] if note else []
            values = conditioner.transform(values, domains)
        data = Samples(values, torch.as_tensor(codes, device=where))
        if weight is not None:
            weights = torch.as_tensor(weight).to(where, real_dtype(values.dtype))
            data = replace(data, weight=weights)
        if recipe.uses_domains and known is not None:
            data = replace(data, domain=torch.as_tensor(domain, device=where))
        return data, classes, known, conditioner, n

    def _split(
        self, data: Samples, groups: ArrayLike | None, seed: int
    ) -> tuple[Samples, Samples | None, NDArray[Any] | None]:
        """Hold out a validation part for early stopping, whole groups if there are several.

        Also return the group index of each training sample, or None if there are no groups.
        """
        codes = None
        if groups is not None:
            found, names = encode_domains(WHO, groups, len(data), what="groups")
            codes = found if len(names) > 1 else None
        if not self.early_stopping:
            return data, None, codes
        fraction = self.validation_fraction
        require_number(WHO, "validation_fraction", fraction, above=0, below=1)
        require_count(WHO, "n_iter_no_change", self.n_iter_no_change)
        y = data.y.cpu().numpy()
        held = torch.as_tensor(hold_out(y, fraction, groups=codes, seed=seed))
        if not held.any():
            raise ValueError(
                f"SPDNetClassifier: expected enough matrices to hold out a fraction of "
                f"{fraction:g}, got {len(data)}; set early_stopping=False"
            )
        return data[~held], data[held], None if codes is None else codes[~held.numpy()]

    def _report(self, trainer: Trainer) -> None:
        if self.verbose and trainer.progress.epoch % self.verbose == 0:
            print(describe_epoch(trainer.progress.history[-1]))


# the docstring states the types; help() would show Any
SPDNetClassifier.__init__.__annotations__.clear()
