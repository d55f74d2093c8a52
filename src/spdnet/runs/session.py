"""Coordination of the processes of a run."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from spdnet.runs.run_folder import RunFolder
from spdnet.runs.watch import Watch
from spdnet.training import make_fabric
from spdnet.training.many import default_jobs

if TYPE_CHECKING:
    from spdnet.training.device import Fabric

_T = TypeVar("_T")


class Session:
    """Processes, messages and callback of a run, as in :func:`spdnet.runs.train`.

    ``jobs`` is the number of processes that compare networks, by default one; None is one for each
    processor on a CPU.

    All processes run the same code, except where this class distinguishes the first one.
    """

    def __init__(
        self,
        device: str,
        *,
        watch: Watch | None = None,
        on_finished: Callable[[RunFolder], object] = lambda folder: None,
        fabric: "Fabric | None" = None,
        jobs: int | None = 1,
    ) -> None:
        self.fabric = make_fabric(device) if fabric is None else fabric
        on_cpu = self.fabric.device.type == "cpu" and self.fabric.world_size == 1
        self.jobs = jobs or (default_jobs() if on_cpu else 1)
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

    def read_before_writing(self, question: Callable[[], _T]) -> _T:
        """Return the answer; no process continues before all of them have one."""
        answer = question()
        self.barrier()
        return answer
