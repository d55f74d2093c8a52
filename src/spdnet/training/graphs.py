"""Training steps as CUDA graphs, since small kernels take longer to launch than to run."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from spdnet.nn import ReEig, SPDBatchNorm
from spdnet.training.evaluation import unchecked

_PATIENCE = 20  # steps for which a violated assumption is not tried again


class GraphedStep:
    """Training step whose forward pass, backward pass and update are CUDA graphs.

    A ReEig that clips nothing needs no eigenvectors, but a graph cannot branch. There are
    therefore several graphs: the first assumes that no ReEig clips, the second that only the first
    ReEig clips, since orthonormal BiMaps keep eigenvalues above the threshold, and the last
    assumes nothing. If an assumption is violated, the next graph repeats the batch before the
    weights are updated. The results agree up to rounding.

    The first call is an ordinary step. Afterwards the shapes are fixed.

    Parameters
    ----------
    model : Module
        Model on a CUDA device whose ReEigs have an absolute threshold.
    optimizer : Optimizer
        :class:`spdnet.optim.RiemannianSGD`, or :class:`spdnet.optim.RiemannianAdam` with
        ``capturable=True``.
    loss : callable
        Function of logits and targets that returns a scalar.
    shown : callable, optional
        Function whose value is returned instead of the loss.

    Examples
    --------
    >>> import torch
    >>> from spdnet import SPDNet
    >>> from spdnet.optim import RiemannianSGD
    >>> from spdnet.training.graphs import GraphedStep
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
                    "changes with every batch; use ordinary steps"
                )
            if isinstance(layer, SPDBatchNorm):
                raise ValueError(
                    "GraphedStep: expected a network without batch normalization, whose mean is an "
                    "iteration that depends on its values; use ordinary steps"
                )
        self.model = model
        self._unchecked = unchecked(model)
        self.optimizer = optimizer
        self.loss = loss
        self.shown = shown
        self._parameters = [p for p in parameters if p.requires_grad]
        self._reeigs = [layer for layer in model.modules() if isinstance(layer, ReEig)]
        #: for each graph, the number of ReEigs at the start of the network that may clip
        self._may_clip = sorted({min(k, len(self._reeigs)) for k in (0, 1, len(self._reeigs))})
        self._graphs: list[torch.cuda.CUDAGraph] = []  # captured when needed
        self._settled = self._wait = 0

    def __call__(self, X: Tensor, y: Tensor) -> tuple[float, int]:
        """Take a step; return the loss before it and the number of correct predictions.

        If the loss is not finite, the weights are not updated and the loss itself is returned.
        """
        if not self._graphs:
            return self._first(X, y)
        self._X.copy_(X)
        self._y.copy_(y)
        for rate, group in zip(self._rates, self.optimizer.param_groups, strict=True):
            rate.fill_(group["lr"])
        for i in range(self._settled if self._wait > 0 else 0, len(self._may_clip)):
            if i == len(self._graphs):
                self._capture(self._may_clip[i])
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
        self._gradients = [torch.zeros_like(p) for p in self._parameters]  # at a fixed address
        for p, g in zip(self._parameters, self._gradients, strict=True):
            p.grad = g
        # one stream for all graphs, since each stream has a workspace of cuBLAS
        self._stream = torch.cuda.Stream()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._compute(len(self._reeigs))
            _, loss, shown, correct = self._found.tolist()
            if math.isfinite(loss):
                self.optimizer.step()  # creates the state, too
        torch.cuda.current_stream().wait_stream(self._stream)
        self._pool = torch.cuda.graph_pool_handle()
        self._capture_update()
        self._capture(self._may_clip[0])
        return shown if math.isfinite(loss) else loss, int(correct)

    def _compute(self, may_clip: int) -> None:
        """Compute the gradients, and ``_found``: violated, loss, shown loss, correct predictions.

        The first ``may_clip`` ReEigs may clip; the others are assumed not to.
        """
        torch._foreach_zero_(self._gradients)
        self._violated.zero_()
        try:
            for reeig in self._reeigs[may_clip:]:
                reeig.violated = self._violated
            logits = self.model(self._X, **self._unchecked)
        finally:
            for reeig in self._reeigs:
                reeig.violated = None
        loss = self.loss(logits, self._y)
        loss.backward()
        hits = (logits.argmax(-1) == self._y).sum()
        loss = loss.detach()
        shown = loss if self.shown is None else self.shown(logits.detach(), self._y)
        found = (self._violated.double(), loss.double(), shown.double(), hits.double())
        self._found.copy_(torch.stack(found))

    def _capture(self, may_clip: int) -> None:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            self._compute(may_clip)
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
