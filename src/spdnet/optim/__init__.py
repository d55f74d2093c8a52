"""Optimizers and weight averages that keep Stiefel parameters on their manifold."""

from spdnet.optim.adam import RiemannianAdam
from spdnet.optim.averaged import AveragedModel
from spdnet.optim.sgd import RiemannianSGD

__all__ = ["AveragedModel", "RiemannianAdam", "RiemannianSGD"]
