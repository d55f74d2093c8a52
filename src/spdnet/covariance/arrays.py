"""Array support for functions of tensors."""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any

import numpy
import torch
from torch import Tensor

from spdnet._checks import as_array


def accept_arrays(function: Callable[..., Tensor]) -> Callable[..., Any]:
    """Let a function whose first argument is a tensor also accept and return an array."""
    who, first = function.__name__, next(iter(signature(function).parameters))

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if args:
            X, *rest = args
        elif first in kwargs:
            X, rest = kwargs.pop(first), []
        else:
            return function(**kwargs)  # raises for the missing argument
        if isinstance(X, Tensor):
            if X.dtype.is_complex:
                raise _complex_error(who, first, X.dtype)
            return function(X if X.dtype.is_floating_point else X.double(), *rest, **kwargs)
        return function(_to_tensor(who, first, X), *rest, **kwargs).numpy()

    return wrapped


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
    if numpy.iscomplexobj(A):
        raise _complex_error(who, name, A.dtype)
    native = A.dtype.newbyteorder("=")
    if native not in (numpy.float16, numpy.float32, numpy.float64):
        native = numpy.dtype(numpy.float64)
    A = numpy.ascontiguousarray(A, dtype=native)
    return torch.from_numpy(A if A.flags.writeable else A.copy())


def _shapes(X: Any) -> list[tuple[int, ...]]:
    """Return the shapes of the items of a sequence, or an empty list if they have none."""
    try:
        return [tuple(numpy.shape(x)) for x in X] if isinstance(X, (list, tuple)) else []
    except (TypeError, ValueError):
        return []


def _complex_error(who: str, name: str, dtype: Any) -> TypeError:
    return TypeError(
        f"{who}: expected {name} with real numbers, got {dtype}; give real and imaginary parts as "
        f"channels, or the modulus: abs({name})"
    )
