"""MLP: a classifier of vectors with a hidden layer."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm

from spdnet.nn.distributed import gather_rows


class MLP(nn.Sequential):
    """Batch normalization, a hidden layer with batch normalization and dropout, a linear layer.

    Input is ``(..., n_features)``, output ``(..., n_classes)``. In training, the statistics and the
    random numbers are those of the batch of all processes, so that their number does not change the
    results, and a single sample is normalized by the running statistics.
    """

    def __init__(
        self,
        n_features: int,
        hidden: int,
        n_classes: int,
        *,
        dropout: float,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        super().__init__(
            BatchNorm(n_features, **where),
            nn.Linear(n_features, hidden, bias=False, **where),
            BatchNorm(hidden, **where),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, n_classes, **where),
        )

    def reset_parameters(self) -> None:
        """Draw new weights, and reset the running statistics."""
        for layer in self:
            if isinstance(layer, nn.Linear | nn.BatchNorm1d):
                layer.reset_parameters()

    def forward(self, X: Tensor) -> Tensor:
        """Compute the logits."""
        rows, own = X.reshape(-1, X.shape[-1]), slice(None)  # (N, n_features)
        if self.training:
            rows, own = gather_rows(rows)
        logits = super().forward(rows)[own]
        return logits.reshape(*X.shape[:-1], logits.shape[-1])


class BatchNorm(nn.BatchNorm1d):
    """Batch normalization of ``(..., C)``; a single sample is normalized by running statistics."""

    def forward(self, X: Tensor) -> Tensor:
        """Normalize the last dimension."""
        rows = X.reshape(-1, X.shape[-1])  # (N, C)
        if self.training and len(rows) < 2:  # the variance of a single sample is zero
            mean, var = self.running_mean, self.running_var
            found = batch_norm(rows, mean, var, self.weight, self.bias, eps=self.eps)
        else:
            found = super().forward(rows)
        return found.reshape(X.shape)
