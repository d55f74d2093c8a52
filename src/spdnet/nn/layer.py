"""Base class of the layers on SPD matrices."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch import Tensor

from spdnet._autograd import refuse_format
from spdnet._checks import require_same_dtype, require_square
from spdnet.linalg import cholesky
from spdnet.linalg.validate import require_symmetric
from spdnet.manifolds.stiefel import StiefelParameter, is_stiefel


class SPDLayer(torch.nn.Module):
    """Base class of layers on matrices ``(..., n, n)``.

    Stiefel parameters keep their type where torch would replace them by plain parameters: moving
    from or to the meta device, assigning a loaded tensor, and ``fully_shard``.

    Parameters
    ----------
    check : bool
        Raise an error if the input is not finite, not symmetric or outside the domain of the
        layer. ``layer(X, check=False)`` overrides it for one call, for example after the data have
        been checked once. Checks are skipped under compilation, export and vmap.
    """

    check: bool
    #: whether forward has an argument ``log`` to take the logarithm of its input
    takes_log = False
    #: whether forward has an argument ``log`` to return the logarithm of its output
    gives_log = False

    def __init__(self, *, check: bool = True) -> None:
        super().__init__()
        self.check = check

    def _checks(self, check: bool | None) -> bool:
        return self.check if check is None else check

    def _require_input(
        self,
        X: Tensor,
        check: bool | None,
        *,
        n: int | None = None,
        like: Tensor | None = None,
        positive: bool = False,
    ) -> bool:
        """Validate shape and dtype and, if checks are enabled, values; return whether they are."""
        who = type(self).__name__
        require_square(who, X, n=n)
        if like is not None:
            require_same_dtype(who, X, like.dtype)
        check = self._checks(check)
        if check and positive:
            cholesky(X.detach(), who=who)
        elif check:
            require_symmetric(who, X)
        return check

    def __prepare_scriptable__(self) -> NoReturn:
        refuse_format("torch.jit.script")

    @contextmanager
    def _keep_stiefel(self) -> Iterator[None]:
        names = [n for n, p in self._parameters.items() if is_stiefel(p)]
        yield
        for name in names:
            _mark_stiefel(self._parameters[name])

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(value, "full_tensor") and is_stiefel(self._parameters.get(name)):
            _mark_stiefel(value)
        super().__setattr__(name, value)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        with self._keep_stiefel():
            return super()._apply(fn, recurse)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        with self._keep_stiefel():
            super()._load_from_state_dict(*args, **kwargs)


def _mark_stiefel(p: Any) -> None:
    """Mark a parameter that torch created in place of a Stiefel parameter."""
    if type(p) is torch.nn.Parameter:
        p.__class__ = StiefelParameter
    elif hasattr(p, "full_tensor"):  # a DTensor, as created by fully_shard, has its own class
        p.is_sharded_stiefel = True
