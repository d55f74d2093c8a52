"""Training steps as CUDA graphs, since small kernels take longer to launch than to run."""

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from spdnet.models.model import average
from spdnet.nn import ReEig
from spdnet.training.evaluation import mean_loss, unchecked

_LOG = logging.getLogger(__name__)
_PATIENCE = 20  # steps for which a violated assumption is not tried again


class GraphedStep:
    """Training step whose forward pass, backward pass and update are CUDA graphs.

    A ReEig that clips nothing needs no eigenvectors, but a graph cannot branch. There are
    therefore several graphs: the first assumes that no ReEig clips, the second that only the first
    ReEig clips, since orthonormal BiMaps keep eigenvalues above the threshold, and the last
    assumes nothing. If an assumption is violated, the next graph repeats the batch, with the same
    random numbers and running statistics, before the weights are updated. The results agree up to
    rounding.

    The first call is an ordinary step. Afterwards the shapes are fixed. If the steps cannot be
    captured, a warning is logged and all steps are ordinary ones.

    Parameters
    ----------
    model : Module
        Model on a CUDA device, whose training steps do not read values on the host.
    optimizer : Optimizer
        :class:`spdnet.optim.RiemannianSGD`, or :class:`spdnet.optim.RiemannianAdam` with
        ``capturable=True``.
    loss : callable
        Function of outputs and targets, and of the weights of the samples if there are any, that
        returns a scalar.
    shown : callable, optional
        Function of logits whose value is returned instead of the loss.
    settings : mapping, optional
        Arguments of the model, by default ``check=False`` if it has it.

    Attributes
    ----------
    failed : bool
        True if the steps cannot be captured.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        loss: Callable[..., Tensor] = mean_loss,
        shown: Callable[..., Tensor] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        parameters = list(model.parameters())
        if any(p.device.type != "cuda" for p in parameters):
            raise ValueError("GraphedStep: expected a model on a CUDA device, got one elsewhere")
        self.model, self.optimizer, self.loss, self.shown = model, optimizer, loss, shown
        self.failed = False
        self._settings = unchecked(model) if settings is None else settings
        self._parameters = [p for p in parameters if p.requires_grad]
        networks = getattr(model, "networks", [model])
        #: for each network, its ReEigs with a fixed threshold
        self._reeigs = [
            [m for m in network.modules() if isinstance(m, ReEig) and m.share is None]
            for network in networks
        ]
        #: for each graph, the number of ReEigs at the start of a network that may clip
        longest = max(map(len, self._reeigs))
        self._may_clip = sorted({min(k, longest) for k in (0, 1, longest)})
        #: running statistics, which a repeated batch must find as they were
        self._statistics = [
            buffer
            for layer in model.modules()
            if len(self._may_clip) > 1 and "num_batches_tracked" in layer._buffers
            for buffer in layer._buffers.values()
            if buffer is not None
        ]
        self._graphs: list[torch.cuda.CUDAGraph] = []  # captured when needed
        self._settled = self._wait = 0

    def __call__(self, X: Tensor, y: Tensor, weight: Tensor | None = None) -> tuple[float, int]:
        """Take a step; return the loss before it and the number of correct predictions.

        If the loss is not finite, the weights are not updated and the loss itself is returned.
        """
        given = [value for value in (X, y, weight) if value is not None]
        if not self._graphs:
            return self._first(given)
        torch._foreach_copy_(self._inputs, given)
        for rate, group in zip(self._rates, self.optimizer.param_groups, strict=True):
            rate.fill_(group["lr"])
        generator = torch.cuda.default_generators[X.device.index]
        offset = generator.get_offset() if len(self._may_clip) > 1 else 0
        for i in range(self._settled if self._wait > 0 else 0, len(self._may_clip)):
            if i == len(self._graphs) and not self._capture(self._may_clip[i]):
                return self._step()
            self._graphs[i].replay()
            violated, loss, shown, correct = self._found.tolist()
            if not violated:
                break
            self._settled, self._wait = i + 1, _PATIENCE
            generator.set_offset(offset)
            if self._statistics:
                torch._foreach_copy_(self._statistics, self._saved)
        self._wait = max(0, self._wait - 1)
        if not math.isfinite(loss):
            return loss, int(correct)
        self._update.replay()
        return shown, int(correct)

    def _first(self, given: list[Tensor]) -> tuple[float, int]:
        device = given[0].device
        self._inputs = [value.clone() for value in given]
        self._found = torch.zeros(4, dtype=torch.float64, device=device)
        self._violated = torch.zeros((), dtype=torch.bool, device=device)
        self._saved = [buffer.clone() for buffer in self._statistics]
        self._gradients = [torch.zeros_like(p) for p in self._parameters]  # at a fixed address
        for p, g in zip(self._parameters, self._gradients, strict=True):
            p.grad = g
        # one stream for all graphs, since each stream has a workspace of cuBLAS
        self._stream = torch.cuda.Stream()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            found = self._step()  # creates the state of the optimizer, too
        torch.cuda.current_stream().wait_stream(self._stream)
        self._pool = torch.cuda.graph_pool_handle()
        if self._capture_update():
            self._capture(self._may_clip[0])
        return found

    def _step(self) -> tuple[float, int]:
        """Take an ordinary step with the current inputs."""
        self._compute(self._may_clip[-1])
        _, loss, shown, correct = self._found.tolist()
        if not math.isfinite(loss):
            return loss, int(correct)
        self.optimizer.step()
        return shown, int(correct)

    def _compute(self, may_clip: int) -> None:
        """Compute the gradients, and ``_found``: violated, loss, shown loss, correct predictions.

        The first ``may_clip`` ReEigs of a network may clip; the others are assumed not to.
        """
        X, y, *weight = self._inputs
        torch._foreach_zero_(self._gradients)
        self._violated.zero_()
        if self._statistics:
            torch._foreach_copy_(self._saved, self._statistics)
        try:
            for reeigs in self._reeigs:
                for reeig in reeigs[may_clip:]:
                    reeig.violated = self._violated
            outputs = self.model(X, **self._settings)
        finally:
            for reeigs in self._reeigs:
                for reeig in reeigs:
                    reeig.violated = None
        loss = self.loss(outputs, y, *weight)
        loss.backward()
        with torch.no_grad():
            logits = average(outputs) if outputs.ndim == 3 else outputs
            shown = loss if self.shown is None else self.shown(logits, y, *weight)
            hits = (logits.argmax(-1) == y).sum()
            found = (self._violated, loss.detach(), shown.detach(), hits)
            self._found.copy_(torch.stack([value.double() for value in found]))

    def _capture(self, may_clip: int) -> bool:
        graph = torch.cuda.CUDAGraph()
        if not self._captured(graph, lambda: self._compute(may_clip)):
            return False
        self._graphs.append(graph)
        return True

    def _capture_update(self) -> bool:
        groups: list[dict[str, Any]] = self.optimizer.param_groups
        before = [group["lr"] for group in groups]
        device = self._found.device
        self._rates = [torch.tensor(lr, dtype=torch.float64, device=device) for lr in before]
        self._update = torch.cuda.CUDAGraph()
        try:
            for group, rate in zip(groups, self._rates, strict=True):
                group["lr"] = rate
            return self._captured(self._update, self.optimizer.step)
        finally:
            for group, lr in zip(groups, before, strict=True):
                group["lr"] = lr

    def _captured(self, graph: torch.cuda.CUDAGraph, compute: Callable[[], Any]) -> bool:
        """Capture a computation; return whether that was possible."""
        try:
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
                compute()
        except RuntimeError as error:  # for example an operation that waits for the device
            reason = str(error).splitlines()[0]
            _LOG.warning("the training steps cannot be captured as CUDA graphs: %s", reason)
            self._graphs.clear()
            self.failed = True
        return not self.failed
