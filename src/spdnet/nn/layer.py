"""What all layers on SPD matrices share."""

import torch


class SPDLayer(torch.nn.Module):
    """A layer on matrices ``(..., n, n)`` that checks its input unless told not to.

    Parameters
    ----------
    check : bool
        Pass over the data and refuse matrices that are not finite, not symmetric or outside the
        domain of the layer. Also an argument of each call, where it comes first: a training loop
        that has checked its data once calls ``layer(X, check=False)``. Checks are skipped
        in compilation, export and vmap.
    """

    check: bool

    def __init__(self, *, check: bool = True) -> None:
        super().__init__()
        self.check = check

    def _checks(self, check: bool | None) -> bool:
        return self.check if check is None else check
