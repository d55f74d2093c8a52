"""What all layers on SPD matrices share."""

from typing import Any, NoReturn

import torch

from spdnet._autograd import refuse_format
from spdnet.manifolds.stiefel import is_stiefel, mark_stiefel


class SPDLayer(torch.nn.Module):
    """A layer on matrices ``(..., n, n)`` that checks its input unless told not to.

    Its Stiefel parameters stay marked as such, as the same objects, where torch would make plain
    parameters of them: on the way from and to the meta device, when a loaded tensor is assigned,
    and when ``fully_shard`` replaces them by DTensors.

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

    def __prepare_scriptable__(self) -> NoReturn:
        refuse_format("torch.jit.script")

    def _stiefel_names(self) -> list[str]:
        return [n for n, p in self._parameters.items() if is_stiefel(p)]

    def _mark(self, names: list[str]) -> None:
        for name in names:
            parameter = self._parameters[name]
            if parameter is not None:
                mark_stiefel(parameter)

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(value, "full_tensor") and is_stiefel(self._parameters.get(name)):
            mark_stiefel(value)
        super().__setattr__(name, value)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        names = self._stiefel_names()
        super()._apply(fn, recurse)
        self._mark(names)
        return self

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        names = self._stiefel_names()
        super()._load_from_state_dict(*args, **kwargs)
        self._mark(names)
