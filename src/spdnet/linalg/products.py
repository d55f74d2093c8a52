"""Products of a batch of matrices with one matrix.

torch's matmul copies a transposed batch; these forms do not. On a CPU, torch computes matrix
products with MKL, which uses AVX-512 only on processors of Intel. On others, oneDNN is twice as
fast in float32.
"""

import platform
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from spdnet._autograd import is_concrete, is_differentiated

#: numbers of multiplications from which oneDNN is faster than MKL
_MIN_PRODUCT, _MIN_SUM = 4_000_000, 10_000_000
#: number of multiplications for one matrix from which a batch is faster than one long product
_MIN_SINGLE = 1_000_000


def prefers_right(X: Tensor, A: Tensor) -> bool:
    """Return whether ``X A`` of symmetric ``X (B, n, n)`` is faster than ``A^T X``."""
    return _prefers_onednn(X, X.numel() * A.shape[-1], _MIN_PRODUCT)


def multiply(A: Tensor, B: Tensor) -> Tensor:
    """Compute ``A B`` of matrices or stacks of matrices."""
    if A.ndim == B.ndim == 2 and _prefers_onednn(A, A.numel() * B.shape[-1], _MIN_PRODUCT):
        return _onednn_product(A, B)
    return A @ B


def left_multiply(A: Tensor, X: Tensor) -> Tensor:
    """Compute ``A X_b`` of ``(m, n)`` and ``(B, n, k)``."""
    return torch.bmm(A.expand(X.shape[0], *A.shape), X)


def right_multiply(X: Tensor, A: Tensor) -> Tensor:
    """Compute ``X_b A`` of ``(B, m, n)`` and ``(n, k)``."""
    B, m, n = X.shape
    k = A.shape[-1]
    if _prefers_onednn(X, X.numel() * k, _MIN_PRODUCT):
        return _onednn_product(X.reshape(B * m, n), A).view(B, m, k)
    if m * n * k >= _MIN_SINGLE and X.device.type == "cpu":
        return torch.bmm(X, A.expand(B, n, k))
    return (X.reshape(B * m, n) @ A).view(B, m, k)


def sum_of_products(A: Tensor, B: Tensor) -> Tensor:
    """Compute ``sum_b A_b^H B_b`` of ``(B, k, m)`` and ``(B, k, n)``."""
    A, B = A.flatten(0, 1), B.flatten(0, 1)
    if _prefers_onednn(A, A.numel() * B.shape[-1], _MIN_SUM):
        return _onednn_product(A.mT, B)
    threads = 1
    if A.device.type == "cpu" and not torch.compiler.is_compiling():
        threads = torch.get_num_threads()
    if threads == 1 or len(A) == 0 or len(A) % threads != 0:
        return A.mH @ B
    # one product per thread
    return (A.unflatten(0, (threads, -1)).mH @ B.unflatten(0, (threads, -1))).sum(0)


def _onednn_product(A: Tensor, B: Tensor) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise.default(A, B.mT, None, "none", [], "")


def _prefers_onednn(X: Tensor, work: int, least: int) -> bool:
    if X.dtype != torch.float32 or X.device.type != "cpu":
        return False
    # oneDNN's product has no derivative
    if torch.is_grad_enabled() or not is_concrete(X) or is_differentiated(X):
        return False
    return work >= least and _mkl_lacks_avx512() and bool(torch.backends.mkldnn.enabled)


@cache
def _mkl_lacks_avx512() -> bool:
    """Return whether the processor has AVX-512, which MKL does not use, but oneDNN does."""
    backends = torch.backends
    if not (backends.mkl.is_available() and backends.mkldnn.is_available()):
        return False
    if backends.cpu.get_cpu_capability() != "AVX512":
        return False
    return hasattr(torch.ops.mkldnn, "_linear_pointwise") and "GenuineIntel" not in _processor()


def _processor() -> str:
    """Return a description of the processor, with its vendor."""
    try:
        return Path("/proc/cpuinfo").read_text()
    except OSError:  # not on Linux
        return platform.processor()
