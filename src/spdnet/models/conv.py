"""Second-order networks for images: a ConvNet and the covariance of its features."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from spdnet._checks import require_choice, require_count
from spdnet.models.spdnet import SPDNet
from spdnet.nn import CovPool, LogEig, Vech


class SmallConvNet(nn.Sequential):
    """Backbone for small images: convolutions, batch normalization and ReLU.

    Parameters
    ----------
    in_channels : int
        Channels of the images.
    channels : sequence of int
        Channels of the feature maps. Between two convolutions, height and width are halved if they
        are larger than 8.

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

    A linear layer on the triangle of :math:`\log(\tfrac1M F^\top F + \epsilon I)`, with the
    features :math:`F` at the ``M`` positions of a feature map; trained end to end.

    Parameters
    ----------
    n_classes : int
    backbone : Module, optional
        Module from images to feature maps ``(B, C, H, W)``, for example of torchvision or timm
        without pooling and classifier; by default a :class:`SmallConvNet`.
    channels : int, optional
        ``C``, for a backbone without the attribute ``out_channels``.
    in_channels : int
        Channels of the images, for the default backbone.
    pool : {"log", "mean"}
        ``mean`` is first-order pooling, for comparison.
    eps : float
        Regularization of the second-order pooling.

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
        """Compute the logits ``(B, n_classes)`` of images ``(B, channels, height, width)``."""
        return self.classifier(self.pool(self.backbone(X)))


class ConvSPDNet(nn.Module):
    r"""ConvNet, covariance pooling, SPDNet, trained end to end.

    The input of the SPDNet is the covariance :math:`\tfrac1M (F - \bar F)(F - \bar F)^\top` of the
    feature maps :math:`F`, ``(B, C, M)``, plus a multiple of the identity.

    Parameters
    ----------
    n_classes : int
    backbone, channels, in_channels
        As in :class:`O2PNet`.
    dims : sequence of int, optional
        Sizes of the matrices after each BiMap; by default half the channels.
    kind : {"centered", "second", "gaussian"}
        See :class:`spdnet.nn.CovPool`.
    reg : float
        Regularization of the covariance, relative to its mean eigenvalue.
    floor : float
        Constant added to the diagonal, for images with constant features.
    **settings
        Further arguments of :class:`spdnet.SPDNet`.

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

    def forward(self, X: Tensor, domain: Tensor | None = None) -> Tensor:
        """Compute the logits ``(B, n_classes)`` of images ``(B, channels, height, width)``.

        ``domain`` is ``(B,)``, with ``norm="domain"``.
        """
        return self.spdnet(self.pool(self.backbone(X)), domain)


def _backbone(
    who: str, backbone: nn.Module | None, channels: int | None, in_channels: int
) -> tuple[nn.Module, int]:
    """Return the backbone and its number of channels."""
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
