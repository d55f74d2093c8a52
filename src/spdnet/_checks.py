"""Validation of shapes, types and settings, without looking at the data.

Messages have the form "who: expected ..., got ...; what to do". The values of matrices are
validated in :mod:`spdnet.linalg.validate`.
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

from spdnet._precision import COMPLEX, HALF


def as_array(who: str, values: Any, name: str = "X") -> NDArray[Any]:
    """Convert to a plain array; raise a ValueError for masked entries."""
    parts = values if isinstance(values, list | tuple) else [values]
    if any(isinstance(part, numpy.ma.MaskedArray) and numpy.ma.is_masked(part) for part in parts):
        count = sum(numpy.ma.count_masked(part) for part in parts)
        raise ValueError(
            f"{who}: expected {name} without masked entries, got {count} of them; drop the "
            "affected samples, or fill in the entries with numpy.ma.filled"
        )
    return numpy.asarray(values)


def bands_hint(X: NDArray[Any]) -> str:
    """Return advice for several symmetric matrices per sample; empty for other arrays."""
    if X.ndim != 4 or X.shape[-1] != X.shape[-2] or not X.size or X.dtype.kind not in "iuf":
        return ""
    first = X[:8]
    if not numpy.allclose(first, first.swapaxes(-1, -2), equal_nan=True):
        return ""
    return (
        f"; these are {X.shape[1]} symmetric matrices for each sample, for example one for each "
        "frequency band: select one with X[:, b], or combine all of them in one block-diagonal "
        "matrix with numpy.stack([scipy.linalg.block_diag(*x) for x in X])"
    )


def require_tensor(who: str, X: Any, name: str = "X") -> None:
    """Raise a TypeError unless ``X`` is a torch tensor."""
    if not isinstance(X, Tensor):
        kind = f"{type(X).__module__}.{type(X).__qualname__}".removeprefix("builtins.")
        raise TypeError(
            f"{who}: expected {name} to be a torch.Tensor, got {kind}; use torch.as_tensor({name})"
        )


def require_square(who: str, X: Tensor, name: str = "X", n: int | None = None) -> None:
    """Raise an error unless ``X`` is ``(..., n, n)`` with a floating or complex dtype."""
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
    """Raise an error unless ``W`` is ``(..., n, k)``, ``n >= k >= 1``, floating or complex."""
    require_tensor(who, W, name)
    rows, cols = W.shape[-2:] if W.ndim >= 2 else (0, 0)
    if rows < cols or cols == 0:
        raise ValueError(
            f"{who}: expected {name} of shape (..., n, k) with n >= k >= 1, got {tuple(W.shape)}; "
            "k orthonormal columns need at least k rows"
        )
    require_floating(who, W, name)


def require_same_shape(who: str, **tensors: Tensor) -> None:
    """Raise an error unless all are tensors of the same shape."""
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
    """Raise a TypeError unless ``X`` has a floating or complex dtype."""
    if not X.dtype.is_floating_point and X.dtype not in COMPLEX:
        raise TypeError(
            f"{who}: expected {name} with a floating or complex dtype, got {X.dtype}; "
            f"use {name}.to(torch.float64)"
        )


def require_real(who: str, X: Tensor, name: str = "X") -> None:
    """Raise a TypeError if ``X`` is complex."""
    if X.dtype.is_complex:
        raise TypeError(
            f"{who}: expected {name} with a real floating dtype, got {X.dtype}; complex matrices "
            "are not supported here"
        )


def require_same_kind(who: str, **tensors: Tensor) -> None:
    """Raise a TypeError unless all tensors are real or all are complex, like the first."""
    (first, X), *rest = tensors.items()
    for name, Y in rest:
        if Y.dtype.is_complex != X.dtype.is_complex:
            raise TypeError(
                f"{who}: expected {first} and {name} both real or both complex, got {X.dtype} and "
                f"{Y.dtype}; convert the real one with .to(torch.complex128)"
            )


def require_pair(who: str, X: Tensor, Y: Tensor, name: str = "Y") -> None:
    """Raise an error unless both are square, of one size, and both real or both complex."""
    require_square(who, X)
    require_square(who, Y, name, n=X.shape[-1])
    require_same_kind(who, X=X, **{name: Y})


def require_same_dtype(who: str, X: Tensor, dtype: torch.dtype) -> None:
    """Raise a TypeError unless ``X`` has the dtype of the weights, or half precision."""
    if X.dtype != dtype and X.dtype not in HALF:
        raise TypeError(
            f"{who}: expected X with the dtype of the weights, {dtype}, got {X.dtype}; "
            + (
                f"create the module with dtype={X.dtype}"
                if X.dtype.is_complex or dtype.is_complex
                else f"use X.to({dtype}), or move the module with .to({X.dtype})"
            )
        )


def require_choice(who: str, name: str, got: Any, choices: Iterable[str]) -> None:
    """Raise a ValueError unless ``got`` is one of the choices."""
    choices = list(choices)
    if got not in choices:
        raise ValueError(
            f"{who}: expected {name} to be one of {', '.join(map(repr, choices))}, got {got!r}"
            f"{did_you_mean(got, choices)}"
        )


def did_you_mean(got: Any, choices: Iterable[str]) -> str:
    """Return the closest choice as the end of a message, or an empty string."""
    folded = {choice.casefold(): choice for choice in choices}
    name = got.casefold() if isinstance(got, str) else ""
    matches = difflib.get_close_matches(name, folded, n=1, cutoff=0.67)
    return f"; did you mean {folded[matches[0]]!r}?" if matches else ""


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
    """Raise an error unless ``got`` is a finite number within the bounds."""
    if isinstance(got, bool) or not isinstance(got, Real):
        raise TypeError(f"{who}: expected {name} to be a number, got {got!r}")
    try:
        value = float(got)
    except OverflowError:  # an integer with hundreds of digits
        value = math.inf
    bounds = {">": above, ">=": at_least, "<=": at_most, "<": below}
    inside = above < value < below and at_least <= value <= at_most
    if not (math.isfinite(value) and inside):
        text = " and ".join(f"{sign} {b:g}" for sign, b in bounds.items() if math.isfinite(b))
        wanted = f"{name} {text} and finite" if text else f"{name} to be finite"
        raise ValueError(f"{who}: expected {wanted}, got {got!r}")


def require_count(who: str, name: str, got: Any) -> None:
    """Raise an error unless ``got`` is an integer of at least 1."""
    if isinstance(got, bool) or not isinstance(got, Integral):
        raise TypeError(f"{who}: expected {name} to be an integer, got {got!r}")
    if got < 1:
        raise ValueError(f"{who}: expected {name} >= 1, got {got}")


def require_shrinking(who: str, dims: Any) -> tuple[int, ...]:
    """Return the sizes as a tuple; raise an error unless they are positive and non-increasing."""
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
    """Raise a ValueError if a BiMap of these sizes cannot have orthonormal columns."""
    if after > before:
        raise ValueError(
            f"{who}: expected non-increasing sizes, got {before} -> {after} {where}; a BiMap with "
            "orthonormal columns can only keep or reduce the size"
        )


def require_threshold(who: str, eps: Any) -> float | None:
    """Validate a threshold; return a percentage as a fraction, and None for a number."""
    if not isinstance(eps, str):
        require_number(who, "eps", eps, at_least=0)
        return None
    number = eps.strip().removesuffix("%")
    try:
        fraction = float(number) / 100
    except ValueError:
        fraction = math.nan
    if number == eps.strip() or not 0 < fraction < 1:
        raise ValueError(
            f"{who}: expected eps to be a number >= 0, or a percentage between 0% and 100% such as "
            f"'10%', got {eps!r}"
        )
    return fraction


def require_channels(who: str, X: Tensor, n: int, name: str = "X") -> None:
    """Raise a ValueError unless ``X`` is ``(..., n, m, m)``, with ``n`` matrices per sample."""
    if X.ndim < 3 or X.shape[-3] != n:
        raise ValueError(
            f"{who}: expected {name} of shape (..., {n}, m, m), {n} matrices for each sample, got "
            f"{tuple(X.shape)}" + ("; give one matrix as X[..., None, :, :]" if n == 1 else "")
        )
