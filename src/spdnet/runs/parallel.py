"""Run independent computations in several processes."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from joblib import Parallel, delayed, parallel_config

_SHORT = 5.0  # seconds: starting the processes takes about as long
_MOST = 8  # each process needs memory for its libraries


def default_jobs() -> int:
    """Return the number of processors that this process may use, at most 8."""
    if hasattr(os, "sched_getaffinity"):
        return min(_MOST, len(os.sched_getaffinity(0)))
    return min(_MOST, os.cpu_count() or 1)


def run_parallel(
    function: Callable[..., Any],
    arguments: Iterable[tuple[Any, ...]],
    jobs: int,
    *,
    here: Callable[..., Any] | None = None,
    at_once: bool = False,
) -> Iterator[Any]:
    """Yield ``function(*args)`` for each tuple of arguments, in the order in which they finish.

    Each process has one thread. The processes are started after 5 seconds, so that short
    computations run in this process. With one job, all of them do.

    Parameters
    ----------
    function : callable
        Function of a module; it and its arguments are pickled.
    arguments : iterable of tuple
    jobs : int
        Number of processes.
    here : callable, optional
        Function for the calls in this process, for example one that shows its progress.
    at_once : bool
        Start the processes without waiting for 5 seconds.

    Examples
    --------
    >>> from spdnet.runs.parallel import run_parallel
    >>> list(run_parallel(pow, [(2, 3), (3, 2)], jobs=2))
    [8, 9]
    """
    left, started = list(arguments), time.monotonic()
    seconds = 0.0 if at_once else _SHORT
    while left and (jobs == 1 or len(left) == 1 or time.monotonic() - started < seconds):
        yield (here or function)(*left.pop(0))
    if left:
        with parallel_config("loky", n_jobs=min(jobs, len(left)), inner_max_num_threads=1):
            run = Parallel(return_as="generator_unordered")
            yield from run(delayed(function)(*given) for given in left)
