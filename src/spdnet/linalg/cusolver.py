"""Binding to the batched eigensolver of cuSOLVER (CUDA only).

``torch.linalg.eigh`` decomposes a batch of matrices above 32 by 32 one after the other.
``cusolverDnXsyevBatched``, in the library that torch has already loaded, solves them together. It
is called through ctypes on torch's memory and current stream; nothing is compiled.
"""

import ctypes
from functools import cache
from typing import Any

import torch
from torch import Tensor

_SONAMES = ("libcusolver.so.12", "libcusolver.so.11")
_VECTORS, _LOWER = 1, 0  # CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER
_REAL = {torch.float32: 0, torch.float64: 1}  # CUDA_R_32F, CUDA_R_64F
_TYPES = {**_REAL, torch.complex64: 4, torch.complex128: 5}  # CUDA_C_32F, CUDA_C_64F
#: workspace limit: this many bytes, or this many times the matrices if that is more
_MIN_LIMIT, _MAX_RATIO = 192 * 2**20, 9
_SIZE, _INT64, _POINTER, _INT = ctypes.c_size_t, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int
_MATRICES = (_POINTER, _POINTER, _INT, _INT, _INT64, _INT, _POINTER, _INT64, _INT, _POINTER, _INT)


@cache
def is_available() -> bool:
    """Return whether the solver is available: CUDA 12.6 or later, not ROCm."""
    return _library() is not None


def syev_batched(X: Tensor) -> tuple[Tensor, Tensor]:
    """Compute eigenvalues (ascending) and eigenvectors of symmetric ``X (B, n, n)``.

    ``X`` is real or complex, in single or double precision, and may be overwritten. The call does
    not synchronize. A matrix that the solver cannot decompose, such as one with NaN, gets NaN
    eigenvalues. A large batch is split, because the solver requests up to a hundred times the
    memory of its matrices.
    """
    B, n, _ = X.shape
    A = X.contiguous()  # overwritten by the eigenvectors
    s = X.real.new_empty(B, n)
    info = torch.empty(B, dtype=torch.int32, device=X.device)
    with torch.cuda.device(X.device):
        stream = torch.cuda.current_stream(X.device).cuda_stream
        handle, params = _handle(X.device.index, stream)
        kind, real = _TYPES[X.dtype], _REAL[s.dtype]
        workspace, _ = _workspace(X.device.index, kind, real, n, B)
        parts = max(1, -(-workspace // max(_MIN_LIMIT, _MAX_RATIO * X.nbytes)))
        part = -(-B // parts)
        on_device, on_host = _workspace(X.device.index, kind, real, n, part)
        buffer = torch.empty(on_device, dtype=torch.uint8, device=X.device)
        for matrices, values, flags in zip(*(x.split(part) for x in (A, s, info)), strict=True):
            _call(
                "cusolverDnXsyevBatched",
                *(handle, params, _VECTORS, _LOWER, n),
                *(kind, matrices.data_ptr(), n, real, values.data_ptr(), kind),
                *(buffer.data_ptr(), on_device, on_host, len(on_host)),
                *(flags.data_ptr(), len(matrices)),
            )
    s = torch.where((info == 0)[:, None], s, torch.nan)
    return s, A.mT.conj_physical()  # the library is column-major and therefore reads the conjugate


@cache
def _library() -> Any:
    if torch.version.cuda is None or not torch.cuda.is_available():
        return None
    torch.linalg.eigh(torch.eye(2, device="cuda"))  # makes torch load the library
    for name in _SONAMES:
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        if hasattr(library, "cusolverDnXsyevBatched"):
            break
    else:
        return None
    # ctypes truncates 64 bits to 32 without the argument types
    library.cusolverDnCreate.argtypes = (_POINTER,)
    library.cusolverDnCreateParams.argtypes = (_POINTER,)
    library.cusolverDnSetStream.argtypes = (_POINTER, _POINTER)
    size, buffers = ctypes.POINTER(_SIZE), (_POINTER, _SIZE, _POINTER, _SIZE, _POINTER, _INT64)
    library.cusolverDnXsyevBatched_bufferSize.argtypes = (*_MATRICES, size, size, _INT64)
    library.cusolverDnXsyevBatched.argtypes = (*_MATRICES, *buffers)
    return library


def _call(name: str, *args: Any) -> None:
    status = getattr(_library(), name)(*args)
    if status != 0:
        raise RuntimeError(f"{name} failed with status {status}")


_handles: dict[tuple[int, int], tuple[ctypes.c_void_p, ctypes.c_void_p]] = {}


def _handle(device: int, stream: int) -> tuple[ctypes.c_void_p, ctypes.c_void_p]:
    """Return a handle and default parameters for a stream.

    Each stream has its own, since streams run concurrently. None can be created while a graph is
    captured; then a new stream uses that of another stream.
    """
    key = device, stream
    if key not in _handles and torch.cuda.is_current_stream_capturing():
        key = next((known for known in _handles if known[0] == device), key)
    if key not in _handles:
        handle, params = _POINTER(), _POINTER()
        _call("cusolverDnCreate", ctypes.byref(handle))
        _call("cusolverDnCreateParams", ctypes.byref(params))
        _handles[key] = handle, params
    handle, params = _handles[key]
    _call("cusolverDnSetStream", handle, _POINTER(stream))
    return handle, params


@cache
def _workspace(
    device: int, kind: int, real: int, n: int, batch: int
) -> tuple[int, ctypes.Array[Any]]:
    """Return the device bytes that the solver needs, and its host buffer."""
    handle, params = _handle(device, torch.cuda.current_stream(device).cuda_stream)
    on_device, on_host = _SIZE(), _SIZE()
    _call(
        "cusolverDnXsyevBatched_bufferSize",
        *(handle, params, _VECTORS, _LOWER, n, kind, None, n, real, None, kind),
        *(ctypes.byref(on_device), ctypes.byref(on_host), batch),
    )
    return on_device.value, (ctypes.c_char * on_host.value)()
