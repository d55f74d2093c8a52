"""Ensemble: several networks of the same kind, averaged."""

from collections.abc import Callable, Iterable
from functools import cache, partial
from inspect import signature
from typing import Any, Self

import torch
from torch import Tensor, nn

from spdnet.models.model import Model, average, dims_of, get_trait

_STREAMS = 16  # each has a workspace of cuBLAS, 32 MiB


class Ensemble(Model):
    """Average of the probabilities of several networks.

    The networks are trained side by side, on the same batches, as if each were alone.

    Parameters
    ----------
    networks : iterable of Module
        Networks that take the same input and have the same classes.

    Examples
    --------
    >>> import torch
    >>> from spdnet import SPDNet
    >>> from spdnet.models import Ensemble
    >>> model = Ensemble(SPDNet((6, 4), n_classes=3) for _ in range(5)).eval()
    >>> model(torch.eye(6).expand(8, 6, 6)).shape
    torch.Size([8, 3])
    """

    def __init__(self, networks: Iterable[nn.Module]) -> None:
        super().__init__()
        self.networks: Any = nn.ModuleList(networks)
        if not self.networks:
            raise ValueError("Ensemble: expected at least one network, got none")
        first = self.networks[0]
        self.dims = dims_of(first)
        for name in ("takes", "uses_domains", "hyperparameters", "is_complex"):
            setattr(self, name, get_trait(first, name))
        self.is_random = any(get_trait(network, "is_random") for network in self.networks)
        self._has_check = "check" in signature(first.forward).parameters

    def forward(self, X: Tensor, *domain: Tensor, check: bool | None = None) -> Tensor:
        """Compute the logits, the logarithms of the average probabilities ``(B, n_classes)``.

        In training mode, return the logits of each network, ``(B, n_classes, n_networks)``.
        """
        settings = {"check": check} if self._has_check else {}
        outputs = torch.stack(
            run_concurrently([partial(net, X, *domain, **settings) for net in self.networks], X), -1
        )
        return outputs if self.training else average(outputs)

    def features(self, X: Tensor, *domain: Tensor, check: bool | None = None) -> Tensor:
        """Concatenate the features of the networks, as vectors."""
        settings = {"check": check} if self._has_check else {}
        found = [net.features(X, *domain, **settings) for net in self.networks]
        return torch.cat([features.flatten(1) for features in found], 1)

    def fit_buffers(self, X: Any, y: Tensor | None = None, weight: Tensor | None = None) -> None:
        """Fit the data-dependent buffers of each network to the training data."""
        for network in self.networks:
            get_trait(network, "fit_buffers")(X, y, weight)

    def adapt(self, X: Any, domain: Tensor) -> Self:
        """Return networks adapted to the domains of ``X``, without labels."""
        adapted = [get_trait(network, "adapt")(X, domain) for network in self.networks]
        return type(self)(adapted).train(self.training)

    def can_capture(self) -> bool:
        """Return whether a training step can be captured in a CUDA graph."""
        return all(get_trait(network, "can_capture")() for network in self.networks)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return the parameter groups of all networks for the optimizer."""
        return [
            group for network in self.networks for group in get_trait(network, "parameter_groups")()
        ]


def run_concurrently(functions: list[Callable[[], Tensor]], X: Tensor) -> list[Tensor]:
    """Call functions of ``X``, on a CUDA device each in its own stream.

    A small network uses a few percent of a GPU. The streams become branches of a CUDA graph, which
    run at the same time, and so do their backward passes.
    """
    if X.device.type != "cuda" or torch.compiler.is_compiling() or len(functions) < 2:
        return [function() for function in functions]
    main, results = torch.cuda.current_stream(X.device), []
    streams = _side_streams(X.device.index, min(len(functions), _STREAMS))
    for i, function in enumerate(functions):
        stream = streams[i % len(streams)]
        stream.wait_stream(main)
        with torch.cuda.stream(stream):
            results.append(function())
    for stream in streams:
        main.wait_stream(stream)
    return results


@cache
def _side_streams(device: int, count: int) -> list[torch.cuda.Stream]:
    with torch.cuda.device(device):
        return [torch.cuda.Stream() for _ in range(count)]
