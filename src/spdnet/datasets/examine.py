"""What is wrong with matrices, by index, before anything is trained on them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from spdnet._checks import as_array, require_choice
from spdnet.datasets.store import StoredArray

#: in the order in which a matrix is given its fault
FAULTS = ("not finite", "zero", "asymmetric", "indefinite", "singular")
REMEDIES = ("refuse", "drop", "repair")
_LOOKED_AT = 8  # matrices that tell whether all are signals
_PIECE = 2**22  # bytes that are looked at together: what a cache holds


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
    >>> from spdnet.datasets import examine
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

    ``asymmetric`` and ``singular`` allow for rounding: the square root of the unit relative to the
    largest entry, and the size times the unit relative to the largest eigenvalue.

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
    >>> from spdnet.datasets import examine
    >>> print(examine([numpy.eye(2), -numpy.eye(2), numpy.zeros((2, 2))]))
    1 zero: 2; 1 indefinite: 1
    """
    return _examine_all(X, _examine, on_matrix)


def _examine_all(
    X: ArrayLike | StoredArray,
    look: Callable[[NDArray[Any]], tuple[Tensor, Tensor]],
    on_matrix: Callable[[int, int], None] | None,
) -> Examination:
    """Look at some matrices at a time."""
    X = X if isinstance(X, StoredArray) else as_array("examine", X)
    if X.ndim != 3 or X.shape[-1] != X.shape[-2]:
        raise ValueError(f"examine: expected X of shape (N, n, n), got {X.shape}")
    # all at once: small results between large temporaries would keep their memory from reuse
    state = torch.full((len(X),), -1)
    conditions = torch.full((len(X),), torch.nan, dtype=torch.float64)
    size = max(1, _PIECE // (8 * X.shape[-1] ** 2 + 1))
    for start in range(0, len(X), size):
        part = slice(start, start + size)
        state[part], conditions[part] = look(X[part])
        if on_matrix is not None:
            on_matrix(min(start + size, len(X)), len(X))
    faults = {name: (state == i).nonzero()[:, 0].numpy() for i, name in enumerate(FAULTS)}
    return Examination(faults, conditions.numpy())


def rounding(n: int, unit: float) -> float:
    """Smallest by largest eigenvalue, below which it may be nothing but rounding.

    ``n`` units of float64, in which matrices are decomposed; and some units of the dtype in which
    the entries came, which do not grow with ``n``: rounding each entry of a positive matrix moves
    its eigenvalues by about a unit of the largest.
    """
    return max(n * 2.0**-52, min(n, 16) * unit)


def _find_faults(X: NDArray[Any]) -> tuple[Tensor, Tensor]:
    """The same without conditions: eigenvalues of none but those that a Cholesky decomposition
    leaves in doubt.
    """
    state = torch.full((len(X),), -1)
    doubtful = ~_is_surely_spd(X)
    if doubtful.any():
        state[doubtful] = _examine(X[doubtful.numpy()])[0]
    return state, torch.full((len(X),), torch.nan, dtype=torch.float64)


def _is_surely_spd(X: NDArray[Any]) -> Tensor:
    """Whether the least eigenvalue is above what counts as singular; asymmetric ones are not."""
    matrices = torch.from_numpy(numpy.ascontiguousarray(X.astype(numpy.float64, copy=False)))
    n = X.shape[-1]
    unit = numpy.finfo(X.dtype).eps if numpy.issubdtype(X.dtype, numpy.floating) else 2.0**-52
    size = matrices.abs().amax((-2, -1))
    gap = (matrices - matrices.mT).abs().amax((-2, -1))
    # the trace is above the largest eigenvalue; twice, for the rounding of the decomposition
    floor = 2 * rounding(n, float(unit)) * matrices.diagonal(dim1=-2, dim2=-1).sum(-1)
    shifted = matrices - floor[:, None, None] * torch.eye(n, dtype=torch.float64)
    failed = torch.linalg.cholesky_ex(shifted.nan_to_num())[1]
    return (failed == 0) & size.isfinite() & (size > 0) & (gap <= float(unit) ** 0.5 * size)


def _examine(X: NDArray[Any]) -> tuple[Tensor, Tensor]:
    """The fault of each matrix, -1 for none, and its condition."""
    if not numpy.issubdtype(X.dtype, numpy.floating):
        X = X.astype(numpy.float64)
    matrices, n, unit = (
        torch.from_numpy(numpy.ascontiguousarray(X)),
        X.shape[-1],
        numpy.finfo(X.dtype).eps,
    )
    size = matrices.abs().amax((-2, -1))
    state = torch.full((len(X),), -1)
    state[~size.isfinite()] = FAULTS.index("not finite")
    state[size == 0] = FAULTS.index("zero")
    gap = (matrices - matrices.mT).abs().amax((-2, -1))
    state[(state < 0) & (gap > unit**0.5 * size)] = FAULTS.index("asymmetric")
    conditions = torch.full((len(X),), torch.inf, dtype=torch.float64)
    usable = state < 0
    s = torch.linalg.eigvalsh(matrices[usable].double())
    if len(s):
        low, high = s[:, 0], s[:, -1]
        least = rounding(n, float(unit)) * high.abs()
        fault = torch.where(low < -least, FAULTS.index("indefinite"), -1)
        fault[(fault < 0) & (low <= least)] = FAULTS.index("singular")
        state[usable] = fault
        conditions[usable] = torch.where(fault < 0, high / low, torch.inf)
    return state, conditions


def treat(
    X: ArrayLike | StoredArray,
    remedy: str = "refuse",
    *,
    reg: float = 1e-3,
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
        singular. What cannot be repaired (not finite, zero, indefinite) is refused.
    reg : float
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
    >>> from spdnet.datasets import treat
    >>> X, kept, report = treat([numpy.eye(2), numpy.zeros((2, 2))], "drop")
    >>> report
    'dropped 1 of 2 matrices (1 zero: 1)'
    """
    require_choice("treat", "remedy", remedy, REMEDIES)
    X = X if isinstance(X, StoredArray) else as_array("treat", X)
    found = _examine_all(X, _find_faults, on_matrix)
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
    mendable = [*found.faults["asymmetric"], *found.faults["singular"]]
    if remedy == "repair" and len(mendable) == len(found.bad) and not isinstance(X, StoredArray):
        mended = X.astype(numpy.result_type(X, numpy.float32), copy=True)
        part = (mended[mendable] + mended[mendable].swapaxes(-1, -2)) / 2
        mean = numpy.trace(part, axis1=-2, axis2=-1) / X.shape[-1]
        mended[mendable] = part + reg * mean[:, None, None] * numpy.eye(X.shape[-1])
        left = _examine_all(mended, _find_faults, None)
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
    beyond = any(len(found.faults[name]) for name in ("not finite", "zero", "indefinite"))
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
