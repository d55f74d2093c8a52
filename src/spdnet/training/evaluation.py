"""Losses and evaluation of networks."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from spdnet.training.data import DiskTensor, Samples

if TYPE_CHECKING:
    from spdnet.training.device import Fabric

_CHUNK = 2**24  # bytes of input
#: function of logits ``(B, n_classes)`` and classes ``(B,)`` that returns losses ``(B,)``
Loss = Callable[[Tensor, Tensor], Tensor]


@torch.no_grad()
def evaluate(
    model: torch.nn.Module,
    data: Samples,
    fabric: "Fabric | None" = None,
    *,
    batch_size: int = 256,
    loss: Loss | None = None,
    settings: Mapping[str, Any] | None = None,
) -> tuple[float, float]:
    """Compute the mean loss and the accuracy of a model in evaluation mode.

    The processes of a ``fabric`` share the samples. ``loss`` is as in :class:`Trainer`, and
    ``settings`` are arguments of the model, by default ``check=False`` if it has it.

    Examples
    --------
    >>> import torch
    >>> from spdnet import SPDNet
    >>> from spdnet.training import Samples, evaluate
    >>> data = Samples(torch.eye(3).repeat(4, 1, 1), torch.zeros(4, dtype=torch.long))
    >>> loss, accuracy = evaluate(SPDNet((3,), 2), data)
    >>> round(loss, 4)  # all logits are zero: log 2
    0.6931
    """
    was_training = model.training
    model.eval()
    part = data
    if fabric is not None and fabric.world_size > 1:
        index = torch.arange(len(data)).tensor_split(fabric.world_size)[fabric.global_rank]
        part = data.take(index)
    found = torch.zeros(2, dtype=torch.float64, device=data.y.device)
    if len(part):
        settings = unchecked(model) if settings is None else settings
        logits = run_in_chunks(model, *part.inputs, size=batch_size, **settings)
        found[0] = weighted_losses(logits, part.y, part.weight, loss).double().sum()
        found[1] = (logits.argmax(-1) == part.y).sum()
    model.train(was_training)
    total, correct = (sum_over(fabric, found) / len(data)).tolist()
    return total, correct


def weighted_losses(
    logits: Tensor,
    y: Tensor,
    weight: Tensor | None = None,
    loss: Loss | None = None,
    *,
    label_smoothing: float | Sequence[float] = 0.0,
) -> Tensor:
    """Compute the loss of each sample, multiplied by its weight; by default cross-entropy.

    The loss of logits ``(B, n_classes, n_members)`` is the sum over the members, each of which can
    have its own label smoothing.
    """
    if logits.ndim == 3:
        each = numpy.broadcast_to(label_smoothing, logits.shape[-1]).tolist()
        members = (
            weighted_losses(member, y, weight, loss, label_smoothing=smoothing)
            for member, smoothing in zip(logits.unbind(-1), each, strict=True)
        )
        return torch.stack(list(members)).sum(0)
    if logits.ndim != 2 or len(logits) != len(y):
        raise ValueError(
            f"training: expected logits of shape ({len(y)}, n_classes) from the network, got "
            f"{tuple(logits.shape)}"
        )
    if loss is None:
        smoothing: Any = label_smoothing
        losses = cross_entropy(logits, y, reduction="none", label_smoothing=smoothing)
    else:
        losses = loss(logits, y)
        if losses.shape != y.shape:
            raise ValueError(
                f"training: expected a loss for each sample, of shape {tuple(y.shape)}, got "
                f"{tuple(losses.shape)}; use reduction='none'"
            )
    return losses if weight is None else losses * weight


def mean_loss(logits: Tensor, y: Tensor, weight: Tensor | None = None, **settings: Any) -> Tensor:
    """Compute the sum of :func:`weighted_losses` divided by the number of samples."""
    return weighted_losses(logits, y, weight, **settings).sum() / len(y)


def run_in_chunks(
    function: Callable[..., Tensor],
    *inputs: Tensor | DiskTensor,
    size: int | None = None,
    **settings: Any,
) -> Tensor:
    """Run a network in chunks to bound memory, by default of :func:`chunk_rows`."""
    size = chunk_rows(function, inputs[0]) if size is None else size
    if len(inputs[0]) <= size:
        return function(*(values[:] for values in inputs), **settings)
    stop, parts = 0, zip(*(values.split(size) for values in inputs), strict=True)
    for part in parts:
        Y = function(*part, **settings)
        # allocated first: small results between large temporaries would fragment memory
        if stop == 0:
            found = Y.new_empty(len(inputs[0]), *Y.shape[1:])
        found[stop : (stop := stop + len(Y))] = Y
    return found


def chunk_rows(function: Callable[..., Tensor], values: Tensor | DiskTensor) -> int:
    """Return the number of samples to run together, at most 256.

    On a CPU, these are at most 16 MiB, or half of the size of the weights, which each chunk reads.
    """
    one = max(1, values.dtype.itemsize * math.prod(values.shape[1:]))
    if values.device.type == "cuda" or min(256, len(values)) * one <= _CHUNK:
        return 256
    module = getattr(function, "__self__", function)
    state = module.state_dict().values() if isinstance(module, torch.nn.Module) else ()
    return min(256, max(1, max(_CHUNK, sum(v.nbytes for v in state) // 2) // one))


def unchecked(function: Any) -> dict[str, Any]:
    """Return ``{"check": False}`` for a module or method with that argument, else an empty dict."""
    called = function.forward if isinstance(function, torch.nn.Module) else function
    return {"check": False} if "check" in inspect.signature(called).parameters else {}


def sum_over(fabric: "Fabric | None", value: Tensor) -> Tensor:
    """Sum a tensor over the processes."""
    if fabric is None or fabric.world_size == 1:
        return value
    total = value.to(fabric.device, copy=True)
    torch.distributed.all_reduce(total)
    return total.to(value.device)
