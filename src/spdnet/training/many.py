"""Independent trainings, several at a time."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import nullcontext
from typing import Any

from joblib import cpu_count
from joblib.externals.loky import ProcessPoolExecutor

from spdnet._checks import require_count
from spdnet.linalg.threads import one_thread
from spdnet.training.loop import Trainer
from spdnet.training.progress import Progress

_MOST = 8  # each process needs memory for its libraries
_MEASURED = 1.0  # seconds of training, from which the rest is estimated
_SHORT = 10.0  # seconds: starting the processes takes about half as long


def default_jobs() -> int:
    """Return the number of processors that this process may use, at most 8."""
    return min(_MOST, cpu_count())


def train_many(
    trainers: Iterable[Trainer],
    *,
    jobs: int | None = None,
    on_batch: Callable[[int, int], None] = lambda done, total: None,
) -> list[Progress]:
    """Train several networks, on a CPU several at a time.

    This process and ``jobs - 1`` others train one network each, with one thread. The others are
    started if the rest of the training would take more than 10 seconds. Each network ends as it
    would alone, except for rounding, since the number of threads differs. On other devices, the
    networks are trained one after the other.

    Parameters
    ----------
    trainers : iterable of Trainer
        Each with its own network, data, recipe and seed. A loss of your own must be picklable.
    jobs : int, optional
        Number of processes; the number of processors, at most 8, if not given.
    on_batch : callable, optional
        Called with the number of batches done and their total. Batches of other processes count
        when their network is trained.

    Returns
    -------
    list of Progress
        Progress of each trainer.

    Examples
    --------
    >>> import torch
    >>> from spdnet.training import RECIPES, Samples, Trainer, build, train_many
    >>> X = torch.eye(3).repeat(8, 1, 1) * torch.arange(1, 9)[:, None, None]
    >>> data, recipe = Samples(X, torch.arange(8) // 4), RECIPES["fast"].changed(epochs=2)
    >>> networks = [build(recipe, (3, 2), 2, data, seed=seed) for seed in range(3)]
    >>> trainers = [Trainer(net, data, recipe, seed=i) for i, net in enumerate(networks)]
    >>> [progress.epoch for progress in train_many(trainers)]
    [2, 2, 2]
    """
    if jobs is not None:
        require_count("train_many", "jobs", jobs)
    trainers = list(trainers)
    steps = [trainer.n_steps for trainer in trainers]
    for _ in train_each(trainers, steps, default_jobs() if jobs is None else jobs, on_batch):
        pass
    return [trainer.progress for trainer in trainers]


def train_each(
    trainers: Iterable[Trainer],
    steps: Sequence[int],
    jobs: int,
    on_batch: Callable[[int, int], None] = lambda done, total: None,
) -> Iterator[tuple[int, Trainer]]:
    """Train as :func:`train_many` does; yield position and trainer when one is finished.

    ``steps`` are the numbers of batches. A trainer is requested when it is its turn, and not kept
    afterwards.
    """
    waiting, n_waiting, total = enumerate(trainers), len(steps), sum(steps)
    jobs = min(jobs, n_waiting)
    finished, before, executor = 0, 0, None
    started = time.monotonic()
    running: dict[Future[dict[str, Any]], tuple[int, Trainer]] = {}

    def take() -> tuple[int, Trainer]:
        nonlocal n_waiting
        n_waiting -= 1
        return next(waiting)

    def on_step(trainer: Trainer, *_: int) -> None:
        """Show the progress, and keep the other processes busy."""
        nonlocal executor
        done = finished + trainer.progress.step
        on_batch(done, total)
        if executor is None and jobs > 1 and n_waiting:
            elapsed = time.monotonic() - started
            is_long = elapsed * (total - done) > _SHORT * (done - before)
            if elapsed > _MEASURED and is_long:
                executor = ProcessPoolExecutor(min(jobs - 1, n_waiting))
        while executor and n_waiting and sum(not one.done() for one in running) < jobs - 1:
            i, other = take()
            running[executor.submit(_finish, other)] = i, other

    try:
        while n_waiting or running:
            if n_waiting:
                i, trainer = take()
                if trainer.fabric.device.type != "cpu" or trainer.fabric.world_size > 1:
                    jobs = 1
                if executor is None:
                    started, before = time.monotonic(), finished + trainer.progress.step
                with one_thread() if jobs > 1 else nullcontext():
                    trainer.run(on_batch=on_step)
                finished += steps[i]
                yield i, trainer
            for future in wait(running, 0.0 if n_waiting else None, FIRST_COMPLETED).done:
                i, trainer = running.pop(future)
                trainer.load_state_dict(future.result())
                finished += steps[i]
                on_batch(finished, total)
                yield i, trainer
    finally:
        if executor is not None:
            executor.shutdown(kill_workers=bool(running))


def _finish(trainer: Trainer) -> dict[str, Any]:
    """Train in another process, and return the state."""
    with one_thread():
        trainer.run()
    return trainer.state_dict()
