"""Threads over a batch on the CPU: many small matrices, one thread each.

LAPACK divides a single small matrix among all threads, which mostly wait for each other. Here each
thread takes matrices of its own, and the libraries below use one thread. The caller's settings stay
as they are; a process of one thread, such as the worker of a DataLoader, gets none more.

The threads are those of torch itself, where they are within reach: after a parallel loop they stay
awake for some milliseconds to wait for the next, and any other thread would have to share its core
with one of them. ``GOMP_parallel`` of the OpenMP library that torch has loaded runs a function on
all of them. Elsewhere there is a pool of threads.
"""

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

_lock = threading.Lock()
_pools: dict[int, ThreadPoolExecutor] = {}
_forked = False

#: operations that are worth a thread of their own: about 50 microseconds
_WORTH = 50_000


def over_slices(work: Callable[[slice], None], batch: int, cost: float) -> None:
    """Call ``work`` with slices that cover the batch, on as many threads as torch has.

    Parameters
    ----------
    work : callable
        Writes its results where they belong, without gradients. It has to spend its time in calls
        that release the interpreter's lock, such as torch's.
    batch : int
    cost : float
        Of one of the batch, about, in operations. Little work is done by one thread.
    """
    threads = min(torch.get_num_threads(), batch, round(batch * cost / _WORTH))
    if threads <= 1:
        work(slice(0, batch))
        return
    # more pieces than threads where there is much to do: neither matrices nor threads are alike
    rounds = round(batch * cost / (threads * 20 * _WORTH))
    pieces = threads * min(max(1, rounds), batch // threads)
    edges = [batch * i // pieces for i in range(pieces + 1)]
    left = iter([slice(a, b) for a, b in pairwise(edges)])  # shared: each takes the next
    failures: list[BaseException] = []
    # a mode is that of a thread
    mode = torch.inference_mode if torch.is_inference_mode_enabled() else torch.no_grad

    def take(_: object = None) -> None:
        try:
            with mode():
                for part in left:
                    work(part)
        except BaseException as failure:  # an interrupt, too: raised again by the caller
            failures.append(failure)

    run_on_openmp = None if _forked else _openmp()
    if run_on_openmp is not None:
        run_on_openmp(take, threads)
    else:
        _run_on_pool(take, threads)
    if failures:
        raise failures[0]


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for what torch does meanwhile in this thread; afterwards as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def _openmp() -> Callable[[Callable[[object], None], int], None] | None:
    """How to call a function on each of torch's own threads; None where that is not possible."""
    try:
        # looked up in what torch's library depends on, so that it is the one that torch uses
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        parallel = library.GOMP_parallel
    except (OSError, AttributeError):
        return None
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    parallel.argtypes = (prototype, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
    parallel.restype = None

    def run(function: Callable[[object], Any], threads: int) -> None:
        parallel(prototype(function), None, threads, 0)

    return run


def _run_on_pool(take: Callable[[], None], threads: int) -> None:
    helpers = [_pool(threads - 1).submit(take) for _ in range(threads - 1)]
    with one_thread():
        take()
    for helper in helpers:
        if not helper.cancel():
            helper.result()


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


def _after_fork() -> None:
    """A forked process has none of the threads, and GNU's OpenMP does not know that."""
    global _lock, _forked
    _lock, _forked = threading.Lock(), True
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
