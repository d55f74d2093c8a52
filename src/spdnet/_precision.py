"""Which precision a computation runs in: half types lifted, autocast kept out."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
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
    """Run a function of floating tensors in float64, and round to the dtype of the first."""

    @wraps(function)
    def lifted(X: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if not isinstance(X, Tensor) or not X.dtype.is_floating_point:
            return function(X, *args, **kwargs)  # which will refuse it
        dtype = accurate_dtype(X)
        others = (a.to(dtype) if isinstance(a, Tensor) else a for a in args)
        return function(X.to(dtype), *others, **kwargs).to(X.dtype)

    return lifted


def unlowered(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Keep autocast out of a function of tensors."""

    @wraps(function)
    def plain(X: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        with without_autocast(X):
            return function(X, *args, **kwargs)

    return plain


def without_autocast(X: Tensor) -> AbstractContextManager[object]:
    """A context in which autocast does not lower products on the device of ``X``."""
    kind = X.device.type if isinstance(X, Tensor) else "meta"
    if kind == "meta" or not torch.is_autocast_enabled(kind):
        return nullcontext()
    return torch.autocast(kind, enabled=False)
