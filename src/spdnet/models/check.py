"""Checks of the input of a network that cost nothing while the input is valid."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from spdnet._autograd import can_branch


class BatchCheck:
    """Run a network with the checks that ``check`` asks for.

    True examines every batch, False none. None examines the first batch. A later one is examined
    only if the decompositions find a negative eigenvalue or the result is not finite. On a GPU the
    result is read in a later call, after it has arrived, so that no call waits for the device.
    Nothing is checked under compilation, vmap and CUDA graph capture.

    Parameters
    ----------
    who : str
        Network named in errors.

    Examples
    --------
    >>> import torch
    >>> from spdnet.models.check import BatchCheck
    >>> examined = []
    >>> def network(X, check):
    ...     examined.append(check)
    ...     return X.sum()
    >>> run = BatchCheck("network")
    >>> for X in (torch.eye(2), torch.eye(2), torch.full((2, 2), torch.nan)):
    ...     _ = run(network, X, None)
    >>> examined
    [True, None, None, True]
    """

    def __init__(self, who: str) -> None:
        self.who = who
        self._has_passed = False
        self._pending: tuple[Tensor, torch.cuda.Event] | None = None

    def __reduce__(self) -> Any:
        return BatchCheck, (self.who,)  # a copy starts anew

    def __call__(
        self, compute: Callable[[Tensor, bool | None], Tensor], X: Tensor, check: bool | None
    ) -> Tensor:
        """Compute ``compute(X, check)``, where None only checks what decompositions show."""
        if check is None and not can_branch(X):
            check = False
        if check is not None:
            return compute(X, check)
        if self._has_passed:
            self._read_pending()
            try:
                Y = compute(X, None)
                if self._is_finite(Y):
                    return Y
            except (ValueError, LinAlgError):  # the examination below finds the matrix
                pass
        Y = compute(X, True)
        self._has_passed = True
        return Y

    def _is_finite(self, Y: Tensor) -> bool:
        """Return whether the result is finite; on a GPU True, and begin to copy the answer."""
        finite = Y.detach().isfinite().all()
        if Y.device.type != "cuda":
            return bool(finite)
        if self._pending is None:
            event = torch.cuda.Event()
            self._pending = finite.to("cpu", non_blocking=True), event  # to pinned memory
            event.record(torch.cuda.current_stream(Y.device))
        return True

    def _read_pending(self) -> None:
        if self._pending is not None and self._pending[1].query():
            finite, self._pending = bool(self._pending[0]), None
            if not finite:
                raise ValueError(
                    f"{self.who}: expected finite results, got NaN or infinity for an earlier "
                    "batch; call the network with check=True to find the matrix"
                )
