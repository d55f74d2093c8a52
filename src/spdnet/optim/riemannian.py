"""What the Riemannian optimisers share: which parameters they find, and what goes in one call."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._compile import _disable_dynamo

from spdnet._checks import require_choice, require_number
from spdnet._precision import working_dtype
from spdnet.manifolds import stiefel
from spdnet.manifolds.stiefel import is_stiefel

#: what a manifold that a parameter brings has to do, under the names of geoopt
VERBS = ("component_inner", "egrad2rgrad", "retr", "retr_transp")


class RiemannianOptimizer(torch.optim.Optimizer):
    """Steps Stiefel parameters on their manifold, parameters of geoopt on theirs, and all others as
    torch does.

    A subclass says how: ``_step_euclidean`` for plain parameters, ``_step_stiefel`` for Stiefel
    parameters of one shape, dtype and device, ``_step_by_manifold`` for one that brings a manifold.
    """

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with settings of their own, after checking the settings."""
        group = {**self.defaults, **param_group}
        who = type(self).__name__
        lr = group["lr"]
        require_number(who, "lr", lr.item() if isinstance(lr, Tensor) else lr, at_least=0)
        require_number(who, "weight_decay", group["weight_decay"], at_least=0)
        require_choice(who, "metric", group["metric"], stiefel.METRICS)
        require_choice(who, "retraction", group["retraction"], stiefel.RETRACTIONS)
        self._check_group(group)
        super().add_param_group(param_group)
        try:
            for p in self.param_groups[-1]["params"]:
                self._check_parameter(p, group)
        except (TypeError, ValueError):
            self.param_groups.pop()
            raise

    def _check_parameter(self, p: Tensor, group: dict[str, Any]) -> None:
        who = type(self).__name__
        lacking = [verb for verb in VERBS if not hasattr(_manifold(p), verb)]
        if _manifold(p) is not None and lacking:
            raise TypeError(
                f"{who}: expected the manifold of a parameter to be one of geoopt, got "
                f"{_manifold(p)!r}, which lacks {', '.join(lacking)}"
            )
        if getattr(p, "_is_flat_param", False) or (is_stiefel(p) and p.ndim < 2):
            raise TypeError(
                f"{who}: expected matrices as Stiefel parameters, got a part of a flattened "
                "parameter, as FullyShardedDataParallel makes it; use "
                "torch.distributed.fsdp.fully_shard or DistributedDataParallel instead"
            )

    # traced, a Stiefel parameter would lose its type and be stepped as a plain one
    @_disable_dynamo
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
            with_manifold = [p for p in params if _manifold(p) is not None]
            plain = [p for p in params if not is_stiefel(p) and _manifold(p) is None]
            self._step_euclidean(group, plain)
            for batch in _equal_shapes([p for p in params if is_stiefel(p)]):
                self._step_stiefel(group, batch)
            for p in with_manifold:
                self._step_by_manifold(group, p)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state; settings that it does not have, as one of torch's own, stay as they are."""
        current = [dict(group) for group in self.param_groups]
        super().load_state_dict(state_dict)
        for group, before in zip(self.param_groups, current, strict=True):
            for name, value in before.items():
                group.setdefault(name, value)

    def _check_group(self, group: dict[str, Any]) -> None:
        raise NotImplementedError

    def _step_euclidean(self, group: dict[str, Any], params: list[Tensor]) -> None:
        raise NotImplementedError

    def _step_stiefel(self, group: dict[str, Any], params: list[Tensor]) -> None:
        raise NotImplementedError

    def _step_by_manifold(self, group: dict[str, Any], p: Any) -> None:
        raise NotImplementedError


def gradients(params: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of parameters that have one."""
    return [p.grad for p in params if p.grad is not None]


def stacked_gradient(group: dict[str, Any], params: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Equal Stiefel parameters ``(P, ..., n, k)`` and the Riemannian gradients to descend along."""
    dtype = working_dtype(params[0].dtype)
    W, G = (_stack(tensors).to(dtype) for tensors in (whole(params), whole(gradients(params))))
    G = stiefel.riemannian_gradient(W, G, group["metric"])
    return W, -G if group["maximize"] else G


def gradient_by_manifold(group: dict[str, Any], p: Any) -> Tensor:
    """The Riemannian gradient to descend along, of a parameter that brings its manifold."""
    G: Tensor = p.manifold.egrad2rgrad(p, p.grad)
    return -G if group["maximize"] else G


def _stack(tensors: Sequence[Tensor]) -> Tensor:
    return tensors[0][None] if len(tensors) == 1 else torch.stack(list(tensors))


def whole(tensors: Sequence[Any]) -> list[Tensor]:
    """The tensors, those that are sharded among processes gathered."""
    return [t.full_tensor() if hasattr(t, "full_tensor") else t for t in tensors]


def write_back(targets: Sequence[Any], values: Tensor) -> None:
    """Copy the slices of a stack to where they belong; of a sharded target, the local part."""
    for target, value in zip(targets, values, strict=True):
        if hasattr(target, "full_tensor"):
            from torch.distributed.tensor import distribute_tensor  # slow to load

            # every process has computed the same values: nothing to send
            value = distribute_tensor(
                value.to(target.dtype), target.device_mesh, target.placements, src_data_rank=None
            )
        target.copy_(value)


def _manifold(p: Tensor) -> Any:
    """That of a ``geoopt.ManifoldParameter``; None for all others."""
    return getattr(p, "manifold", None)


def _equal_shapes(params: list[Tensor]) -> Iterator[list[Tensor]]:
    batches: dict[Any, list[Tensor]] = defaultdict(list)
    for p in params:
        batches[p.shape, p.dtype, p.device].append(p)
    yield from batches.values()
