"""Helpers for custom autograd functions."""

from typing import Any, NoReturn

import torch
from torch import Tensor
from torch._functorch.utils import unwrap_dead_wrappers
from torch.autograd import Function, forward_ad


def without_jvp(function: type[Function]) -> type[Function]:
    """Return a variant without ``jvp``, which the compiler rejects."""
    return type(function.__name__, (function,), {"jvp": staticmethod(Function.jvp)})


def apply(function: type[Function], compiled: type[Function], *args: Any) -> Any:
    """Apply ``function``, or its variant ``compiled`` without ``jvp`` under torch.compile."""
    if not torch.compiler.is_compiling():
        return apply_eager(function, *args)
    tensors = (a for a in args if isinstance(a, Tensor))
    needs_grad = torch.is_grad_enabled() and any(a.requires_grad for a in tensors)
    if needs_grad and not is_exporting():
        return compiled.apply(*args)
    # the compiler cannot trace a Function without a derivative
    return function.forward(*args)


def apply_eager(function: type[Function], *args: Any) -> Any:
    """Call ``function.apply`` with all arguments, in half the time for small tensors.

    torch inspects the signature of ``forward`` at every call, to fill in default arguments.
    """
    if torch._C._are_functorch_transforms_active():
        return function.apply(*args)
    return super(Function, function).apply(*unwrap_dead_wrappers(args))  # type: ignore[misc]


def is_transformed(x: Tensor) -> bool:
    """Return whether ``x`` is inside a transform of torch.func, such as vmap or grad."""
    return torch._C._functorch.is_functorch_wrapped_tensor(x)


def is_exporting() -> bool:
    """Return whether torch.export is running.

    Before torch 2.13, ``torch.compiler.is_exporting()`` is also true in ``torch.compile``.
    """
    return torch.compiler._is_exporting_flag


def constant(X: Tensor) -> Tensor:
    """Return ``X`` as a constant, for callers that define the derivative themselves.

    An exported program consists of torch operators and cannot contain that derivative. In export,
    every gradient through ``X`` is NaN (the square root has infinite slope at zero), because a
    gradient without this part would be silently wrong.
    """
    return X + (X - X).sqrt() if is_exporting() else X.detach()


def refuse_tracing() -> None:
    """Raise an error inside torch.jit.trace and the ONNX exporters."""
    if torch.jit.is_tracing():  # type: ignore[attr-defined]
        refuse_format("torch.jit.trace and torch.onnx.export")
    if is_exporting() and _is_onnx_export():
        refuse_format("torch.onnx.export")


def refuse_format(who: str) -> NoReturn:
    """Raise an error that explains how to save a network instead."""
    raise NotImplementedError(
        f"{who}: not available for spdnet, because TorchScript cannot compile its Python code and "
        "ONNX has no eigendecomposition; use torch.export.export and torch.export.save, whose "
        "program runs in torch without spdnet"
    )


def refuse_third_derivative(who: str) -> NoReturn:
    """Raise an error for a derivative that is not implemented."""
    raise NotImplementedError(
        f"{who}: the third derivative is not available; the first and second are exact. Detach the "
        "second derivative if you did not mean to differentiate it"
    )


def _is_onnx_export() -> bool:
    return torch.onnx.is_in_onnx_export()


# otherwise torch.export(strict=True) assumes that the function returns False
_is_onnx_export._dynamo_marked_constant = True  # type: ignore[attr-defined]


def is_concrete(X: Tensor) -> bool:
    """Return whether ``X`` has values: not in compilation, export or vmap, nor on meta."""
    refuse_tracing()
    return not (
        torch.compiler.is_compiling()
        or X.device.type == "meta"
        or is_transformed(X)
        or isinstance(X, torch._subclasses.FakeTensor)
    )


def can_branch(X: Tensor) -> bool:
    """Return whether control flow may depend on the values of ``X``."""
    return X.numel() > 0 and is_concrete(X) and not is_capturing(X)


def is_capturing(X: Tensor) -> bool:
    """Return whether operations on ``X`` are being captured in a CUDA graph."""
    return X.is_cuda and torch.cuda.is_current_stream_capturing()


def is_differentiated(x: Tensor) -> bool:
    """Return whether ``x`` may be differentiated, in reverse or forward mode."""
    dual = forward_ad._current_level >= 0 and forward_ad.unpack_dual(x).tangent is not None
    return (torch.is_grad_enabled() and x.requires_grad) or dual or is_transformed(x)


def batch_first(size: int, in_dims: tuple[Any, ...], args: tuple[Any, ...]) -> list[Any]:
    """Move the batch dimension of vmap to the front of every tensor in ``args``."""

    def moved(x: Any, dim: int | None) -> Any:
        if not isinstance(x, Tensor):
            return x
        return x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)

    return [moved(x, dim) for x, dim in zip(args, in_dims, strict=True)]
