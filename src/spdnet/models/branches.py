"""MultiBranchSPDNet: several BiMaps of one input, pooled."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from spdnet._checks import require_count
from spdnet.manifolds import Metric
from spdnet.models.check import CheckedModel
from spdnet.models.spdnet import SPDNet, choose_dims, norm_layer
from spdnet.nn import BiMap, Center, ReEig, SPDPool


class MultiBranchSPDNet(CheckedModel):
    r"""SPDNet with several parallel BiMaps and ReEigs in the first layer, pooled into one matrix.

    The paper proposes several bilinear mappings of one input, like the filters of a convolution:
    :math:`X \mapsto \exp \tfrac1K \sum_k \log \mathrm{ReEig}(W_k^\top X W_k)`. An SPDNet follows.

    Parameters
    ----------
    dims : sequence of int
        Size of the input matrices, of the branches, then of the output of each further BiMap.
    n_classes : int
    n_branches : int
    norm : str or Metric, optional
        Batch normalization after each BiMap; the branches share their statistics. See
        :class:`spdnet.SPDNet`. Not ``domain``.
    pool : {"mean", "max", "weighted", "frechet"}
    metric : str or Metric, optional
        Metric of the pooling: see :class:`spdnet.nn.SPDPool`.
    eps, center, init, check, device, dtype, **settings
        As in :class:`spdnet.SPDNet`.

    Attributes
    ----------
    branches : BiMap
        BiMap with one input channel and ``n_branches`` output channels.
    center, norm, reeig, pool, trunk : Center, SPDBatchNorm, ReEig, SPDPool, SPDNet
        The first two may be None.

    Examples
    --------
    >>> import torch
    >>> from spdnet.models import MultiBranchSPDNet
    >>> MultiBranchSPDNet((6, 4, 2), 3, n_branches=5)(torch.eye(6).expand(8, 6, 6)).shape
    torch.Size([8, 3])
    """

    hyperparameters = ("dims", "norm", "head", "hidden", "dropout", "eps", "center", "bias")

    def __init__(
        self,
        dims: Sequence[int],
        n_classes: int,
        *,
        n_branches: int = 4,
        pool: str = "mean",
        metric: str | Metric | None = None,
        eps: float | str = 1e-4,
        center: str | Metric | None = None,
        norm: str | Metric | None = None,
        init: str = "uniform",
        check: bool | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **settings: Any,
    ) -> None:
        who = "MultiBranchSPDNet"
        super().__init__(who, dims, n_classes, check, dtype)
        dims = self.dims
        if len(dims) < 2:
            raise ValueError(
                f"{who}: expected a BiMap, with the size of the branches in dims, got dims {dims}"
            )
        require_count(who, "n_branches", n_branches)
        make_norm = None if norm is None else norm_layer(who, norm)
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.center = None if center is None else Center(dims[0], center, **where)
        self.branches = BiMap(
            dims[0], dims[1], in_channels=1, out_channels=n_branches, init=init, **where
        )
        self.norm = None if make_norm is None else make_norm(dims[1], **where)
        self.reeig = ReEig(eps, **where)
        n_items = n_branches if pool == "weighted" else None
        self.pool = SPDPool("channels", pool, metric, n_items=n_items, **where)
        if len(dims) > 2:
            settings["norm"] = norm
        self.trunk = SPDNet(
            dims[1:], n_classes, eps=eps, init=init, check=False, **where, **settings
        )
        self.is_random = self.trunk.is_random

    choose_dims = staticmethod(choose_dims)

    @property
    def n_features(self) -> int:
        """Number of inputs of the classifier."""
        return self.trunk.n_features

    def reset_parameters(self) -> None:
        """Draw new weights, and reset the center and the running statistics."""
        for layer in (self.center, self.branches, self.norm, self.reeig, self.trunk):
            if layer is not None:
                layer.reset_parameters()
        if self.pool.kind == "weighted":
            nn.init.zeros_(self.pool.scores)

    def _logits(self, X: Tensor, check: bool | None) -> Tensor:
        return self.trunk(self._pooled(X, check), check=bool(check))

    def _features(self, X: Tensor, check: bool | None) -> Tensor:
        return self.trunk.features(self._pooled(X, check), check=bool(check))

    def _pooled(self, X: Tensor, check: bool | None) -> Tensor:
        X = self._centered(X, self.branches.weight, check)  # (..., d_0, d_0)
        Y = self.branches(X[..., None, :, :], check=False)  # (..., branches, d_1, d_1)
        if self.norm is not None:
            Y = self.norm(Y, check=bool(check))
        Y = self.reeig(Y, check=False, strict=check is None)
        return self.pool(Y, check=False)  # (..., d_1, d_1)
