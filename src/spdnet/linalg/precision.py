"""Which precision a computation runs in: half types lifted, autocast kept out."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

_HALF = (torch.float16, torch.bfloat16)


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype a computation on ``dtype`` runs in: float32 for the half types, else itself."""
    return torch.float32 if dtype in _HALF else dtype


def accurate_dtype(X: Tensor) -> torch.dtype:
    """float64 where the device has it, else the working dtype."""
    return working_dtype(X.dtype) if X.device.type == "mps" else torch.float64


def without_autocast(X: Tensor) -> AbstractContextManager[object]:
    """A context in which autocast does not lower products on the device of ``X``."""
    kind = X.device.type
    if kind == "meta" or not torch.is_autocast_enabled(kind):
        return nullcontext()
    return torch.autocast(kind, enabled=False)
