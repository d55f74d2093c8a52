"""Normalized Euclidean features of SPD matrices."""

import torch
from torch import Tensor

from spdnet._checks import require_choice, require_count, require_square
from spdnet.linalg import invsqrtm, logm, sqrtm, vech
from spdnet.nn.layer import SPDLayer

#: spectral maps by name
MAPS = {"log": logm, "sqrt": sqrtm, "invsqrt": invsqrtm}
#: larger matrices are reduced to this size
LARGEST = 96
#: number of matrices to which the layer is fitted at most
MOST = 4096


class SpectralFeatures(SPDLayer):
    r"""Spectral map, as vectors of mean 0 and variance 1 in a random orthonormal basis.

    .. math:: y = s \, B^\top \bigl(\mathrm{vech}(W^\top f(X) W) - m\bigr)

    The mean :math:`m`, the basis :math:`B` and the scale :math:`s` are fitted to the training data.
    One scale for all features keeps their ratios, and makes learning rates, penalties and dropout
    mean the same on every data set. The basis is random: Adam and batch normalization act on each
    feature separately, and in the basis of the channels they amplify features that are noise.

    If there are fewer training matrices than features, the basis spans their features only. If
    the matrices are larger than 96, :math:`W` maps :math:`f(X)` to the 96 directions in which it
    varies most.

    Parameters
    ----------
    n : int
        Size of the matrices.
    map : {"log", "sqrt", "invsqrt"}
        The spectral map :math:`f`: logarithm, square root or inverse square root.
    n_samples : int, optional
        Number of training matrices; it bounds the number of features.
    check, device, dtype : see :class:`BiMap`

    Attributes
    ----------
    n_features : int
    rotation : Tensor, shape (n, min(n, 96))
        Buffer :math:`W`, with random orthonormal columns before :meth:`fit`.
    mean, basis, scale : Tensor
        Buffers; ``basis`` is None if it is not needed.

    Examples
    --------
    >>> import torch
    >>> from spdnet.nn import SpectralFeatures
    >>> X = torch.eye(3) * torch.linspace(1, 2, 50)[:, None, None]
    >>> features = SpectralFeatures(3).fit(X)(X)
    >>> features.shape, features.square().mean().round(decimals=4)
    (torch.Size([50, 6]), tensor(1.))
    """

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
        check: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(check=check)
        require_count("SpectralFeatures", "n", n)
        require_choice("SpectralFeatures", "map", map, MAPS)
        if n_samples is not None:
            require_count("SpectralFeatures", "n_samples", n_samples)
        self.n, self.map = n, map
        d = min(n, LARGEST)
        n_entries = d * (d + 1) // 2
        self.n_features = min(n_entries, MOST, n_samples or n_entries)
        basis = None
        if self.n_features < n_entries:
            basis = torch.zeros(n_entries, self.n_features, device=device, dtype=dtype)
        self.register_buffer("rotation", torch.zeros(n, d, device=device, dtype=dtype))
        self.register_buffer("mean", torch.zeros(n_entries, device=device, dtype=dtype))
        self.register_buffer("basis", basis)
        self.register_buffer("scale", torch.ones((), device=device, dtype=dtype))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw a new rotation, and reset the other buffers."""
        if self.rotation.is_meta:
            return
        self.rotation.copy_(_random_orthonormal(*self.rotation.shape))
        self.mean.zero_()
        self.scale.fill_(1.0)
        if self.basis is not None:
            self.basis.copy_(torch.eye(*self.basis.shape))

    @torch.no_grad()
    def fit(self, X: Tensor) -> "SpectralFeatures":
        """Fit the buffers to training matrices ``(N, n, n)`` and return the layer."""
        require_square("SpectralFeatures.fit", X, n=self.n)
        if self.basis is not None and len(X) < self.n_features:
            raise ValueError(
                f"SpectralFeatures: expected at least {self.n_features} matrices to fit the basis, "
                f"got {len(X)}; pass n_samples={len(X)}"
            )
        Y = MAPS[self.map](X.double(), check=False)
        d = self.rotation.shape[1]
        if d < self.n:
            deviations = Y - Y.mean(0)
            varies = (deviations @ deviations).mean(0)
            leading = torch.linalg.eigh(varies).eigenvectors[:, -d:]
            self.rotation.copy_(leading @ _random_orthonormal(d, d).to(leading))
        W = self.rotation.double()
        entries = vech(W.mT @ Y @ W)  # (N, n_entries)
        self.mean.copy_(entries.mean(0))
        entries -= entries.mean(0)
        if self.basis is not None:
            span = torch.linalg.qr(entries[: self.n_features].T).Q
            self.basis.copy_(span @ _random_orthonormal(self.n_features, self.n_features).to(span))
        norm = (entries.square().sum(1).mean() / self.n_features).sqrt()
        self.scale.fill_(1 / norm if norm > 0 else 1.0)
        return self

    def forward(self, X: Tensor, check: bool | None = None) -> Tensor:
        """Map ``(..., n, n)`` to ``(..., n_features)``."""
        check = self._require_input(X, check, n=self.n, like=self.rotation)
        W = self.rotation
        entries = vech(W.mT @ MAPS[self.map](X, check=check) @ W) - self.mean
        return self.scale * (entries if self.basis is None else entries @ self.basis)

    def extra_repr(self) -> str:
        """Return the settings for ``repr``."""
        return f"{self.n}, map={self.map!r}, n_features={self.n_features}"


def _random_orthonormal(n: int, k: int) -> Tensor:
    """Return a random matrix ``(n, k)`` with orthonormal columns."""
    return torch.linalg.qr(torch.randn(n, k, dtype=torch.float64)).Q
