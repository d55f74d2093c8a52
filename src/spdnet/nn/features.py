"""Normalized Euclidean features of SPD matrices."""

from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from spdnet._checks import (
    require_choice,
    require_count,
    require_number,
    require_same_kind,
    require_square,
)
from spdnet._precision import accurate_dtype, real_dtype
from spdnet.linalg import congruence, logm, spectral_map, vech
from spdnet.linalg.scalar import InvSqrt, Log, Sqrt
from spdnet.linalg.spectral import map_decomposed
from spdnet.linalg.symmetric import fix_signs, vech_size
from spdnet.linalg.validate import chunk_size
from spdnet.nn.layer import SPDLayer

#: spectral maps by name
MAPS = {"log": Log(), "sqrt": Sqrt(), "invsqrt": InvSqrt()}
#: larger matrices are reduced to this size, unless there are few of them
LARGEST = 96
#: the same for complex matrices, which have about twice as many entries
LARGEST_COMPLEX = 68
#: number of entries of a basis up to which larger matrices are not reduced
LARGEST_BASIS = 2**24
#: maximum number of matrices to which the layer is fitted
MOST = 4096
#: maximum number of centers of Gaussian features
MOST_CENTERS = 1024
_JITTER = 1e-4
#: number of entries of a basis that are converted together, to fit in the cache
_BLOCK = 2**18


class SpectralFeatures(SPDLayer):
    r"""Spectral map, as vectors with mean 0 and variance 1 in a random orthonormal basis.

    .. math:: y = s \, B^\top \bigl(\mathrm{vech}(W^\top f(V^\top X V) W) - m\bigr)

    The mean :math:`m`, the basis :math:`B` and the scale :math:`s` are fitted to the training data.
    One scale for all features keeps their ratios, and makes learning rates, penalties and dropout
    comparable between data sets. The basis is random, because Adam and batch normalization act on
    each feature separately, and would amplify noisy features in the basis of the channels.

    If there are fewer training matrices than features, the basis spans their features only.
    :math:`W` consists of the directions in which :math:`f(X)` varies most, rotated at random, so
    that features do not depend on the coordinates of the matrices. If these are larger than 96, or
    68 if complex, it has as many directions, or more if the basis still has at most :math:`2^{24}`
    entries: 828 matrices of size 200 are not reduced.

    With ``n_reduced``, :math:`V` is a BiMap to the directions in which the mean logarithms of the
    classes differ most: the leading eigenvectors of :math:`\sum_c p_c (L_c - L)^2`, where
    :math:`L_c` is the mean of class :math:`c`, :math:`p_c` its frequency and :math:`L` the mean of
    all. Otherwise :math:`V = I`. The reduction discards directions in which subjects differ,
    but classes do not.

    Parameters
    ----------
    n : int
        Size of the matrices.
    map : {"log", "sqrt", "invsqrt"}
        The spectral map :math:`f`: logarithm, square root or inverse square root.
    n_samples : int, optional
        Number of training matrices; it bounds the number of features.
    n_reduced : int, optional
        Size of the matrices after the BiMap :math:`V`; None for no BiMap.
    check, device, dtype : see :class:`BiMap`

    Attributes
    ----------
    n_features : int
    reduction : Tensor, shape (n, n_reduced), or None
        Buffer :math:`V`, with random orthonormal columns before :meth:`fit`.
    rotation : Tensor, shape (n, d) or (n_reduced, d)
        Buffer :math:`W`, with random orthonormal columns before :meth:`fit`.
    mean, basis, scale : Tensor
        Buffers; ``basis`` is None if it is not needed, and float32, because it is large.

    Examples
    --------
    >>> import torch
    >>> from spdnet.nn import SpectralFeatures
    >>> X = torch.eye(3) * torch.linspace(1, 2, 50)[:, None, None]
    >>> features = SpectralFeatures(3).fit(X)(X)
    >>> features.shape, features.square().mean().round(decimals=4)
    (torch.Size([50, 6]), tensor(1.))
    """

    reduction: Tensor | None
    rotation: Tensor
    mean: Tensor
    basis: Tensor | None
    scale: Tensor

    def __init__(
        self,
        n: int,
        map: str = "log",  # noqa: A002
        n_samples: int | None = None,
        *,
        n_reduced: int | None = None,
        check: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(check=check)
        require_count("SpectralFeatures", "n", n)
        require_choice("SpectralFeatures", "map", map, MAPS)
        if n_samples is not None:
            require_count("SpectralFeatures", "n_samples", n_samples)
        reduction = None
        if n_reduced is not None:
            require_count("SpectralFeatures", "n_reduced", n_reduced)
            if n_reduced > n:
                raise ValueError(f"SpectralFeatures: expected n_reduced <= {n}, got {n_reduced}")
            reduction = torch.zeros(n, n_reduced, device=device, dtype=dtype)
        self.n, self.map, self.n_reduced = n, map, n_reduced
        size = n_reduced or n
        is_complex = dtype is not None and dtype.is_complex
        d = min(size, LARGEST_COMPLEX if is_complex else LARGEST)
        while d < size and _basis_size(d + 1, n_samples, is_complex) <= LARGEST_BASIS:
            d += 1
        n_entries = vech_size(d, is_complex)
        self.n_features = min(n_entries, MOST, n_samples or n_entries)
        basis = None
        real: dict[str, Any] = {"device": device, "dtype": real_dtype(dtype)}
        if self.n_features < n_entries:
            basis = torch.zeros(n_entries, self.n_features, device=device)
        self.register_buffer("reduction", reduction)
        self.register_buffer("rotation", torch.zeros(size, d, device=device, dtype=dtype))
        self.register_buffer("mean", torch.zeros(n_entries, **real))
        self.register_buffer("basis", basis)
        self.register_buffer("scale", torch.ones((), **real))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw a new reduction and rotation, and reset the other buffers."""
        if self.rotation.is_meta:
            return
        if self.reduction is not None:
            self.reduction.copy_(_random_orthonormal(*self.reduction.shape, like=self.reduction))
        self.rotation.copy_(_random_orthonormal(*self.rotation.shape, like=self.rotation))
        self.mean.zero_()
        self.scale.fill_(1.0)
        if self.basis is not None:
            self.basis.copy_(torch.eye(*self.basis.shape))

    @torch.no_grad()
    def fit(
        self,
        X: Tensor,
        y: Tensor | None = None,
        *,
        decomposed: tuple[Tensor, Tensor] | None = None,
    ) -> "SpectralFeatures":
        """Fit the buffers to training matrices ``(N, n, n)`` and return the layer.

        The reduction needs the classes ``y (N,)``; without them, it is unchanged. For
        ``decomposed``, see :meth:`forward`.
        """
        require_square("SpectralFeatures.fit", X, n=self.n)
        if self.basis is not None and len(X) < self.n_features:
            raise ValueError(
                f"SpectralFeatures: expected at least {self.n_features} matrices to fit the basis, "
                f"got {len(X)}; pass n_samples={len(X)}"
            )
        require_same_kind("SpectralFeatures.fit", rotation=self.rotation, X=X)
        X = X.to(accurate_dtype(X))
        if self.reduction is not None and y is not None:
            self.reduction.copy_(_class_directions(X, y, self.reduction.shape[1]))
        few = chunk_size(self.n, X.device)  # large temporary tensors are slow
        mapped = []
        for part in (slice(i, i + few) for i in range(0, len(X), few)):
            pair = None if decomposed is None else (decomposed[0][part], decomposed[1][part])
            mapped.append(self._mapped(X[part], pair, check=False))
        self._rotate(mapped)
        W = self.rotation.to(X.dtype)
        entries = torch.cat([vech(W.mH @ Y @ W) for Y in mapped])  # (N, n_entries)
        self.mean.copy_(entries.mean(0))
        entries -= entries.mean(0)
        if self.basis is not None:
            self.basis.copy_(_random_basis(entries[: self.n_features]))
        norm = (entries.square().sum(1).mean() / self.n_features).sqrt()
        self.scale.fill_(1 / norm if norm > 0 else 1.0)
        return self

    def _rotate(self, mapped: list[Tensor]) -> None:
        """Set the rotation to the directions in which the matrices vary most, rotated at random."""
        d = self.rotation.shape[1]
        mean = torch.stack([Y.sum(0) for Y in mapped]).sum(0) / sum(map(len, mapped))
        varies = torch.zeros_like(mean)
        for Y in mapped:
            rows = (Y - mean).flatten(0, 1)
            varies += rows.mH @ rows
        leading = torch.linalg.eigh(varies).eigenvectors.flip(-1)[:, :d]
        axes = fix_signs(leading, torch.cat([(Y - mean) @ leading[:, 0] for Y in mapped]))
        self.rotation.copy_(axes @ _random_orthonormal(d, d, like=axes))

    def forward(
        self,
        X: Tensor,
        check: bool | None = None,
        *,
        decomposed: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """Map ``(..., n, n)`` to ``(..., n_features)``.

        ``decomposed`` are the eigenvalues and eigenvectors of ``X``, if known. They are not used if
        the matrices are reduced.
        """
        check = self._require_input(X, check, n=self.n, like=self.rotation)
        W = self.rotation
        Y = self._mapped(X, decomposed, check=check)
        entries = vech(W.mH @ Y @ W) - self.mean
        return self.scale * (entries if self.basis is None else _product(entries, self.basis))

    def extra_repr(self) -> str:
        """Return the settings for ``repr``."""
        reduced = "" if self.n_reduced is None else f"n_reduced={self.n_reduced}, "
        return f"{self.n}, map={self.map!r}, {reduced}n_features={self.n_features}"

    def _mapped(
        self, X: Tensor, decomposed: tuple[Tensor, Tensor] | None, *, check: bool
    ) -> Tensor:
        if self.reduction is not None:
            X = congruence(X, self.reduction.to(X.dtype))
        elif decomposed is not None:
            return map_decomposed(X, *decomposed, MAPS[self.map])
        return spectral_map(X, MAPS[self.map], check=check)


def _product(x: Tensor, basis: Tensor) -> Tensor:
    """Compute ``x @ basis``; a basis of another dtype is converted in blocks of rows."""
    rows = len(basis) if basis.dtype == x.dtype else max(1, _BLOCK // basis.shape[1])
    parts = zip(x.split(rows, -1), basis.split(rows), strict=True)
    return reduce(torch.add, (some @ part.to(x) for some, part in parts))


class GaussianFeatures(nn.Module):
    r"""Features of vectors whose inner products are a Gaussian kernel (Nyström approximation).

    .. math:: y = \sqrt{m} \, L^{-1} k, \quad k_i = e^{-\gamma \|x - c_i\|^2 / d}, \quad
              L L^\top = \bigl(e^{-\gamma \|c_i - c_j\|^2 / d}\bigr)_{ij} + 10^{-4} I

    The :math:`m` centers :math:`c_i` are training vectors, and :math:`d` is their dimension. A
    linear classifier on these features is a kernel classifier. The features are not centered: far
    from all centers they are 0.

    Parameters
    ----------
    n : int
        Dimension :math:`d` of the vectors.
    n_centers : int
    gamma : float
        Inverse squared width of the kernel, for vectors whose entries have a variance of 1.
    device, dtype : see :class:`BiMap`

    Attributes
    ----------
    centers, factor : Tensor
        Buffers with the centers, and :math:`\sqrt{m} \, L^{-\top}`.

    Examples
    --------
    >>> import torch
    >>> from spdnet.nn import GaussianFeatures
    >>> x = torch.randn(20, 3)
    >>> features = GaussianFeatures(3, 20).fit(x)(x)
    >>> torch.allclose(features.square().mean(), torch.tensor(1.0), atol=1e-3)
    True
    """

    centers: Tensor
    factor: Tensor

    def __init__(
        self,
        n: int,
        n_centers: int,
        gamma: float = 1.0,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_count("GaussianFeatures", "n", n)
        require_count("GaussianFeatures", "n_centers", n_centers)
        require_number("GaussianFeatures", "gamma", gamma, above=0)
        self.n, self.n_features, self.gamma = n, n_centers, gamma
        where: Any = {"device": device, "dtype": dtype}
        self.register_buffer("centers", torch.zeros(n_centers, n, **where))
        self.register_buffer("factor", torch.eye(n_centers, **where))

    @torch.no_grad()
    def fit(self, x: Tensor) -> "GaussianFeatures":
        """Take evenly spaced rows of ``(N, n)`` as centers, and return the layer.

        Rows are repeated if there are fewer than centers.
        """
        self.centers.copy_(x[torch.linspace(0, len(x) - 1, self.n_features).long().to(x.device)])
        centers = self.centers.double()
        eye = torch.eye(self.n_features, dtype=centers.dtype, device=centers.device)
        L = torch.linalg.cholesky(self._kernel(centers, centers) + _JITTER * eye)
        inverse = torch.linalg.solve_triangular(L, eye, upper=False)
        self.factor.copy_(self.n_features**0.5 * inverse.mT)
        return self

    def _kernel(self, x: Tensor, centers: Tensor) -> Tensor:
        norms = x.square().sum(-1, keepdim=True) + centers.square().sum(-1)
        squares = (norms - 2 * x @ centers.mT).clamp_min(0)
        return torch.exp(-self.gamma / self.n * squares)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(..., n)`` to ``(..., n_centers)``."""
        return self._kernel(x, self.centers) @ self.factor

    def extra_repr(self) -> str:
        """Return the settings for ``repr``."""
        return f"{self.n}, {self.n_features}, gamma={self.gamma:g}"


def _class_directions(X: Tensor, y: Tensor, k: int) -> Tensor:
    """Return the ``k`` directions in which the mean logarithms of the classes differ most."""
    logs = logm(X, check=False)
    logs = logs - logs.mean(0)
    scatter = torch.zeros_like(logs[0])
    for c in y.unique():
        mean = logs[y == c].mean(0)
        scatter += (y == c).double().mean() * (mean @ mean)
    return torch.linalg.eigh(scatter).eigenvectors[:, -k:]


def _basis_size(d: int, n_samples: int | None, is_complex: bool) -> int:
    """Return the number of entries of the basis for ``n_samples`` matrices of size ``d``."""
    n_entries = vech_size(d, is_complex)
    return n_entries * min(n_entries, MOST, n_samples or n_entries)


def _random_basis(rows: Tensor) -> Tensor:
    """Return a random orthonormal basis ``(n, k)`` of the span of ``rows (k, n)``.

    If the rows are dependent, as those of centered data are, the basis is orthonormal within their
    span, and vectors orthogonal to the span are mapped to zero.
    """
    k = len(rows)
    rotation = _random_orthonormal(k, k, like=rows)
    gram = rows @ rows.mT
    gram.diagonal().add_(k * torch.finfo(gram.dtype).eps * gram.trace())
    L, info = torch.linalg.cholesky_ex(gram)
    if info != 0:  # slower; adds arbitrary directions if the rows are dependent
        return torch.linalg.qr(rows.mT).Q @ rotation
    return rows.mT @ torch.linalg.solve_triangular(L.mT, rotation, upper=True)


def _random_orthonormal(n: int, k: int, *, like: Tensor) -> Tensor:
    """Return a random matrix ``(n, k)`` with orthonormal columns, computed in float64."""
    dtype = torch.complex128 if like.is_complex() else torch.float64
    return torch.linalg.qr(torch.randn(n, k, dtype=dtype)).Q.to(like)
