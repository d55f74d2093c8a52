"""Symmetric matrices: symmetric part, trace, and vectors with the same inner product.

For complex matrices, symmetric means Hermitian.
"""

import math
from typing import Any, overload

import numpy
import torch
from torch import Tensor

from spdnet._checks import require_floating, require_real, require_square, require_tensor


@overload
def symmetrize(X: Tensor) -> Tensor: ...
@overload
def symmetrize(X: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]: ...
def symmetrize(X: Any) -> Any:
    r"""Compute the symmetric part :math:`(X + X^\top) / 2` of a tensor or array, exactly symmetric.

    For complex matrices it is the Hermitian part :math:`(X + X^{\mathsf H}) / 2`.

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg import symmetrize
    >>> symmetrize(torch.tensor([[1.0, 2.0], [4.0, 3.0]]))
    tensor([[1., 3.],
            [3., 3.]])
    """
    if isinstance(X, numpy.ndarray):
        return _symmetrize_array(X)
    is_plain = isinstance(X, Tensor) and X.ndim >= 2 and X.dtype.is_floating_point
    if not is_plain or X.shape[-1] != X.shape[-2]:
        require_square("symmetrize", X)
    Y = X + X.mH
    # the compiler of torch 2.11 loses a change in place within a backward pass
    return Y / 2 if torch.compiler.is_compiling() else Y.mul_(0.5)


def _symmetrize_array(X: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]:
    if X.ndim < 2 or X.shape[-1] != X.shape[-2]:
        raise ValueError(
            f"symmetrize: expected X of shape (..., n, n), got {X.shape}; pass square matrices in "
            "the last two dimensions"
        )
    if not numpy.issubdtype(X.dtype, numpy.inexact):
        raise TypeError(
            f"symmetrize: expected X with a floating or complex dtype, got {X.dtype}; "
            "use X.astype(numpy.float64)"
        )
    transpose = X.swapaxes(-1, -2)
    Y = X + (transpose.conj() if X.dtype.kind == "c" else transpose)
    Y *= 0.5
    return Y


def trace(X: Tensor) -> Tensor:
    """Compute the traces ``(...)`` of symmetric matrices ``(..., n, n)``, which are real."""
    return X.diagonal(dim1=-2, dim2=-1).real.sum(-1)


def fix_signs(F: Tensor, V: Tensor) -> Tensor:
    r"""Choose the signs, or phases, of columns so that they do not depend on the coordinates.

    For the eigenvectors :math:`f_k` of the mean of symmetric matrices :math:`X_i`, and the vectors
    :math:`v_i = X_i f_1`, the third moments :math:`\sum_i (v_i^\top f_k)^3` become positive for
    :math:`k > 1`.

    Parameters
    ----------
    F : Tensor, shape (n, k)
    V : Tensor, shape (N, n)
    """
    c = V.conj() @ F  # (N, k)
    sign = (c.abs().square() * c).sum(0).sgn()
    sign = torch.where(sign == 0, 1.0, sign.conj())
    return torch.cat([F[:, :1], F[:, 1:] * sign[1:]], 1)


def frobenius(A: Tensor, B: Tensor, *, keepdim: bool = False) -> Tensor:
    r"""Compute the real inner products :math:`\mathrm{Re}\,\mathrm{tr}(A^{\mathsf H} B)`."""
    return (A.conj() * B).real.sum((-2, -1), keepdim=keepdim)


def abs_square(A: Tensor) -> Tensor:
    """Compute the squared absolute values of the entries, smooth at zero."""
    return A.real.square() + A.imag.square() if A.is_complex() else A.square()


def real_vector(v: Tensor, off_diagonal: Tensor) -> Tensor:
    """Append the imaginary parts of the entries off the diagonal to the real parts, if complex."""
    return torch.cat([v.real, v.imag[..., off_diagonal]], -1) if v.is_complex() else v


def vech(X: Tensor) -> Tensor:
    r"""Vectorize the upper triangle row by row, with off-diagonal entries times :math:`\sqrt 2`.

    This is an isometry: :math:`\langle \mathrm{vech} A, \mathrm{vech} B \rangle = \mathrm{tr}(A B)`
    for symmetric matrices ``(..., n, n)``. The result has the shape ``(..., n * (n + 1) / 2)`` and
    the order of :func:`torch.triu_indices`.

    The vector of a complex Hermitian matrix is real, of length ``n * n``: that of the real part,
    then the entries of the imaginary part above the diagonal.

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg import vech
    >>> vech(torch.tensor([[1.0, 2.0], [2.0, 3.0]]))
    tensor([1.0000, 2.8284, 3.0000])
    >>> vech(torch.tensor([[1.0, 2.0 + 1.0j], [2.0 - 1.0j, 3.0]]))
    tensor([1.0000, 2.8284, 3.0000, 1.4142])
    """
    require_square("vech", X)
    n = X.shape[-1]
    rows, cols = torch.triu_indices(n, n, device=X.device)
    scale = torch.full(rows.shape, math.sqrt(2), dtype=X.real.dtype, device=X.device)
    v = X[..., rows, cols] * scale.masked_fill(rows == cols, 1.0)
    return real_vector(v, rows < cols)


def unvech(v: Tensor, *, hermitian: bool = False) -> Tensor:
    """Return the symmetric matrices ``(..., n, n)`` of vectors made by :func:`vech`.

    With ``hermitian``, the vectors are those of complex Hermitian matrices.

    Examples
    --------
    >>> import torch
    >>> from spdnet.linalg import unvech
    >>> unvech(torch.tensor([1.0, 0.0, 3.0])).diagonal().round(decimals=4)
    tensor([1., 3.])
    """
    require_tensor("unvech", v, "v")
    length = v.shape[-1] if v.ndim else 0
    n = math.isqrt(length) if hermitian else (math.isqrt(8 * length + 1) - 1) // 2
    if length == 0 or length != vech_size(n, hermitian):
        size = "n * n" if hermitian else "n * (n + 1) / 2"
        raise ValueError(
            f"unvech: expected v of shape (..., {size}) for some n >= 1, "
            f"got {tuple(v.shape)}; pass a vector made by vech"
        )
    require_floating("unvech", v, "v")
    require_real("unvech", v, "v")
    rows, cols = torch.triu_indices(n, n, device=v.device)
    position = torch.zeros(n, n, dtype=torch.long, device=v.device)
    position[rows, cols] = torch.arange(len(rows), device=v.device)
    position = torch.maximum(position, position.mT)
    scale = torch.full((n, n), math.sqrt(0.5), dtype=v.dtype, device=v.device).fill_diagonal_(1.0)
    X = v[..., position] * scale
    if not hermitian:
        return X
    rows, cols = torch.triu_indices(n, n, 1, device=v.device)
    place = torch.zeros_like(position)
    place[rows, cols] = place[cols, rows] = torch.arange(
        length - len(rows), length, device=v.device
    )
    sign = torch.ones_like(scale).triu(1) - torch.ones_like(scale).tril(-1)  # 0 on the diagonal
    return torch.complex(X, v[..., place] * (scale * sign))


def vech_size(n: int, is_complex: bool) -> int:
    """Return the length of the vector of a matrix of size ``n``."""
    return n * n if is_complex else n * (n + 1) // 2
