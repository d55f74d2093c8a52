"""Adam on Stiefel manifolds."""

from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam

from spdnet._checks import require_number
from spdnet._precision import real_dtype
from spdnet.manifolds.stiefel import inner, is_stiefel, retract, transport
from spdnet.optim.riemannian import (
    RiemannianOptimizer,
    gradients,
    manifold_gradient,
    stack,
    stacked_gradient,
    unstack,
    write_back,
)


class RiemannianAdam(RiemannianOptimizer):
    r"""Adam that keeps Stiefel parameters on their manifold.

    For a Stiefel parameter :math:`W`, with the retraction :math:`\Gamma` and the Riemannian
    gradient :math:`g`,

    .. math:: m \leftarrow \beta_1 m + (1 - \beta_1) g, \quad
              v \leftarrow \beta_2 v + (1 - \beta_2) \lVert g \rVert^2, \quad
              W_+ = \Gamma\Bigl(W - \mathrm{lr} \, \frac{m / (1 - \beta_1^t)}
                                            {\sqrt{v / (1 - \beta_2^t)} + \mathrm{eps}}\Bigr).

    The first moment is a tangent vector and is transported. The second moment is one number per
    matrix, the running mean of the squared norm of the gradient; elementwise moments would depend
    on the choice of basis. A step therefore has a length of about ``lr`` for the whole matrix.
    Weight decay does not apply. The same holds for a ``geoopt.ManifoldParameter`` and its manifold.
    All other parameters are updated by :class:`torch.optim.Adam`.

    Parameters
    ----------
    params : iterable
        ``model.parameters()``, or parameter groups.
    lr : float
        Learning rate.
    betas : pair of float
    eps, weight_decay : float
    amsgrad, maximize : bool
        As in :class:`torch.optim.Adam`.
    capturable : bool
        Keep the step count on the device, so that a step can be captured in a CUDA graph.
    fused : bool
        As in :class:`torch.optim.Adam`: a faster update, which differs by rounding. It has no
        effect unless all parameters of a group, except Stiefel parameters, are real and on a CPU.
    metric, retraction : str
        As in :class:`RiemannianSGD`.

    References
    ----------
    G. Becigneul, O.-E. Ganea, "Riemannian Adaptive Optimization Methods", ICLR 2019.
    https://doi.org/10.48550/arXiv.1810.00760

    Examples
    --------
    >>> import torch
    >>> from spdnet.optim import RiemannianAdam
    >>> from spdnet import SPDNet
    >>> model = SPDNet((6, 3), 2)
    >>> optimizer = RiemannianAdam(model.parameters(), lr=0.01)
    >>> model(torch.eye(6)).sum().backward()
    >>> optimizer.step()
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        capturable: bool = False,
        fused: bool = False,
        metric: str = "embedded",
        retraction: str = "qr",
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        defaults |= {"amsgrad": amsgrad, "maximize": maximize, "capturable": capturable}
        defaults["fused"] = fused
        super().__init__(params, defaults | {"metric": metric, "retraction": retraction})

    def _check_group(self, group: dict[str, Any]) -> None:
        require_number("RiemannianAdam", "eps", group["eps"], at_least=0)
        betas = group["betas"]
        if not isinstance(betas, (tuple, list)) or len(betas) != 2:
            raise TypeError(
                f"RiemannianAdam: expected betas to be a pair of numbers, got {betas!r}"
            )
        for i, beta in enumerate(betas):
            require_number("RiemannianAdam", f"betas[{i}]", beta, at_least=0, below=1)

    def _check_parameter(self, p: Tensor, group: dict[str, Any]) -> None:
        super()._check_parameter(p, group)
        smallest = torch.finfo(torch.float16).smallest_normal
        # Stiefel parameters are stepped in float32, all others in their own dtype
        if p.dtype == torch.float16 and not is_stiefel(p) and group["eps"] < smallest:
            raise ValueError(
                f"RiemannianAdam: expected eps >= {smallest:.1e} for parameters in torch.float16, "
                f"got {group['eps']}, which rounds to zero, so that steps become NaN; keep "
                "the parameters in torch.float32 and use torch.autocast, or pass eps=1e-4"
            )

    def _step_euclidean(self, group: dict[str, Any], params: list[Tensor]) -> None:
        if not params:
            return
        states = [self._state(p, group, p, torch.zeros_like(p)) for p in params]
        names = ("amsgrad", "lr", "weight_decay", "eps", "maximize", "capturable")
        adam(
            params,
            gradients(params),
            [s["exp_avg"] for s in states],
            [s["exp_avg_sq"] for s in states],
            [s["max_exp_avg_sq"] for s in states] if group["amsgrad"] else [],
            [s["step"] for s in states],
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            fused=(group["fused"] and all(map(_has_fused_kernel, params))) or None,
            **{name: group[name] for name in names},
        )

    def _step_stiefel(self, group: dict[str, Any], params: list[Tensor]) -> None:
        W, G = stacked_gradient(group, params)
        beta1, beta2 = group["betas"]
        states = [
            self._state(p, group, w, w.real.new_zeros(*w.shape[:-2], 1, 1))
            for p, w in zip(params, unstack(W, len(params)), strict=True)
        ]
        for state in states:
            state["step"] += 1

        def stacked(name: str, like: Tensor) -> Tensor:
            return stack([s[name] for s in states]).to(like)

        def correction(beta: float) -> Tensor:
            if group["capturable"]:
                factors = 1 - beta ** torch.stack([s["step"] for s in states])
            else:
                factors = torch.tensor([1 - beta ** s["step"].item() for s in states])
            return factors.to(norm2).view(-1, *[1] * (W.ndim - 1))

        norm2 = inner(W, G, G, group["metric"])[..., None, None]
        m = torch.lerp(stacked("exp_avg", W), G, 1 - beta1)
        v = torch.lerp(stacked("exp_avg_sq", norm2), norm2, 1 - beta2)
        write_back([s["exp_avg_sq"] for s in states], v)
        if group["amsgrad"]:
            v = torch.maximum(stacked("max_exp_avg_sq", norm2), v)
            write_back([s["max_exp_avg_sq"] for s in states], v)

        scale = (v / correction(beta2)).sqrt() + group["eps"]
        direction = m / correction(beta1) / scale
        moved = retract(W, -group["lr"] * direction, group["retraction"])
        write_back(params, moved)
        moments = transport(W, moved, m, group["metric"])
        write_back([s["exp_avg"] for s in states], moments)

    def _step_manifold(self, group: dict[str, Any], p: Any) -> None:
        G, (beta1, beta2) = manifold_gradient(group, p), group["betas"]
        norm2 = p.manifold.component_inner(p, G)
        state = self._state(p, group, p, torch.zeros_like(norm2))
        state["step"] += 1
        steps = state["step"] if group["capturable"] else state["step"].item()
        m = torch.lerp(state["exp_avg"], G, 1 - beta1)
        v = torch.lerp(state["exp_avg_sq"], norm2, 1 - beta2)
        state["exp_avg_sq"].copy_(v)
        if group["amsgrad"]:
            v = torch.maximum(state["max_exp_avg_sq"], v)
            state["max_exp_avg_sq"].copy_(v)
        scale = (v / (1 - beta2**steps)).sqrt() + group["eps"]
        direction = m / (1 - beta1**steps) / scale
        moved, transported = p.manifold.retr_transp(p, -group["lr"] * direction, m)
        p.copy_(moved)
        state["exp_avg"].copy_(transported)

    def _state(
        self, p: Tensor, group: dict[str, Any], first_moment: Tensor, second_moment: Tensor
    ) -> dict[str, Any]:
        """Return the state of a parameter, created on first use with zero moments."""
        state = self.state[p]
        if not state:
            self._check_parameter(p, group)  # the dtype may have changed
            device, dtype = None, torch.get_default_dtype()
            if group["capturable"]:  # powers of beta are computed on the device
                device, dtype = p.device, torch.promote_types(dtype, real_dtype(p.dtype))
            state["step"] = torch.tensor(0.0, dtype=dtype, device=device)
            state["exp_avg"] = torch.zeros_like(first_moment)
            state["exp_avg_sq"] = second_moment
            if group["amsgrad"]:
                state["max_exp_avg_sq"] = second_moment.clone()
        if state["exp_avg_sq"].shape != second_moment.shape:
            raise ValueError(
                "RiemannianAdam: expected a state with one second moment for each Stiefel matrix, "
                f"shape {tuple(second_moment.shape)}, got {tuple(state['exp_avg_sq'].shape)}; load "
                "a state that RiemannianAdam saved, or start without one"
            )
        return state


def _has_fused_kernel(p: Tensor) -> bool:
    return p.device.type == "cpu" and p.is_floating_point()
