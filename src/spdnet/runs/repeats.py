"""Train the repeats of a run in parallel."""

import math

from spdnet.models.registry import import_model
from spdnet.runs.parallel import run_parallel
from spdnet.runs.results import PART_TITLES, RepeatResults
from spdnet.runs.run_folder import RunFolder
from spdnet.runs.session import Session
from spdnet.runs.training import Training

_LARGE = 2**30  # bytes: each process has a copy of the data


def run_repeats(
    trainings: list[Training], folder: RunFolder, session: Session, jobs: int | None
) -> RepeatResults | None:
    """Train all repeats that are not finished; return their summary in the first process.

    The list is emptied to free the memory of finished trainings.
    """
    seeds, watch = [training.settings.seed for training in trainings], session.watch
    folders = [folder.of_seed(seed) for seed in seeds]
    found = session.read_before_writing(lambda: [(one.finished, one.exists) for one in folders])
    n_jobs = _count_jobs(jobs, trainings[0], session)
    session.jobs = 1  # the repeats run in parallel instead
    unfinished: list[tuple[Training, RunFolder]] = []
    for one, (finished, exists) in zip(folders, found, strict=True):
        training = trainings.pop(0)
        if exists:
            one.require_same(training.settings, training.data.digest)
        if not finished:
            # a process that was started earlier may have another working directory
            unfinished.append((training, RunFolder(one.path.resolve())))

    def run_here(training: Training, one: RunFolder) -> None:
        seed = training.settings.seed
        watch.say(f"repeat {seeds.index(seed) + 1} of {len(seeds)}, seed {seed}")
        training.run(one, session)

    n_left = len(unfinished)
    n_jobs = max(1, min(n_jobs, n_left))
    if jobs is not None and n_jobs > 1:  # no training prints its description in this process
        watch.say(f"{unfinished[0][0].described}; {n_left} repeats in {n_jobs} processes")
        watch.working(f"{n_left} repeats left")
    given = (unfinished.pop(0) for _ in range(n_left))
    for done in run_parallel(_run_one, given, n_jobs, here=run_here, at_once=jobs is not None):
        n_left -= 1
        if done is not None:  # trained in another process
            results = done.run_results()
            title, accuracy = PART_TITLES[results.scored], 100 * results.accuracy
            watch.say(f"{done.path.name}: {title} accuracy {accuracy:.2f} %")
            watch.working(f"{n_left} repeats left")
            session.on_finished(done)
    if not session.is_first:
        return None
    return RepeatResults.of([one.run_results() for one in folders], seeds)


def _count_jobs(jobs: int | None, training: Training, session: Session) -> int:
    """Return the number of processes for the repeats."""
    if session.fabric.world_size > 1:
        return 1
    is_large = 8 * math.prod(training.data.inputs.shape) > _LARGE
    return jobs or (1 if is_large else session.jobs)


def _run_one(training: Training, folder: RunFolder) -> RunFolder:
    """Train a repeat in a separate process."""
    import_model(training.recipe.model)
    training.run(folder, Session(training.settings.device))
    return folder
