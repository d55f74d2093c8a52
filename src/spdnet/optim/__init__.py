"""Optimisers that keep Stiefel parameters on their manifold."""

from spdnet.optim.adam import RiemannianAdam
from spdnet.optim.sgd import RiemannianSGD

__all__ = ["RiemannianAdam", "RiemannianSGD"]
