"""What the scikit-learn estimators are given: matrices, signals, labels, domains and seeds.

A matrix is refused for what it is itself, never for its batch-mates. The tests are those of
:func:`spdnet.datasets.examine`, but for the asymmetry of float64: see :data:`ASYMMETRY`.
"""

from collections.abc import Iterator
from numbers import Integral
from typing import Any

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_random_state, column_or_1d
from torch import Tensor

from spdnet._checks import as_array, bands_hint, require_square
from spdnet.datasets.examine import rounding
from spdnet.linalg import symmetrize

#: Asymmetry that counts as rounding, relative to the two diagonal entries: the square root of the
#: unit of float32, or of a coarser dtype. Also for float64, which does not tell in which precision
#: its numbers were computed; and what is not meant to be symmetric (a triangle, a wrong axis) is
#: far above it.
ASYMMETRY = float(numpy.finfo(numpy.float32).eps) ** 0.5
_UNIT = float(numpy.finfo(numpy.float64).eps)
#: bytes that are looked at together: what a cache holds, or enough to fill a GPU
_PIECE = {"cpu": 2**22, "cuda": 2**28}
_FAULTS = ("not finite", "zero", "too small", "asymmetric", "indefinite", "singular")


def checked_matrices(
    who: str,
    X: Any,
    *,
    n: int | None = None,
    dtype: torch.dtype = torch.float64,
    device: torch.device,
    instead: str = "",
) -> Tensor:
    """Symmetric positive definite matrices as a tensor, exactly symmetric.

    Singular is a matrix whose smallest eigenvalue may be rounding of its largest, in float64, in
    the dtype that it came in, or in the one to compute in.

    Parameters
    ----------
    who : str
        The estimator that an error names.
    X : array or Tensor, shape (n_matrices, n, n)
    n : int, optional
        The size that is expected.
    dtype : torch.dtype
        Of the result.
    device : torch.device
        Of the result.
    instead : str
        What else to do with signals, for the message.
    """
    shape = "(n_matrices, n, n)"
    hint = "; compute covariance matrices with spdnet.covariance.estimate"
    values, unit = _numbers(who, X, shape, hint)
    if values.shape[1] != values.shape[2]:
        raise ValueError(
            f"{who}: expected X of shape {shape}, got {values.shape}; these look like signals (n, "
            f"channels, time): pass spdnet.covariance.estimate(X){instead}"
        )
    found = torch.empty(values.shape, dtype=dtype, device=device)
    require_square(who, found, n=n)
    where = device if device.type == "cuda" else torch.device("cpu")
    unit = max(unit, torch.finfo(dtype).eps)
    states = []
    for part in _pieces(values, where):
        matrices = _as_float64(values[part], where)
        states.append(_faults(matrices, dtype, unit))
        found[part] = symmetrize(matrices).to(device, dtype)
    state, shown = (torch.cat(column).cpu() for column in zip(*states, strict=True))
    _refuse(who, state, shown, unit)
    return found


def checked_signals(
    who: str,
    X: Any,
    *,
    n: int | None = None,
    dtype: torch.dtype = torch.float64,
    device: torch.device,
) -> Tensor:
    """Finite signals ``(n_signals, channels, T)`` as a tensor, of ``n`` channels where given."""
    values, _ = _numbers(who, X, "(n_signals, channels, T)")
    if n is not None and values.shape[1] != n:
        raise ValueError(
            f"{who}: expected signals of {n} channels as in fit, got {values.shape[1]}"
        )
    signals = _as_float64(values, torch.device("cpu")).to(device, dtype)
    if signals.shape[1] == signals.shape[2] and torch.equal(signals, signals.mT):
        raise ValueError(
            f"{who}: expected signals (n_signals, channels, T) for tsmnet, got symmetric "
            f"matrices {tuple(signals.shape)}; choose model='spdnet'"
        )
    bad = (~signals.isfinite()).flatten(1).any(1).nonzero()
    if len(bad):
        raise ValueError(f"{who}: expected finite signals, got others, the first at X[{bad[0, 0]}]")
    return signals


def encode_labels(who: str, y: ArrayLike, n: int) -> tuple[NDArray[Any], NDArray[numpy.int64]]:
    """The classes, and the place of each of ``n`` labels among them."""
    labels = column_or_1d(as_array(who, y, "y"), warn=True)
    check_classification_targets(labels)
    if len(labels) != n:
        raise ValueError(f"{who}: expected one label for each of {n} samples, got {len(labels)}")
    classes, codes = numpy.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"{who}: expected at least two classes, got one: {classes.tolist()[0]!r}")
    return classes, numpy.asarray(codes.reshape(-1), dtype=numpy.int64)


def encode_domains(
    who: str,
    domains: ArrayLike | None,
    n: int,
    known: NDArray[Any] | None = None,
    *,
    what: str = "domains",
) -> tuple[NDArray[numpy.int64], NDArray[Any]]:
    """Encode the domains of ``n`` samples as integers, new ones after those ``known``.

    Return the integers and all domains.
    """
    names = as_array(who, [] if domains is None else domains, what)
    if names.shape != (n,):
        raise ValueError(
            f"{who}: expected {what} of the {n} samples, as in fit, got "
            f"{'none' if domains is None else f'shape {names.shape}'}"
        )
    if names.dtype.kind == "O" and len({isinstance(name, str) for name in names}) == 1:
        names = numpy.asarray(names.tolist())  # a table has columns of objects
    if names.dtype.kind not in "biufU":
        raise TypeError(f"{who}: expected {what} that are numbers or text, got {names.dtype}")
    known = names[:0] if known is None else known
    everyone = numpy.concatenate([known, numpy.setdiff1d(names, known)])
    order = numpy.argsort(everyone)
    return order[numpy.searchsorted(everyone, names, sorter=order)], everyone


def seed_of(random_state: Any) -> int:
    """A whole number as it is; another is drawn from a RandomState, or for None from numpy's."""
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def _numbers(who: str, X: Any, shape: str, hint: str = "") -> tuple[NDArray[Any], float]:
    """Real numbers of three dimensions as an array, and the rounding unit they came in."""
    unit = _UNIT
    if isinstance(X, Tensor):
        if X.dtype.is_floating_point:
            unit = torch.finfo(X.dtype).eps
        X = X.detach().cpu()
        X = X.float() if X.dtype == torch.bfloat16 else X  # numpy has none
    values = as_array(who, X)
    if values.ndim != 3:
        hint = bands_hint(values) or hint
        raise ValueError(f"{who}: expected X of shape {shape}, got {values.shape}{hint}")
    if len(values) == 0:
        raise ValueError(f"{who}: expected at least one matrix, got none")
    if not numpy.issubdtype(values.dtype, numpy.number) or numpy.iscomplexobj(values):
        raise TypeError(f"{who}: expected X with real numbers, got dtype {values.dtype}")
    if values.dtype.kind == "f":
        unit = max(unit, float(numpy.finfo(values.dtype).eps))
    return values, unit


def _pieces(values: NDArray[Any], where: torch.device) -> Iterator[slice]:
    size = max(1, _PIECE[where.type] // (8 * max(1, values.shape[1] * values.shape[2])))
    yield from (slice(start, start + size) for start in range(0, len(values), size))


def _as_float64(values: NDArray[Any], where: torch.device) -> Tensor:
    """Of the machine's byte order, and not shared with the caller."""
    with numpy.errstate(over="ignore"):  # of a longer type: it is refused as infinite
        return torch.from_numpy(values.astype(numpy.float64)).to(where)


def _faults(X: Tensor, dtype: torch.dtype, unit: float) -> tuple[Tensor, Tensor]:
    """The fault of each float64 matrix, -1 for none, and a number that shows it."""
    n = X.shape[-1]
    size, gap = X.abs().amax((-2, -1)), (X - X.mT).abs().amax((-2, -1))
    state = torch.full((len(X),), -1, device=X.device)
    shown = torch.zeros_like(size)
    askew = _is_askew(X, size, unit)
    small = size < torch.finfo(dtype).tiny / torch.finfo(dtype).eps
    usable = size.to(dtype).isfinite() & ~small & ~askew
    state[askew] = _FAULTS.index("asymmetric")
    shown[~usable] = (gap / size)[~usable]
    state[small] = _FAULTS.index("too small")
    state[size == 0] = _FAULTS.index("zero")
    state[~size.to(dtype).isfinite()] = _FAULTS.index("not finite")
    least = rounding(n, unit)
    # the trace is above the largest eigenvalue; twice, for the rounding of the decomposition
    floor = 2 * least * X.diagonal(dim1=-2, dim2=-1).sum(-1)
    floor = torch.where(usable, floor, 0.0)
    good = torch.where(usable[:, None, None], X, torch.eye(n, dtype=X.dtype, device=X.device))
    shifted = symmetrize(good)
    shifted.diagonal(dim1=-2, dim2=-1).sub_(floor[:, None])
    doubtful = torch.linalg.cholesky_ex(shifted).info != 0
    if doubtful.any():
        s = torch.linalg.eigvalsh(symmetrize(X[doubtful]))
        low, high = s[:, 0], s[:, -1].abs()
        bad = torch.where(low < -least * high, _FAULTS.index("indefinite"), -1)
        bad[(bad < 0) & (low <= least * high)] = _FAULTS.index("singular")
        state[doubtful], shown[doubtful] = bad, low / high
    return state, shown


def _is_askew(X: Tensor, size: Tensor, unit: float) -> Tensor:
    """Whether a matrix differs from its transpose by more than rounding, in any entry."""
    gap = (X - X.mT).abs()
    root = X.diagonal(dim1=-2, dim2=-1).abs().sqrt()
    coarse = max(unit**0.5, ASYMMETRY) * root[..., :, None] * root[..., None, :]
    allowed = torch.maximum(coarse, unit**0.5 * size[:, None, None])
    return (gap > allowed).any(-1).any(-1)


def _refuse(who: str, state: Tensor, shown: Tensor, unit: float) -> None:
    """Raise for the first fault in their order, naming the first matrix that has it."""
    bad = state[state >= 0]
    if len(bad) == 0:
        return
    fault = _FAULTS[int(bad.min())]
    places = (state == bad.min()).nonzero()[:, 0]
    value = f"{shown[places[0]].item():.3g}"
    regularize = "use spdnet.covariance.regularize(X)"
    if fault == "singular" and unit > _UNIT:
        regularize += ", or float64 throughout: the coarser dtype has lost the smallest eigenvalues"
    expected, text, remedy = {
        "not finite": (
            "finite entries",
            "contains NaN or infinity",
            "drop or repair it before this call",
        ),
        "zero": ("positive definite matrices", "is zero", "drop it"),
        "too small": (
            "matrices that the dtype can hold",
            "is too small",
            "multiply all by a number, or use float64",
        ),
        "asymmetric": (
            "symmetric matrices",
            f"is not symmetric (largest |X - X^T| / largest |X| {value})",
            "use (X + X.swapaxes(-1, -2)) / 2 if they should be",
        ),
        "indefinite": (
            "positive definite matrices",
            f"is not positive definite (smallest eigenvalue {value} of the largest)",
            f"{regularize} if they are covariances",
        ),
        "singular": (
            "positive definite matrices",
            f"is singular (smallest eigenvalue {value} of the largest)",
            regularize,
        ),
    }[fault]
    raise ValueError(
        f"{who}: expected {expected}, but X[{int(places[0])}] {text}; {len(places)} of "
        f"{len(state)} matrices are so; {remedy}"
    )
