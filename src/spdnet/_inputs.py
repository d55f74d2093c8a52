"""What the scikit-learn estimators are given: matrices, signals, labels, domains and seeds.

Matrices are judged by :mod:`spdnet.linalg.validate`.
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
from spdnet.linalg import symmetrize
from spdnet.linalg.validate import UNIT, as_float64, find_faults, piece_size, refuse_first, unit_of


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
    size = piece_size(values.shape[-1], where)

    def converted() -> Iterator[Tensor]:
        for start in range(0, len(values), size):
            part = slice(start, start + size)
            matrices = as_float64(values[part], where)
            found[part] = symmetrize(matrices).to(device, dtype)
            yield matrices

    refuse_first(who, find_faults(converted(), len(values), unit=unit, dtype=dtype), unit)
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
    signals = as_float64(values, torch.device("cpu")).to(device, dtype)
    if signals.shape[1] == signals.shape[2] and torch.equal(signals, signals.mT):
        raise ValueError(
            f"{who}: expected signals (n_signals, channels, T) for this model, got symmetric "
            f"matrices {tuple(signals.shape)}; choose a model that takes matrices"
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
    unit = UNIT
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
    return values, max(unit, unit_of(values.dtype))
