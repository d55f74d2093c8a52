"""Run independent computations in several processes."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from joblib import Parallel, delayed, parallel_config

_SHORT = 5.0  # seconds, about the time to start the processes


def run_parallel(
    function: Callable[..., Any],
    arguments: Iterable[tuple[Any, ...]],
    jobs: int,
    *,
    here: Callable[..., Any] | None = None,
    at_once: bool = False,
) -> Iterator[Any]:
    """Yield ``function(*args)`` for each tuple of arguments, in the order in which they finish.

    Each process has one thread. The processes are started after 5 seconds unless ``at_once``, so
    that short computations run in this process. With one job, all computations do. ``here``
    replaces the function in this process, for example by one that shows its progress.

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
