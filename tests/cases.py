"""Test matrices shared by all tests."""

import os
from pathlib import Path

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


def with_spectrum(
    values: list[float], *, seed: int = 0, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Return a symmetric matrix with these eigenvalues, diagonal if all are equal."""
    s = torch.tensor(values, dtype=torch.float64)
    if (s == s[0]).all():
        return torch.diag(s).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    n = len(values)
    Q = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64, generator=generator)).Q
    return symmetrize((Q * s) @ Q.mT).to(dtype)


def random_spd(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return random well-conditioned SPD matrices ``(*shape, shape[-1])``."""
    generator = torch.Generator().manual_seed(seed)
    n = shape[-1]
    A = torch.randn(*shape, 2 * n, dtype=torch.float64, generator=generator)
    return symmetrize(A @ A.mT / (2 * n) + 0.05 * torch.eye(n, dtype=torch.float64)).to(dtype)


def random_symmetric(*shape: int, seed: int = 0) -> Tensor:
    """Return random symmetric matrices ``(*shape, shape[-1])``."""
    generator = torch.Generator().manual_seed(seed)
    return symmetrize(torch.randn(*shape, shape[-1], dtype=torch.float64, generator=generator))
