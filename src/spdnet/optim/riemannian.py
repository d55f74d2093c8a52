"""Base class of the Riemannian optimizers."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._compile import _disable_dynamo

from spdnet._checks import require_choice, require_number
from spdnet._precision import working_dtype
from spdnet.manifolds import stiefel
from spdnet.manifolds.stiefel import is_stiefel

#: methods that the manifold of a parameter must have, as named by geoopt
MANIFOLD_METHODS = ("component_inner", "egrad2rgrad", "retr", "retr_transp")


class RiemannianOptimizer(torch.optim.Optimizer):
    """Optimizer that keeps parameters of Stiefel and geoopt manifolds on their manifold.

    All other parameters are updated as in torch. A subclass defines ``_step_euclidean`` for plain
    parameters, ``_step_stiefel`` for Stiefel parameters of one shape, dtype and device, and
    ``_step_manifold`` for a parameter with its own manifold.
    """

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a parameter group after validating its settings."""
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
        missing = [method for method in MANIFOLD_METHODS if not hasattr(_manifold(p), method)]
        if _manifold(p) is not None and missing:
            raise TypeError(
                f"{who}: expected the manifold of a parameter to be one of geoopt, got "
                f"{_manifold(p)!r}, which lacks {', '.join(missing)}"
            )
        if getattr(p, "_is_flat_param", False) or (is_stiefel(p) and p.ndim < 2):
            raise TypeError(
                f"{who}: expected matrices as Stiefel parameters, got a part of a flattened "
                "parameter, as created by FullyShardedDataParallel; use "
                "torch.distributed.fsdp.fully_shard or DistributedDataParallel instead"
            )

    # tracing would replace a Stiefel parameter by a plain one
    @_disable_dynamo
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step without modifying ``p.grad``; ``closure`` computes and returns the loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            plain = [p for p in params if not is_stiefel(p) and _manifold(p) is None]
            self._step_euclidean(group, plain)
            batches: dict[Any, list[Tensor]] = defaultdict(list)
            for p in filter(is_stiefel, params):
                batches[p.shape, p.dtype, p.device].append(p)
            for batch in batches.values():
                self._step_stiefel(group, batch)
            for p in params:
                if _manifold(p) is not None:
                    self._step_manifold(group, p)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state; settings that it lacks, such as one of torch.optim, keep their values."""
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

    def _step_manifold(self, group: dict[str, Any], p: Any) -> None:
        raise NotImplementedError


def gradients(params: Sequence[Tensor]) -> list[Tensor]:
    """Return the gradients of the parameters that have one."""
    return [p.grad for p in params if p.grad is not None]


def stacked_gradient(group: dict[str, Any], params: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the :func:`stack` of Stiefel parameters of one shape, and their descent gradients."""
    dtype = working_dtype(params[0].dtype)
    W, G = (stack(tensors).to(dtype) for tensors in (gather(params), gather(gradients(params))))
    G = stiefel.riemannian_gradient(W, G, group["metric"])
    return W, -G if group["maximize"] else G


def manifold_gradient(group: dict[str, Any], p: Any) -> Tensor:
    """Return the descent gradient of a parameter with its own manifold."""
    G: Tensor = p.manifold.egrad2rgrad(p, p.grad)
    return -G if group["maximize"] else G


def stack(tensors: Sequence[Tensor]) -> Tensor:
    """Stack tensors ``(..., n, k)`` to ``(P, ..., n, k)``; a single one is returned unchanged."""
    return tensors[0] if len(tensors) == 1 else torch.stack(list(tensors))


def unstack(values: Tensor, count: int) -> Sequence[Tensor]:
    """Return the ``count`` tensors of a :func:`stack`."""
    return (values,) if count == 1 else values.unbind()


def gather(tensors: Sequence[Any]) -> list[Tensor]:
    """Return the tensors, gathering those that are sharded among processes."""
    return [t.full_tensor() if hasattr(t, "full_tensor") else t for t in tensors]


def write_back(targets: Sequence[Any], values: Tensor) -> None:
    """Copy the tensors of a stack to their targets; a sharded target gets its local part."""
    for target, value in zip(targets, unstack(values, len(targets)), strict=True):
        if hasattr(target, "full_tensor"):
            from torch.distributed.tensor import distribute_tensor  # slow to import

            # every process has computed the same values, so nothing is sent
            value = distribute_tensor(
                value.to(target.dtype), target.device_mesh, target.placements, src_data_rank=None
            )
        target.copy_(value)


def _manifold(p: Tensor) -> Any:
    """Return the manifold of a ``geoopt.ManifoldParameter``, or None."""
    return getattr(p, "manifold", None)
