"""Collective operations for layers in distributed training."""

from typing import Any

import torch
from torch import Tensor


def is_distributed() -> bool:
    """Return whether several processes train one network together."""
    available = torch.distributed.is_available() and torch.distributed.is_initialized()
    return available and torch.distributed.get_world_size() > 1


def gather_rows(F: Tensor) -> tuple[Tensor, slice]:
    """Concatenate the entries ``(N, ...)`` of all processes in the order of their ranks.

    Return them and the slice of this process. The gradient is that of the sum of the
    losses of all processes.
    """
    if not is_distributed():
        return F, slice(None)
    world, rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
    size = torch.tensor([len(F)], device=F.device)
    found = [torch.empty_like(size) for _ in range(world)]
    torch.distributed.all_gather(found, size)
    sizes = [int(s) for s in found]
    own = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
    return _Gather.apply(F, sizes, own), own


class _Gather(torch.autograd.Function):
    """Gather entries in the forward pass and sum gradients in the backward pass."""

    @staticmethod
    def forward(ctx: Any, F: Tensor, sizes: list[int], own: slice) -> Tensor:
        padded = F.new_zeros(max(sizes), *F.shape[1:])
        padded[: len(F)] = F
        parts = [torch.empty_like(padded) for _ in sizes]
        torch.distributed.all_gather(parts, padded)
        ctx.own = own
        return torch.cat([part[:n] for part, n in zip(parts, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        total = grads[0].clone()
        torch.distributed.all_reduce(total)
        return total[ctx.own], None, None
