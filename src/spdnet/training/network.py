"""Construction of the network of a recipe."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch.nn.parameter import is_lazy

from spdnet.models.ensemble import Ensemble
from spdnet.models.model import get_trait
from spdnet.models.registry import find_model
from spdnet.training.data import DiskTensor, Samples
from spdnet.training.recipe import Recipe

_random_lock = threading.RLock()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global generator of torch for one thread at a time, and restore it afterwards."""
    with _random_lock, torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def make_network(
    recipe: Recipe,
    n: int,
    n_classes: int,
    *,
    dims: Sequence[int] | None = None,
    n_domains: int = 1,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> torch.nn.Module:
    """Construct the network of a recipe, or an ensemble of such networks, with random weights.

    Parameters
    ----------
    recipe : Recipe
    n : int
        Size of the matrices, or number of channels of signals.
    dims : sequence of int, optional
        Sizes of the matrices; chosen by the model if not given.
    n_classes, n_domains, device, dtype

    Examples
    --------
    >>> from spdnet.training import RECIPES, make_network
    >>> type(make_network(RECIPES["fast"].changed(model="multibranch"), 6, 3)).__name__
    'MultiBranchSPDNet'
    """
    model = find_model(recipe.model)
    make = partial(
        get_trait(model, "from_recipe"),
        recipe,
        n,
        n_classes,
        dims=get_trait(model, "choose_dims")(n) if dims is None else tuple(dims),
        n_domains=n_domains,
        device=device,
        dtype=dtype,
    )
    if recipe.ensemble == 1 or "ensemble" in get_trait(model, "hyperparameters"):
        return make()
    return Ensemble(make() for _ in range(recipe.ensemble))


def build(
    recipe: Recipe,
    dims: Sequence[int] | None,
    n_classes: int,
    train: Samples,
    *,
    n_domains: int | None = None,
    seed: int = 0,
) -> torch.nn.Module:
    """Construct the network of a recipe and fit its buffers to the training data.

    The random state of torch is restored.

    Parameters
    ----------
    recipe, dims, n_classes
        See :func:`make_network`.
    train : Samples
    n_domains : int, optional
        Number of domains; that of the training data if not given.
    seed : int
        Random seed of the initial weights.

    Examples
    --------
    >>> import torch
    >>> from spdnet.training import RECIPES, Samples, build
    >>> train = Samples(torch.eye(4).repeat(6, 1, 1), torch.arange(6) % 2)
    >>> build(RECIPES["fast"], (4, 3), 2, train)(train.X).shape
    torch.Size([6, 2])
    """
    if n_domains is None:
        n_domains = 1 if train.domain is None else int(train.domain.max()) + 1
    n, dtype = train.X.shape[1], train.X.dtype
    with seeded(seed):
        model = make_network(recipe, n, n_classes, dims=dims, n_domains=n_domains, dtype=dtype)
        model.to("cpu" if isinstance(train.X, DiskTensor) else train.X.device)
        if any(is_lazy(p) for p in model.parameters()):
            with torch.no_grad():
                model.eval()(*train.take(torch.arange(1)).inputs)  # sets their shapes
            model.train()
        get_trait(model, "fit_buffers")(train.X, train.y, train.weight)
    return model
