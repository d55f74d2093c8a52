"""Detection of weights that an optimizer has moved off the Stiefel manifold."""

import warnings
from typing import Any

import torch
from torch import Tensor

from spdnet._autograd import can_branch
from spdnet.manifolds.stiefel import deviation

#: times the square root of the number of columns: twice the rounding error of bfloat16
TOLERANCE = 2.0**-7
INTERVAL = 256


class OrthonormalityCheck:
    """Warn once if the weight of a layer does not have orthonormal columns.

    Checks the calls 1, 2, 4, 8, ... and every 256th. On a GPU the result is read in a later call,
    after it has arrived, so that no call waits for the device. Nothing is checked under
    compilation, vmap and CUDA graph capture.
    """

    def __init__(self) -> None:
        self.n_calls = 0
        self.warned = False
        self._pending: tuple[Tensor, torch.cuda.Event] | None = None

    def __reduce__(self) -> Any:
        return OrthonormalityCheck, ()  # CUDA events cannot be copied, so a copy starts anew

    def __call__(self, layer: torch.nn.Module, W: Tensor) -> None:
        """Check the weight ``W (..., n, k)`` if the call is due."""
        self.n_calls = n = self.n_calls + 1
        if self.warned or (self._pending is None and n & (n - 1) and n % INTERVAL):
            return
        if not can_branch(W):
            return
        if self._pending is not None:
            found, event = self._pending
            if event.query():
                self._pending = None
                self._warn_if_large(layer, W, float(found))
        elif W.device.type == "cpu":
            self._warn_if_large(layer, W, float(deviation(W)))
        elif W.device.type == "cuda":
            found = deviation(W).to("cpu", non_blocking=True)  # to pinned memory
            event = torch.cuda.Event()
            event.record(torch.cuda.current_stream(W.device))
            self._pending = found, event

    def _warn_if_large(self, layer: torch.nn.Module, W: Tensor, found: float) -> None:
        if found > TOLERANCE * W.shape[-1] ** 0.5:
            self.warned = True
            warnings.warn(
                f"{layer}: expected a weight W with orthonormal columns, got ||W^T W - I|| = "
                f"{found:.2g}, as after steps of an optimizer that does not keep it on the Stiefel "
                "manifold; use spdnet.optim.RiemannianSGD or RiemannianAdam",
                RuntimeWarning,
                stacklevel=5,
            )
