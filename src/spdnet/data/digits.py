"""Handwritten digits as region covariance descriptors."""

import numpy
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from spdnet.covariance import region_covariance


def load_digits_spd(
    *, reg: float = 1e-3, mode: str = "mean"
) -> tuple[NDArray[numpy.float64], NDArray[numpy.int64]]:
    """Return the 1797 digits of scikit-learn as 17 by 17 SPD matrices.

    Each 8 by 8 image, scaled to [0, 1], becomes the covariance of seventeen features over its
    pixels: see :func:`spdnet.covariance.region_covariance`.

    Return ``X (1797, 17, 17)`` in float64 and the digits ``y (1797,)``. See
    :func:`spdnet.covariance.regularize` for ``reg`` and ``mode``.

    References
    ----------
    E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning
    Repository, 1998. https://doi.org/10.24432/C50P49

    Examples
    --------
    >>> from spdnet.data import load_digits_spd
    >>> X, y = load_digits_spd()
    >>> X.shape, y.shape
    ((1797, 17, 17), (1797,))
    """
    digits = load_digits()
    images = digits.images / 16
    return region_covariance(images, reg=reg, mode=mode), digits.target.astype(numpy.int64)


#: data sets that have a name instead of a file
EMBEDDED = {"digits": load_digits_spd}
