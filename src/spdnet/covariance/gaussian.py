"""Gaussians as SPD matrices."""

import torch
from torch import Tensor

from spdnet._checks import require_number
from spdnet.covariance.arrays import same_kind
from spdnet.covariance.estimators import sample_covariance
from spdnet.covariance.regularization import regularize
from spdnet.linalg import cholesky


@same_kind
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
