"""Validation of symmetric positive definite (SPD) matrices.

Layers, estimators and file readers share these definitions and messages. The rounding unit is that
of the dtype in which the numbers were given. Half of its digits may be lost before a matrix counts
as asymmetric or indefinite. A complex matrix is compared with its conjugate transpose.

* asymmetric, or not Hermitian: an entry of ``|X - X^T|`` above ``sqrt(unit)`` times the largest
  entry, and above ``sqrt(unit)``, at least that of float32, times the geometric mean of the two
  diagonal entries.
  The numbers may have been computed in lower precision than float64; input that is not meant to be
  symmetric (a triangle, a wrong axis) is far above this.
* indefinite: an eigenvalue below ``-sqrt(unit)`` times the largest entry, and too negative for a
  rounding error of entries that had fewer digits before: see :func:`singular_ratios`.
* singular: the smallest eigenvalue is at most :func:`singular_ratio` times the largest.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from spdnet._autograd import is_concrete
from spdnet._checks import require_same_kind, require_square
from spdnet._precision import accurate_dtype, working_dtype
from spdnet.linalg.symmetric import trace
from spdnet.linalg.threads import parallel_for

#: each matrix gets the first that applies
FAULTS = (
    *("not finite", "zero", "too small", "asymmetric", "not Hermitian"),
    *("indefinite", "singular"),
)
#: rounding unit of float64
UNIT = torch.finfo(torch.float64).eps
_FLOAT32_UNIT = torch.finfo(torch.float32).eps

_REGULARIZE = (
    "; drop it, or regularize it, for example with spdnet.covariance.regularize({name}){lost}"
)
_LOST = (
    ", or use float64 throughout: eigenvalues below {unit:.1g} of the largest are lost in the "
    "coarser dtype, and the eps of a ReEig has to be above that"
)
#: what to do about singular matrices
MAKE_DEFINITE = (
    "regularize all matrices alike, for example with spdnet.adaptation.Subspace or "
    "spdnet.covariance.regularize({name})"
)
_MAX_LISTED = 10  # indices in a message
_MOST_UPPER = 128  # up to this size, MKL's upper Cholesky factor is faster, then the lower one
#: expected, got, and what to do
_TEXTS = {
    "not finite": "finite entries, but {place} contains NaN or infinity{count}; drop or repair it "
    "before this call",
    "zero": "{wanted} matrices, but {place} is zero{count}; drop it",
    "too small": "matrices that the dtype can hold, but {place} is too small{count}; rescale "
    "all matrices, or use float64",
    "asymmetric": "symmetric matrices, but {place} is not symmetric (largest |X - X^T| / largest "
    "|X| {low:.3g}){count}; use spdnet.linalg.symmetrize({name}) if it should be",
    "not Hermitian": "Hermitian matrices, but {place} is not Hermitian (largest |X - X^H| / "
    "largest |X| {low:.3g}){count}; use spdnet.linalg.symmetrize({name}) if it should be",
    "indefinite": "{wanted} matrices, but {place} is not {wanted} (eigenvalues from {low:.3g} to "
    "{high:.3g}){count}" + _REGULARIZE,
    "singular": "{wanted} matrices, but {place} is singular (eigenvalues from {low:.3g} to "
    "{high:.3g}){count}; {advice}{lost}",
    "trace": "matrices with a positive trace, but {place} is zero or not positive semi-definite "
    "(trace {low:.3g}){count}; drop it, or give covariances of signals that are not constant",
}


class Faults(NamedTuple):
    """Fault of each of ``N`` matrices, and two numbers that quantify it, else NaN."""

    code: Tensor  #: index in ``FAULTS``, or -1
    low: Tensor  #: smallest eigenvalue, if computed; asymmetry of an asymmetric matrix
    high: Tensor  #: largest eigenvalue, if computed


def singular_ratio(n: int, unit: float) -> float:
    """Return the ratio of eigenvalues below which the smallest may be a rounding error."""
    # n units of float64, in which matrices are decomposed, or a few units of the dtype of the
    # entries: rounding them moves the eigenvalues by about a unit of the largest
    return max(n * UNIT, min(n, 16) * unit)


def singular_ratios(X: Tensor) -> Tensor:
    """Return :func:`singular_ratio` of matrices ``(N, n, n)`` for the digits of their entries.

    The unit is that of the dtype. It is coarser for a float64 matrix whose entries were rounded
    before: that of float32 if all entries are float32 numbers, or 1e-5 to 1e-9 if they have six to
    ten decimal digits. Numbers with fewer digits, such as 1 and 0.25, are exact.
    """
    units = torch.full(X.shape[:1], torch.finfo(X.dtype).eps, dtype=torch.float64)
    if X.dtype == torch.float64:
        units[_have_digits(X, _to_bits, 24, exact=11)] = _FLOAT32_UNIT
        for digits in (10, 9, 8, 7, 6):
            units[_have_digits(X, _to_decimals, digits, exact=5)] = 10.0 ** (1 - digits)
    ratios = [singular_ratio(X.shape[-1], unit) for unit in units.tolist()]
    return torch.tensor(ratios, dtype=torch.float64, device=X.device)


def _have_digits(
    X: Tensor, scale: Callable[[Tensor, int], Tensor], digits: int, exact: int
) -> Tensor:
    """Return which matrices have entries of ``digits`` digits, some of more than ``exact``."""
    found = torch.ones(len(X), dtype=torch.bool, device=X.device)
    # the diagonal excludes most matrices at low cost
    for entries in (X.diagonal(dim1=-2, dim2=-1), X.flatten(1)):
        A = scale(entries[found], digits)
        found[found.clone()] = ((A - A.round()).abs() < 1e-4).all(1)
    A = scale(X[found].flatten(1), exact)
    found[found.clone()] = ((A - A.round()).abs() >= 1e-4).any(1)
    return found.cpu()


def _to_bits(X: Tensor, bits: int) -> Tensor:
    return torch.frexp(X).mantissa * 2.0**bits


def _to_decimals(X: Tensor, digits: int) -> Tensor:
    size = X.abs()
    exponent = torch.where(size > 0, size, 1.0).log10().floor()
    return size * 10.0 ** (digits - 1 - exponent)


def chunk_size(n: int, device: torch.device) -> int:
    """Return the number of matrices of size ``n`` to examine together, to bound memory."""
    size = 2**28 if device.type == "cuda" else 2**22  # bytes: fills a GPU, fits a cache
    return max(1, size // (8 * n * n + 1))


def rounding_unit(dtype: numpy.dtype[Any]) -> float:
    """Return the rounding unit of an array that is examined in float64."""
    return max(UNIT, float(numpy.finfo(dtype).eps)) if dtype.kind in "fc" else UNIT


def as_float64(values: NDArray[Any], device: torch.device) -> Tensor:
    """Copy an array of any byte order to a float64 or complex128 tensor."""
    dtype = numpy.complex128 if values.dtype.kind == "c" else numpy.float64
    with numpy.errstate(over="ignore"):  # of a longer type: rejected as infinite
        return torch.from_numpy(values.astype(dtype)).to(device)


def find_faults(
    chunks: Iterable[Tensor],
    count: int,
    wanted: str = "positive definite",
    *,
    unit: float,
    dtype: torch.dtype,
    spectra: bool = False,
) -> Faults:
    """Find the faults of ``count`` matrices, given in chunks ``(k, n, n)``.

    Only violations of ``wanted`` are faults: ``"symmetric"``, ``"positive semi-definite"`` or
    ``"positive definite"``. ``unit`` is the rounding unit of the dtype in which the numbers were
    given; ``dtype``, that of later computations, must be able to represent them. ``spectra``
    computes the eigenvalues of all matrices without another fault; otherwise only matrices that a
    Cholesky decomposition leaves in doubt are decomposed.
    """
    # allocated first: small results between large temporaries would fragment memory
    code = torch.full((count,), -1, device="cpu")
    low, high = torch.full((2, count), torch.nan, dtype=torch.float64, device="cpu")
    stop = 0
    for X in chunks:
        part = slice(stop, stop := stop + len(X))
        found = _examine(X, wanted, unit, dtype, spectra)
        if found is not None:
            code[part], low[part], high[part] = found
    return Faults(code, low, high)


def _examine(
    X: Tensor, wanted: str, unit: float, dtype: torch.dtype, spectra: bool
) -> Faults | None:
    """Return the faults of a chunk, or None if there are none and eigenvalues are not needed."""
    definite = wanted == "positive definite"
    A = X.to(accurate_dtype(X) if definite else working_dtype(X.dtype))
    buffer = A.abs()  # reused below: new memory costs more than the arithmetic
    size = buffer.amax((-2, -1))
    if A.is_complex():
        buffer = A - A.mH
        gap = buffer.abs().amax((-2, -1))
    else:
        gap = torch.sub(A, A.mT, out=buffer).abs_().amax((-2, -1))
    limits = torch.finfo(dtype)
    finite = size <= limits.max  # false for NaN
    in_doubt = ~(finite & (gap <= unit**0.5 * size))
    if definite:
        in_doubt |= size < limits.tiny / limits.eps
    if wanted != "symmetric":
        in_doubt |= True if spectra else _may_have_small_eigenvalue(A, size, unit, definite, buffer)
    if not in_doubt.any():
        return None
    code = torch.full(size.shape, -1, device=A.device)
    low, high = torch.full((2, *size.shape), torch.nan, dtype=accurate_dtype(size), device=A.device)
    asymmetric = _is_asymmetric(A, size, unit)
    code[asymmetric] = FAULTS.index("not Hermitian" if A.is_complex() else "asymmetric")
    low[asymmetric] = (gap / size)[asymmetric].to(low.dtype)
    if definite:
        code[size < limits.tiny / limits.eps] = FAULTS.index("too small")
        code[size == 0] = FAULTS.index("zero")
    code[~finite] = FAULTS.index("not finite")
    in_doubt &= code < 0
    if wanted != "symmetric" and in_doubt.any():
        half = A[in_doubt].to(accurate_dtype(A)) / 2  # the sum of whole matrices could overflow
        s = torch.linalg.eigvalsh(half + half.mH)
        low[in_doubt], high[in_doubt] = s[:, 0], s[:, -1]
        if definite:
            singular = low <= singular_ratio(A.shape[-1], unit) * high.abs()
            code[in_doubt & singular] = FAULTS.index("singular")
        negative = in_doubt & (low < -(unit**0.5) * size)
        allowed = singular_ratios(A[negative].to(accurate_dtype(A))) * size[negative]
        negative[negative.clone()] = low[negative] < -allowed
        code[negative] = FAULTS.index("indefinite")
    return Faults(code, low, high)


def _is_asymmetric(A: Tensor, size: Tensor, unit: float) -> Tensor:
    """Return whether a matrix differs from its transpose by more than rounding in any entry."""
    root = A.diagonal(dim1=-2, dim2=-1).abs().sqrt()
    coarse = max(unit, _FLOAT32_UNIT) ** 0.5 * root[:, :, None] * root[:, None, :]
    allowed = torch.maximum(coarse, unit**0.5 * size[:, None, None])
    return ((A - A.mH).abs() > allowed).any(-1).any(-1)


def _may_have_small_eigenvalue(
    A: Tensor, size: Tensor, unit: float, definite: bool, buffer: Tensor
) -> Tensor:
    """Return whether an eigenvalue may be too small, by a Cholesky decomposition in ``buffer``."""
    n = A.shape[-1]
    if definite:
        # the trace bounds the largest eigenvalue; twice, for the rounding of the decomposition
        shift = -2 * singular_ratio(n, unit) * trace(A)
    else:
        # a zero matrix is semi-definite
        shift = unit**0.5 * size.clamp(min=torch.finfo(A.dtype).tiny)
    B = torch.add(A, A.mH, out=buffer)
    B.diagonal(dim1=-2, dim2=-1).add_(2 * shift[:, None])
    return fails_cholesky(B)


def fails_cholesky(A: Tensor) -> Tensor:
    """Return which symmetric matrices ``(N, n, n)`` have no Cholesky factor, overwriting them."""
    info = torch.empty(len(A), dtype=torch.int32, device=A.device)
    is_small = A.shape[-1] <= _MOST_UPPER

    def factorize(part: slice) -> None:
        matrices = A[part].mT  # column-major, so that LAPACK works in place; the conjugate of A
        torch.linalg.cholesky_ex(matrices, upper=is_small, out=(matrices, info[part]))

    if A.device.type == "cpu":
        parallel_for(factorize, len(A), cost=A.shape[-1] ** 3 / 10)
    else:
        factorize(slice(None))
    return info != 0


def require_finite(who: str, X: Tensor, name: str = "X") -> None:
    """Raise a ValueError unless every matrix is finite (one pass over the data)."""
    if is_concrete(X) and X.numel() > 0:
        size = X.detach().abs().amax((-2, -1))  # the maximum propagates NaN and infinity
        raise_fault(who, name, "not finite", ~size.isfinite())


def require_tangent(who: str, V: Tensor, name: str, X: Tensor, check: bool) -> Tensor:
    """Return ``V`` if it has the size of the points ``X`` and, with ``check``, is finite."""
    require_square(who, V, name, n=X.shape[-1])
    require_same_kind(who, X=X, **{name: V})
    if check:
        require_finite(who, V, name)
    return V


def require_symmetric(who: str, X: Tensor, name: str = "X") -> None:
    """Raise a ValueError unless every matrix is finite and symmetric (two passes over the data)."""
    _require("symmetric", who, X, name)


def require_positive_semidefinite(who: str, X: Tensor, name: str = "X") -> None:
    """Raise a ValueError unless every matrix is positive semi-definite up to rounding."""
    _require("positive semi-definite", who, X, name)


def _require(wanted: str, who: str, X: Tensor, name: str) -> None:
    if is_concrete(X) and X.numel() > 0:
        n, unit, dtype = X.shape[-1], torch.finfo(X.dtype).eps, working_dtype(X.dtype)
        chunks = X.detach().reshape(-1, n, n).split(chunk_size(n, X.device))
        if any(_examine(chunk, wanted, unit, dtype, False) is not None for chunk in chunks):
            found = find_faults(chunks, X.numel() // n**2, wanted, unit=unit, dtype=dtype)
            raise_first_fault(who, found, unit, name, wanted, X.shape[:-2])


def require_positive_eigenvalues(
    who: str, s: Tensor, name: str = "X", bad: Tensor | None = None
) -> None:
    """Raise a ValueError unless all eigenvalues are positive and no matrix is marked ``bad``."""
    if is_concrete(s) and s.numel() > 0:
        low, high = s.detach()[..., 0], s.detach()[..., -1]
        bad = low <= 0 if bad is None else bad
        raise_fault(who, name, "indefinite", bad, low, high, unit=torch.finfo(s.dtype).eps)


def require_semidefinite_eigenvalues(who: str, s: Tensor, name: str = "X") -> None:
    """Raise a ValueError if an eigenvalue is negative beyond rounding."""
    if is_concrete(s) and s.numel() > 0 and not s.detach().min() >= 0:  # also NaN
        low, high, unit = s.detach()[..., 0], s.detach()[..., -1], torch.finfo(s.dtype).eps
        bad = low < -(unit**0.5) * torch.maximum(high, -low)
        raise_fault(
            who, name, "indefinite", bad, low, high, wanted="positive semi-definite", unit=unit
        )


def require_positive_trace(who: str, X: Tensor, name: str = "X") -> None:
    """Raise a ValueError unless every matrix has a positive trace."""
    if is_concrete(X) and X.numel() > 0:
        size = trace(X.detach())
        raise_fault(who, name, "trace", ~(size > 0), size)


def raise_first_fault(
    who: str,
    found: Faults,
    unit: float,
    name: str = "X",
    wanted: str = "positive definite",
    shape: tuple[int, ...] | None = None,
    *,
    advice: str = MAKE_DEFINITE,
) -> None:
    """Raise a ValueError for the first kind of fault.

    ``shape`` is the batch shape, and ``advice`` what to do about singular matrices.
    """
    faulty = found.code[found.code >= 0]
    if len(faulty):
        bad = found.code == faulty.min()
        columns = [x if shape is None else x.reshape(shape) for x in (bad, found.low, found.high)]
        raise_fault(
            who, name, FAULTS[int(faulty.min())], *columns, wanted=wanted, unit=unit, advice=advice
        )


def raise_fault(
    who: str,
    name: str,
    fault: str,
    bad: Tensor,
    low: Tensor | None = None,
    high: Tensor | None = None,
    *,
    wanted: str = "positive definite",
    unit: float = UNIT,
    advice: str = MAKE_DEFINITE,
) -> None:
    """Raise a ValueError that names the first matrix marked in ``bad``, if there is one."""
    if not bad.any():
        return
    index = tuple(bad.nonzero()[0].tolist()) if bad.ndim else ()
    place = f"{name}[{', '.join(map(str, index))}]" if index else name
    faulty = int(bad.sum())
    are = "is" if faulty == 1 else "are"
    count = f"; {faulty} of {bad.numel()} matrices {are} affected" if index else ""
    if len(index) == 1 and faulty > 1:
        listed = bad.nonzero().flatten().tolist()
        count += (
            ": " + ", ".join(map(str, listed[:_MAX_LISTED])) + ", ..." * (len(listed) > _MAX_LISTED)
        )
    text = _TEXTS[fault].format(
        name=name,
        place=place,
        count=count,
        wanted=wanted,
        low=0.0 if low is None else low[index].item(),
        high=0.0 if high is None else high[index].item(),
        lost=_LOST.format(unit=unit) if unit > UNIT else "",
        advice=advice.format(name=name),
    )
    raise ValueError(f"{who}: expected {text}")
