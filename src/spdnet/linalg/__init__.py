"""Functions of symmetric matrices, real or complex.

For complex matrices, symmetric means Hermitian, orthonormal means unitary, and the transpose in
formulas is the conjugate transpose. Eigenvalues, distances and vectors of :func:`vech` are real.
"""

from spdnet.linalg.cholesky import cholesky
from spdnet.linalg.congruence import congruence
from spdnet.linalg.eigh import eigh
from spdnet.linalg.lyapunov import lyapunov
from spdnet.linalg.matrix_functions import clamp_eig, expm, invsqrtm, logm, powm, sqrtm
from spdnet.linalg.scalar import (
    Clamp,
    Exp,
    InvSqrt,
    Log,
    Power,
    ScalarFunction,
    Sigmoid,
    Softplus,
    Sqrt,
)
from spdnet.linalg.spectral import spectral_derivative, spectral_map
from spdnet.linalg.symmetric import symmetrize, unvech, vech

__all__ = [
    "Clamp",
    "Exp",
    "InvSqrt",
    "Log",
    "Power",
    "ScalarFunction",
    "Sigmoid",
    "Softplus",
    "Sqrt",
    "cholesky",
    "clamp_eig",
    "congruence",
    "eigh",
    "expm",
    "invsqrtm",
    "logm",
    "lyapunov",
    "powm",
    "spectral_derivative",
    "spectral_map",
    "sqrtm",
    "symmetrize",
    "unvech",
    "vech",
]
