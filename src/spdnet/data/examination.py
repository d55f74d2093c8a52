"""Checks of matrices and signals: which ones cannot be used, and why."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from spdnet import covariance
from spdnet._checks import as_array, require_choice
from spdnet.data.dataset import Dataset
from spdnet.data.store import StoredArray
from spdnet.linalg import symmetrize
from spdnet.linalg.missing import Filled, describe_missing, fill
from spdnet.linalg.validate import FAULTS, as_float64, chunk_size, find_faults, rounding_unit

#: complex types of the same precision
COMPLEX_NAMES = {"float64": "complex128", "float32": "complex64"}
REPAIRABLE = ("asymmetric", "not Hermitian", "singular")
REMEDIES = ("refuse", "drop", "repair")
_N_TESTED = 8  # number of matrices that are tested for being signals
_PIECE = 2**24  # bytes of signals per chunk

Where = dict[Any, NDArray[numpy.int64]]


@dataclass(frozen=True)
class Examination:
    """Result of :func:`examine`.

    Examples
    --------
    >>> import numpy
    >>> from spdnet.data import examine
    >>> examine([numpy.eye(2), numpy.diag([1.0, 0.0])]).bad.tolist()
    [1]
    """

    faults: dict[str, NDArray[numpy.int64]]  #: indices of matrices, each with at most one fault
    conditions: NDArray[numpy.float64]  #: condition numbers ``(N,)``, infinite for faulty matrices
    missing: Where = field(default_factory=dict)  #: indices of matrices by missing channel

    @property
    def bad(self) -> NDArray[numpy.int64]:
        """Indices of all faulty matrices, ascending."""
        return numpy.sort(numpy.concatenate(list(self.faults.values())))

    def __str__(self) -> str:
        return self.describe()

    def describe(self, names: NDArray[Any] | None = None) -> str:
        """Return the faults with their first indices, and with file names if given."""
        lines = [
            f"{len(indices)} {fault}: {list_indices(indices, names, most=10)}"
            for fault, indices in self.faults.items()
            if len(indices)
        ]
        return "; ".join(lines) or "no fault"


def list_indices(
    indices: Sequence[int] | NDArray[Any], names: NDArray[Any] | None = None, *, most: int
) -> str:
    """Return the first indices as text, with names in parentheses if given."""
    shown = [f"{i}" if names is None else f"{i} ({names[i]})" for i in indices[:most]]
    return ", ".join(shown) + (", ..." if len(indices) > most else "")


def examine(
    X: ArrayLike | StoredArray,
    *,
    missing: bool = False,
    on_matrix: Callable[[int, int], None] | None = None,
) -> Examination:
    """Find the matrices that are not symmetric positive definite.

    The layers and estimators use the same definitions. ``asymmetric`` and ``indefinite`` have a
    tolerance of the square root of the unit roundoff of the dtype, at least that of products in
    float32. ``singular`` means that the smallest eigenvalue may be a rounding error of the largest.

    Parameters
    ----------
    X : array or StoredArray, shape (N, n, n)
    missing : bool
        Whether rows and columns of NaN or zero are missing channels rather than faults.
    on_matrix : callable, optional
        Called with the number of matrices checked and their total.

    Examples
    --------
    >>> import numpy
    >>> from spdnet.data import examine
    >>> print(examine([numpy.eye(2), -numpy.eye(2), numpy.zeros((2, 2))]))
    1 zero: 2; 1 indefinite: 1
    """
    X = _matrices("examine", X)
    unit = rounding_unit(X.dtype)
    how = {"unit": unit, "dtype": torch.float64, "spectra": True}
    return _find(_chunks(X, on_matrix), len(X), missing=unit if missing else None, **how)


def _matrices(who: str, X: ArrayLike | StoredArray) -> NDArray[Any] | StoredArray:
    X = X if isinstance(X, StoredArray) else as_array(who, X)
    if X.ndim != 3 or X.shape[-1] != X.shape[-2]:
        raise ValueError(f"{who}: expected X of shape (N, n, n), got {X.shape}")
    return X


def _chunks(
    X: NDArray[Any] | StoredArray, on_matrix: Callable[[int, int], None] | None = None
) -> Iterator[Tensor]:
    where = torch.device("cpu")
    size = chunk_size(X.shape[-1], where)
    for start in range(0, len(X), size):
        yield as_float64(X[start : start + size], where)
        if on_matrix is not None:
            on_matrix(min(start + size, len(X)), len(X))


def _find(
    chunks: Iterator[Tensor], count: int, *, missing: float | None = None, **how: Any
) -> Examination:
    """Examine ``count`` matrices: see :func:`find_faults`.

    ``missing`` is the rounding unit to detect missing channels; if None, these are faults.
    """
    places = defaultdict[int, list[int]](list)

    def filled() -> Iterator[Tensor]:
        start = 0
        for A in chunks:
            found = Filled(A) if missing is None else fill(A, missing)
            for i, channel in () if found.mask is None else (~found.mask).nonzero().tolist():
                places[channel].append(start + i)
            start += len(A)
            yield found.X

    found = find_faults(filled(), count, **how)
    faults = {name: (found.code == i).nonzero()[:, 0].numpy() for i, name in enumerate(FAULTS)}
    conditions = torch.where(found.code < 0, found.high / found.low, torch.inf)
    return Examination(faults, conditions.numpy(), _as_arrays(places))


def _as_arrays(places: dict[Any, list[int]]) -> Where:
    return {key: numpy.array(places[key]) for key in sorted(places)}


def clean(
    X: ArrayLike | StoredArray,
    bad: str = "refuse",
    *,
    reg: float = 1e-3,
    dtype: str | None = None,
    names: NDArray[Any] | None = None,
    missing: bool = False,
    on_singular: Callable[[], None] | None = None,
    on_matrix: Callable[[int, int], None] | None = None,
) -> tuple[Any, NDArray[numpy.int64], str]:
    """Refuse, drop or repair matrices that are not SPD.

    Return SPD matrices, their indices, and a description of the changes, empty if there are none.

    Parameters
    ----------
    X : array, shape (N, n, n)
        Stored matrices stay on disk and cannot be repaired.
    bad : {"refuse", "drop", "repair"}
        Raise an error that lists them; drop them; or replace asymmetric and singular ones by their
        symmetric part plus ``reg`` times the mean eigenvalue on the diagonal. Other faults cannot
        be repaired.
    reg : float
    dtype : str, optional
        Type of the result; that of ``X`` by default. Complex matrices have the complex type of the
        same precision. Matrices that are singular in this precision, or in that of ``X``, are
        faulty.
    names : array of str, shape (N,), optional
        File names for messages.
    missing : bool
        Whether real matrices in memory may have missing channels, rows and columns of NaN or zero,
        which become NaN. Not with ``bad="repair"``.
    on_singular : callable, optional
        If given, singular matrices are kept unchanged, and this is called if there are any.
    on_matrix : callable, optional
        See :func:`examine`.

    Examples
    --------
    >>> import numpy
    >>> from spdnet.data import clean
    >>> X, kept, report = clean([numpy.eye(2), numpy.zeros((2, 2))], "drop")
    >>> report
    'dropped 1 of 2 matrices (1 zero: 1)'
    """
    require_choice("clean", "bad", bad, REMEDIES)
    X = _matrices("clean", X)
    unit, computing = rounding_unit(X.dtype), torch.float64
    if dtype is not None and X.dtype.kind == "c":
        dtype = COMPLEX_NAMES.get(dtype, dtype)
    if dtype is not None:
        unit, computing = max(unit, rounding_unit(numpy.dtype(dtype))), getattr(torch, dtype)
    partial = rounding_unit(X.dtype) if missing and bad != "repair" else None
    found = _find(_chunks(X, on_matrix), len(X), missing=partial, unit=unit, dtype=computing)
    if on_singular is not None and len(found.faults["singular"]):
        found.faults["singular"] = found.faults["singular"][:0]
        on_singular()
    X = X if dtype is None else X.astype(dtype)
    if found.missing:
        X = numpy.array(X, numpy.result_type(X.dtype, numpy.float32))
        for channel, indices in found.missing.items():
            X[indices, channel] = X[indices, :, channel] = numpy.nan
    kept, report, count = numpy.arange(len(X)), "", len(X)
    if len(found.bad) and bad == "drop":
        kept, faults = numpy.setdiff1d(kept, found.bad), found.describe(names)
        if len(kept) == 0:
            raise ValueError(f"clean: expected some SPD matrices to keep, got none ({faults})")
        X, report = X.take(kept, axis=0), f"dropped {len(found.bad)} of {count} matrices ({faults})"
    elif len(found.bad):
        left = found
        if bad == "repair" and _is_repairable(found, X):
            repairable, X = found.bad, _repaired(numpy.asarray(X), found.bad, reg)
            left = _find(_chunks(X), count, unit=unit, dtype=computing)
            report = f"repaired {len(repairable)} of {count} matrices ({found.describe(names)})"
        if len(left.bad):
            advice = "; ".join(remedies(left, X, tried=bad))
            raise ValueError(
                f"clean: expected symmetric positive definite matrices, got {len(left.bad)} of "
                f"{count} that are not ({left.describe(names)}); {advice}"
            )
    also = describe_missing(torch.from_numpy(X)) if found.missing else ""
    return X, kept, "; ".join(filter(None, [report, also]))


def _is_repairable(found: Examination, X: NDArray[Any] | StoredArray) -> bool:
    """Return whether all faulty matrices can be repaired."""
    others = (len(found.faults[name]) for name in FAULTS if name not in REPAIRABLE)
    return not any(others) and not isinstance(X, StoredArray)


def _repaired(X: NDArray[Any], index: NDArray[numpy.int64], reg: float) -> NDArray[Any]:
    """Replace matrices by their symmetric part plus a multiple of the identity."""
    repaired = X.astype(numpy.result_type(X, numpy.float32), copy=True)
    part = symmetrize(repaired[index])
    mean = numpy.trace(part, axis1=-2, axis2=-1).real / X.shape[-1]
    repaired[index] = part + reg * mean[:, None, None] * numpy.eye(X.shape[-1])
    return repaired


def definable(data: Dataset, found: Examination) -> NDArray[numpy.int64]:
    """Return the indices of the singular matrices that training makes positive definite."""
    usual = data.X.dtype.kind != "c" and not isinstance(data.X, StoredArray)
    return found.faults["singular"] if usual else found.faults["singular"][:0]


def remedies(
    found: Examination, X: NDArray[Any] | StoredArray, *, tried: str = "refuse"
) -> list[str]:
    """Return advice on the faulty matrices of ``X``; ``tried`` is the option that failed."""
    mixed = _have_indefinite_parts(X, found.faults["asymmetric"])
    possible = {
        "drop": len(found.bad) < len(X),
        "repair": _is_repairable(found, X) and not mixed and tried != "repair",
    }
    choices = [repr(name) for name, can in possible.items() if can]
    advice = [f"choose {' or '.join(choices)} (--bad)"] if choices else []
    if mixed and 2 * len(found.faults["asymmetric"]) > len(X):
        advice.append(
            "if these are signals with as many samples as channels, set signals (--signals)"
        )
    return advice or ["fix the code that computed them"]


def _have_indefinite_parts(X: NDArray[Any] | StoredArray, asymmetric: NDArray[Any]) -> bool:
    """Return whether the first ones have indefinite symmetric parts, as signals have."""
    if len(asymmetric) == 0:
        return False
    some = numpy.asarray(X[asymmetric[:_N_TESTED]], dtype=numpy.float64)
    some = some / numpy.abs(some).max((-2, -1), keepdims=True)
    s = torch.linalg.eigvalsh(torch.from_numpy(some + some.swapaxes(-1, -2)))
    return bool((s[:, 0] < -1e-6 * s[:, -1].abs()).any())


@dataclass(frozen=True)
class SignalExamination:
    """Indices of signals by channel or pair of channels, and the faults of covariances."""

    not_finite: Where  #: in a part of the channel, or infinite
    missing: Where  #: constant, or NaN throughout
    equal: Where
    covariances: Examination


def examine_signals(X: NDArray[Any] | StoredArray, *, reg: float = 1e-3) -> SignalExamination:
    """Find the channels of ``X (N, channels, time)`` that are not finite, missing or equal."""
    N, channels, time = X.shape
    size = max(1, _PIECE // (8 * channels * max(channels, time) + 1))
    places = tuple(defaultdict[Any, list[int]](list) for _ in range(3))

    def covariances() -> Iterator[Tensor]:
        for start in range(0, N, size):
            signals = numpy.asarray(X[start : start + size], dtype=numpy.float64)
            finite = numpy.isfinite(signals).all(-1)
            lacking = missing_channels(signals)
            for place, bad in zip(places, (~(finite | lacking), lacking)):
                for i, channel in numpy.argwhere(bad).tolist():
                    place[channel].append(start + i)
            for i, a, b in _equal_channels(signals, finite & ~lacking):
                places[2][a, b].append(start + i)
            yield torch.from_numpy(covariances_of(signals, "sample", reg, missing=True))

    unit = rounding_unit(numpy.dtype(numpy.float64))
    how = {"unit": unit, "dtype": torch.float64, "spectra": True}
    found = _find(covariances(), N, missing=unit, **how)
    not_finite, missing, equal = map(_as_arrays, places)
    return SignalExamination(not_finite, missing, equal, found)


def missing_channels(signals: NDArray[Any]) -> NDArray[numpy.bool_]:
    """Return which channels ``(N, channels)`` of signals are constant, or NaN throughout."""
    found: NDArray[numpy.bool_] = (signals == signals[..., :1]).all(-1)
    found &= numpy.isfinite(signals[..., 0])
    return found | numpy.isnan(signals).all(-1)


def _equal_channels(
    signals: NDArray[numpy.float64], usable: NDArray[numpy.bool_]
) -> list[tuple[int, int, int]]:
    """Return the index of a signal and two equal channels, the first paired with each other one."""
    with numpy.errstate(all="ignore"):
        sums = numpy.where(usable, signals.sum(-1), numpy.nan)  # equal for equal channels
    ordered = numpy.sort(sums, axis=1)
    found = []
    for i in numpy.nonzero((ordered[:, 1:] == ordered[:, :-1]).any(1))[0].tolist():
        first: dict[bytes, int] = {}
        for channel in numpy.nonzero(usable[i])[0].tolist():
            a = first.setdefault(signals[i, channel].tobytes(), channel)
            if a != channel:
                found.append((i, a, channel))
    return found


def covariances_of(
    signals: NDArray[numpy.float64], estimator: str, reg: float, *, missing: bool = False
) -> NDArray[numpy.float64]:
    """Return covariances ``(N, n, n)``, NaN for signals that are not finite.

    With ``missing``, rows and columns of :func:`missing_channels` are NaN, and the others are the
    covariance of the other channels, unless all are missing.
    """
    C = numpy.full((*signals.shape[:2], signals.shape[1]), numpy.nan)
    lacking = missing_channels(signals) if missing else numpy.zeros(signals.shape[:2], dtype=bool)
    lacking[lacking.all(-1)] = False
    usable = numpy.flatnonzero((numpy.isfinite(signals).all(-1) | lacking).all(-1))
    if signals.shape[-1] < 2 or len(usable) == 0:
        return C
    patterns, which = numpy.unique(lacking[usable], axis=0, return_inverse=True)
    for i, pattern in enumerate(patterns):
        own, kept = usable[which.reshape(-1) == i], numpy.flatnonzero(~pattern)
        with numpy.errstate(all="ignore"):  # overflow is reported as not finite
            try:
                plain = covariance.ESTIMATORS[estimator](signals[numpy.ix_(own, kept)])
            except ValueError as error:  # of a robust estimator
                if len(own) == len(signals):
                    raise
                what = (
                    f"signals with {len(kept)} observed channels" if missing else "finite signals"
                )
                where = f"X are the {len(own)} {what}, X[0] is signal {own[0]}"
                raise ValueError(f"{error}; {where}") from None
            ok = numpy.isfinite(plain).all((-2, -1))
            C[numpy.ix_(own[ok], kept, kept)] = covariance.regularize(plain[ok], reg, "mean")
    return C
