"""Arrays and signals as arguments of functions of tensors."""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any

import numpy
import torch
from torch import Tensor

from spdnet._checks import as_array
from spdnet.linalg.validate import require_finite


def accept_arrays(
    function: Callable[..., Tensor], *, allow_complex: bool = False
) -> Callable[..., Any]:
    """Let a function whose first argument is a tensor also accept and return an array.

    Raise a TypeError for complex numbers unless ``allow_complex`` is True.
    """
    who, first = function.__name__, next(iter(signature(function).parameters))

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if not args and first not in kwargs:
            return function(**kwargs)  # raises for the missing argument
        X, *rest = args or [kwargs.pop(first)]
        tensor = X if isinstance(X, Tensor) else _to_tensor(who, first, X)
        if tensor.dtype.is_complex and not allow_complex:
            raise TypeError(
                f"{who}: expected {first} with real numbers, got {tensor.dtype}; give real and "
                f"imaginary parts as channels, or the modulus: abs({first})"
            )
        if not (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
            tensor = tensor.double()
        found = function(tensor, *rest, **kwargs)
        return found if isinstance(X, Tensor) else found.numpy()

    return wrapped


def require_signals(who: str, X: Tensor) -> None:
    """Raise a ValueError unless ``X`` has finite signals of at least two observations."""
    if X.ndim < 2 or X.shape[-1] < 2 or X.shape[-2] < 1:
        raise ValueError(
            f"{who}: expected X of shape (..., channels, time) with at least 2 observations, got "
            f"{tuple(X.shape)}; observations are columns"
        )
    require_finite(who, X)


def _to_tensor(who: str, name: str, X: Any) -> Tensor:
    """Convert an array, or a sequence that numpy can convert, to a tensor."""
    try:
        A = as_array(who, X, name)
    except (TypeError, ValueError):
        shapes = _shapes(X)
        if len(set(shapes)) < 2:
            raise
        some = ", ".join(map(str, shapes[:3])) + (", ..." if len(shapes) > 3 else "")
        stack = "torch.stack" if isinstance(X[0], Tensor) else "numpy.stack"
        raise ValueError(
            f"{who}: expected {name} as one array, got a sequence of {len(X)} items of unequal "
            f"shapes {some}; process them one by one and stack results of one shape: "
            f"{stack}([spdnet.covariance.{who}(x) for x in {name}])"
        ) from None
    native = A.dtype.newbyteorder("=")
    if native not in (numpy.float16, numpy.float32, numpy.float64):
        native = numpy.dtype(numpy.complex128 if native.kind == "c" else numpy.float64)
    A = numpy.ascontiguousarray(A, dtype=native)
    return torch.from_numpy(A if A.flags.writeable else A.copy())


def _shapes(X: Any) -> list[tuple[int, ...]]:
    """Return the shapes of the items of a sequence, or an empty list if they have none."""
    try:
        return [tuple(numpy.shape(x)) for x in X] if isinstance(X, (list, tuple)) else []
    except (TypeError, ValueError):
        return []
