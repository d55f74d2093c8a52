"""The steps between the matrices of a data set and a classifier: channels, rank and domains."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any, Self

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from spdnet._checks import require_choice
from spdnet._precision import accurate_dtype
from spdnet.adaptation.balanced import BalancedRecenter
from spdnet.adaptation.class_shift import ClassScores
from spdnet.adaptation.completion import Completion
from spdnet.adaptation.domains import DomainTransformer, IntArray, Read, Recenter, Rescale
from spdnet.adaptation.mean import masked_mean
from spdnet.adaptation.missing import KnownChannels
from spdnet.adaptation.subspace import Subspace
from spdnet.linalg.missing import has_missing
from spdnet.manifolds import log_euclidean

Step = Completion | DomainTransformer | KnownChannels | Subspace

#: steps of each kind of adaptation to domains
_ADAPTATIONS: dict[str, tuple[Callable[[], DomainTransformer], ...]] = {
    "none": (),
    "recenter": (Recenter,),
    "rescale": (Recenter, Rescale),
    "auto": (BalancedRecenter,),
}
_STEPS: dict[str, Any] = {
    step.__name__: step
    for step in (KnownChannels, Completion, Subspace, Recenter, Rescale, BalancedRecenter)
}
#: maximum number of matrices, and of their entries, in the mean that completes new matrices
_MAX_MEAN = 2000
_MEAN_ENTRIES = 2**24
#: added to the eigenvalues of singular matrices, relative to their mean, for the mean
_REGULARIZATION = 1e-3
#: number of matrices that are read at once to find singular ones
_CHUNK = 64


@dataclass(eq=False)
class Conditioner:
    """Complete matrices, make them positive definite, and move domains to a common center.

    Channels that are missing in all training matrices are removed.

    The estimator and ``spdnet train`` apply it between the matrices of the data and the network.
    It is fitted to the training part.

    Parameters
    ----------
    rank, shrinkage
        See :class:`Subspace`, which is used if matrices are singular or a value is given.
    adapt : {"none", "recenter", "rescale", "auto"}
        Adaptation to domains, if there are any: none, :class:`Recenter`, followed by
        :class:`Rescale`, or :class:`BalancedRecenter`.

    Attributes
    ----------
    steps_ : list
        Fitted transformers.
    notes_ : list of str
        What was done, and why.

    Examples
    --------
    >>> import torch
    >>> from spdnet.adaptation import Conditioner
    >>> X = torch.eye(2) * torch.tensor([1.0, 4.0, 100.0, 400.0])[:, None, None]
    >>> conditioner = Conditioner(adapt="recenter").fit(X, [0, 1, 0, 1], ["a", "a", "b", "b"])
    >>> conditioner.transform(X, ["a", "a", "b", "b"])[:, 0, 0]
    tensor([0.5000, 2.0000, 0.5000, 2.0000])
    """

    rank: str | int = "auto"
    shrinkage: str | float = "auto"
    adapt: str = "auto"

    def __post_init__(self) -> None:
        Subspace(self.rank, self.shrinkage).require_settings()
        require_choice("Conditioner", "adapt", self.adapt, _ADAPTATIONS)
        self.steps_: list[Step] = []
        self.notes_: list[str] = []

    def fit(
        self,
        X: Tensor,
        y: ArrayLike | None,
        domains: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
        singular: bool = False,
        channels: Sequence[str] | None = None,
        others: Tensor | None = None,
    ) -> Self:
        """Fit to symmetric positive semi-definite matrices ``X (N, n, n)`` with classes ``y (N,)``.

        Missing channels are NaN. ``singular`` states whether the observed part of some matrix is
        singular. The cross-validation of the shrinkage keeps ``groups``, by default the domains,
        together. ``channels`` are names for the notes. ``others`` are matrices that will be
        transformed, such as the test set: if some of them are singular, matrices are shrunk.
        """
        self.steps_, self.notes_ = [], []
        X = self._completed(X, singular, channels)
        if singular or self._changes_rank:
            if X.is_complex():
                raise TypeError(
                    "Conditioner: expected real matrices for rank and shrinkage, got complex ones; "
                    "if some are singular, use spdnet.covariance.regularize"
                )
            by = domains if groups is None else groups
            others = None if others is None else self.transform(others)
            subspace = Subspace(self.rank, self.shrinkage).fit_tensor(X, y, by, others=others)
            X = subspace.transform_tensor(X)
            self.steps_.append(subspace)
            self.notes_.append(subspace.describe())
        for make in () if domains is None else _ADAPTATIONS[self.adapt]:
            step = make().fit_tensor(X, domains, y)
            X = step.transform_tensor(X, domains)
            self.steps_.append(step)
        if self.uses_domains:
            count = len(numpy.unique(numpy.asarray(domains)))
            self.notes_.append(f"matrices are recentered by domain ({count} in the training set)")
        return self

    def _completed(self, X: Tensor, singular: bool, channels: Sequence[str] | None) -> Tensor:
        """Fit the steps for missing channels, and return completed matrices."""
        if X.is_complex():
            return X
        known = KnownChannels().fit_tensor(X)
        if text := known.describe(channels):
            self.steps_.append(known)
            self.notes_.append(text)
            X = known.transform_tensor(X)
        some, is_partial, n = X, has_missing(X), X.shape[-1]
        if not is_partial:
            some = X[:: -(-len(X) // min(_MAX_MEAN, _MEAN_ENTRIES // n**2 + n))]
        some = some.to(accurate_dtype(X))
        mean = masked_mean if is_partial else partial(log_euclidean.mean, check=False)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", RuntimeWarning)
            completion = Completion().set_mean(mean(_regularized(some) if singular else some))
        if caught:
            self.notes_.append(
                "the mean from which missing channels are estimated is approximate, because "
                "entries that few matrices have in common are inconsistent; drop channels that are "
                "often missing"
            )
        self.steps_.append(completion)
        return completion.transform_tensor(X)

    def transform(self, X: Tensor, domains: ArrayLike | None = None) -> Tensor:
        """Transform matrices; pass all matrices of a new domain at once."""
        for step in self.steps_:
            if isinstance(step, DomainTransformer):
                X = step.transform_tensor(X, domains)
            else:
                X = step.transform_tensor(X)
        return X

    def in_parts(self, read: Read, n: int, domains: ArrayLike | None = None) -> Read:
        """Return a function that reads some of ``n`` matrices by index and transforms them.

        This first reads all matrices of each new domain at once, one domain after the other.
        """
        for step in self.steps_:
            if isinstance(step, DomainTransformer):
                read = partial(_read_moved, read, step, *step.statistics(read, n, domains))
            else:
                read = partial(_read_conditioned, read, step, n)
        return read

    @property
    def channels(self) -> NDArray[numpy.int64] | slice:
        """Channels that are kept: those that at least one training matrix has."""
        kept = [step.kept_ for step in self.steps_ if isinstance(step, KnownChannels)]
        return kept[0] if kept else slice(None)

    @property
    def completes(self) -> bool:
        """Whether matrices to transform may have missing channels."""
        return any(isinstance(step, Completion) for step in self.steps_)

    def size(self, n: int) -> int:
        """Return the size of transformed matrices for input of size ``n``."""
        sizes = [n, *(s.rank_ for s in self.steps_ if isinstance(s, (KnownChannels, Subspace)))]
        return int(sizes[-1])

    @property
    def accepts_singular(self) -> bool:
        """Whether training matrices may be singular."""
        return (self.rank, self.shrinkage) != ("full", "none")

    @property
    def _changes_rank(self) -> bool:
        return (self.rank, self.shrinkage) not in (("auto", "auto"), ("full", "none"))

    def needs_fit(self, *, singular: bool) -> bool:
        """Return whether matrices need conditioning, given whether some are ``singular``."""
        return singular or self._changes_rank or self.adapt != "none"

    def changes(self, *, stored: bool) -> bool:
        """Return whether matrices may change; those ``stored`` on disk have all channels."""
        return any(not (stored and isinstance(step, Completion)) for step in self.steps_)

    @property
    def uses_domains(self) -> bool:
        """Whether the matrices are recentered by domain."""
        return any(isinstance(step, DomainTransformer) for step in self.steps_)

    @property
    def makes_definite(self) -> bool:
        """Whether matrices to transform may be singular."""
        return any(isinstance(step, Subspace) for step in self.steps_)

    def state(self) -> dict[str, Any]:
        """Return the settings and fitted steps as tensors, numbers, text, lists and dicts."""
        steps = [
            {
                "step": type(step).__name__,
                **{k: _to_plain(v) for k, v in sorted(vars(step).items())},
            }
            for step in self.steps_
        ]
        settings = {"rank": self.rank, "shrinkage": self.shrinkage, "adapt": self.adapt}
        return {**settings, "steps": steps, "notes": list(self.notes_)}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "Conditioner":
        """Restore a fitted conditioner."""
        made = cls(state["rank"], state["shrinkage"], state["adapt"])
        made.notes_ = list(state["notes"])
        for values in state["steps"]:
            step = _STEPS[values["step"]]()
            for name, value in values.items():
                if name != "step":
                    setattr(step, name, _from_plain(name, value))
            made.steps_.append(step)
        return made


def _read_conditioned(read: Read, step: Any, n: int, index: IntArray) -> Tensor:
    try:
        return step.transform_tensor(read(index))
    except ValueError:
        if isinstance(step, Subspace):  # report all singular matrices
            step.require_definite(map(read, numpy.array_split(numpy.arange(n), -(-n // _CHUNK))))
        raise


def _read_moved(
    read: Read,
    step: DomainTransformer,
    codes: IntArray,
    statistics: dict[int, Tensor],
    index: IntArray,
) -> Tensor:
    return step.move(read(index), codes[index], statistics)


def _regularized(X: Tensor) -> Tensor:
    """Add a fraction of the mean observed variance to the diagonal; NaN stays."""
    size = _REGULARIZATION * X.diagonal(dim1=-2, dim2=-1).nanmean(-1)
    return X + torch.diag_embed(size[:, None].expand(X.shape[:-1]))


def _to_plain(value: Any) -> Any:
    """Convert a value to one that a checkpoint can contain."""
    if isinstance(value, ClassScores):
        return {name: _to_plain(part) for name, part in asdict(value).items()}
    if isinstance(value, numpy.ndarray):
        return torch.from_numpy(value) if value.dtype.kind in "fc" else value.tolist()
    if isinstance(value, dict):  # results of the last transformation, or a curve
        return {k: v for k, v in value.items() if isinstance(v, float)}
    return value


def _from_plain(name: str, value: Any) -> Any:
    if name == "scores_" and value is not None:
        parts = {field.name: value[field.name] for field in fields(ClassScores)}
        return ClassScores(**{k: _from_plain(k, part) for k, part in parts.items()})
    if isinstance(value, Tensor):
        return value.cpu().numpy()
    return numpy.array(value) if isinstance(value, list) else value
