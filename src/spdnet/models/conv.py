"""Second-order networks on images: a ConvNet, its features' covariance, and what follows."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from spdnet._checks import require_choice, require_count
from spdnet.models.spdnet import SPDNet
from spdnet.nn import CovPool, LogEig, Vech


class SmallConvNet(nn.Sequential):
    """Convolutions, batch normalisation and ReLU: a backbone for small images.

    Parameters
    ----------
    in_channels : int
        Of the images.
    channels : sequence of int
        Of the feature maps; the last are those that are pooled. Between two of them the maps are
        halved in height and width where they are larger than 8.

    Examples
    --------
    >>> import torch
    >>> from spdnet.models import SmallConvNet
    >>> SmallConvNet(1, (16, 32))(torch.randn(2, 1, 8, 8)).shape
    torch.Size([2, 32, 8, 8])
    """

    def __init__(self, in_channels: int = 1, channels: Sequence[int] = (32, 32)) -> None:
        layers: list[nn.Module] = []
        for i, (a, b) in enumerate(zip((in_channels, *channels), channels, strict=False)):
            if i > 0:
                layers.append(_HalveLarge())
            layers += [nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
        super().__init__(*layers)
        self.out_channels = channels[-1]


class _HalveLarge(nn.Module):
    def forward(self, X: Tensor) -> Tensor:
        return nn.functional.avg_pool2d(X, 2) if min(X.shape[-2:]) > 8 else X


class O2PNet(nn.Module):
    r"""DeepO2P: ConvNet, second-order pooling, matrix logarithm, linear classifier.

    :math:`\log(\tfrac1M F^\top F + \epsilon I)` of the features at the ``M`` places of a map, its
    triangle as a vector, and a linear layer; trained from the images on.

    Parameters
    ----------
    n_classes : int
    backbone : Module, optional
        Images to feature maps ``(B, C, H, W)``; a :class:`SmallConvNet` when not given. One of
        torchvision or timm goes as well, without its own pooling and classifier.
    channels : int, optional
        ``C``, for a backbone of your own that has no attribute ``out_channels``.
    in_channels : int
        Of the images, for the backbone that is built in.
    pool : {"log", "mean"}
        ``mean``: the mean of the features instead, first-order pooling, to compare with.
    eps : float
        Of the second-order pooling.

    References
    ----------
    C. Ionescu, O. Vantzos, C. Sminchisescu, "Matrix Backpropagation for Deep Networks with
    Structured Layers", ICCV 2015.

    Examples
    --------
    >>> import torch
    >>> from spdnet.models import O2PNet
    >>> O2PNet(10)(torch.randn(4, 1, 8, 8)).shape
    torch.Size([4, 10])
    """

    def __init__(
        self,
        n_classes: int,
        backbone: nn.Module | None = None,
        *,
        channels: int | None = None,
        in_channels: int = 1,
        pool: str = "log",
        eps: float = 1e-3,
    ) -> None:
        super().__init__()
        require_count("O2PNet", "n_classes", n_classes)
        require_choice("O2PNet", "pool", pool, ("log", "mean"))
        self.backbone, n = _backbone("O2PNet", backbone, channels, in_channels)
        if pool == "log":
            self.pool = nn.Sequential(
                CovPool("second", reg=eps, mode="absolute"), LogEig(check=False), Vech()
            )
            n = n * (n + 1) // 2
        else:
            self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classifier = nn.Linear(n, n_classes)

    def forward(self, X: Tensor) -> Tensor:
        """Logits ``(B, n_classes)`` of images ``(B, channels, height, width)``."""
        return self.classifier(self.pool(self.backbone(X)))


class ConvSPDNet(nn.Module):
    r"""ConvNet, covariance pooling, SPDNet, trained end to end.

    Of feature maps :math:`F`, ``(B, C, M)`` with ``M`` places, the covariance :math:`\tfrac1M (F -
    \bar F)(F - \bar F)^\top` plus a multiple of the identity goes through an SPDNet. Images are
    ``(B, channels, height, width)``, outputs ``(B, n_classes)``.

    Parameters
    ----------
    n_classes : int
    backbone, channels, in_channels
        As in :class:`O2PNet`.
    dims : sequence of int, optional
        Sizes of the matrices after each BiMap; half the channels when not given.
    kind : {"centered", "second", "gaussian"}
        Of the pooling: see :class:`spdnet.nn.CovPool`.
    reg : float
        Regularisation of the covariance, relative to its mean eigenvalue.
    floor : float
        Added to the diagonal besides, for images on which the features are constant.
    **settings
        Of :class:`spdnet.SPDNet`, such as ``eps``.

    Examples
    --------
    >>> import torch
    >>> from spdnet.models import ConvSPDNet
    >>> ConvSPDNet(10, dims=(24, 16))(torch.randn(4, 1, 8, 8)).shape
    torch.Size([4, 10])
    """

    def __init__(
        self,
        n_classes: int,
        backbone: nn.Module | None = None,
        *,
        dims: Sequence[int] | None = None,
        channels: int | None = None,
        in_channels: int = 1,
        kind: str = "centered",
        reg: float = 1e-3,
        floor: float = 1e-6,
        **settings: Any,
    ) -> None:
        super().__init__()
        self.backbone, n = _backbone("ConvSPDNet", backbone, channels, in_channels)
        self.pool = CovPool(kind, reg=reg, eps=floor)
        n = n + 1 if kind == "gaussian" else n
        dims = (max(1, n // 2),) if dims is None else tuple(dims)
        self.spdnet = SPDNet((n, *dims), n_classes, **{"bias": True, "check": False, **settings})

    def forward(self, X: Tensor) -> Tensor:
        """Logits ``(B, n_classes)`` of images ``(B, channels, height, width)``."""
        return self.spdnet(self.pool(self.backbone(X)))


def _backbone(
    who: str, backbone: nn.Module | None, channels: int | None, in_channels: int
) -> tuple[nn.Module, int]:
    """The backbone, and how many channels it has."""
    if backbone is None:
        require_count(who, "in_channels", in_channels)
        backbone = SmallConvNet(in_channels)
    if channels is None:
        channels = getattr(backbone, "out_channels", None)
    if not isinstance(channels, int) or isinstance(channels, bool) or channels < 1:
        raise ValueError(
            f"{who}: expected the channels of the backbone's feature maps, got "
            f"{channels!r}; give channels=, as in {who}(10, backbone, channels=512)"
        )
    return backbone, channels
