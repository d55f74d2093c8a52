"""Pooling of SPD matrices over channels, over time and within a matrix."""

import torch
from torch import Tensor

from spdnet._checks import (
    require_channels,
    require_choice,
    require_count,
    require_real,
    require_square,
)
from spdnet._precision import real_dtype
from spdnet.linalg import Log, expm, spectral_map
from spdnet.manifolds import Metric, get_metric
from spdnet.nn.layer import SPDLayer


class SPDPool(SPDLayer):
    r"""Pooling of several SPD matrices into one.

    ============  =============================================================================
    ``mean``      mean in the metric; :math:`\exp(\tfrac1K \sum_k \log X_k)` for the
                  log-Euclidean metric
    ``max``       :math:`\exp(\max_k \log X_k)`, the entrywise maximum; depends on the basis
    ``weighted``  weighted mean; the weights are a softmax of learned scores
    ``frechet``   mean in the affine-invariant metric, unless another is given
    ============  =============================================================================

    Parameters
    ----------
    over : {"channels", "time", "blocks"}
        ``channels``: pool all matrices of the third dimension from the end. ``time``: pool
        non-overlapping windows of ``size`` matrices along this dimension (by default all of them)
        and drop an incomplete last window. ``blocks``: pool the ``size`` by ``size`` blocks (by
        default 2) of the logarithm of each matrix into one entry each.
    kind : {"mean", "max", "weighted", "frechet"}
        ``blocks`` supports ``mean`` and ``max``.
    metric : str or Metric, optional
        By default ``log_euclidean``, the only choice for ``max`` and ``blocks``.
    size : int, optional
        Size of the windows or blocks.
    n_items : int, optional
        Number of matrices that are pooled into one; required for ``weighted``.
    check, device, dtype : see :class:`BiMap`

    Attributes
    ----------
    scores : Parameter, shape (n_items,)
        For ``weighted``; initially equal.

    Examples
    --------
    >>> import torch
    >>> from spdnet.nn import SPDPool
    >>> X = torch.stack([torch.eye(4), 16 * torch.eye(4)])
    >>> SPDPool("channels")(X).diagonal().round(decimals=4)
    tensor([4., 4., 4., 4.])
    >>> SPDPool("blocks")(X).shape
    torch.Size([2, 2, 2])
    """

    def __init__(
        self,
        over: str = "channels",
        kind: str = "mean",
        metric: str | Metric | None = None,
        *,
        size: int | None = None,
        n_items: int | None = None,
        check: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(check=check)
        require_choice("SPDPool", "over", over, ("channels", "time", "blocks"))
        require_choice("SPDPool", "kind", kind, ("mean", "max", "weighted", "frechet"))
        if metric is None:
            metric = "affine_invariant" if kind == "frechet" else "log_euclidean"
        metric = get_metric(metric, who="SPDPool")
        if size is not None:
            require_count("SPDPool", "size", size)
        if (kind == "max" or over == "blocks") and metric.name != "log_euclidean":
            raise ValueError(
                f"SPDPool: expected the metric log_euclidean for over={over!r} and kind={kind!r}, "
                f"got {metric.name!r}"
            )
        if over == "blocks" and kind in ("weighted", "frechet"):
            raise ValueError(f"SPDPool: expected kind mean or max for blocks, got {kind!r}")
        if over == "channels" and size is not None:
            raise ValueError(
                f"SPDPool: expected no size for over='channels', got {size}; it pools all channels"
            )
        if (kind == "weighted") != (n_items is not None):
            raise ValueError(
                "SPDPool: expected n_items for kind='weighted' only, got "
                f"kind={kind!r} and n_items={n_items}"
            )
        if over == "time" and n_items is not None and size not in (None, n_items):
            raise ValueError(
                f"SPDPool: expected n_items to be the size of the windows, {size}, got {n_items}"
            )
        self.over, self.kind, self.metric = over, kind, metric
        self.size = 2 if over == "blocks" and size is None else size
        if n_items is not None:
            require_count("SPDPool", "n_items", n_items)
            scores = torch.zeros(n_items, device=device, dtype=real_dtype(dtype))
            self.scores = torch.nn.Parameter(scores)

    def forward(self, X: Tensor, check: bool | None = None) -> Tensor:
        """Map ``(..., K, n, n)`` to ``(..., n, n)``, over time ``(..., K // size, n, n)``."""
        require_square("SPDPool", X)
        if self.kind == "max":
            require_real("SPDPool", X)  # complex entries have no order
        check = self._checks(check)
        if self.over == "blocks":
            return self._pool_blocks(X, check)
        if self.over == "time" and self.size is not None:
            self._require_items(X, self.size)
            X = X[..., : X.shape[-3] // self.size * self.size, :, :]
            X = X.unflatten(-3, (-1, self.size))  # (..., windows, size, n, n)
        self._require_items(X, 1)
        if self.kind == "max":
            return expm(self._log(X, check).amax(-3), check=False)
        weights = None
        if self.kind == "weighted":
            require_channels("SPDPool", X, len(self.scores))
            weights = self.scores.softmax(0)
        return self.metric.mean(X, weights, check=check)

    def _pool_blocks(self, X: Tensor, check: bool) -> Tensor:
        size, n = self.size or 2, X.shape[-1]
        if n % size != 0:
            raise ValueError(
                f"SPDPool: expected the size of the matrices to be a multiple of {size}, got {n}; "
                "choose another size"
            )
        L = self._log(X, check).unflatten(-1, (-1, size)).unflatten(-3, (-1, size))
        # (..., n / size, size, n / size, size); the mean is P log(X) P^T for rows 1 / size of P
        return expm(L.amax((-3, -1)) if self.kind == "max" else L.mean((-3, -1)), check=False)

    @staticmethod
    def _log(X: Tensor, check: bool) -> Tensor:
        return spectral_map(X, Log(), check=check, who="SPDPool")

    def _require_items(self, X: Tensor, at_least: int) -> None:
        if X.ndim < 3 or X.shape[-3] < at_least:
            raise ValueError(
                f"SPDPool: expected X of shape (..., K, n, n) with at least {at_least} matrices to "
                f"pool, got {tuple(X.shape)}"
            )

    def extra_repr(self) -> str:
        """Return the settings for ``repr``."""
        size = "" if self.size is None else f", size={self.size}"
        return f"over={self.over!r}, kind={self.kind!r}, metric={self.metric.name!r}{size}"
