"""Threads over a batch on the CPU: many small matrices, one thread each.

LAPACK divides a single small matrix among all threads, which mostly wait for each other. Here each
thread takes matrices of its own, and the libraries below use one thread. The caller's settings stay
as they are; a process of one thread, such as the worker of a DataLoader, gets none more.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import torch

_lock = threading.Lock()
_pools: dict[int, ThreadPoolExecutor] = {}


def over_slices(work: Callable[[slice], None], batch: int) -> None:
    """Call ``work`` with slices that cover the batch, on as many threads as torch has.

    Parameters
    ----------
    work : callable
        Writes its results where they belong. It has to spend its time in calls that release the
        interpreter's lock, such as torch's.
    batch : int
    """
    threads = torch.get_num_threads()
    if threads == 1 or batch == 1:
        work(slice(0, batch))
        return
    pieces = min(batch, 2 * threads)  # more than threads: matrices do not all take the same time
    edges = [batch * i // pieces for i in range(pieces + 1)]
    pool = _pool(threads)
    waiting = [pool.submit(work, slice(a, b)) for a, b in pairwise(edges)]
    for one in waiting:
        one.result()


def _pool(threads: int) -> ThreadPoolExecutor:
    with _lock:
        if threads not in _pools:
            pool = ThreadPoolExecutor(threads, thread_name_prefix="spdnet")
            together = threading.Barrier(threads)
            # one task for each thread; afterwards the number for threads to come is set back
            for started in [pool.submit(_start, together) for _ in range(threads)]:
                started.result()
            torch.set_num_threads(threads)
            _pools[threads] = pool
        return _pools[threads]


def _start(together: threading.Barrier) -> None:
    together.wait()
    torch.set_num_threads(1)  # of this thread


def _forget() -> None:
    """A forked process has none of the threads."""
    global _lock
    _lock = threading.Lock()
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
