"""Which precision a computation runs in: half types lifted, autocast kept out."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from inspect import signature
from typing import Any

import torch
from torch import Tensor

HALF = (torch.float16, torch.bfloat16)


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype a computation on ``dtype`` runs in: float32 for the half types, else itself."""
    return torch.float32 if dtype in HALF else dtype


def accurate_dtype(X: Tensor) -> torch.dtype:
    """float64 where the device has it, else the working dtype."""
    return working_dtype(X.dtype) if X.device.type == "mps" else torch.float64


def accurately(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Run a function or method of tensors in float64, and round to the dtype of the first."""
    names = list(signature(function).parameters)
    place = int(names[0] == "self")
    first = names[place]

    @wraps(function)
    def lifted(*args: Any, **kwargs: Any) -> Tensor:
        X = args[place] if len(args) > place else kwargs.get(first)
        if not isinstance(X, Tensor) or not X.dtype.is_floating_point:
            return function(*args, **kwargs)  # which will refuse it
        dtype = accurate_dtype(X)
        args = tuple([a.to(dtype) if isinstance(a, Tensor) else a for a in args])
        for name, a in kwargs.items():
            if isinstance(a, Tensor):
                kwargs[name] = a.to(dtype)
        return function(*args, **kwargs).to(X.dtype)

    return lifted


def unlowered(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Keep autocast out of a function of tensors."""
    first = _first_name(function)

    @wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Tensor:
        with without_autocast(args[0] if args else kwargs.get(first)):
            return function(*args, **kwargs)

    return plain


def _first_name(function: Callable[..., Any]) -> str:
    return next(iter(signature(function).parameters))


def without_autocast(X: Tensor | None) -> AbstractContextManager[object]:
    """A context in which autocast does not lower products on the device of ``X``."""
    kind = X.device.type if isinstance(X, Tensor) else "meta"
    if kind == "meta" or not torch.is_autocast_enabled(kind):
        return nullcontext()
    return torch.autocast(kind, enabled=False)
