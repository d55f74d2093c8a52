"""Networks of the literature, as SPDNets with fixed settings."""

from collections.abc import Sequence
from typing import Any

from spdnet.manifolds import Metric
from spdnet.models.spdnet import SPDNet


def _without(name: str) -> tuple[str, ...]:
    return tuple(other for other in SPDNet.hyperparameters if other != name)


class SPDNetBN(SPDNet):
    r"""SPDNet with Riemannian batch normalization of the mean after each BiMap.

    Each BiMap is followed by :math:`Y \mapsto B^{1/2} M^{-1/2} Y M^{-1/2} B^{1/2}` with the
    affine-invariant mean :math:`M` of the batch and a learned SPD matrix :math:`B`: see
    :class:`spdnet.nn.SPDBatchNorm`.

    Parameters
    ----------
    dims, n_classes, **settings
        See :class:`spdnet.SPDNet`.

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
    r"""SPDNet with batch normalization of mean and dispersion after each BiMap.

    In the coordinates of the metric :math:`Y \mapsto s (Y - M) / \sqrt{v + \mathrm{eps}} + B`, with
    mean :math:`M` and variance :math:`v` of the batch: see :class:`spdnet.nn.SPDBatchNorm`.

    Parameters
    ----------
    dims, n_classes, **settings
        See :class:`spdnet.SPDNet`.
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
    r"""SPDNet with Riemannian multinomial logistic regression instead of LogEig and a linear layer.

    The logit of class :math:`k` is :math:`\langle \log_{P_k} Y, \Gamma_{I \to P_k} A_k
    \rangle_{P_k}` for a learned point :math:`P_k` and a learned symmetric matrix :math:`A_k`, which
    the parallel transport :math:`\Gamma_{I \to P_k}` moves from the identity to the point: see
    :class:`spdnet.nn.SPDMLR`.

    Parameters
    ----------
    dims, n_classes, **settings
        See :class:`spdnet.SPDNet`.
    metric : str
        See :class:`spdnet.nn.SPDMLR`.

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

    hyperparameters = _without("head")

    def __init__(
        self,
        dims: Sequence[int],
        n_classes: int,
        metric: str | Metric = "log_cholesky",
        **settings: Any,
    ) -> None:
        super().__init__(dims, n_classes, head=metric, **settings)
