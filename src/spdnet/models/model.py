"""Protocol of models: the attributes and methods that training uses."""

import math
from contextlib import nullcontext
from inspect import signature
from types import MethodType
from typing import Any, Self

import torch
from torch import Tensor, nn

from spdnet._precision import complex_dtype, real_dtype
from spdnet.manifolds import log_euclidean
from spdnet.nn import Center, SPDDomainBatchNorm

_CHUNK = 1024


class Model(nn.Module):
    """Base class of the models that can be trained by name.

    Any ``torch.nn.Module`` that maps matrices to logits and is constructed by ``Class(n,
    n_classes)`` can be trained. It need not inherit from this class: attributes and methods are
    looked up by name, with the defaults given here. ``forward`` may have an argument ``check``, and
    has an argument ``domain`` if the model uses domains.

    Attributes
    ----------
    takes : {"matrices", "signals"}
        Input of the network: ``(B, n, n)`` or ``(B, n, T)``.
    uses_domains : bool
        Whether the network is called as ``model(X, domain)`` if the data have groups.
    hyperparameters : tuple of str
        Hyperparameters of :class:`spdnet.training.Recipe` that the model takes,
        and ``"dims"``. With ``norm="domain"``, the model also takes ``n_domains``.
    is_random : bool
        Whether training draws random numbers, for example for dropout.
    smoothing : tuple of float or None
        Label smoothing of each member of a model that returns the logits of several, relative to
        that of the recipe; 1 for all if None.
    supports_complex : bool
        Whether the network can be constructed with a complex ``dtype``, for Hermitian matrices. Its
        features and its classifier are real.
    is_complex : bool
        Whether the network takes complex matrices.
    stem : method or None
        First part of the network, without trainable parameters. Training computes it once for all
        epochs, and calls ``model(stem(X), stem=False)``.

    Examples
    --------
    >>> from spdnet.models import TSMNet
    >>> TSMNet.takes, TSMNet.uses_domains, TSMNet.hyperparameters
    ('signals', True, ('dims', 'eps'))
    """

    takes = "matrices"
    uses_domains = False
    hyperparameters: tuple[str, ...] = ()
    is_random = True
    smoothing: tuple[float, ...] | None = None
    supports_complex = False
    is_complex = False
    stem: Any = None

    @classmethod
    def choose_dims(cls, n: int) -> tuple[int, ...]:
        """Return the sizes of the matrices for input of size ``n``, if ``dims`` is not given."""
        return ()

    @classmethod
    def from_recipe(
        cls,
        recipe: Any,
        n: int,
        n_classes: int,
        *,
        dims: tuple[int, ...] = (),
        n_domains: int = 1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> nn.Module:
        """Construct the network for matrices of size ``n``, or signals of ``n`` channels.

        ``dims`` is empty if the model does not take it.
        """
        require_complex_support(cls, dtype)
        names = get_trait(cls, "hyperparameters")
        size: Any = dims if "dims" in names else n
        settings = {name: getattr(recipe, name) for name in names if name != "dims"}
        if settings.get("norm") == "domain":
            settings["n_domains"] = n_domains
        try:
            signature(cls).bind(size, n_classes, **settings)
        except TypeError as error:
            raise TypeError(
                f"model: expected a class that is constructed by {cls.__name__}(n, n_classes), got "
                f"other parameters: {error}"
            ) from error
        if {"device", "dtype"} <= set(signature(cls).parameters):
            return cls(size, n_classes, **settings, device=device, dtype=dtype)
        with nullcontext() if device is None else torch.device(device):
            return cls(size, n_classes, **settings).to(dtype)

    def fit_buffers(self, X: Any, y: Tensor | None = None, weight: Tensor | None = None) -> None:
        """Fit the data-dependent buffers to the training data: the mean of a layer ``center``.

        ``y (N,)`` are the classes and ``weight (N,)`` the weights of the samples ``X``.
        """
        center = getattr(self, "center", None)
        if not isinstance(center, Center):
            return
        if isinstance(X, Tensor):
            center.fit(X, weight)
            return
        if center.metric.name != "log_euclidean":
            raise ValueError(
                f"Center: expected the metric log_euclidean for matrices on disk, got "
                f"{center.metric.name!r}, whose mean needs all matrices in memory"
            )
        # the mean of the means of chunks, weighted by their sizes, is the mean of all matrices
        means, sizes = [], []
        weights = torch.ones(len(X), dtype=real_dtype(X.dtype)) if weight is None else weight
        for part, w in zip(X.split(_CHUNK), weights.split(_CHUNK), strict=True):
            if w.sum() > 0:
                means.append(log_euclidean.mean(part, w.to(part.device)))
                sizes.append(w.sum())
        center.fit(torch.stack(means), torch.stack(sizes).to(means[0].device))

    def adapt(self, X: Any, domain: Tensor) -> Self:
        """Return a network adapted to the domains of ``X``, without labels."""
        return self

    def begin_epoch(self, epoch: int, epochs: int) -> None:
        """Prepare for an epoch, counted from 1: anneal domain-specific batch normalization."""
        for layer in self.modules():
            if isinstance(layer, SPDDomainBatchNorm):
                layer.anneal(epoch, epochs)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return parameter groups for the optimizer; ``lr_factor`` multiplies the learning rate."""
        return [{"params": list(self.parameters())}]

    def can_capture(self) -> bool:
        """Return whether a training step can be captured in a CUDA graph."""
        return False


def get_trait(model: Any, name: str) -> Any:
    """Return an attribute or method of a module or class, by default that of :class:`Model`."""
    if hasattr(model, name):
        return getattr(model, name)
    default = Model.__dict__[name]
    if isinstance(default, classmethod):
        return MethodType(default.__func__, model if isinstance(model, type) else type(model))
    return MethodType(default, model) if callable(default) else default


def input_dtype(model: nn.Module) -> torch.dtype:
    """Return the dtype of the input of a network."""
    dtype = next(model.parameters()).dtype
    return complex_dtype(dtype) if get_trait(model, "is_complex") else dtype


def require_complex_support(model: Any, dtype: torch.dtype | None) -> None:
    """Raise a TypeError for a complex dtype unless the module or class supports it."""
    if dtype is not None and dtype.is_complex and not get_trait(model, "supports_complex"):
        name = getattr(model, "__name__", type(model).__name__)
        raise TypeError(
            f"{name}: expected real matrices, got the dtype {dtype}; choose a model that supports "
            "complex matrices, such as SPDNet, or pass their real part"
        )


def average(outputs: Tensor) -> Tensor:
    """Return the logarithms of the average probabilities of ``(B, n_classes, n_members)``."""
    return outputs.log_softmax(-2).logsumexp(-1) - math.log(outputs.shape[-1])


def dims_of(model: nn.Module) -> tuple[int, ...]:
    """Return the sizes of the matrices in a model; empty if it has no attribute ``dims``."""
    return tuple(getattr(model, "dims", ()))
