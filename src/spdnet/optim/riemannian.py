"""What the Riemannian optimisers share: which parameters they find, and what goes in one call."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from spdnet._checks import require_choice, require_number
from spdnet.linalg.precision import without_autocast
from spdnet.manifolds import stiefel
from spdnet.manifolds.stiefel import StiefelParameter


class RiemannianOptimizer(torch.optim.Optimizer):
    """Steps Stiefel parameters on their manifold and all others as torch does.

    A subclass says how: ``_step_euclidean`` for plain parameters, ``_step_stiefel`` for Stiefel
    parameters of one shape, dtype and device.
    """

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with settings of their own, after checking the settings."""
        group = {**self.defaults, **param_group}
        who = type(self).__name__
        if not isinstance(group["lr"], Tensor):
            require_number(who, "lr", group["lr"], at_least=0)
        require_number(who, "weight_decay", group["weight_decay"], at_least=0)
        require_choice(who, "metric", group["metric"], stiefel.METRICS)
        require_choice(who, "retraction", group["retraction"], stiefel.RETRACTIONS)
        self._check_group(group)
        super().add_param_group(param_group)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step; ``p.grad`` stays as it is.

        Parameters
        ----------
        closure : callable, optional
            Computes the loss anew and returns it.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            self._step_euclidean(group, [p for p in params if not _is_stiefel(p)])
            for batch in _equal_shapes([p for p in params if _is_stiefel(p)]):
                with without_autocast(batch[0]):
                    self._step_stiefel(group, batch)
        return loss

    def _check_group(self, group: dict[str, Any]) -> None:
        raise NotImplementedError

    def _step_euclidean(self, group: dict[str, Any], params: list[Tensor]) -> None:
        raise NotImplementedError

    def _step_stiefel(self, group: dict[str, Any], params: list[Tensor]) -> None:
        raise NotImplementedError


def gradients(params: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of parameters that have one."""
    return [p.grad for p in params if p.grad is not None]


def stacked_gradient(group: dict[str, Any], params: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Equal Stiefel parameters ``(P, ..., n, k)`` and the Riemannian gradients to descend along."""
    W, G = torch.stack(params), torch.stack(gradients(params))
    G = stiefel.riemannian_gradient(W, G, group["metric"])
    return W, -G if group["maximize"] else G


def write_back(targets: Sequence[Tensor], values: Tensor) -> None:
    """Copy the slices of a stack to where they belong."""
    for target, value in zip(targets, values, strict=True):
        target.copy_(value)


def _is_stiefel(p: Tensor) -> bool:
    return isinstance(p, StiefelParameter)


def _equal_shapes(params: list[Tensor]) -> Iterator[list[Tensor]]:
    batches: dict[Any, list[Tensor]] = defaultdict(list)
    for p in params:
        batches[p.shape, p.dtype, p.device].append(p)
    yield from batches.values()
