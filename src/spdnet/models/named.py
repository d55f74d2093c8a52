"""Networks of the literature, as SPDNets with fixed settings."""

from collections.abc import Sequence
from typing import Any

from spdnet.manifolds import Metric
from spdnet.models.spdnet import SPDNet


def _without(*names: str) -> tuple[str, ...]:
    return tuple(name for name in SPDNet.hyperparameters if name not in names)


class SPDNetBN(SPDNet):
    """SPDNet with Riemannian batch normalization of the mean after each BiMap.

    See :class:`spdnet.nn.SPDBatchNorm`. Other arguments are those of :class:`spdnet.SPDNet`.

    References
    ----------
    D. Brooks et al., "Riemannian batch normalization for SPD neural networks", NeurIPS 2019.

    Examples
    --------
    >>> import torch
    >>> from spdnet.models import SPDNetBN
    >>> SPDNetBN((6, 4, 2), 3)(torch.eye(6).expand(8, 6, 6)).shape
    torch.Size([8, 3])
    """

    hyperparameters = _without("norm")

    def __init__(self, dims: Sequence[int], n_classes: int, **settings: Any) -> None:
        super().__init__(dims, n_classes, norm="brooks", **settings)


class SPDNetLieBN(SPDNet):
    """SPDNet with batch normalization of mean and dispersion in a metric after each BiMap.

    See :class:`spdnet.nn.SPDBatchNorm`. Other arguments are those of :class:`spdnet.SPDNet`.

    Parameters
    ----------
    dims, n_classes
    metric : {"log_cholesky", "log_euclidean", "affine_invariant"} or Metric

    References
    ----------
    Z. Chen et al., "A Lie group approach to Riemannian batch normalization", ICLR 2024.

    Examples
    --------
    >>> import torch
    >>> from spdnet.models import SPDNetLieBN
    >>> SPDNetLieBN((6, 4, 2), 3)(torch.eye(6).expand(8, 6, 6)).shape
    torch.Size([8, 3])
    """

    hyperparameters = _without("norm")

    def __init__(
        self,
        dims: Sequence[int],
        n_classes: int,
        metric: str | Metric = "log_cholesky",
        **settings: Any,
    ) -> None:
        super().__init__(dims, n_classes, norm=metric, **settings)


class SPDNetMLR(SPDNet):
    """SPDNet with Riemannian logistic regression instead of LogEig and a linear layer.

    See :class:`spdnet.nn.SPDMLR`. Other arguments are those of :class:`spdnet.SPDNet`.

    References
    ----------
    Z. Chen et al., "Riemannian multinomial logistics regression for SPD neural networks", CVPR
    2024.

    Examples
    --------
    >>> import torch
    >>> from spdnet.models import SPDNetMLR
    >>> SPDNetMLR((6, 4, 2), 3)(torch.eye(6).expand(8, 6, 6)).shape
    torch.Size([8, 3])
    """

    hyperparameters = _without("head", "hidden", "dropout")

    def __init__(
        self,
        dims: Sequence[int],
        n_classes: int,
        metric: str | Metric = "log_cholesky",
        **settings: Any,
    ) -> None:
        super().__init__(dims, n_classes, head=metric, **settings)
