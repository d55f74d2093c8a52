"""Train and evaluate in a run folder; a run can be interrupted and resumed at any time."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING

from spdnet.data import Dataset, Preprocessing, load_dataset, prepare
from spdnet.models.registry import import_model
from spdnet.runs.conditioning import accepts_singular
from spdnet.runs.repeats import run_repeats
from spdnet.runs.results import RepeatResults, RunResults
from spdnet.runs.run_folder import RunFolder
from spdnet.runs.session import Session
from spdnet.runs.settings import Settings
from spdnet.runs.training import Training
from spdnet.runs.watch import Watch
from spdnet.training.recipe import NETWORK_OPTIONS, require_taken

if TYPE_CHECKING:
    from spdnet.training.device import Fabric


def train(
    settings: Settings,
    folder: RunFolder,
    *,
    resume: bool = False,
    watch: Watch | None = None,
    on_finished: Callable[[RunFolder], object] = lambda folder: None,
    fabric: "Fabric | None" = None,
) -> RunResults | RepeatResults | None:
    """Train one or several networks, and evaluate them.

    Nothing is written before the data are validated and the network is built. Of several
    processes, the first one writes files and messages, and evaluates.

    Parameters
    ----------
    settings : Settings
        Settings of the run. With ``resume``, those of the folder; a larger ``epochs`` extends the
        run. A model ``package.module:Class`` is imported.
    folder : RunFolder
    resume : bool
        Resume the run in the folder. On a CPU, the results are as without the interruption.
    watch : Watch, optional
        Receives messages. If its ``stop`` is requested, a checkpoint is written.
    on_finished : callable, optional
        Called with each folder whose results are written, for example to write the report.
    fabric : Fabric, optional
        Launched Fabric, for several processes.

    Returns
    -------
    RunResults or RepeatResults or None
        Contents of ``results.json``; None in all processes except the first.

    Examples
    --------
    >>> import tempfile
    >>> from spdnet.runs import RunFolder, Settings, train
    >>> settings = Settings(data="digits", epochs=1, dims=(17, 8), device="cpu", baseline=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = train(settings, RunFolder(f"{folder}/run"))
    >>> found.parts["test"].n
    359
    """
    session = Session(
        settings.device, watch=watch, on_finished=on_finished, fabric=fabric, jobs=settings.jobs
    )
    if not (resume or folder.numbered):
        session.first(folder.require_free)
    import_model(settings.make_recipe().model)
    data, preprocessing = _load(settings, session.watch)
    settings = settings.with_absolute_paths()
    alone = settings.repeat == 1
    seeds = range(settings.seed, settings.seed + settings.repeat)
    each = [settings.changed(repeat=1, seed=seed) for seed in seeds]
    trainings = [Training(one, data, preprocessing, alone=alone) for one in each]
    first = trainings[0]
    if not first.recipe.needs_choice:
        first.model  # noqa: B018, build the network before writing anything
    settings = settings.changed(dims=first.settings.dims)
    session.first(folder.claim)
    with folder.locked() if session.is_first else nullcontext():
        session.first(lambda: _begin(settings, folder, data.digest, resume))
        session.barrier()
        if alone:
            return first.run(folder, session)
        found = run_repeats(trainings, folder, session, settings.jobs)
        if found is not None:
            folder.write_results(found)
            on_finished(folder)
        return found


def _load(settings: Settings, watch: Watch) -> tuple[Dataset, Preprocessing]:
    """Read and validate the data."""
    recipe = settings.make_recipe()
    require_taken(
        "train", recipe.model, {name: getattr(settings, name) for name in NETWORK_OPTIONS}
    )
    arrays = load_dataset(settings.data, settings.labels, settings.groups, on_file=watch.file)
    preprocessing = Preprocessing.of(
        arrays,
        estimator=settings.estimator,
        reg=settings.reg,
        signals=settings.signals,
        model=recipe.model if recipe.takes_signals else None,
    )
    data = prepare(
        arrays,
        preprocessing,
        settings.bad,
        settings.dtype,
        singular=accepts_singular(arrays, settings) and not preprocessing.raw,
        missing=not preprocessing.raw,
        on_matrix=watch.matrix,
    )
    if data.note:
        watch.say(f"note: {data.note}")
    return data, preprocessing


def _begin(settings: Settings, folder: RunFolder, digest: str, resume: bool) -> None:
    """Write the settings of a new run, or compare them with those of the run to resume.

    The folder is locked: another process may have used it while this one read its data.
    """
    if not resume:
        folder.require_free()
    elif folder.exists:
        original = folder.settings()
        folder.require_same(original, digest)  # settings.toml may have been edited
        epochs = settings.make_recipe().epochs
        if epochs > original.make_recipe().epochs or settings.paths() != original.paths():
            for one in (*folder.seeds(), folder):
                changes = {"epochs": epochs, **settings.paths()}
                one.replace_settings(one.settings().changed(**changes), digest)
        folder.require_same(settings, digest)
    if settings.repeat > 1:  # a single training writes its own settings
        folder.create(settings, digest)
