"""A training step as CUDA graphs: small kernels take longer to launch than to run."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from spdnet.linalg.rectify import assuming_nothing_is_low
from spdnet.nn import ReEig, SPDBatchNorm

_PATIENCE = 20  # steps without trying a shorter way, after it was wrong


class GraphedStep:
    """Forward, backward and update of one training step, each launched at one stroke.

    A ReEig that clips nothing needs no eigenvectors, but in a graph it cannot look and decide. So
    there are several graphs: the shortest assumes that nothing is clipped, the next that the first
    ReEig alone clips, since orthonormal BiMaps keep eigenvalues above the threshold; each notes
    whether that was true. If not, the batch is done again by the next one before anything is
    updated; the last assumes nothing. The result is the same either way, within rounding.

    The first call is an ordinary step. Afterwards the shapes are fixed.

    Parameters
    ----------
    model : Module
        On a CUDA device, with ReEigs of an absolute threshold. Called as ``model(X, check=False)``.
    optimizer : Optimizer
        :class:`spdnet.optim.RiemannianSGD`, or :class:`spdnet.optim.RiemannianAdam` with
        ``capturable=True``.
    loss : callable
        Of logits and targets, a scalar.
    shown : callable, optional
        Another scalar of logits and targets, to be given back instead of the loss.

    Examples
    --------
    >>> import torch
    >>> from spdnet import SPDNet
    >>> from spdnet.optim import RiemannianSGD
    >>> from spdnet.training import GraphedStep
    >>> if torch.cuda.is_available():
    ...     model = SPDNet((6, 4, 2), 3, device="cuda")
    ...     step = GraphedStep(model, RiemannianSGD(model.parameters(), lr=0.01))
    ...     X, y = torch.eye(6, device="cuda").expand(8, 6, 6), torch.zeros(8, device="cuda").long()
    ...     loss, correct = step(X, y)
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy,
        shown: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> None:
        parameters = list(model.parameters())
        if any(p.device.type != "cuda" for p in parameters):
            raise ValueError("GraphedStep: expected a model on a CUDA device, got one elsewhere")
        for layer in model.modules():
            if isinstance(layer, ReEig) and layer.share is not None:
                raise ValueError(
                    f"GraphedStep: expected ReEigs with a number for eps, got {layer.eps!r}, which "
                    "changes with every batch; take ordinary steps"
                )
            if isinstance(layer, SPDBatchNorm):
                raise ValueError(
                    "GraphedStep: expected a network without batch normalisation, whose mean is an "
                    "iteration that looks at its values; take ordinary steps"
                )
        self.model = model
        self.optimizer = optimizer
        self.loss = loss
        self.shown = shown
        self._parameters = [p for p in parameters if p.requires_grad]
        n_reeigs = sum(isinstance(layer, ReEig) for layer in model.modules())
        #: as many ReEigs assume nothing, or all for None
        self._assume_after = (0, 1, None) if n_reeigs > 1 else (0, None) if n_reeigs else (None,)
        self._graphs: list[torch.cuda.CUDAGraph] = []  # captured when they are wanted
        self._settled = self._wait = 0

    def __call__(self, X: Tensor, y: Tensor) -> tuple[float, int]:
        """Take a step; the loss before it, and how many were classified correctly.

        The update is not taken if the loss is not finite, which is then given back in any case.

        Parameters
        ----------
        X : Tensor, shape (B, n, n)
        y : Tensor, shape (B,)
        """
        if not self._graphs:
            return self._first(X, y)
        self._X.copy_(X)
        self._y.copy_(y)
        for rate, group in zip(self._rates, self.optimizer.param_groups, strict=True):
            rate.fill_(group["lr"])
        for i in range(self._settled if self._wait > 0 else 0, len(self._assume_after)):
            if i == len(self._graphs):
                self._capture(self._assume_after[i])
            self._graphs[i].replay()
            violated, loss, shown, correct = self._found.tolist()
            if not violated:
                break
            self._settled, self._wait = i + 1, _PATIENCE
        self._wait = max(0, self._wait - 1)
        if not math.isfinite(loss):
            return loss, int(correct)
        self._update.replay()
        return shown, int(correct)

    def _first(self, X: Tensor, y: Tensor) -> tuple[float, int]:
        self._X, self._y = X.clone(), y.clone()
        self._found = torch.zeros(4, dtype=torch.float64, device=X.device)
        self._violated = torch.zeros((), dtype=torch.bool, device=X.device)
        self._gradients = [torch.zeros_like(p) for p in self._parameters]  # always at this place
        for p, g in zip(self._parameters, self._gradients, strict=True):
            p.grad = g
        self._stream = torch.cuda.Stream()  # one for all: each has a workspace of cuBLAS
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._compute(None)
            _, loss, shown, correct = self._found.tolist()
            if math.isfinite(loss):
                self.optimizer.step()  # makes the state, too
        torch.cuda.current_stream().wait_stream(self._stream)
        self._pool = torch.cuda.graph_pool_handle()
        self._capture_update()
        self._capture(self._assume_after[0])
        return shown if math.isfinite(loss) else loss, int(correct)

    def _compute(self, after: int | None) -> None:
        """Gradients, and in ``_found``: whether the assumption was wrong, loss, its stand-in, hits.

        As many ReEigs as ``after`` assume nothing, or all for None.
        """
        torch._foreach_zero_(self._gradients)
        self._violated.zero_()
        with nullcontext() if after is None else assuming_nothing_is_low(self._violated, after):
            logits = self.model(self._X, check=False)
        loss = self.loss(logits, self._y)
        loss.backward()
        hits = (logits.argmax(-1) == self._y).sum()
        loss = loss.detach()
        shown = loss if self.shown is None else self.shown(logits.detach(), self._y)
        found = (self._violated.double(), loss.double(), shown.double(), hits.double())
        self._found.copy_(torch.stack(found))

    def _capture(self, after: int | None) -> None:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            self._compute(after)
        self._graphs.append(graph)

    def _capture_update(self) -> None:
        groups: list[dict[str, Any]] = self.optimizer.param_groups
        before = [group["lr"] for group in groups]
        device = self._X.device
        self._rates = [torch.tensor(lr, dtype=torch.float64, device=device) for lr in before]
        try:
            for group, rate in zip(groups, self._rates, strict=True):
                group["lr"] = rate
            self._update = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._update, pool=self._pool, stream=self._stream):
                self.optimizer.step()
        finally:
            for group, lr in zip(groups, before, strict=True):
                group["lr"] = lr
