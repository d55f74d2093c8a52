r"""From signals, frames, skeletons and images to SPD matrices.

Observations are columns: signals are ``(..., channels, time)``, features of a video
``(..., features, frames)``. Every function takes a tensor or an array of any leading shape and
gives back the same kind and floating dtype; whole numbers become float64.

>>> import numpy
>>> from spdnet import covariance
>>> signals = numpy.random.default_rng(0).normal(size=(10, 4, 200))
>>> covariance.estimate(signals, "ledoit_wolf").shape
(10, 4, 4)
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy
import torch
from torch import Tensor

from spdnet._checks import (
    require_choice,
    require_count,
    require_finite,
    require_number,
    require_square,
    require_symmetric,
)
from spdnet.linalg import cholesky, symmetrize

REGULARIZERS = ("trace", "mean", "absolute", "shrinkage", "none")


def _same_kind(function: Callable[..., Tensor]) -> Callable[..., Any]:
    """Let a function of one tensor take an array too, and give an array back."""

    @wraps(function)
    def wrapped(X: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(X, Tensor):
            return function(X if X.dtype.is_floating_point else X.double(), *args, **kwargs)
        X = numpy.asarray(X)
        if not numpy.issubdtype(X.dtype, numpy.floating):
            X = X.astype(numpy.float64)
        return function(torch.from_numpy(numpy.ascontiguousarray(X)), *args, **kwargs).numpy()

    return wrapped


@_same_kind
def sample_covariance(X: Tensor) -> Tensor:
    r"""Sample covariance :math:`\frac{1}{T - 1} \sum_t (x_t - m)(x_t - m)^\top`.

    Singular when there are not more observations than channels: see :func:`regularize`.

    Parameters
    ----------
    X : Tensor or array, shape (..., channels, time)

    Returns
    -------
    Tensor or array, shape (..., channels, channels)

    Examples
    --------
    >>> from spdnet.covariance import sample_covariance
    >>> sample_covariance([[1, 2, 3], [3, 2, 1]])
    array([[ 1., -1.],
           [-1.,  1.]])
    """
    X, T = _centered("sample_covariance", X)
    return symmetrize(X @ X.mT) / (T - 1)


@_same_kind
def ledoit_wolf(X: Tensor) -> Tensor:
    r"""Covariance shrunk towards a multiple of the identity, by the rule of Ledoit and Wolf.

    :math:`(1 - \rho) C + \rho \mu I` with :math:`\mu = \mathrm{tr} C / n` and the :math:`\rho`
    that minimises the expected squared error, estimated from the data: :math:`\rho = \frac1{T^2}
    \sum_t \lVert x_t x_t^\top - C \rVert^2 / \lVert C - \mu I \rVert^2`, at most 1, where
    :math:`C` has the denominator ``T``. Few samples give much shrinkage, many give none.

    Parameters
    ----------
    X : Tensor or array, shape (..., channels, time)

    Returns
    -------
    Tensor or array, shape (..., channels, channels)

    References
    ----------
    O. Ledoit, M. Wolf, "A well-conditioned estimator for large-dimensional covariance matrices",
    J. Multivar. Anal., 2004. https://doi.org/10.1016/S0047-259X(03)00096-4

    Examples
    --------
    >>> from spdnet.covariance import ledoit_wolf
    >>> ledoit_wolf([[1, 2, 3, 5], [3, 2, 1, 0]]).round(3)
    array([[ 2.003, -0.987],
           [-0.987,  1.434]])
    """
    X, T = _centered("ledoit_wolf", X)
    n = X.shape[-2]
    C = symmetrize(X @ X.mT) / T
    mu = _trace(C) / n
    # mean squared distances: of the observations' outer products from C, and of C from mu I
    spread = X.square().sum(-2).square().sum(-1) / T - C.square().sum((-2, -1))
    distance = C.square().sum((-2, -1)) - n * mu**2
    rho = torch.where(distance > 0, (spread / T / distance).clamp(0, 1), 1.0)
    return _shrunk(C, rho)


@_same_kind
def oas(X: Tensor) -> Tensor:
    r"""Covariance shrunk towards a multiple of the identity, oracle approximating shrinkage.

    As :func:`ledoit_wolf`, with a :math:`\rho` that approximates the best one for Gaussian data,

    .. math:: \rho = \frac{\mathrm{tr}(C^2) + \mathrm{tr}^2 C}
                       {(T + 1) (\mathrm{tr}(C^2) - \mathrm{tr}^2 C / n)},

    at most 1. This is scikit-learn's form: it leaves out terms with :math:`2 / n` of the original,
    which shrinks more where channels are few (below some ten).

    Parameters
    ----------
    X : Tensor or array, shape (..., channels, time)

    Returns
    -------
    Tensor or array, shape (..., channels, channels)

    References
    ----------
    Y. Chen, A. Wiesel, Y. C. Eldar, A. O. Hero, "Shrinkage Algorithms for MMSE Covariance
    Estimation", IEEE Trans. Signal Process., 2010. https://doi.org/10.1109/TSP.2010.2053029

    Examples
    --------
    >>> from spdnet.covariance import oas
    >>> oas([[1, 2, 3, 5], [3, 2, 1, 0]]).round(3)
    array([[ 1.803, -0.293],
           [-0.293,  1.634]])
    """
    X, T = _centered("oas", X)
    n = X.shape[-2]
    C = symmetrize(X @ X.mT) / T
    mean_square, mu2 = C.square().mean((-2, -1)), (_trace(C) / n) ** 2
    excess = (T + 1) * (mean_square - mu2 / n)
    rho = torch.where(excess > 0, ((mean_square + mu2) / excess).clamp(max=1), 1.0)
    return _shrunk(C, rho)


ESTIMATORS = {"sample": sample_covariance, "ledoit_wolf": ledoit_wolf, "oas": oas}


def estimate(X: Any, estimator: str = "sample", *, reg: float = 1e-3, mode: str = "mean") -> Any:
    """Covariance by a named estimator, regularised so that it is positive definite.

    Parameters
    ----------
    X : Tensor or array, shape (..., channels, time)
    estimator : {"sample", "ledoit_wolf", "oas"}
    reg, mode
        See :func:`regularize`.

    Returns
    -------
    Tensor or array, shape (..., channels, channels)

    Examples
    --------
    >>> from spdnet import covariance
    >>> covariance.estimate([[1, 2, 3], [3, 2, 1]], reg=0.5)
    array([[ 1.5, -1. ],
           [-1. ,  1.5]])
    """
    require_choice("estimate", "estimator", estimator, ESTIMATORS)
    return regularize(ESTIMATORS[estimator](X), reg, mode)


@_same_kind
def regularize(C: Tensor, reg: float = 1e-3, mode: str = "mean") -> Tensor:
    r"""Make covariance matrices positive definite.

    =============  ==========================================================
    ``mean``       :math:`C + r \frac{\mathrm{tr} C}{n} I`, relative to the mean eigenvalue
    ``trace``      :math:`C + r \, \mathrm{tr}(C) I`, the custom in action and face recognition
    ``absolute``   :math:`C + r I`, which also repairs a zero matrix
    ``shrinkage``  :math:`(1 - r) C + r \frac{\mathrm{tr} C}{n} I`, which keeps the trace
    ``none``       :math:`C` as it is
    =============  ==========================================================

    Parameters
    ----------
    C : Tensor or array, shape (..., n, n)
    reg : float
        The factor :math:`r`.
    mode : {"mean", "trace", "absolute", "shrinkage", "none"}

    Returns
    -------
    Tensor or array, shape (..., n, n)

    Examples
    --------
    >>> from spdnet.covariance import regularize
    >>> regularize([[1, -1], [-1, 1]], 0.1, "trace")
    array([[ 1.2, -1. ],
           [-1. ,  1.2]])
    """
    require_square("regularize", C, "C")
    require_choice("regularize", "mode", mode, REGULARIZERS)
    require_number(
        "regularize", "reg", reg, at_least=0, at_most=1 if mode == "shrinkage" else 1e300
    )
    require_symmetric("regularize", C, "C")
    size = {
        "mean": lambda: _trace(C) / C.shape[-1],
        "trace": lambda: _trace(C),
        "absolute": lambda: torch.ones_like(_trace(C)),
    }
    if mode == "none":
        return C
    if mode == "shrinkage":
        return _shrunk(C, torch.full_like(_trace(C), reg))
    return C + (reg * size[mode]())[..., None, None] * _eye(C)


@_same_kind
def correlation(C: Tensor) -> Tensor:
    r"""Correlation matrix :math:`C_{ij} / \sqrt{C_{ii} C_{jj}}` of a covariance matrix.

    Parameters
    ----------
    C : Tensor or array, shape (..., n, n)
        With a positive diagonal.

    Returns
    -------
    Tensor or array, shape (..., n, n)

    Examples
    --------
    >>> from spdnet.covariance import correlation
    >>> correlation([[4.0, 1.0], [1.0, 1.0]])
    array([[1. , 0.5],
           [0.5, 1. ]])
    """
    require_square("correlation", C, "C")
    require_symmetric("correlation", C, "C")
    variance = C.diagonal(dim1=-2, dim2=-1)
    if not (variance > 0).all():
        index = tuple((variance <= 0).nonzero()[0].tolist())
        raise ValueError(
            f"correlation: expected a positive variance of every channel, got "
            f"{variance[index].item():.3g} at {index}; drop that channel or regularise"
        )
    scale = variance.rsqrt()
    R = C * (scale[..., :, None] * scale[..., None, :])
    return R - torch.diag_embed(R.diagonal(dim1=-2, dim2=-1)) + _eye(R)  # ones exactly


@_same_kind
def gaussian_embedding(
    X: Tensor,
    *,
    reg: float = 1e-3,
    mode: str = "trace",
    scale_det: bool = False,
    weight: float = 1.0,
) -> Tensor:
    r"""Mean and covariance in one SPD matrix.

    .. math:: P = \begin{pmatrix} C + \beta^2 m m^\top & \beta m \\ \beta m^\top & 1 \end{pmatrix},
        \qquad \det P = \det C

    Parameters
    ----------
    X : Tensor or array, shape (..., n, time)
    reg, mode
        Regularisation of the covariance, before the embedding: see :func:`regularize`.
    scale_det : bool
        Divide by :math:`(\det C)^{1 / (n + 1)}`, so that the determinant is 1; the logarithm then
        differs by a multiple of the identity.
    weight : float
        The weight :math:`\beta` of the mean.

    Returns
    -------
    Tensor or array, shape (..., n + 1, n + 1)

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


@_same_kind
def joint_covariance(
    joints: Tensor, *, root: int | None = None, reg: float = 1e-3, mode: str = "trace"
) -> Tensor:
    """Covariance of the coordinates of a skeleton over the frames of a sequence.

    Parameters
    ----------
    joints : Tensor or array, shape (..., frames, joints, 3)
    root : int, optional
        A joint whose position is subtracted from all joints in every frame; its own zeros stay, so
        that the size does not change. None keeps the positions as they are.
    reg, mode
        See :func:`regularize`.

    Returns
    -------
    Tensor or array, shape (..., 3 * joints, 3 * joints)

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


@_same_kind
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


@_same_kind
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


def segment(
    frames: Sequence[Any] | Any,
    length: int,
    stride: int | None = None,
    min_length: int | None = None,
) -> list[Any]:
    """Cut a sequence into windows along its first dimension.

    Split into training and test sequences first, and cut the training sequences only: windows of
    one sequence on both sides would leak.

    Parameters
    ----------
    frames : sequence, Tensor or array, shape (frames, ...)
    length : int
        Frames of a window.
    stride : int, optional
        Frames from one window to the next; ``length`` when not given, so that they do not overlap.
    min_length : int, optional
        A shorter window at the end, or a sequence shorter than ``length``, is kept if it has this
        many frames; ``length`` when not given, so that all windows are whole.

    Returns
    -------
    list
        Slices of ``frames``; empty if it is too short.

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
    starts = range(0, max(len(frames) - length, 0) + 1, stride)
    windows = [frames[start : start + length] for start in starts]
    rest = starts[-1] + stride
    if starts[-1] + length < len(frames) and len(frames) - rest >= min_length:
        windows.append(frames[rest:])
    return [window for window in windows if len(window) >= min(length, min_length)]


def _centered(who: str, X: Tensor) -> tuple[Tensor, int]:
    """The signals without their mean, and how many observations there are."""
    if X.ndim < 2 or X.shape[-1] < 2 or X.shape[-2] < 1:
        raise ValueError(
            f"{who}: expected X of shape (..., channels, time) with at least 2 observations, got "
            f"{tuple(X.shape)}; observations are columns"
        )
    require_finite(who, X)
    return X - X.mean(-1, keepdim=True), X.shape[-1]


def _trace(C: Tensor) -> Tensor:
    return C.diagonal(dim1=-2, dim2=-1).sum(-1)


def _eye(C: Tensor) -> Tensor:
    return torch.eye(C.shape[-1], dtype=C.dtype, device=C.device)


def _shrunk(C: Tensor, rho: Tensor) -> Tensor:
    mu = _trace(C) / C.shape[-1]
    return (1 - rho)[..., None, None] * C + (rho * mu)[..., None, None] * _eye(C)
