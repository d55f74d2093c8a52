"""Precision of computations: half precision in float32, and no autocast."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from inspect import signature
from typing import Any, overload

import torch
from torch import Tensor

HALF = (torch.float16, torch.bfloat16)
#: complex types, and the types of their real parts
COMPLEX = {torch.complex64: torch.float32, torch.complex128: torch.float64}


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return float32 for half precision, and otherwise ``dtype`` itself."""
    return torch.float32 if dtype in HALF else dtype


@overload
def real_dtype(dtype: torch.dtype) -> torch.dtype: ...
@overload
def real_dtype(dtype: torch.dtype | None) -> torch.dtype | None: ...
def real_dtype(dtype: torch.dtype | None) -> torch.dtype | None:
    """Return the dtype of the real part; None for the default stays None."""
    return dtype if dtype is None else COMPLEX.get(dtype, dtype)


def complex_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the complex dtype whose real part has this dtype."""
    return next((wide for wide, part in COMPLEX.items() if part == dtype), dtype)


def accurate_dtype(X: Tensor) -> torch.dtype:
    """Return float64 or complex128 if the device supports it, and otherwise the working dtype."""
    if X.device.type == "mps":
        return working_dtype(X.dtype)
    return torch.complex128 if X.dtype.is_complex else torch.float64


def in_float64(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Run a function or method of tensors in float64, and round to the dtype of the first.

    Complex tensors are lifted to complex128; a real result stays real.

    An object with ``uses_float64 = False`` runs the method in the dtype of the input.
    """
    names = list(signature(function).parameters)
    position = int(names[0] == "self")
    first = names[position]

    @wraps(function)
    def lifted(*args: Any, **kwargs: Any) -> Tensor:
        if position and not getattr(args[0], "uses_float64", True):
            return function(*args, **kwargs)
        X = args[position] if len(args) > position else kwargs.get(first)
        if not isinstance(X, Tensor) or not (X.dtype.is_floating_point or X.dtype.is_complex):
            return function(*args, **kwargs)  # raises the error
        args = tuple([a.to(accurate_dtype(a)) if isinstance(a, Tensor) else a for a in args])
        for name, a in kwargs.items():
            if isinstance(a, Tensor):
                kwargs[name] = a.to(accurate_dtype(a))
        Y = function(*args, **kwargs)
        return Y.to(X.dtype if Y.dtype.is_complex else real_dtype(X.dtype))

    return lifted


def disable_autocast(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Disable autocast in a function of tensors."""
    first = next(iter(signature(function).parameters))

    @wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Tensor:
        with without_autocast(args[0] if args else kwargs.get(first)):
            return function(*args, **kwargs)

    return plain


def without_autocast(X: Tensor | None) -> AbstractContextManager[object]:
    """Return a context that disables autocast on the device of ``X``."""
    kind = X.device.type if isinstance(X, Tensor) else "meta"
    if kind == "meta" or not torch.is_autocast_enabled(kind):
        return nullcontext()
    return torch.autocast(kind, enabled=False)
