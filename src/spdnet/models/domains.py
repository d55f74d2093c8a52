"""Networks with batch normalization by domain."""

import copy
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor

from spdnet.models.model import Model
from spdnet.nn import SPDDomainBatchNorm

_CHUNK = 256


class DomainModel(Model):
    """Base class of networks with domain-specific batch normalization.

    Subclasses define ``_prepared``, which validates the input, and ``_stages``, which returns the
    normalization layers, each with the function that computes its input from the output of the
    previous one, or from the prepared input.
    """

    check: bool | None
    _prepared: Callable[[Tensor, bool | None], Tensor]
    _stages: Callable[[], list[tuple[Callable[[Tensor], Tensor], SPDDomainBatchNorm]]]

    @torch.no_grad()
    def refit(self, X: Tensor, domain: int, check: bool | None = None) -> Self:
        """Adapt to a domain by all its samples ``X``, without labels.

        The statistics of a layer are those of its input after the previous layers were adapted. A
        domain whose index is the number of domains is added.
        """
        who = f"{type(self).__name__}.refit"
        check = self.check is not False if check is None else check
        X = self._prepared(X, check)
        if isinstance(domain, bool) or not isinstance(domain, int):
            raise TypeError(f"{who}: expected domain to be an integer, got {domain!r}")
        stages = self._stages()
        if not stages:
            raise ValueError(f"{who}: expected a network with norm='domain', got {self}")
        n_domains = stages[0][1].n_domains
        if len(X) == 0 or not 0 <= domain <= n_domains:
            raise ValueError(
                f"{who}: expected samples, and a domain from 0 to {n_domains}, got {len(X)} and "
                f"{domain}"
            )
        modes, previous = [(layer, layer.training) for layer in self.modules()], None
        index = torch.full((len(X),), domain, device=X.device)
        self.eval()  # keep the running threshold of a ReEig
        try:
            for compute, norm in stages:
                if previous is not None:
                    X = previous(X, index, check=False)
                X = torch.cat([compute(part) for part in X.split(_CHUNK)])
                if domain == norm.n_domains:
                    norm.add_domain()
                norm.refit(X, domain, check=check)
                previous = norm
        finally:
            for layer, mode in modes:
                layer.training = mode
        return self

    def adapt(self, X: Any, domain: Tensor) -> Self:
        """Return the network, or a copy adapted to the domains that training has not seen."""
        norms = [norm for _, norm in self._stages()]
        if not norms:
            return self
        seen = set(norms[0].num_batches_tracked.nonzero()[:, 0].tolist())
        new = [d for d in domain.unique().tolist() if d not in seen]
        if not new:
            return self
        model = copy.deepcopy(self)
        for _, norm in model._stages():
            while norm.n_domains <= new[-1]:
                norm.add_domain()
        for d in new:
            model.refit(X[domain == d], d, check=False)
        return model
