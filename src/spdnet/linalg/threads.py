"""Threads over a batch on the CPU: many small matrices, one thread per matrix.

LAPACK splits a single small matrix among all threads, which mostly wait for each other. Here each
thread solves whole matrices, and the libraries below it use one thread. The caller's settings are
preserved; a process with one thread, such as a DataLoader worker, stays with one.

The threads are torch's own where possible. After a parallel loop they stay awake for some
milliseconds, and any other thread would share its core with one of them. ``GOMP_parallel`` of the
OpenMP library that torch has loaded runs a function on all of them. Otherwise a thread pool is
used.
"""

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

_lock = threading.Lock()
_pools: dict[int, ThreadPoolExecutor] = {}
_forked = False

#: smallest number of operations per thread, about 50 microseconds
_MIN_OPERATIONS = 50_000
#: smallest number of operations of one call that LAPACK may split among threads
_MIN_SINGLE = 500_000


def parallel_for(work: Callable[[slice], None], batch: int, cost: float) -> None:
    """Call ``work`` with slices that cover the batch, on as many threads as torch uses.

    ``work`` writes its results in place, without gradients, and must spend its time in calls that
    release the interpreter lock, such as those of torch. ``cost`` is the approximate number of
    operations per batch element; little work runs on one thread.
    """
    threads = min(torch.get_num_threads(), batch, round(batch * cost / _MIN_OPERATIONS))
    if threads <= 1:
        # LAPACK would divide a small matrix among threads that wait for each other
        with one_thread() if batch * cost < _MIN_SINGLE else nullcontext():
            work(slice(0, batch))
        return
    # for much work, more chunks than threads, because chunks and threads differ in speed
    rounds = round(batch * cost / (threads * 20 * _MIN_OPERATIONS))
    chunks = threads * min(max(1, rounds), batch // threads)
    edges = [batch * i // chunks for i in range(chunks + 1)]
    remaining = iter([slice(a, b) for a, b in pairwise(edges)])  # shared by the threads
    failures: list[BaseException] = []
    # gradient modes are per thread
    mode = torch.inference_mode if torch.is_inference_mode_enabled() else torch.no_grad

    def run_slices(_: object = None) -> None:
        try:
            with mode():
                for part in remaining:
                    work(part)
        except BaseException as failure:  # also an interrupt; the caller raises it again
            failures.append(failure)

    run_on_openmp = None if _forked else _openmp()
    if run_on_openmp is not None:
        run_on_openmp(run_slices, threads)
    else:
        _run_on_pool(run_slices, threads)
    if failures:
        raise failures[0]


@contextmanager
def one_thread() -> Iterator[None]:
    """Restrict torch to one thread in this thread, and restore the number afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def _openmp() -> Callable[[Callable[[object], None], int], None] | None:
    """Return a function that runs a callable on each of torch's threads, or None if unavailable."""
    try:
        # resolved through torch's library, so that it is the one torch uses
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


def _run_on_pool(run_slices: Callable[[], None], threads: int) -> None:
    workers = [_pool(threads - 1).submit(run_slices) for _ in range(threads - 1)]
    with one_thread():
        run_slices()
    for worker in workers:
        if not worker.cancel():
            worker.result()


def _pool(threads: int) -> ThreadPoolExecutor:
    with _lock:
        if threads not in _pools:
            before = torch.get_num_threads()
            pool = ThreadPoolExecutor(threads, thread_name_prefix="spdnet")
            barrier = threading.Barrier(threads)
            # one task per thread; then restore the setting for new threads
            for started in [pool.submit(_start, barrier) for _ in range(threads)]:
                started.result()
            torch.set_num_threads(before)
            _pools[threads] = pool
        return _pools[threads]


def _start(barrier: threading.Barrier) -> None:
    barrier.wait()
    torch.set_num_threads(1)  # in this thread


def _after_fork() -> None:
    """Discard the threads, which do not exist in a forked process; GNU OpenMP does not notice."""
    global _lock, _forked
    _lock, _forked = threading.Lock(), True
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
