"""Covariances of moving skeletons."""

from torch import Tensor

from spdnet.covariance.arrays import same_kind
from spdnet.covariance.estimators import sample_covariance
from spdnet.covariance.regularization import regularize


@same_kind
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
