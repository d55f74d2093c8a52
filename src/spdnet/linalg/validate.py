"""Whether matrices are symmetric positive definite (SPD), and what is wrong if not.

Layers, estimators and file readers share these definitions and texts. They differ in what they
require, and in what they do about faults: raise an error for the first, list them, drop or repair.

The rounding unit is that of the dtype in which the numbers came. Half of its digits may be lost
before a matrix counts as asymmetric or indefinite:

* asymmetric: an entry of ``|X - X^T|`` above ``sqrt(unit)`` times the largest entry, and above
  ``sqrt(unit)``, for float64 that of float32, times the root of the two diagonal entries. float64
  does not tell in which precision its numbers were computed; what is not meant to be symmetric (a
  triangle, a wrong axis) is far above this.
* indefinite: an eigenvalue below ``-sqrt(unit)`` times the largest entry.
* singular: the smallest eigenvalue is at most :func:`rounding` times the largest.

The verdict on a matrix does not depend on the rest of the batch. Values are not examined in
compilation, export and vmap, nor on the meta device.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from spdnet._autograd import is_concrete
from spdnet._checks import require_square
from spdnet._precision import accurate_dtype, working_dtype
from spdnet.linalg.threads import over_slices

#: a matrix has the first that applies
FAULTS = ("not finite", "zero", "too small", "asymmetric", "indefinite", "singular")
#: the rounding unit of float64
UNIT = torch.finfo(torch.float64).eps
_FLOAT32_UNIT = torch.finfo(torch.float32).eps
_PIECE = {"cuda": 2**28}  # bytes of float64 that are examined together: enough to fill a GPU
_CACHE = 2**22  # elsewhere

_REGULARISE = "; regularise it, for example with spdnet.covariance.regularize({name}){lost}"
_LOST = (
    ", or use float64 throughout: eigenvalues below {unit:.1g} of the largest are lost in the "
    "coarser dtype, and the eps of a ReEig has to be above that"
)
#: expected, got, and what to do
_TEXTS = {
    "not finite": "finite entries, but {place} contains NaN or infinity{count}; drop or repair it "
    "before this call",
    "zero": "{wanted} matrices, but {place} is zero{count}; drop it",
    "too small": "matrices that the dtype can hold, but {place} is too small{count}; multiply all "
    "by a number, or use float64",
    "asymmetric": "symmetric matrices, but {place} is not symmetric (largest |X - X^T| / largest "
    "|X| {low:.3g}){count}; use spdnet.linalg.symmetrize({name}) if it should be",
    "indefinite": "{wanted} matrices, but {place} is not {wanted} (eigenvalues from {low:.3g} to "
    "{high:.3g}){count}" + _REGULARISE,
    "singular": "{wanted} matrices, but {place} is singular (eigenvalues from {low:.3g} to "
    "{high:.3g}){count}" + _REGULARISE,
    "trace": "matrices with a positive trace, but {place} is zero or not positive semi-definite "
    "(trace {low:.3g}){count}; drop it, or give covariances of signals that are not constant",
}


class Faults(NamedTuple):
    """The fault of each of ``N`` matrices, and two numbers that show it, else not a number."""

    code: Tensor  #: the place in ``FAULTS``; -1 for none
    low: Tensor  #: the smallest eigenvalue, if computed; the asymmetry of an asymmetric matrix
    high: Tensor  #: the largest eigenvalue, if computed


def rounding(n: int, unit: float) -> float:
    """Smallest by largest eigenvalue, below which it may be nothing but rounding.

    ``n`` units of float64, in which matrices are decomposed; and some units of the dtype in which
    the entries came, which do not grow with ``n``: rounding each entry of a positive matrix moves
    its eigenvalues by about a unit of the largest.
    """
    return max(n * UNIT, min(n, 16) * unit)


def piece_size(n: int, device: torch.device) -> int:
    """The number of matrices of size ``n`` that are examined together, to bound memory."""
    return max(1, _PIECE.get(device.type, _CACHE) // (8 * n * n + 1))


def unit_of(dtype: numpy.dtype[Any]) -> float:
    """The rounding unit of an array that is examined in float64."""
    return max(UNIT, float(numpy.finfo(dtype).eps)) if dtype.kind == "f" else UNIT


def as_float64(values: NDArray[Any], device: torch.device) -> Tensor:
    """A float64 tensor that does not share memory with the array, which may have any byte order."""
    with numpy.errstate(over="ignore"):  # of a longer type: it is refused as infinite
        return torch.from_numpy(values.astype(numpy.float64)).to(device)


def find_faults(
    pieces: Iterable[Tensor],
    count: int,
    wanted: str = "positive definite",
    *,
    unit: float,
    dtype: torch.dtype,
    spectra: bool = False,
) -> Faults:
    """Find what is wrong with matrices, some at a time.

    Parameters
    ----------
    pieces : iterable of Tensor, shape (k, n, n)
        The matrices in their order.
    count : int
        Their number.
    wanted : {"symmetric", "positive semi-definite", "positive definite"}
        Look for no other faults than those against this. Only a positive definite matrix must
        neither be zero, too small nor singular.
    unit : float
        The rounding unit of the dtype in which the numbers came.
    dtype : torch.dtype
        To compute in, which must hold the numbers.
    spectra : bool
        Compute the eigenvalues of all matrices without another fault. Otherwise only those that a
        Cholesky decomposition leaves in doubt are decomposed.

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg.validate import FAULTS, find_faults
    >>> X = torch.stack([torch.eye(2), -torch.eye(2), torch.ones(2, 2)])
    >>> found = find_faults([X], 3, unit=2.0**-23, dtype=torch.float32)
    >>> [FAULTS[i] for i in found.code if i >= 0]
    ['indefinite', 'singular']
    """
    # all at once: small results between large temporaries would keep their memory from reuse
    code = torch.full((count,), -1, device="cpu")
    low, high = torch.full((2, count), torch.nan, dtype=torch.float64, device="cpu")
    stop = 0
    for X in pieces:
        part = slice(stop, stop := stop + len(X))
        found = _examine(X, wanted, unit, dtype, spectra)
        if found is not None:
            code[part], low[part], high[part] = found
    return Faults(code, low, high)


def _examine(
    X: Tensor, wanted: str, unit: float, dtype: torch.dtype, spectra: bool
) -> Faults | None:
    """The faults of some matrices; None if there is nothing to tell."""
    definite = wanted == "positive definite"
    A = X.to(accurate_dtype(X) if definite else working_dtype(X.dtype))
    room = A.abs()  # used again below: new memory costs more than the arithmetic
    size = room.amax((-2, -1))
    gap = torch.sub(A, A.mT, out=room).abs_().amax((-2, -1))
    limits = torch.finfo(dtype)
    finite = size <= limits.max  # false for NaN
    unclear = ~(finite & (gap <= unit**0.5 * size))
    if definite:
        unclear |= size < limits.tiny / limits.eps
    if wanted != "symmetric":
        unclear |= True if spectra else _may_be_outside(A, size, unit, definite, room)
    if not unclear.any():
        return None
    code = torch.full(size.shape, -1, device=A.device)
    low, high = torch.full((2, *size.shape), torch.nan, dtype=accurate_dtype(A), device=A.device)
    askew = _is_askew(A, size, unit)
    code[askew], low[askew] = FAULTS.index("asymmetric"), (gap / size)[askew].to(low.dtype)
    if definite:
        code[size < limits.tiny / limits.eps] = FAULTS.index("too small")
        code[size == 0] = FAULTS.index("zero")
    code[~finite] = FAULTS.index("not finite")
    unclear &= code < 0
    if wanted != "symmetric" and unclear.any():
        half = A[unclear].to(low.dtype) / 2  # halves, because the sum could overflow
        s = torch.linalg.eigvalsh(half + half.mT)
        low[unclear], high[unclear] = s[:, 0], s[:, -1]
        if definite:
            singular = low <= rounding(A.shape[-1], unit) * high.abs()
            code[unclear & singular] = FAULTS.index("singular")
        code[unclear & (low < -(unit**0.5) * size)] = FAULTS.index("indefinite")
    return Faults(code, low, high)


def _is_askew(A: Tensor, size: Tensor, unit: float) -> Tensor:
    """Whether a matrix differs from its transpose by more than rounding, in any entry."""
    root = A.diagonal(dim1=-2, dim2=-1).abs().sqrt()
    coarse = max(unit, _FLOAT32_UNIT) ** 0.5 * root[:, :, None] * root[:, None, :]
    allowed = torch.maximum(coarse, unit**0.5 * size[:, None, None])
    return ((A - A.mT).abs() > allowed).any(-1).any(-1)


def _may_be_outside(A: Tensor, size: Tensor, unit: float, definite: bool, room: Tensor) -> Tensor:
    """Whether an eigenvalue may be too small, by a Cholesky decomposition in ``room``."""
    n = A.shape[-1]
    if definite:
        # the trace is above the largest eigenvalue; twice, for the rounding of the decomposition
        shift = -2 * rounding(n, unit) * A.diagonal(dim1=-2, dim2=-1).sum(-1)
    else:
        # a zero matrix is semi-definite
        shift = unit**0.5 * size.clamp(min=torch.finfo(A.dtype).tiny)
    B = torch.add(A, A.mT, out=room)
    B.diagonal(dim1=-2, dim2=-1).add_(2 * shift[:, None])
    return fails_cholesky(B)


def fails_cholesky(A: Tensor) -> Tensor:
    """Whether symmetric matrices ``(N, n, n)``, which are overwritten, have no Cholesky factor."""
    info = torch.empty(len(A), dtype=torch.int32, device=A.device)

    def factorize(part: slice) -> None:
        matrices = A[part].mT  # the order of LAPACK, which works in place then
        torch.linalg.cholesky_ex(matrices, out=(matrices, info[part]))

    if A.device.type == "cpu":
        over_slices(factorize, len(A), cost=A.shape[-1] ** 3 / 10)
    else:
        factorize(slice(None))
    return info != 0


def require_finite(who: str, X: Tensor, name: str = "X") -> None:
    """Every matrix is finite (a pass over the data)."""
    if is_concrete(X) and X.numel() > 0:
        size = X.detach().abs().amax((-2, -1))  # NaN and infinity go through the maximum
        refuse(who, name, "not finite", ~size.isfinite())


def require_tangent(who: str, V: Tensor, name: str, X: Tensor, check: bool) -> Tensor:
    """``V`` has the size of the points ``X``, and with ``check`` is finite; gives it back."""
    require_square(who, V, name, n=X.shape[-1])
    if check:
        require_finite(who, V, name)
    return V


def require_symmetric(who: str, X: Tensor, name: str = "X") -> None:
    """Every matrix is finite and symmetric (two passes over the data)."""
    _require("symmetric", who, X, name)


def require_positive_semidefinite(who: str, X: Tensor, name: str = "X") -> None:
    """Every matrix is finite, symmetric, and has no eigenvalue that is negative beyond rounding
    (a Cholesky decomposition of the data).
    """
    _require("positive semi-definite", who, X, name)


def _require(wanted: str, who: str, X: Tensor, name: str) -> None:
    if is_concrete(X) and X.numel() > 0:
        n, unit, dtype = X.shape[-1], torch.finfo(X.dtype).eps, working_dtype(X.dtype)
        pieces = X.detach().reshape(-1, n, n).split(piece_size(n, X.device))
        if any(_examine(piece, wanted, unit, dtype, False) is not None for piece in pieces):
            found = find_faults(pieces, X.numel() // n**2, wanted, unit=unit, dtype=dtype)
            refuse_first(who, found, unit, name, wanted, X.shape[:-2])


def require_positive_eigenvalues(
    who: str, s: Tensor, name: str = "X", bad: Tensor | None = None
) -> None:
    """All eigenvalues, in ascending order, are positive, and no matrix is marked ``bad``."""
    if is_concrete(s) and s.numel() > 0:
        low, high = s.detach()[..., 0], s.detach()[..., -1]
        bad = low <= 0 if bad is None else bad
        refuse(who, name, "indefinite", bad, low, high, unit=torch.finfo(s.dtype).eps)


def require_positive_trace(who: str, X: Tensor, name: str = "X") -> None:
    """Every matrix has a positive trace (a pass over the diagonals)."""
    if is_concrete(X) and X.numel() > 0:
        trace = X.detach().diagonal(dim1=-2, dim2=-1).sum(-1)
        refuse(who, name, "trace", ~(trace > 0), trace)


def refuse_first(
    who: str,
    found: Faults,
    unit: float,
    name: str = "X",
    wanted: str = "positive definite",
    shape: tuple[int, ...] | None = None,
) -> None:
    """Raise for the first fault in their order, if there is one; ``shape`` is that of the batch."""
    faulty = found.code[found.code >= 0]
    if len(faulty):
        bad = found.code == faulty.min()
        columns = [x if shape is None else x.reshape(shape) for x in (bad, found.low, found.high)]
        refuse(who, name, FAULTS[int(faulty.min())], *columns, wanted=wanted, unit=unit)


def refuse(
    who: str,
    name: str,
    fault: str,
    bad: Tensor,
    low: Tensor | None = None,
    high: Tensor | None = None,
    *,
    wanted: str = "positive definite",
    unit: float = UNIT,
) -> None:
    """Raise a ValueError that names the first matrix marked in ``bad``, if there is one."""
    if not bad.any():
        return
    index = tuple(bad.nonzero()[0].tolist()) if bad.ndim else ()
    place = f"{name}[{', '.join(map(str, index))}]" if index else name
    count = f"; {int(bad.sum())} of {bad.numel()} matrices are so" if index else ""
    text = _TEXTS[fault].format(
        name=name,
        place=place,
        count=count,
        wanted=wanted,
        low=0.0 if low is None else low[index].item(),
        high=0.0 if high is None else high[index].item(),
        lost=_LOST.format(unit=unit) if unit > UNIT else "",
    )
    raise ValueError(f"{who}: expected {text}")
