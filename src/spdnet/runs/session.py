"""Processes of a run."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from spdnet.runs.run_folder import RunFolder
from spdnet.runs.watch import Watch
from spdnet.training import make_fabric

if TYPE_CHECKING:
    from spdnet.training.device import Fabric

_T = TypeVar("_T")


class Session:
    """Processes, messages and callback of a run, as in :func:`spdnet.runs.train`.

    All processes run the same code, except for what this class does.
    """

    def __init__(
        self,
        device: str,
        *,
        watch: Watch | None = None,
        on_finished: Callable[[RunFolder], object] = lambda folder: None,
        fabric: "Fabric | None" = None,
    ) -> None:
        self.fabric = make_fabric(device) if fabric is None else fabric
        self.is_first: bool = self.fabric.is_global_zero
        self.barrier = self.fabric.barrier
        self.watch = watch = Watch() if watch is None else watch
        if not self.is_first:
            self.watch = Watch()
            self.watch.stop = watch.stop
        self.on_finished = on_finished

    def first(self, action: Callable[[], object]) -> None:
        """Run an action in the first process only, for example to write a file."""
        if self.is_first:
            action()

    def look(self, question: Callable[[], _T]) -> _T:
        """Return what all processes see before the first one writes anything else."""
        answer = question()
        self.barrier()
        return answer
