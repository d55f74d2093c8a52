"""The network of a recipe, and what a training has to know about it."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from spdnet.manifolds import log_euclidean
from spdnet.models import MultiBranchSPDNet, SPDNet, TSMNet
from spdnet.nn import Center
from spdnet.training.data import DiskTensor
from spdnet.training.recipe import Recipe

Network = SPDNet | MultiBranchSPDNet | TSMNet
_PIECE = 1024


def make_network(
    recipe: Recipe,
    dims: Sequence[int],
    n_classes: int,
    *,
    n_channels: int | None = None,
    n_domains: int = 1,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> Network:
    """A new network with random weights.

    Parameters
    ----------
    recipe : Recipe
    dims : sequence of int
        Sizes of the matrices; for TSMNet those of the covariance and after the BiMap.
    n_classes : int
    n_channels : int, optional
        Of signals, for TSMNet.
    n_domains : int
        For TSMNet.
    device, dtype : optional
        Of weights and buffers.

    Examples
    --------
    >>> from spdnet.training import RECIPES, make_network
    >>> type(make_network(RECIPES["default"].changed(model="multibranch"), (6, 4), 3)).__name__
    'MultiBranchSPDNet'
    """
    where: dict[str, Any] = {"device": device, "dtype": dtype}
    if recipe.takes_signals:
        require_two("TSMNet", dims)
        if n_channels is None:
            raise ValueError("TSMNet: expected signals, got matrices")
        return TSMNet(
            n_channels,
            n_classes,
            n_domains=n_domains,
            spatial_filters=dims[0],
            dim=dims[1],
            eps=recipe.eps,
            **where,
        )
    kind = SPDNet if recipe.model == "spdnet" else MultiBranchSPDNet
    if not recipe.log:
        where["log"] = False  # Recipe has seen to it that the model is SPDNet
    return kind(
        dims,
        n_classes,
        eps=recipe.eps,
        bias=recipe.bias,
        center=recipe.center,
        norm=recipe.norm,
        head=recipe.head,
        **where,
    )


def require_two(who: str, dims: Sequence[int]) -> None:
    """The sizes of TSMNet."""
    if len(dims) != 2:
        raise ValueError(
            f"{who}: expected two sizes in dims, of the covariance and after the BiMap, such as "
            f"40,20, got {','.join(map(str, dims))}"
        )


def prepare_network(model: Network, X: Tensor | DiskTensor, weight: Tensor | None = None) -> None:
    """Take from the training data what is not learnt: the centre, or the unit of signals."""
    if isinstance(model, TSMNet):
        model.calibrate(X[:])
    elif model.center is None:
        return
    elif isinstance(X, DiskTensor):
        _center_on_disk(model.center, X, weight)
    else:
        model.center.fit(X, weight)


def _center_on_disk(center: Center, X: DiskTensor, weight: Tensor | None) -> None:
    """The log-Euclidean mean of means of parts, weighted by their sizes, is the mean of all."""
    if center.metric.name != "log_euclidean":
        raise ValueError(
            f"Center: expected the metric log_euclidean for matrices on disk, got "
            f"{center.metric.name!r}, whose mean needs all of them at once"
        )
    means, sizes = [], []
    weights = torch.ones(len(X), dtype=X.dtype) if weight is None else weight
    for part, w in zip(X.split(_PIECE), weights.split(_PIECE), strict=True):
        if w.sum() > 0:
            means.append(log_euclidean.mean(part, w.to(part.device)))
            sizes.append(w.sum())
    center.fit(torch.stack(means), torch.stack(sizes).to(means[0].device))


def in_pieces(
    function: Callable[..., Tensor], *inputs: Tensor | DiskTensor, size: int = 256, **settings: Any
) -> Tensor:
    """What a network makes of many samples, some at a time, so that memory does not grow."""
    parts = zip(*(values.split(size) for values in inputs), strict=True)
    return torch.cat([function(*part, **settings) for part in parts])


def adapted(model: Network, X: Tensor | DiskTensor, domain: Tensor | None) -> Network:
    """The network, or a copy that knows the domains of ``X`` that training has not seen.

    Parameters
    ----------
    model : Network
    X : Tensor, shape (N, ...)
        All that there is of those domains; labels are not needed.
    domain : Tensor, shape (N,), optional
        Numbers from that of the domains in training on are new.
    """
    if domain is None or not isinstance(model, TSMNet):
        return model
    seen = set(model.norm.num_batches_tracked.nonzero()[:, 0].tolist())
    new = [d for d in domain.unique().tolist() if d not in seen]
    if not new:
        return model
    model = copy.deepcopy(model)
    while model.norm.n_domains <= new[-1]:
        model.norm.add_domain()
    for d in new:
        model.refit(X[domain == d], d, check=False)
    return model
