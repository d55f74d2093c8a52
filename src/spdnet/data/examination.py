"""What is wrong with matrices, by index, before anything is trained on them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from spdnet._checks import as_array, require_choice
from spdnet.data.store import StoredArray
from spdnet.linalg.validate import FAULTS, as_float64, find_faults, piece_size, unit_of

MENDABLE = ("asymmetric", "singular")
REMEDIES = ("refuse", "drop", "repair")
_LOOKED_AT = 8  # matrices that tell whether all are signals


@dataclass(frozen=True)
class Examination:
    """The state of each matrix.

    Attributes
    ----------
    faults : dict of str to array of int
        The indices of the matrices with each fault; a matrix has at most one.
    conditions : array, shape (N,)
        Largest by smallest eigenvalue; infinite for a faulty matrix.

    Examples
    --------
    >>> import numpy
    >>> from spdnet.data import examine
    >>> found = examine([numpy.eye(2), numpy.diag([1.0, 0.0]), numpy.diag([4.0, 1.0])])
    >>> print(found)
    1 singular: 1
    >>> found.conditions.tolist()
    [1.0, inf, 4.0]
    """

    faults: dict[str, NDArray[numpy.int64]]
    conditions: NDArray[numpy.float64]

    @property
    def bad(self) -> NDArray[numpy.int64]:
        """The indices of all faulty matrices, ascending."""
        return numpy.sort(numpy.concatenate(list(self.faults.values())))

    def __str__(self) -> str:
        return self.describe()

    def describe(self, names: NDArray[Any] | None = None) -> str:
        """List the faults with the first indices of each, and their files where given."""
        lines = [
            f"{len(indices)} {fault}: {listed(indices, names, most=10)}"
            for fault, indices in self.faults.items()
            if len(indices)
        ]
        return "; ".join(lines) or "no fault"


def listed(
    indices: Sequence[int] | NDArray[Any], names: NDArray[Any] | None = None, *, most: int
) -> str:
    """The first indices, each with its name in brackets where there are names."""
    shown = [f"{i}" if names is None else f"{i} ({names[i]})" for i in indices[:most]]
    return ", ".join(shown) + (", ..." if len(indices) > most else "")


def examine(
    X: ArrayLike | StoredArray, *, on_matrix: Callable[[int, int], None] | None = None
) -> Examination:
    """Find the matrices that are not symmetric positive definite.

    The layers and estimators use the same definitions. ``asymmetric`` and ``indefinite`` allow for
    the square root of the rounding unit of the dtype, and float64 for the asymmetry of products in
    float32. ``singular`` means that the smallest eigenvalue may be rounding of the largest.

    Parameters
    ----------
    X : array, shape (N, n, n)
        In memory, or stored.
    on_matrix : callable, optional
        Called with how many are done, and how many there are.

    Returns
    -------
    Examination

    Examples
    --------
    >>> import numpy
    >>> from spdnet.data import examine
    >>> print(examine([numpy.eye(2), -numpy.eye(2), numpy.zeros((2, 2))]))
    1 zero: 2; 1 indefinite: 1
    """
    X = X if isinstance(X, StoredArray) else as_array("examine", X)
    return _find(X, unit_of(X.dtype), torch.float64, on_matrix, spectra=True)


def _find(
    X: NDArray[Any] | StoredArray,
    unit: float,
    dtype: torch.dtype,
    on_matrix: Callable[[int, int], None] | None = None,
    *,
    spectra: bool = False,
) -> Examination:
    """Examine some matrices at a time; ``spectra`` is for the conditions of faultless ones."""
    if X.ndim != 3 or X.shape[-1] != X.shape[-2]:
        raise ValueError(f"examine: expected X of shape (N, n, n), got {X.shape}")
    where = torch.device("cpu")
    size = piece_size(X.shape[-1], where)

    def pieces() -> Iterator[Tensor]:
        for start in range(0, len(X), size):
            yield as_float64(X[start : start + size], where)
            if on_matrix is not None:
                on_matrix(min(start + size, len(X)), len(X))

    found = find_faults(pieces(), len(X), unit=unit, dtype=dtype, spectra=spectra)
    faults = {name: (found.code == i).nonzero()[:, 0].numpy() for i, name in enumerate(FAULTS)}
    conditions = torch.where(found.code < 0, found.high / found.low, torch.inf)
    return Examination(faults, conditions.numpy())


def treat(
    X: ArrayLike | StoredArray,
    remedy: str = "refuse",
    *,
    reg: float = 1e-3,
    dtype: str | None = None,
    names: NDArray[Any] | None = None,
    on_matrix: Callable[[int, int], None] | None = None,
) -> tuple[Any, NDArray[numpy.int64], str]:
    """Deal with matrices that are not SPD.

    Parameters
    ----------
    X : array, shape (N, n, n)
        Those that are stored stay where they are, and cannot be repaired.
    remedy : {"refuse", "drop", "repair"}
        Raise an error that names them; leave them out; or take the symmetric part and add
        ``reg`` times the mean eigenvalue to the diagonal, which mends what is asymmetric or
        singular. Every other fault is refused.
    reg : float
    dtype : str, optional
        Of the result, such as ``"float32"``; by default that of ``X``. Matrices that cannot be told
        from singular ones in ``dtype``, or in that of ``X``, are faulty.
    names : array of str, shape (N,), optional
        The files that the matrices came from, which messages name beside the indices.
    on_matrix : callable, optional
        See :func:`examine`.

    Returns
    -------
    X : array
        The matrices that are left, all SPD.
    kept : array of int
        Their indices.
    report : str
        What was done, for people; empty if there was nothing to do.

    Examples
    --------
    >>> import numpy
    >>> from spdnet.data import treat
    >>> X, kept, report = treat([numpy.eye(2), numpy.zeros((2, 2))], "drop")
    >>> report
    'dropped 1 of 2 matrices (1 zero: 1)'
    """
    require_choice("treat", "remedy", remedy, REMEDIES)
    X = X if isinstance(X, StoredArray) else as_array("treat", X)
    unit, computing = unit_of(X.dtype), torch.float64
    if dtype is not None:
        unit, computing = max(unit, unit_of(numpy.dtype(dtype))), getattr(torch, dtype)
    found = _find(X, unit, computing, on_matrix)
    X = X if dtype is None else X.astype(dtype)
    everything = numpy.arange(len(X))
    if len(found.bad) == 0:
        return X, everything, ""
    faults = found.describe(names)
    if remedy == "drop":
        kept = numpy.setdiff1d(everything, found.bad)
        if len(kept) == 0:
            raise ValueError(f"treat: expected some SPD matrices to keep, got none ({faults})")
        report = f"dropped {len(found.bad)} of {len(X)} matrices ({faults})"
        return X.take(kept, axis=0), kept, report
    mendable = numpy.concatenate([found.faults[name] for name in MENDABLE])
    if remedy == "repair" and len(mendable) == len(found.bad) and not isinstance(X, StoredArray):
        mended = X.astype(numpy.result_type(X, numpy.float32), copy=True)
        part = (mended[mendable] + mended[mendable].swapaxes(-1, -2)) / 2
        mean = numpy.trace(part, axis1=-2, axis2=-1) / X.shape[-1]
        mended[mendable] = part + reg * mean[:, None, None] * numpy.eye(X.shape[-1])
        left = _find(mended, unit, computing)
        if len(left.bad) == 0:
            return mended, everything, f"repaired {len(mendable)} of {len(X)} matrices ({faults})"
        found, faults = left, left.describe(names)
    advice = "; ".join(remedies(found, X, tried=remedy))
    raise ValueError(
        f"treat: expected symmetric positive definite matrices, got {len(found.bad)} of {len(X)} "
        f"that are not ({faults}); {advice}"
    )


def remedies(
    found: Examination, X: NDArray[Any] | StoredArray, *, tried: str = "refuse"
) -> list[str]:
    """What can be done about faulty matrices, as ends of a message; the options are commands'.

    Parameters
    ----------
    found : Examination
        Of ``X``, with faults.
    X : array or StoredArray, shape (N, n, n)
    tried : {"refuse", "drop", "repair"}
        What has not helped.
    """
    beyond = any(len(found.faults[name]) for name in FAULTS if name not in MENDABLE)
    mixed = _have_indefinite_parts(X, found.faults["asymmetric"])
    able = {
        "drop": len(found.bad) < len(X),
        "repair": not (beyond or mixed or tried == "repair" or isinstance(X, StoredArray)),
    }
    choices = [repr(name) for name, can in able.items() if can]
    advice = [f"choose {' or '.join(choices)} (--bad)"] if choices else []
    if mixed and 2 * len(found.faults["asymmetric"]) > len(X):
        advice.append(
            "if these are signals that have as many samples as channels, say so (--signals)"
        )
    return advice or ["mend them where they were made"]


def _have_indefinite_parts(X: NDArray[Any] | StoredArray, asymmetric: NDArray[Any]) -> bool:
    """Whether the symmetric part of the first of these is not positive: as a rule of signals."""
    if len(asymmetric) == 0:
        return False
    some = numpy.asarray(X[asymmetric[:_LOOKED_AT]], dtype=numpy.float64)
    some = some / numpy.abs(some).max((-2, -1), keepdims=True)
    s = torch.linalg.eigvalsh(torch.from_numpy(some + some.swapaxes(-1, -2)))
    return bool((s[:, 0] < -1e-6 * s[:, -1].abs()).any())
