"""Weight averages that keep Stiefel weights on their manifold."""

import torch
from torch import nn
from torch.optim import swa_utils

from spdnet.manifolds.stiefel import is_stiefel, project


class AveragedModel(swa_utils.AveragedModel):
    """Average of the weights of a model, with orthonormal Stiefel weights.

    The mean of matrices with orthonormal columns is not orthonormal, so each update of
    :class:`torch.optim.swa_utils.AveragedModel` is followed by a projection of these weights to the
    nearest point of the Stiefel manifold. Other parameters are averaged by torch.

    Parameters
    ----------
    *args, **kwargs
        As in :class:`torch.optim.swa_utils.AveragedModel`: the model, and for example
        ``multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999)``.

    Examples
    --------
    >>> from spdnet import SPDNet
    >>> from spdnet.optim import AveragedModel
    >>> model = SPDNet((6, 3), 2)
    >>> averaged = AveragedModel(model)
    >>> averaged.update_parameters(model)
    """

    @torch.no_grad()
    def update_parameters(self, model: nn.Module) -> None:
        """Add the current weights of ``model`` to the average."""
        super().update_parameters(model)
        for p in self.module.parameters():
            if is_stiefel(p):
                p.copy_(project(p))
