"""Shape, SPD and range checks: the text of every error a user sees.

Each message says who complains, what was expected, what came, and what to do. The ``require_``
functions on shapes and types are free; those that pass over the data say so in their docstrings,
and are skipped where values cannot be looked at (compilation, export, vmap).
"""

import difflib
import math
from collections.abc import Iterable
from itertools import pairwise
from numbers import Integral, Real
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from spdnet._autograd import is_concrete
from spdnet._precision import HALF, working_dtype


def as_array(who: str, values: Any, name: str = "X") -> NDArray[Any]:
    """Convert to a plain array; refuse masked entries, whose values mean nothing."""
    parts = values if isinstance(values, list | tuple) else [values]
    if any(isinstance(part, numpy.ma.MaskedArray) and numpy.ma.is_masked(part) for part in parts):
        count = sum(numpy.ma.count_masked(part) for part in parts)
        raise ValueError(
            f"{who}: expected {name} without masked entries, got {count} of them; drop the samples "
            "that have some, or fill them in with numpy.ma.filled"
        )
    return numpy.asarray(values)


def bands_hint(X: NDArray[Any]) -> str:
    """What to do with several symmetric matrices for each sample; empty for other arrays."""
    if X.ndim != 4 or X.shape[-1] != X.shape[-2] or not X.size or X.dtype.kind not in "iuf":
        return ""
    some = X[:8]
    if not numpy.allclose(some, some.swapaxes(-1, -2), equal_nan=True):
        return ""
    return (
        f"; these are {X.shape[1]} symmetric matrices for each sample, for example one for each "
        "frequency band: select one with X[:, b], or combine all of them in one block-diagonal "
        "matrix with numpy.stack([scipy.linalg.block_diag(*x) for x in X])"
    )


def require_tensor(who: str, X: Any, name: str = "X") -> None:
    """``X`` is a torch tensor."""
    if not isinstance(X, Tensor):
        kind = f"{type(X).__module__}.{type(X).__qualname__}".removeprefix("builtins.")
        raise TypeError(
            f"{who}: expected {name} to be a torch.Tensor, got {kind}; use torch.as_tensor({name})"
        )


def require_square(who: str, X: Tensor, name: str = "X", n: int | None = None) -> None:
    """``X`` is ``(..., n, n)`` with a real floating dtype."""
    require_tensor(who, X, name)
    size = "n" if n is None else n
    rows, cols = X.shape[-2:] if X.ndim >= 2 else (0, 0)
    if rows != cols or cols == 0 or (n is not None and cols != n):
        raise ValueError(
            f"{who}: expected {name} of shape (..., {size}, {size}), got {tuple(X.shape)}; "
            "pass symmetric matrices in the last two dimensions"
        )
    require_floating(who, X, name)


def require_tall(who: str, W: Tensor, name: str = "W") -> None:
    """``W`` is ``(..., n, k)`` with ``n >= k >= 1`` and a real floating dtype."""
    require_tensor(who, W, name)
    rows, cols = W.shape[-2:] if W.ndim >= 2 else (0, 0)
    if rows < cols or cols == 0:
        raise ValueError(
            f"{who}: expected {name} of shape (..., n, k) with n >= k >= 1, got {tuple(W.shape)}; "
            "k orthonormal columns need at least k rows"
        )
    require_floating(who, W, name)


def require_same_shape(who: str, **tensors: Tensor) -> None:
    """All are tensors of the shape of the first."""
    (first, X), *rest = tensors.items()
    require_tensor(who, X, first)
    for name, Y in rest:
        require_tensor(who, Y, name)
        if Y.shape != X.shape:
            raise ValueError(
                f"{who}: expected {name} of the same shape as {first}, {tuple(X.shape)}, "
                f"got {tuple(Y.shape)}; stack or expand one of them"
            )


def require_floating(who: str, X: Tensor, name: str = "X") -> None:
    """``X`` has a real floating dtype."""
    if not X.dtype.is_floating_point:
        raise TypeError(
            f"{who}: expected {name} with a real floating dtype, got {X.dtype}; "
            f"use {name}.to(torch.float64)"
        )


def require_same_dtype(who: str, X: Tensor, weight: Tensor) -> None:
    """``X`` has the dtype of the weights, or a half type that is lifted to it."""
    if X.dtype != weight.dtype and X.dtype not in HALF:
        raise TypeError(
            f"{who}: expected X with the dtype of the weights, {weight.dtype}, got {X.dtype}; "
            f"use X.to({weight.dtype}), or move the module with .to({X.dtype})"
        )


def require_choice(who: str, name: str, got: Any, choices: Iterable[str]) -> None:
    """``got`` is one of the named choices."""
    choices = list(choices)
    if got not in choices:
        raise ValueError(
            f"{who}: expected {name} to be one of {', '.join(map(repr, choices))}, got {got!r}"
            f"{did_you_mean(got, choices)}"
        )


def did_you_mean(got: Any, choices: Iterable[str]) -> str:
    """The nearest of the choices, as the end of a message; nothing where none is near."""
    near = difflib.get_close_matches(got, choices, n=1) if isinstance(got, str) else []
    return f"; did you mean {near[0]!r}?" if near else ""


def require_number(
    who: str,
    name: str,
    got: Any,
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    at_most: float = math.inf,
    below: float = math.inf,
) -> None:
    """``got`` is a finite number within the bounds."""
    if isinstance(got, bool) or not isinstance(got, Real):
        raise TypeError(f"{who}: expected {name} to be a number, got {got!r}")
    try:
        value = float(got)
    except OverflowError:  # a whole number of hundreds of digits
        value = math.inf
    bounds = {">": above, ">=": at_least, "<=": at_most, "<": below}
    inside = above < value < below and at_least <= value <= at_most
    if not (math.isfinite(value) and inside):
        text = " and ".join(f"{sign} {b:g}" for sign, b in bounds.items() if math.isfinite(b))
        wanted = f"{name} {text} and finite" if text else f"{name} to be finite"
        raise ValueError(f"{who}: expected {wanted}, got {got!r}")


def require_count(who: str, name: str, got: Any) -> None:
    """``got`` is a whole number of at least 1."""
    if isinstance(got, bool) or not isinstance(got, Integral):
        raise TypeError(f"{who}: expected {name} to be a whole number, got {got!r}")
    if got < 1:
        raise ValueError(f"{who}: expected {name} >= 1, got {got}")


def require_shrinking(who: str, dims: Any) -> tuple[int, ...]:
    """The sizes as a tuple, after checking that they are whole, positive and never grow."""
    if isinstance(dims, str) or not hasattr(dims, "__len__") or len(dims) == 0:
        raise TypeError(
            f"{who}: expected dims to be a sequence of matrix sizes such as (93, 70, 50, 30), "
            f"got {dims!r}"
        )
    for i, d in enumerate(dims):
        require_count(who, f"dims[{i}]", d)
    for before, after in pairwise(dims):
        require_reducing(who, before, after, f"in dims {tuple(dims)}")
    return tuple(int(d) for d in dims)


def require_reducing(who: str, before: int, after: int, where: str) -> None:
    """A BiMap from size ``before`` to ``after`` can have orthonormal columns."""
    if after > before:
        raise ValueError(
            f"{who}: expected sizes that never grow, got {before} -> {after} {where}; a BiMap with "
            "orthonormal columns can only keep or reduce the size"
        )


def require_threshold(who: str, eps: Any) -> float | None:
    """Check a threshold; the share of a percentage such as ``"10%"``, None for a number."""
    if not isinstance(eps, str):
        require_number(who, "eps", eps, at_least=0)
        return None
    number = eps.strip().removesuffix("%")
    try:
        share = float(number) / 100
    except ValueError:
        share = math.nan
    if number == eps.strip() or not 0 < share < 1:
        raise ValueError(
            f"{who}: expected eps to be a number >= 0, or a percentage between 0% and 100% such as "
            f"'10%', got {eps!r}"
        )
    return share


def require_channels(who: str, X: Tensor, n: int, name: str = "X") -> None:
    """``X`` is ``(..., n, m, m)``: so many matrices for each sample."""
    if X.ndim < 3 or X.shape[-3] != n:
        raise ValueError(
            f"{who}: expected {name} of shape (..., {n}, m, m), {n} matrices for each sample, got "
            f"{tuple(X.shape)}" + ("; give one matrix as X[..., None, :, :]" if n == 1 else "")
        )


def require_finite(who: str, X: Tensor, name: str = "X") -> None:
    """Every matrix is finite (a pass over the data)."""
    if not is_concrete(X) or X.numel() == 0:
        return
    size = X.detach().abs().amax((-2, -1))  # NaN and infinity go through the maximum
    _refuse(
        who,
        name,
        ~size.isfinite(),
        "finite entries",
        "contains NaN or infinity",
        "drop or repair it before this call",
    )


def require_tangent(who: str, V: Tensor, name: str, X: Tensor, check: bool) -> Tensor:
    """``V`` has the size of the points ``X``, and with ``check`` is finite; gives it back."""
    require_square(who, V, name, n=X.shape[-1])
    if check:
        require_finite(who, V, name)
    return V


def require_symmetric(who: str, X: Tensor, name: str = "X") -> None:
    """Every matrix is finite and symmetric (two passes over the data).

    The asymmetry may be the square root of the rounding unit, relative to the largest entry of
    the same matrix.
    """
    require_finite(who, X, name)
    if not is_concrete(X) or X.numel() == 0:
        return
    X = X.detach()
    gap, size = (X - X.mT).abs().amax((-2, -1)), X.abs().amax((-2, -1))
    _refuse(
        who,
        name,
        gap > torch.finfo(X.dtype).eps ** 0.5 * size,
        "symmetric matrices",
        "is not symmetric",
        f"use spdnet.linalg.symmetrize({name}) if it should be",
        gap / size,
        "largest |X - X^T| / largest |X|",
    )


def require_positive_trace(who: str, X: Tensor, name: str = "X") -> None:
    """Every matrix has a positive trace (a pass over the diagonals)."""
    if not is_concrete(X) or X.numel() == 0:
        return
    trace = X.detach().diagonal(dim1=-2, dim2=-1).sum(-1)
    _refuse(
        who,
        name,
        ~(trace > 0),
        "matrices with a positive trace",
        "is zero or not positive semi-definite",
        "drop it, or give covariances of signals that are not constant",
        trace,
        "trace",
    )


def require_positive_semidefinite(who: str, X: Tensor, name: str = "X") -> None:
    """No eigenvalue is negative beyond rounding (a Cholesky decomposition of the data)."""
    if not is_concrete(X) or X.numel() == 0:
        return
    X = X.detach().to(working_dtype(X.dtype))
    slack = torch.finfo(X.dtype).eps ** 0.5 * X.abs().amax((-2, -1))
    slack = torch.where(slack == 0, 1.0, slack)  # a zero matrix is semi-definite
    shifted = X + torch.diag_embed(slack[..., None].expand(X.shape[:-1]))
    bad = torch.linalg.cholesky_ex(shifted).info != 0
    if bad.any():  # the eigenvalue is only for the message
        lowest = torch.linalg.eigvalsh(X).amin(-1)
        refuse_indefinite(who, bad, lowest, name, "positive semi-definite")


def require_positive_eigenvalues(who: str, s: Tensor, name: str = "X") -> None:
    """All eigenvalues are positive (a pass over them)."""
    if is_concrete(s) and s.numel() > 0:
        lowest = s.detach().amin(-1)
        refuse_indefinite(who, lowest <= 0, lowest, name)


def refuse_indefinite(
    who: str, bad: Tensor, lowest: Tensor, name: str = "X", wanted: str = "positive definite"
) -> None:
    """Raise for the matrices marked ``bad``, showing their smallest eigenvalue."""
    remedy = f"regularise it, for example with spdnet.covariance.regularize({name})"
    if lowest.dtype == torch.float32:
        remedy += (
            ", or use float64: float32 resolves eigenvalues down to 1e-7 of the largest, so that "
            "the eps of a ReEig has to be above that"
        )
    _refuse(
        who,
        name,
        bad,
        f"{wanted} matrices",
        f"is not {wanted}",
        remedy,
        lowest,
        "smallest eigenvalue",
    )


def _refuse(
    who: str,
    name: str,
    bad: Tensor,
    expected: str,
    fault: str,
    remedy: str,
    value: Tensor | None = None,
    meaning: str = "",
) -> None:
    """Raise a ValueError that names the first matrix marked in ``bad``, if there is one."""
    if not bad.any():
        return
    index = tuple(bad.nonzero()[0].tolist()) if bad.ndim else ()
    place = f"{name}[{', '.join(map(str, index))}]" if index else name
    detail = f" ({meaning} {value[index].item():.3g})" if value is not None else ""
    count = f"; {int(bad.sum())} of {bad.numel()} matrices are so" if index else ""
    raise ValueError(f"{who}: expected {expected}, but {place} {fault}{detail}{count}; {remedy}")
