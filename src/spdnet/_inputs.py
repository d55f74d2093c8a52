"""Validation of the inputs of scikit-learn estimators.

Matrices are validated by :mod:`spdnet.linalg.validate`.
"""

from collections.abc import Iterator
from numbers import Integral
from typing import Any, NamedTuple

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_random_state, column_or_1d
from torch import Tensor

from spdnet._checks import as_array, bands_hint, require_number, require_square
from spdnet._precision import COMPLEX, complex_dtype
from spdnet.linalg import symmetrize
from spdnet.linalg.missing import Filled, fill
from spdnet.linalg.validate import (
    FAULTS,
    MAKE_DEFINITE,
    UNIT,
    Faults,
    as_float64,
    chunk_size,
    find_faults,
    raise_first_fault,
    rounding_unit,
)

_SINGULAR = FAULTS.index("singular")
#: floating-point types of networks by name
DTYPES = {"float64": torch.float64, "float32": torch.float32}
#: types of the matrices of networks by name
MATRIX_DTYPES = {**DTYPES, "complex128": torch.complex128, "complex64": torch.complex64}


#: where matrices are examined unless a device is given
CPU = torch.device("cpu")


class TakesMatrices:
    """Base class of scikit-learn estimators that declares three-dimensional input."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.three_d_array = True
        tags.input_tags.two_d_array = False
        return tags


def as_tensor(fitted: NDArray[Any]) -> Tensor:
    """Convert a fitted array to a tensor; copy it if it is read-only, as in a memory map."""
    return torch.from_numpy(numpy.require(fitted, requirements="W"))


def checked_matrices(who: str, X: Any, *, wanted: str = "positive definite", **how: Any) -> Tensor:
    """Convert SPD matrices to an exactly symmetric tensor: see :func:`examine_matrices`."""
    found = examine_matrices(who, X, wanted=wanted, **how)
    raise_first_fault(who, found.faults, found.unit, wanted=wanted)
    return found.X


class ExaminedMatrices(NamedTuple):
    """Matrices as a tensor, exactly symmetric, and their faults."""

    who: str
    X: Tensor
    faults: Faults
    unit: float

    @property
    def are_faulty(self) -> bool:
        """Whether some matrices have a fault."""
        return bool((self.faults.code >= 0).any())

    @property
    def are_singular(self) -> bool:
        """Whether some matrices are singular."""
        return bool((self.faults.code == _SINGULAR).any())

    def require(self, *, definite: bool, advice: str = MAKE_DEFINITE) -> None:
        """Raise a ValueError for faulty matrices; singular ones are faulty only if ``definite``.

        ``advice`` states what to do about singular matrices.
        """
        code = self.faults.code
        if not definite:
            code = torch.where(code == _SINGULAR, -1, code)
        if self.X.is_complex():
            advice = "regularize all matrices alike with spdnet.covariance.regularize({name})"
        found = self.faults._replace(code=code)
        raise_first_fault(self.who, found, self.unit, advice=advice)


def examine_matrices(
    who: str,
    X: Any,
    *,
    n: int | None = None,
    dtype: torch.dtype = torch.float64,
    device: torch.device = CPU,
    wanted: str = "positive definite",
    instead: str = "",
    allow_complex: bool = False,
    partial: bool = False,
) -> ExaminedMatrices:
    """Convert matrices to a tensor, exactly symmetric, and find their faults.

    With ``allow_complex``, complex Hermitian matrices are accepted and have the complex dtype of
    the same precision. A complex ``dtype`` also converts real matrices.

    A matrix is singular if its smallest eigenvalue may be a rounding error of the largest one, in
    float64, in the dtype of the input or in ``dtype``. ``wanted="positive semi-definite"`` accepts
    singular matrices. ``instead`` is advice that the error message for signals ends with.

    With ``partial``, real matrices may have missing channels, which become NaN; the faults are
    those of the observed part.
    """
    shape = "(n_matrices, n, n)"
    hint = "; compute covariance matrices with spdnet.covariance.estimate"
    values, unit = numeric_array(who, X, shape, hint, allow_complex=allow_complex)
    dtype = complex_dtype(dtype) if values.dtype.kind == "c" else dtype
    if values.shape[1] != values.shape[2]:
        raise ValueError(
            f"{who}: expected X of shape {shape}, got {values.shape}; if these are signals (n, "
            f"channels, time), pass spdnet.covariance.estimate(X){instead}"
        )
    found = torch.empty(values.shape, dtype=dtype, device=device)
    require_square(who, found, n=n)
    where = device if device.type == "cuda" else CPU
    own_unit, unit = unit, max(unit, torch.finfo(dtype).eps)
    size = chunk_size(values.shape[-1], where)

    def converted() -> Iterator[Tensor]:
        for start in range(0, len(values), size):
            part = slice(start, start + size)
            matrices = as_float64(values[part], where)
            filled = fill(matrices, own_unit) if partial else Filled(matrices)
            found[part] = filled.hide(symmetrize(filled.X).to(device, dtype))
            yield filled.X

    faults = find_faults(converted(), len(values), wanted, unit=unit, dtype=dtype)
    return ExaminedMatrices(who, found, faults, unit)


def checked_signals(
    who: str,
    X: Any,
    *,
    n: int | None = None,
    dtype: torch.dtype = torch.float64,
    device: torch.device = CPU,
) -> Tensor:
    """Return finite signals ``(n_signals, channels, T)`` as a tensor."""
    values, _ = numeric_array(who, X, "(n_signals, channels, T)")
    if n is not None and values.shape[1] != n:
        raise ValueError(
            f"{who}: expected signals of {n} channels as in fit, got {values.shape[1]}"
        )
    signals = as_float64(values, CPU).to(device, dtype)
    if signals.shape[1] == signals.shape[2] and torch.equal(signals, signals.mT):
        raise ValueError(
            f"{who}: expected signals (n_signals, channels, T), got symmetric matrices "
            f"{tuple(signals.shape)}; choose a model that takes matrices"
        )
    bad = (~signals.isfinite()).flatten(1).any(1).nonzero()
    if len(bad):
        raise ValueError(f"{who}: expected finite signals, got NaN or infinity in X[{bad[0, 0]}]")
    return signals


def encode_labels(who: str, y: ArrayLike, n: int) -> tuple[NDArray[Any], NDArray[numpy.int64]]:
    """Return the classes, and the class index of each of ``n`` labels."""
    labels = column_or_1d(as_array(who, y, "y"), warn=True)
    check_classification_targets(labels)
    if len(labels) != n:
        raise ValueError(f"{who}: expected one label for each of {n} samples, got {len(labels)}")
    classes, codes = numpy.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"{who}: expected at least two classes, got one: {classes.tolist()[0]!r}")
    return classes, numpy.asarray(codes.reshape(-1), dtype=numpy.int64)


def checked_weights(
    who: str, labels: NDArray[Any], class_weight: Any, sample_weight: ArrayLike | None
) -> NDArray[numpy.float64] | None:
    """Return the sample weights, scaled to mean 1, or None if no weights are given."""
    if class_weight is None and sample_weight is None:
        return None
    if isinstance(class_weight, dict):
        for label, value in class_weight.items():
            require_number(who, f"class_weight[{label!r}]", value, at_least=0)
    weight: NDArray[numpy.float64] = compute_sample_weight(class_weight, labels)
    if sample_weight is not None:
        given = as_array(who, sample_weight, "sample_weight").astype(float)
        n = len(labels)
        if given.shape != (n,) or not numpy.isfinite(given).all() or (given < 0).any():
            raise ValueError(
                f"{who}: expected sample_weight of shape ({n},), finite and not negative, got "
                f"shape {given.shape}"
            )
        weight = weight * given
    if not weight.any():
        raise ValueError(f"{who}: expected weights that are not all zero")
    return weight / weight.mean()


def encode_domains(
    who: str,
    domains: ArrayLike | None,
    n: int,
    known: NDArray[Any] | None = None,
    *,
    what: str = "domains",
) -> tuple[NDArray[numpy.int64], NDArray[Any]]:
    """Encode the domains of ``n`` samples as integers, with new domains after the ``known`` ones.

    Return the integers and all domains.
    """
    names = as_array(who, [] if domains is None else domains, what)
    if names.shape != (n,):
        got = f"shape {names.shape}"
        if domains is None:
            got = f"none; fit had {what}, so pass them here, too (in pipelines by metadata routing)"
        raise ValueError(
            f"{who}: expected {what} of the {n} samples{'' if known is None else ', as in fit'}, "
            f"got {got}"
        )
    if names.dtype.kind == "O" and len({isinstance(name, str) for name in names}) == 1:
        names = numpy.asarray(names.tolist())  # columns of a table have the dtype object
    if names.dtype.kind not in "biufU":
        kinds = sorted({type(name).__name__ for name in names.tolist()})
        raise TypeError(
            f"{who}: expected {what} that are numbers or text, got {' and '.join(kinds)}"
        )
    if names.dtype.kind == "f" and not numpy.isfinite(names).all():
        bad = int(numpy.flatnonzero(~numpy.isfinite(names))[0])
        raise ValueError(
            f"{who}: expected finite numbers or text in {what}, got {what}[{bad}] = {names[bad]}; "
            "give samples of unknown origin a name, or leave them out"
        )
    unique, codes = numpy.unique(names, return_inverse=True)
    before = [] if known is None else known.tolist()
    by_key = {_domain_key(name): name for name in [*before, *unique.tolist()]}
    index = {key: i for i, key in enumerate(by_key)}
    unique_codes = numpy.array([index[_domain_key(name)] for name in unique.tolist()], dtype=int)
    mixed = len({key[:2] for key in by_key}) > 1
    all_domains = numpy.array(list(by_key.values()), dtype=object if mixed else None)
    return unique_codes[codes.reshape(-1)], all_domains if len(all_domains) else names


def _domain_key(name: Any) -> tuple[bool, bool, Any]:
    """Return a key for the comparison of domains, in which 1, "1" and True differ."""
    return isinstance(name, str), isinstance(name, bool), name


def seed_of(random_state: Any) -> int:
    """Return an integer seed, drawn from ``random_state`` unless it is an integer itself."""
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def numeric_array(
    who: str, X: Any, shape: str, hint: str = "", *, allow_complex: bool = False
) -> tuple[NDArray[Any], float]:
    """Return a three-dimensional array of numbers, and the rounding unit of its dtype."""
    unit = UNIT
    if isinstance(X, Tensor):
        if X.dtype.is_floating_point or X.dtype in COMPLEX:
            unit = torch.finfo(X.dtype).eps
        X = X.detach().cpu().resolve_conj()
        X = X.float() if X.dtype == torch.bfloat16 else X  # numpy has no bfloat16
    values = as_array(who, X)
    if values.ndim != 3:
        hint = bands_hint(values) or hint
        if values.ndim == 2 and values.shape[0] == values.shape[1]:
            hint = "; pass a single matrix as X[None]"
        raise ValueError(f"{who}: expected X of shape {shape}, got {values.shape}{hint}")
    if len(values) == 0:
        raise ValueError(f"{who}: expected at least one matrix, got none")
    if numpy.iscomplexobj(values) and not allow_complex:
        raise TypeError(
            f"{who}: expected X with real numbers, got dtype {values.dtype}; complex matrices need "
            "a method that supports them and was fitted to them"
        )
    if not numpy.issubdtype(values.dtype, numpy.number):
        raise TypeError(f"{who}: expected X with numbers, got dtype {values.dtype}")
    return values, max(unit, rounding_unit(values.dtype))
