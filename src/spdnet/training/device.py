"""Where a training runs."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from lightning_fabric import Fabric

from spdnet.linalg.threads import one_thread

_SMALL = (
    32  # below this size a second thread gains three percent, and loses much to other processes
)


@contextmanager
def threads_for(n: int) -> Iterator[None]:
    """One thread for matrices so small that threads would only wait for each other.

    On a machine that is busy otherwise, two threads on 17 by 17 matrices were 200 times slower than
    one. The number of threads is afterwards what it was.
    """
    with one_thread() if n < _SMALL else nullcontext():
        yield


def make_fabric(device: str = "auto") -> Fabric:
    """A Fabric for one device.

    Parameters
    ----------
    device : str
        ``"auto"`` takes a CUDA device where there is one; otherwise ``"cpu"``, ``"cuda"``,
        ``"cuda:1"``.

    Examples
    --------
    >>> from spdnet.training import make_fabric
    >>> make_fabric("cpu").device
    device(type='cpu')
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        where = torch.device(device)
    except RuntimeError as error:
        raise ValueError(
            f"device: expected 'auto', 'cpu', 'cuda' or 'cuda:1', got {device!r}"
        ) from error
    if where.type not in ("cpu", "cuda", "mps"):
        raise ValueError(f"device: expected 'auto', 'cpu', 'cuda' or 'cuda:1', got {device!r}")
    if where.type == "cuda" and (where.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"device: expected a device of this machine, which has {torch.cuda.device_count()} "
            f"CUDA devices, got {device!r}; use 'auto'"
        )
    # its advice on the precision of matrix products is not for matrices that are decomposed
    logger = logging.getLogger("lightning_fabric.utilities.rank_zero")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        devices = 1 if where.index is None else [where.index]
        return Fabric(accelerator=where.type, devices=devices)
    finally:
        logger.setLevel(level)
