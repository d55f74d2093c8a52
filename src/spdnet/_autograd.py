"""What custom autograd functions share."""

from typing import Any

import torch
from torch import Tensor
from torch._functorch.utils import unwrap_dead_wrappers
from torch.autograd import Function, forward_ad


def apply(function: type[Function], *args: Any) -> Any:
    """``function.apply(*args)``, all arguments given, in half the time for small tensors.

    torch inspects the signature of ``forward`` at every call, to fill in default arguments.
    """
    if torch._C._are_functorch_transforms_active():
        return function.apply(*args)
    return super(Function, function).apply(*unwrap_dead_wrappers(args))  # type: ignore[misc]


def is_transformed(x: Tensor) -> bool:
    """Whether ``x`` is inside a transform of torch.func, such as vmap or grad."""
    return torch._C._functorch.is_functorch_wrapped_tensor(x)


def is_concrete(X: Tensor) -> bool:
    """Whether the values of ``X`` can be looked at: not in compilation, export, vmap, on meta."""
    return not (
        torch.compiler.is_compiling()
        or X.device.type == "meta"
        or is_transformed(X)
        or isinstance(X, torch._subclasses.FakeTensor)
    )


def can_branch(X: Tensor) -> bool:
    """Whether the values of ``X`` may decide what is done: concrete, not captured in a graph."""
    if X.numel() == 0 or not is_concrete(X):
        return False
    return X.device.type != "cuda" or not torch.cuda.is_current_stream_capturing()


def is_differentiated(x: Tensor) -> bool:
    """Whether a derivative with respect to ``x`` may be wanted, in reverse or in forward mode."""
    dual = forward_ad._current_level >= 0 and forward_ad.unpack_dual(x).tangent is not None
    return (torch.is_grad_enabled() and x.requires_grad) or dual or is_transformed(x)


def batch_first(size: int, in_dims: tuple[Any, ...], args: tuple[Any, ...]) -> list[Any]:
    """Every tensor of ``args`` with the batch of vmap as its first dimension."""

    def moved(x: Any, dim: int | None) -> Any:
        if not isinstance(x, Tensor):
            return x
        return x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)

    return [moved(x, dim) for x, dim in zip(args, in_dims, strict=True)]
