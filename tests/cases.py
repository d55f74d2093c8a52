"""Test matrices shared by all tests."""

import os
from pathlib import Path

import pytest
import torch
from torch import Tensor

from spdnet.linalg import symmetrize

#: folder with datasets that cannot be redistributed; tests skip if it is missing
REAL_DATA = Path(os.environ.get("SPDNET_REAL_DATA", "no-real-data"))
SPECTRA = {
    "generic": [0.3, 0.8, 1.7, 4.0],
    "near ties": [1.0, 1.0 + 1e-12, 1.0 + 1e-7, 2.0],
    "exact ties": [0.5, 0.5, 2.0, 2.0],
    "identity": [1.0, 1.0, 1.0, 1.0],
    "low rank + c I": [0.1, 0.1, 0.1, 3.0],
    "one by one": [2.0],
}
ILL_CONDITIONED = [1e-6, 1e-6, 1.0, 1e2]
BATCH_SHAPES = [(), (0,), (2, 3)]


#: every law holds for real symmetric and for complex Hermitian matrices
every_dtype = pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)


def with_spectrum(
    values: list[float], *, seed: int = 0, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Return a symmetric matrix with these eigenvalues, diagonal if all are equal."""
    s = torch.tensor(values, dtype=torch.float64)
    if (s == s[0]).all():
        return torch.diag(s).to(dtype)
    Q = torch.linalg.qr(random_matrix(len(values), len(values), seed=seed, dtype=dtype)).Q
    return symmetrize((Q * s) @ Q.mH).to(dtype)


def random_spd(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return random well-conditioned SPD matrices ``(*shape, shape[-1])``."""
    n = shape[-1]
    A = random_matrix(*shape, 2 * n, seed=seed, dtype=dtype)
    return symmetrize(A @ A.mH / (2 * n) + 0.05 * torch.eye(n, dtype=torch.float64)).to(dtype)


def random_symmetric(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return random symmetric matrices ``(*shape, shape[-1])``."""
    return symmetrize(random_matrix(*shape, shape[-1], seed=seed, dtype=dtype)).to(dtype)


def random_matrix(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return random matrices in double precision, complex for a complex dtype."""
    generator = torch.Generator().manual_seed(seed)
    dtype = torch.complex128 if dtype.is_complex else torch.float64
    return torch.randn(*shape, dtype=dtype, generator=generator)


def real_embedding(X: Tensor) -> Tensor:
    """Return the real matrices ``(..., 2n, 2n)`` with the same products as complex ``X``."""
    rows = torch.cat([X.real, -X.imag], -1), torch.cat([X.imag, X.real], -1)
    return torch.cat(rows, -2)


def cross_spectra(count: int, n: int = 4, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return complex cross-spectra and two classes, which differ in the sign of one phase.

    The distribution of the real parts is that of both classes.
    """
    y = torch.arange(count) % 2
    Z = random_matrix(count, n, 40, seed=seed, dtype=torch.complex128)
    Z[:, 1] += 0.7j * (2 * y - 1)[:, None] * Z[:, 0]
    return symmetrize(Z @ Z.mH / 40), y
