"""Threads over a batch on the CPU: many small matrices, one thread each.

LAPACK divides a single small matrix among all threads, which mostly wait for each other. Here each
thread takes matrices of its own, and the libraries below use one thread. The caller's settings stay
as they are; a process of one thread, such as the worker of a DataLoader, gets none more.
"""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise

import torch

_lock = threading.Lock()
_pools: dict[int, ThreadPoolExecutor] = {}


#: operations that are worth a thread of their own: about half a millisecond
_WORTH = 1_000_000


def over_slices(work: Callable[[slice], None], batch: int, cost: float) -> None:
    """Call ``work`` with slices that cover the batch, on as many threads as torch has.

    Parameters
    ----------
    work : callable
        Writes its results where they belong. It has to spend its time in calls that release the
        interpreter's lock, such as torch's.
    batch : int
    cost : float
        Of one of the batch, about, in operations. Little work is done by one thread: after one of
        torch's own parallel loops its other threads stay awake for a while, and in the way.
    """
    threads = torch.get_num_threads()
    if threads == 1 or batch == 1:
        work(slice(0, batch))
        return
    # more pieces than threads: matrices, and threads, do not all take the same time
    pieces = max(1, min(batch, 4 * threads, round(batch * cost / _WORTH)))
    edges = [batch * i // pieces for i in range(pieces + 1)]
    left = iter([slice(a, b) for a, b in pairwise(edges)])  # shared: each takes the next

    def take() -> None:
        for part in left:
            work(part)

    helpers = [_pool(threads - 1).submit(take) for _ in range(min(threads, pieces) - 1)]
    with one_thread():
        take()
    for helper in helpers:
        if not helper.cancel():
            helper.result()


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for what torch does meanwhile in this thread; afterwards as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _pool(threads: int) -> ThreadPoolExecutor:
    with _lock:
        if threads not in _pools:
            before = torch.get_num_threads()
            pool = ThreadPoolExecutor(threads, thread_name_prefix="spdnet")
            together = threading.Barrier(threads)
            # one task for each thread; afterwards the number for threads to come is set back
            for started in [pool.submit(_start, together) for _ in range(threads)]:
                started.result()
            torch.set_num_threads(before)
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
