"""Stochastic gradient descent on Stiefel manifolds (Eqs. 7 and 8)."""

from typing import Any

import torch
from torch import Tensor
from torch.optim.sgd import sgd

from spdnet._autograd import is_capturing
from spdnet._checks import require_number
from spdnet.manifolds.stiefel import retract, transport
from spdnet.optim.riemannian import (
    RiemannianOptimizer,
    gradients,
    manifold_gradient,
    stack,
    stacked_gradient,
    unstack,
    write_back,
)


class RiemannianSGD(RiemannianOptimizer):
    r"""SGD that keeps Stiefel parameters on their manifold.

    For a Stiefel parameter :math:`W`, with the retraction :math:`\Gamma`,

    .. math:: m \leftarrow \mu \, m + \mathrm{grad} L, \quad
              W_+ = \Gamma(W - \mathrm{lr} \cdot m), \quad
              m \leftarrow \mathrm{proj}_{W_+} m.

    The momentum buffer is a tangent vector: it starts from the Riemannian gradient and is
    transported. Weight decay does not apply. The same holds for a ``geoopt.ManifoldParameter`` and
    its manifold. All other parameters are updated by :class:`torch.optim.SGD`.

    Parameters
    ----------
    params : iterable
        ``model.parameters()``, or parameter groups.
    lr : float
        Learning rate.
    momentum, dampening, weight_decay : float
    nesterov, maximize : bool
        As in :class:`torch.optim.SGD`.
    metric : {"embedded", "canonical", "grassmann"}
        Metric of the gradient: see :func:`spdnet.manifolds.stiefel.riemannian_gradient`.
    retraction : {"qr", "polar", "cayley"}
        See :func:`spdnet.manifolds.stiefel.retract`.

    Examples
    --------
    >>> import torch
    >>> from spdnet.optim import RiemannianSGD
    >>> from spdnet import SPDNet
    >>> model = SPDNet((6, 3), 2)
    >>> optimizer = RiemannianSGD(model.parameters(), lr=0.01)
    >>> model(torch.eye(6)).sum().backward()
    >>> optimizer.step()
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-2,
        momentum: float = 0.0,
        *,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        dampening: float = 0.0,
        maximize: bool = False,
        metric: str = "embedded",
        retraction: str = "qr",
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "nesterov": nesterov}
        defaults |= {"weight_decay": weight_decay, "dampening": dampening, "maximize": maximize}
        super().__init__(params, defaults | {"metric": metric, "retraction": retraction})

    def _check_group(self, group: dict[str, Any]) -> None:
        require_number("RiemannianSGD", "momentum", group["momentum"], at_least=0)
        require_number("RiemannianSGD", "dampening", group["dampening"])
        if group["nesterov"] and (group["momentum"] == 0 or group["dampening"] != 0):
            raise ValueError(
                "RiemannianSGD: expected momentum > 0 and dampening = 0 with nesterov=True, got "
                f"momentum={group['momentum']} and dampening={group['dampening']}"
            )

    def _step_euclidean(self, group: dict[str, Any], params: list[Tensor]) -> None:
        if not params:
            return
        if is_capturing(params[0]):
            self._step_captured(group, params)
            return
        buffers = [self.state[p].get("momentum_buffer") for p in params]
        names = ("weight_decay", "momentum", "lr", "dampening", "nesterov", "maximize")
        settings = {name: group[name] for name in names}
        sparse = any(g.is_sparse for g in gradients(params))
        sgd(params, gradients(params), buffers, has_sparse_grad=sparse, **settings)
        if group["momentum"] != 0:
            for p, buffer in zip(params, buffers, strict=True):
                self.state[p]["momentum_buffer"] = buffer

    def _step_captured(self, group: dict[str, Any], params: list[Tensor]) -> None:
        """Step as torch does, with a learning rate on the device, which the host must not read."""
        for p, g in zip(params, gradients(params), strict=True):
            g = -g if group["maximize"] else g
            d = g + group["weight_decay"] * p if group["weight_decay"] else g
            if group["momentum"] != 0:
                buffer = self.state[p]["momentum_buffer"]
                buffer.mul_(group["momentum"]).add_(d, alpha=1 - group["dampening"])
                d = d + group["momentum"] * buffer if group["nesterov"] else buffer
            p.addcmul_(d, group["lr"].to(p.dtype), value=-1)

    def _step_stiefel(self, group: dict[str, Any], params: list[Tensor]) -> None:
        W, G = stacked_gradient(group, params)
        momentum = group["momentum"]
        if momentum == 0:
            write_back(params, retract(W, -group["lr"] * G, group["retraction"]))
            return
        given = zip(params, unstack(G, len(params)), strict=True)
        buffer = stack([self._momentum(p, g, group) for p, g in given])
        direction = G + momentum * buffer if group["nesterov"] else buffer
        moved = retract(W, -group["lr"] * direction, group["retraction"])
        write_back(params, moved)
        buffer = transport(W, moved, buffer, group["metric"])
        write_back([self.state[p]["momentum_buffer"] for p in params], buffer)

    def _step_manifold(self, group: dict[str, Any], p: Any) -> None:
        G, momentum = manifold_gradient(group, p), group["momentum"]
        if momentum == 0:
            p.copy_(p.manifold.retr(p, -group["lr"] * G))
            return
        buffer = self._momentum(p, G, group)
        direction = G + momentum * buffer if group["nesterov"] else buffer
        moved, transported = p.manifold.retr_transp(p, -group["lr"] * direction, buffer)
        p.copy_(moved)
        self.state[p]["momentum_buffer"].copy_(transported)

    def _momentum(self, p: Tensor, G: Tensor, group: dict[str, Any]) -> Tensor:
        """Return the momentum of one parameter, updated with its gradient."""
        state = self.state[p]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(G)
            return G
        return group["momentum"] * state["momentum_buffer"].to(G) + (1 - group["dampening"]) * G
