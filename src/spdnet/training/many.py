"""Independent trainings, several at a time."""

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import nullcontext
from typing import Any

from joblib import cpu_count
from joblib.externals.loky import get_reusable_executor

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
    finished = dict(train_each(trainers, default_jobs() if jobs is None else jobs, on_batch))
    return [finished[i].progress for i in range(len(finished))]


def train_each(
    trainers: Iterable[Trainer],
    jobs: int,
    on_batch: Callable[[int, int], None] = lambda done, total: None,
) -> Iterator[tuple[int, Trainer]]:
    """Train as :func:`train_many` does; yield position and trainer when one is finished.

    Finished trainers are not kept.
    """
    waiting = dict(enumerate(trainers))
    if any(t.fabric.device.type != "cpu" or t.fabric.world_size > 1 for t in waiting.values()):
        jobs = 1
    started, total = time.monotonic(), sum(trainer.n_steps for trainer in waiting.values())
    first = sum(trainer.progress.step for trainer in waiting.values())
    finished, executor = 0, None
    running: dict[Future[dict[str, Any]], tuple[int, Trainer]] = {}

    def on_step(trainer: Trainer, *_: int) -> None:
        """Show the progress, and keep the other processes busy."""
        nonlocal executor
        done = finished + trainer.progress.step
        on_batch(done, total)
        elapsed = time.monotonic() - started
        is_long = elapsed * (total - done) > _SHORT * (done - first)
        if executor is None and jobs > 1 and waiting and elapsed > _MEASURED and is_long:
            executor = get_reusable_executor(min(jobs - 1, len(waiting)))
        while executor and waiting and sum(not one.done() for one in running) < jobs - 1:
            i, other = waiting.popitem()  # the last one
            running[executor.submit(_finish, other)] = i, other

    try:
        while waiting or running:
            if waiting:
                i = next(iter(waiting))
                trainer = waiting.pop(i)
                with one_thread() if jobs > 1 else nullcontext():
                    trainer.run(on_batch=on_step)
                finished += trainer.n_steps
                yield i, trainer
            for future in wait(running, 0.0 if waiting else None, FIRST_COMPLETED).done:
                i, trainer = running.pop(future)
                trainer.load_state_dict(future.result())
                finished += trainer.n_steps
                on_batch(finished, total)
                yield i, trainer
    except BaseException:
        if executor is not None:
            executor.shutdown(kill_workers=True)
        raise


def _finish(trainer: Trainer) -> dict[str, Any]:
    """Train in another process, and return the state."""
    with one_thread():
        trainer.run()
    return trainer.state_dict()
