"""Shape, SPD and range checks: the text of every error a user sees.

Each message says who complains, what was expected, what came, and what to do. The ``require_``
functions on shapes and types are free; those that pass over the data are named in their
docstrings, and are skipped where values cannot be looked at (compilation, export, vmap).
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor


def require_tensor(who: str, X: Any, name: str = "X") -> None:
    """``X`` is a torch tensor."""
    if not isinstance(X, Tensor):
        kind = f"{type(X).__module__}.{type(X).__qualname__}".removeprefix("builtins.")
        raise TypeError(
            f"{who}: expected {name} to be a torch.Tensor, got {kind}; use torch.as_tensor({name})"
        )


def require_square(who: str, X: Tensor, name: str = "X", n: int | None = None) -> None:
    """``X`` is ``(..., n, n)``."""
    require_tensor(who, X, name)
    size = "n" if n is None else n
    rows, cols = X.shape[-2:] if X.ndim >= 2 else (0, 0)
    if rows != cols or cols == 0 or (n is not None and cols != n):
        raise ValueError(
            f"{who}: expected {name} of shape (..., {size}, {size}), got {tuple(X.shape)}; "
            "pass symmetric matrices in the last two dimensions"
        )


def require_matrix(who: str, X: Tensor, name: str = "W") -> None:
    """``X`` is ``(..., n, k)`` with ``n >= k``."""
    require_tensor(who, X, name)
    if X.ndim < 2 or X.shape[-2] < X.shape[-1]:
        raise ValueError(
            f"{who}: expected {name} of shape (..., n, k) with n >= k, got {tuple(X.shape)}; "
            "k orthonormal columns need at least k rows"
        )


def require_same_shape(who: str, **tensors: Tensor) -> None:
    """All tensors have the shape of the first."""
    (first, X), *rest = tensors.items()
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
    if X.dtype != weight.dtype and X.dtype not in (torch.float16, torch.bfloat16):
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
        )


def require_number(
    who: str, name: str, got: Any, *, above: float = -math.inf, at_least: float = -math.inf
) -> None:
    """``got`` is a finite number, larger than ``above`` and not below ``at_least``."""
    if isinstance(got, bool) or not isinstance(got, (int, float)):
        raise TypeError(f"{who}: expected {name} to be a number, got {got!r}")
    if not math.isfinite(got) or got <= above or got < at_least:
        bound = f" > {above:g}" if above > -math.inf else ""
        bound = f" >= {at_least:g}" if at_least > -math.inf else bound
        raise ValueError(f"{who}: expected {name}{bound} and finite, got {got!r}")


def require_count(who: str, name: str, got: Any) -> None:
    """``got`` is a whole number of at least 1."""
    if isinstance(got, bool) or not isinstance(got, int):
        raise TypeError(f"{who}: expected {name} to be a whole number, got {got!r}")
    if got < 1:
        raise ValueError(f"{who}: expected {name} >= 1, got {got}")


def require_shrinking(who: str, dims: Sequence[int], name: str = "dims") -> None:
    """``dims`` are positive whole numbers that never grow."""
    if isinstance(dims, (str, int)) or not isinstance(dims, Sequence) or len(dims) == 0:
        raise TypeError(
            f"{who}: expected {name} to be a sequence of matrix sizes such as (93, 70, 50, 30), "
            f"got {dims!r}"
        )
    for i, d in enumerate(dims):
        require_count(who, f"{name}[{i}]", d)
    for i in range(1, len(dims)):
        if dims[i] > dims[i - 1]:
            raise ValueError(
                f"{who}: expected {name} that never grow, got {dims[i - 1]} -> {dims[i]} in "
                f"{tuple(dims)}; a BiMap with orthonormal columns can only keep or reduce the size"
            )


def is_concrete(X: Tensor) -> bool:
    """Whether the values of ``X`` can be looked at: not in compilation, export, vmap, on meta."""
    return not (
        torch.compiler.is_compiling()
        or X.device.type == "meta"
        or torch._C._functorch.is_functorch_wrapped_tensor(X)
    )


def require_symmetric(who: str, X: Tensor, name: str = "X") -> None:
    """Every matrix is finite and symmetric (a pass over the data).

    The asymmetry may be the square root of the rounding unit, relative to the largest entry of
    the same matrix.
    """
    if not is_concrete(X) or X.numel() == 0:
        return
    X = X.detach()
    _refuse(
        who,
        name,
        ~X.isfinite().all(-1).all(-1),
        "finite entries",
        "contains NaN or infinity",
        "drop or repair it before this call",
    )
    gap = (X - X.mT).abs().amax((-2, -1))
    size = X.abs().amax((-2, -1))
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


def require_positive_semidefinite(who: str, X: Tensor, name: str = "X") -> None:
    """No eigenvalue is negative beyond rounding (a Cholesky decomposition of the data)."""
    if not is_concrete(X) or X.numel() == 0:
        return
    X = X.detach()
    if X.dtype in (torch.float16, torch.bfloat16):
        X = X.float()
    slack = torch.finfo(X.dtype).eps ** 0.5 * X.abs().amax((-2, -1))
    slack = torch.where(slack == 0, 1.0, slack)  # a zero matrix is semi-definite
    shifted = X + torch.diag_embed(slack[..., None].expand(X.shape[:-1]))
    bad = torch.linalg.cholesky_ex(shifted).info != 0
    if bad.any():  # the eigenvalue is only for the message
        refuse_indefinite(who, bad, torch.linalg.eigvalsh(X).amin(-1), name)


def require_positive_eigenvalues(who: str, s: Tensor, name: str = "X") -> None:
    """All eigenvalues are positive (a pass over them)."""
    if is_concrete(s) and s.numel() > 0:
        lowest = s.detach().amin(-1)
        refuse_indefinite(who, lowest <= 0, lowest, name)


def refuse_indefinite(who: str, bad: Tensor, lowest: Tensor, name: str = "X") -> None:
    """Raise for the matrices marked ``bad``, showing their smallest eigenvalue."""
    _refuse(
        who,
        name,
        bad,
        "positive definite matrices",
        "is not positive definite",
        f"regularise it, for example {name} + 1e-3 * trace({name}) / n * I",
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
