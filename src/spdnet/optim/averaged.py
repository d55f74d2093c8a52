"""Averages of a model's weights in which Stiefel weights stay on their manifold."""

import torch
from torch import nn
from torch.optim import swa_utils

from spdnet.manifolds.stiefel import is_stiefel, project


class AveragedModel(swa_utils.AveragedModel):
    """Average the weights of a model, with Stiefel weights that stay orthonormal.

    :class:`torch.optim.swa_utils.AveragedModel` takes the mean of matrices with orthonormal
    columns, which does not have orthonormal columns. Here every update is followed by the
    projection of these weights to the nearest point of the Stiefel manifold. All other parameters
    are averaged by torch's own code.

    Parameters
    ----------
    *args, **kwargs
        Of :class:`torch.optim.swa_utils.AveragedModel`: the model, and for example
        ``multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999)``.

    Examples
    --------
    >>> import torch
    >>> from spdnet import SPDNet
    >>> from spdnet.manifolds.stiefel import is_orthonormal, random_point
    >>> from spdnet.optim import AveragedModel
    >>> model = SPDNet((6, 3), 2)
    >>> averaged = AveragedModel(model)
    >>> averaged.update_parameters(model)
    >>> model.reset_parameters()
    >>> averaged.update_parameters(model)
    >>> is_orthonormal(averaged.module.bimaps[0].weight)
    True
    """

    @torch.no_grad()
    def update_parameters(self, model: nn.Module) -> None:
        """Take the current weights of ``model`` into the average."""
        super().update_parameters(model)
        for p in self.module.parameters():
            if is_stiefel(p):
                p.copy_(project(p))
