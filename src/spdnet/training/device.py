"""Devices and processes."""

import logging
import os
import re
import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch

from spdnet.linalg.threads import one_thread

if TYPE_CHECKING:
    from lightning_fabric import Fabric as Fabric  # for the annotations of other modules

_SMALL = 32  # below, a second thread gains 3 %, and loses much on a busy machine
_FEW_ENTRIES = 2**14  # below, such as for one matrix of size 128, threads mostly wait
_SHORT = 1500  # for shorter vectors, a second thread gains little, and loses much if busy
_MIN_PROCESSES = 8  # number of processes that is always allowed on a CPU
_PAUSE = 0.1  # seconds before a process leaves its group


def threads_for(n: int, count: int | None = None) -> AbstractContextManager[None]:
    """Use one thread for matrices of size ``n`` that are too small, or too few, for several.

    On a busy machine, two threads on 17 by 17 matrices were 200 times slower than one.
    """
    is_small = n < _SMALL if count is None else n * n * count < _FEW_ENTRIES
    return one_thread() if is_small else nullcontext()


def threads_for_vectors(width: int) -> AbstractContextManager[None]:
    """Use one thread for networks on vectors that are too short for several."""
    return one_thread() if width < _SHORT else nullcontext()


def under_torchrun() -> bool:
    """Return whether ``torchrun`` has started several processes."""
    return "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


def resolve_device(device: str = "auto") -> torch.device:
    """Return the named device, or raise an error if the machine does not have it."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if not re.fullmatch(r"cpu|(cuda|mps)(:(0|[1-9]\d?))?", str(device)):
        raise ValueError(f"device: expected 'auto', 'cpu', 'cuda' or 'cuda:1', got {device!r}")
    where = torch.device(device)
    available = {"cpu": 1, "mps": int(torch.backends.mps.is_available())}
    count = available[where.type] if where.type in available else torch.cuda.device_count()
    if (where.index or 0) >= count:
        raise ValueError(
            f"device: expected a device of this machine, which has {count} {where.type.upper()} "
            f"devices, got {device!r}; use 'auto'"
        )
    return where


def make_fabric(device: str = "auto", devices: int = 1) -> "Fabric":
    """Construct a Fabric for one device, or for several processes.

    Parameters
    ----------
    device : str
        ``"cpu"``, ``"cuda"``, ``"cuda:1"``, or ``"auto"``: a CUDA device if there is one.
    devices : int
        Number of processes on this machine, started by ``launch()``. 0 for the processes that
        ``torchrun`` has started.

    Examples
    --------
    >>> from spdnet.training import make_fabric
    >>> make_fabric("cpu").device
    device(type='cpu')
    """
    from lightning_fabric import Fabric  # takes a second to import

    where = resolve_device(device)
    if devices != 1 and where.index is not None:
        raise ValueError(
            f"device: expected 'auto', 'cpu' or 'cuda' with several processes, got {device!r}"
        )
    available = {"cpu": (os.cpu_count() or 1, "processors"), "mps": (1, "MPS device")}
    count, what = available.get(where.type, (torch.cuda.device_count(), "CUDA devices"))
    if devices > max(count, _MIN_PROCESSES if where.type == "cpu" else 1):
        raise ValueError(
            f"devices: expected at most the {count} {what} of this machine, got {devices}"
        )
    logging.getLogger("lightning_fabric.utilities.rank_zero").addFilter(_is_not_precision_advice)
    if devices == 1:
        own = 1 if where.index is None else [where.index]
        return Fabric(accelerator=where.type, devices=own)
    if hasattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch"):
        # harmless: Fabric wraps the network on another stream
        torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
    nodes = 1
    if devices == 0:
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = int(os.environ["WORLD_SIZE"]) // devices
        _join_processes("nccl" if where.type == "cuda" else "gloo")
    return Fabric(accelerator=where.type, devices=devices, num_nodes=nodes, strategy="ddp")


def leave(fabric: "Fabric") -> None:
    """Leave the process group.

    The destructor of the group holds the GIL while it waits for the threads of gloo, which may need
    the GIL to free their last tensors. The pause lets them finish first.
    """
    if fabric.world_size > 1:
        time.sleep(_PAUSE)
        torch.distributed.destroy_process_group()


def _is_not_precision_advice(record: logging.LogRecord) -> bool:
    """Drop the advice to lower the precision of matrix products."""
    return "set_float32_matmul_precision" not in record.getMessage()


def _join_processes(backend: str) -> None:
    """Join the processes that ``torchrun`` has started.

    Each start uses its own prefix in the common store, because the store still contains the
    addresses of processes that died before a restart.
    """
    if torch.distributed.is_initialized():
        return
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    uses_agent_store = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = torch.distributed.TCPStore(  # type: ignore[attr-defined]
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        world,
        is_master=rank == 0 and not uses_agent_store,
    )
    start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    own = torch.distributed.PrefixStore(f"start {start}", store)  # type: ignore[attr-defined]
    torch.distributed.init_process_group(backend, store=own, rank=rank, world_size=world)
