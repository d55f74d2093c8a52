"""Region covariances of images."""

import torch
from torch import Tensor

from spdnet.covariance.arrays import same_kind
from spdnet.covariance.estimators import sample_covariance
from spdnet.covariance.regularization import regularize


@same_kind
def image_features(images: Tensor) -> Tensor:
    """Seventeen features of every pixel of grey images.

    With positions ``x, y`` from -1 to 1, intensity ``I`` and its differences: ``x, y, I, Ix, Iy,
    Ixx, Iyy, Ixy``, then ``I`` times ``x, y, xy, x^2, y^2``, and ``Ix, Iy`` times ``x, y``.

    Parameters
    ----------
    images : Tensor or array, shape (..., height, width)
        At least 3 by 3.

    Returns
    -------
    Tensor or array, shape (..., 17, height * width)

    Examples
    --------
    >>> import numpy
    >>> from spdnet.covariance import image_features
    >>> image_features(numpy.eye(8)).shape
    (17, 64)
    """
    if images.ndim < 2 or min(images.shape[-2:]) < 3:
        raise ValueError(
            "image_features: expected images of shape (..., height, width), at least 3 by 3, got "
            f"{tuple(images.shape)}"
        )
    height, width = images.shape[-2:]
    y = torch.linspace(-1, 1, height, dtype=images.dtype, device=images.device)[:, None]
    x = torch.linspace(-1, 1, width, dtype=images.dtype, device=images.device)
    x, y = x.expand_as(images), y.expand_as(images)
    Iy, Ix = torch.gradient(images, dim=(-2, -1))
    Iyy = torch.gradient(Iy, dim=-2)[0]
    Ixy, Ixx = torch.gradient(Ix, dim=(-2, -1))
    plain = [x, y, images, Ix, Iy, Ixx, Iyy, Ixy]
    moments = [images * p for p in (x, y, x * y, x * x, y * y)]
    slopes = [d * p for d in (Ix, Iy) for p in (x, y)]
    return torch.stack([*plain, *moments, *slopes], -3).flatten(-2)


@same_kind
def region_covariance(images: Tensor, *, reg: float = 1e-3, mode: str = "mean") -> Tensor:
    """Region covariance descriptor: the covariance of :func:`image_features` over the pixels.

    Parameters
    ----------
    images : Tensor or array, shape (..., height, width)
    reg, mode
        See :func:`regularize`.

    Returns
    -------
    Tensor or array, shape (..., 17, 17)

    References
    ----------
    O. Tuzel, F. Porikli, P. Meer, "Region Covariance: A Fast Descriptor for Detection and
    Classification", ECCV 2006. https://doi.org/10.1007/11744047_45

    Examples
    --------
    >>> import numpy
    >>> from spdnet.covariance import region_covariance
    >>> region_covariance(numpy.random.default_rng(0).normal(size=(5, 8, 8))).shape
    (5, 17, 17)
    """
    return regularize(sample_covariance(image_features(images)), reg, mode)
