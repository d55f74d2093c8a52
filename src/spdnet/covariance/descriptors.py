"""Covariance descriptors of feature sets, skeletons and images; windows and delayed copies."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from spdnet._checks import require_count, require_number
from spdnet.covariance.arrays import accept_arrays, require_signals
from spdnet.covariance.estimators import regularize, sample_covariance
from spdnet.linalg import cholesky


@accept_arrays
def gaussian_embedding(
    X: Tensor,
    *,
    reg: float = 1e-3,
    mode: str = "trace",
    scale_det: bool = False,
    weight: float = 1.0,
) -> Tensor:
    r"""Embed the mean and covariance of a Gaussian in one SPD matrix ``(..., n + 1, n + 1)``.

    .. math:: P = \begin{pmatrix} C + \beta^2 m m^\top & \beta m \\ \beta m^\top & 1 \end{pmatrix},
        \qquad \det P = \det C

    Parameters
    ----------
    X : Tensor or array, shape (..., n, time)
    reg, mode
        Regularization of the covariance before the embedding: see :func:`regularize`.
    scale_det : bool
        Divide by :math:`(\det C)^{1 / (n + 1)}`, so that the determinant is 1; this changes the
        logarithm by a multiple of the identity.
    weight : float
        The weight :math:`\beta` of the mean.

    References
    ----------
    M. Lovric, M. Min-Oo, E. A. Ruh, "Multivariate Normal Distributions Parametrized as a Riemannian
    Symmetric Space", J. Multivar. Anal., 2000. https://doi.org/10.1006/jmva.1999.1853

    Examples
    --------
    >>> from spdnet.covariance import gaussian_embedding
    >>> gaussian_embedding([[1, 2, 3]], reg=0.0)
    array([[5., 2.],
           [2., 1.]])
    """
    require_number("gaussian_embedding", "weight", weight, above=0)
    C = regularize(sample_covariance(X), reg, mode)
    m = weight * X.mean(-1, keepdim=True)
    top = torch.cat([C + m @ m.mT, m], -1)
    bottom = torch.cat([m.mT, torch.ones_like(m[..., :1, :])], -1)
    P = torch.cat([top, bottom], -2)
    if scale_det:
        L = cholesky(C, who="gaussian_embedding", name="covariance")
        logdet = 2 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        P = P * torch.exp(-logdet / P.shape[-1])[..., None, None]
    return P


@accept_arrays
def joint_covariance(
    joints: Tensor, *, root: int | None = None, reg: float = 1e-3, mode: str = "trace"
) -> Tensor:
    """Compute the covariance of the coordinates of all joints of a skeleton over the frames.

    Parameters
    ----------
    joints : Tensor or array, shape (..., frames, joints, 3)
    root : int, optional
        Index of a joint whose position is subtracted from all joints in every frame; its zeros are
        kept, so that the size does not change. Default: absolute positions.
    reg, mode
        See :func:`regularize`.

    Examples
    --------
    >>> import numpy
    >>> from spdnet.covariance import joint_covariance
    >>> joint_covariance(numpy.random.default_rng(0).normal(size=(50, 31, 3))).shape
    (93, 93)
    """
    if joints.ndim < 3:
        raise ValueError(
            f"joint_covariance: expected joints of shape (..., frames, joints, 3), got "
            f"{tuple(joints.shape)}"
        )
    if root is not None:
        joints = joints - joints[..., root : root + 1 or None, :]
    features = joints.flatten(-2).mT  # (..., 3 * joints, frames)
    return regularize(sample_covariance(features), reg, mode)


@accept_arrays
def image_features(images: Tensor) -> Tensor:
    """Compute seventeen features ``(..., 17, height * width)`` of every pixel of gray images.

    With positions ``x, y`` from -1 to 1, intensity ``I`` and its differences: ``x, y, I, Ix, Iy,
    Ixx, Iyy, Ixy``, then ``I`` times ``x, y, xy, x^2, y^2``, and ``Ix, Iy`` times ``x, y``.

    Parameters
    ----------
    images : Tensor or array, shape (..., height, width)
        At least 3 by 3.

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


@accept_arrays
def region_covariance(
    images: Tensor, *, n_features: int = 17, reg: float = 1e-3, mode: str = "mean"
) -> Tensor:
    """Compute the region covariance descriptor, the covariance of :func:`image_features`.

    Parameters
    ----------
    images : Tensor or array, shape (..., height, width)
    n_features : int
        Number of features; the first 8 are position, intensity, and first and second differences.
    reg, mode
        See :func:`regularize`.

    References
    ----------
    O. Tuzel, F. Porikli, P. Meer, "Region Covariance: A Fast Descriptor for Detection and
    Classification", ECCV 2006. https://doi.org/10.1007/11744047_45

    Examples
    --------
    >>> import numpy
    >>> from spdnet.covariance import region_covariance
    >>> images = numpy.random.default_rng(0).normal(size=(5, 8, 8))
    >>> region_covariance(images).shape
    (5, 17, 17)
    >>> region_covariance(images, n_features=8).shape
    (5, 8, 8)
    """
    features = image_features(images)
    require_count("region_covariance", "n_features", n_features)
    if n_features > features.shape[-2]:
        raise ValueError(
            f"region_covariance: expected n_features <= {features.shape[-2]}, got {n_features}"
        )
    return regularize(sample_covariance(features[..., :n_features, :]), reg, mode)


@accept_arrays
def lagged(X: Tensor, lags: Sequence[int]) -> Tensor:
    r"""Stack signals and delayed copies of them, for spatio-temporal covariances.

    .. math:: \begin{pmatrix} x(t) \\ x(t - k_1) \\ \vdots \end{pmatrix}, \qquad
        t \ge \max_i k_i

    The covariance of the result contains all cross-covariances at these delays; with lags
    ``1, ..., K`` it is close to a block Toeplitz matrix. A covariance of full rank needs more than
    ``channels * (1 + len(lags))`` observations, or shrinkage.

    Parameters
    ----------
    X : Tensor or array, shape (..., channels, time)
    lags : sequence of int
        Delays :math:`k_i` in observations, positive and distinct.

    Returns
    -------
    Tensor or array, shape (..., channels * (1 + len(lags)), time - max(lags))

    Examples
    --------
    >>> from spdnet.covariance import lagged
    >>> lagged([[1, 2, 3, 4, 5]], lags=[1, 3])
    array([[4., 5.],
           [3., 4.],
           [1., 2.]])
    """
    require_signals("lagged", X)
    for k in lags:
        require_count("lagged", "every lag", k)
    T, longest = X.shape[-1], max(lags, default=0)
    if len(set(lags)) < len(lags) or longest > T - 2:
        raise ValueError(
            f"lagged: expected distinct lags of at most {T - 2} for {T} observations, got "
            f"{list(lags)}"
        )
    return torch.cat([X[..., longest - k : T - k] for k in (0, *lags)], -2)


def segment(
    frames: Sequence[Any] | Any,
    length: int,
    stride: int | None = None,
    min_length: int | None = None,
) -> list[Any]:
    """Return the list of windows of a sequence along its first dimension.

    Split into training and test sequences first, and cut the training sequences only: windows of
    one sequence on both sides would leak information.

    Parameters
    ----------
    frames : sequence, Tensor or array, shape (frames, ...)
    length : int
        Number of frames in a window.
    stride : int, optional
        Number of frames from one window to the next. Default: ``length``, without overlap.
    min_length : int, optional
        Keep a shorter last window, or a shorter sequence, if it has at least this many frames.
        Default: ``length``.

    Examples
    --------
    >>> from spdnet.covariance import segment
    >>> segment("abcdefgh", 3)
    ['abc', 'def']
    >>> segment("abcdefgh", 3, min_length=2)
    ['abc', 'def', 'gh']
    >>> segment("abcdefgh", 4, stride=2)
    ['abcd', 'cdef', 'efgh']
    """
    stride = length if stride is None else stride
    min_length = length if min_length is None else min_length
    for name, value in (("length", length), ("stride", stride), ("min_length", min_length)):
        require_count("segment", name, value)
    # a window follows if the one before does not reach the end
    last = max(len(frames) - length + stride - 1, 0)
    windows = [frames[start : start + length] for start in range(0, last + 1, stride)]
    return [window for window in windows if len(window) >= min(length, min_length)]
