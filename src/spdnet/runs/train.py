"""Train and evaluate in a run folder; a run can be interrupted and resumed at any time."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy
import torch

from spdnet.data import Dataset, Preprocessing, load_dataset, prepare
from spdnet.runs.divide import advice, describe, divide
from spdnet.runs.outcome import outcome
from spdnet.runs.results import RepeatResults, RunResults
from spdnet.runs.resume import resume_training
from spdnet.runs.run_folder import RunFolder
from spdnet.runs.settings import Settings
from spdnet.runs.trained_model import TrainedModel
from spdnet.runs.watch import Terminated, Watch
from spdnet.training import InputScale, LabelledMatrices, Trainer, build, make_fabric
from spdnet.training.data import as_tensor
from spdnet.training.device import threads_for
from spdnet.training.network import require_two

if TYPE_CHECKING:
    from spdnet.training import Fabric

__all__ = ["Watch", "train", "train_one"]


def train(
    settings: Settings,
    folder: RunFolder,
    *,
    resume: bool = False,
    watch: Watch | None = None,
    on_finished: Callable[[RunFolder], object] | None = None,
    fabric: "Fabric | None" = None,
) -> RunResults | RepeatResults | None:
    """Train a network, or several, and evaluate.

    Nothing is written before the data have been read and found good. Of several processes that
    train together, the first one writes and tells, and evaluates at the end.

    Parameters
    ----------
    settings : Settings
        With ``resume``, those of the folder, or those with more ``epochs`` to extend the run.
    folder : RunFolder
    resume : bool
        Resume the run in the folder; a CPU run ends as if it had never been interrupted.
    watch : Watch, optional
    on_finished : callable, optional
        Called with each folder whose results are written, for example to write the report.
    fabric : Fabric, optional
        That has been launched, for several processes; one for ``settings.device`` when not given.

    Returns
    -------
    RunResults or RepeatResults
        The contents of ``results.json``; None in all processes but the first.

    Raises
    ------
    ValueError, TypeError, OSError
        Of settings, data or files.
    FloatingPointError
        The loss is not finite; the last good checkpoint is kept.
    Terminated
        ``watch.stop`` was requested; a checkpoint has been written.

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
    fabric = make_fabric(settings.device) if fabric is None else fabric
    watch = Watch() if watch is None else watch
    watch = watch if fabric.is_global_zero else Watch(watch.stop)
    if fabric.is_global_zero and not (resume or folder.numbered):
        folder.require_free()
    arrays = load_dataset(settings.data, settings.labels, settings.groups, on_file=watch.file)
    preprocessing = Preprocessing.of(
        arrays,
        estimator=settings.estimator,
        reg=settings.reg,
        signals=settings.signals,
        model=settings.model if settings.make_recipe().takes_signals else None,
    )
    data = prepare(arrays, preprocessing, settings.bad, settings.dtype, on_matrix=watch.matrix)
    del arrays
    if data.note:
        watch.say(data.note)
    for run in _repeats(settings):
        divide(data, run)  # complain before anything is written
    dims = _dims(settings, preprocessing.n)
    settings = settings.with_absolute_paths()
    if fabric.is_global_zero:
        folder.claim()
    common = (data, preprocessing, folder)
    with folder.locked() if fabric.is_global_zero else nullcontext():
        if fabric.is_global_zero:
            _begin(settings.changed(dims=dims), folder, data.digest, resume)
        fabric.barrier()  # from here on the others find what the first one has written
        if settings.repeat == 1:
            return train_one(settings, *common, resume, watch, on_finished, fabric=fabric)
        return _train_many(settings, *common, watch, on_finished, fabric)


def _begin(settings: Settings, folder: RunFolder, digest: str, resume: bool) -> None:
    """Write the settings of a new run, or compare them with those of the run to resume.

    The folder is locked: another process may have used it while this one read its data.
    """
    if not resume:
        folder.require_free()
    elif folder.exists:
        began = folder.settings()
        folder.require_same(began, digest)  # it may have been edited
        epochs = settings.make_recipe().epochs
        if epochs > began.make_recipe().epochs or settings.paths() != began.paths():
            for one in (*folder.seeds(), folder):
                changes = {"epochs": epochs, **settings.paths()}
                one.replace_settings(one.settings().changed(**changes), digest)
        folder.require_same(settings, digest)
    folder.create(settings, digest)


def _repeats(settings: Settings) -> list[Settings]:
    """Return the settings of each repeat, with consecutive seeds."""
    return [settings.changed(repeat=1, seed=settings.seed + i) for i in range(settings.repeat)]


def _train_many(
    settings: Settings,
    data: Dataset,
    preprocessing: Preprocessing,
    folder: RunFolder,
    watch: Watch,
    on_finished: Callable[[RunFolder], object] | None,
    fabric: "Fabric",
) -> RepeatResults | None:
    runs = _repeats(settings)
    found = []
    for i, run in enumerate(runs, 1):
        one = folder.of_seed(run.seed)
        finished, exists = one.finished, one.exists
        fabric.barrier()  # all have looked before one writes
        if exists:
            one.require_same(run.changed(dims=_dims(run, preprocessing.n)), data.digest)
        if finished:
            found.append(one.run_results())
            continue
        watch.say(f"repeat {i} of {settings.repeat}, seed {run.seed}")
        common = (data, preprocessing, one)
        one_found = train_one(run, *common, exists, watch, on_finished, alone=False, fabric=fabric)
        if one_found is not None:
            found.append(one_found)
    if not fabric.is_global_zero:
        return None
    together = RepeatResults.of(found, [run.seed for run in runs])
    folder.write_results(together)
    if on_finished is not None:
        on_finished(folder)
    return together


def train_one(
    settings: Settings,
    data: Dataset,
    preprocessing: Preprocessing,
    folder: RunFolder,
    resume: bool,
    watch: Watch,
    on_finished: Callable[[RunFolder], object] | None = None,
    *,
    curves: bool = False,
    judged: bool = True,
    alone: bool = True,
    fabric: "Fabric | None" = None,
) -> RunResults | None:
    """Train one network on prepared data.

    With ``curves``, the test part is scored after each epoch; nothing is decided by it. With
    ``judged=False``, notes about the test part are omitted, since it is scored elsewhere. With
    ``alone=False``, the run is one of several, and the advice to repeat it is omitted.
    """
    fabric = make_fabric(settings.device) if fabric is None else fabric
    recipe = settings.make_recipe()
    division = divide(data, settings)
    parts = division.parts
    dims = _dims(settings, preprocessing.n)
    notes = [*division.notes, *advice(division, dims, settings, alone=alone)]
    known = []
    if recipe.takes_signals and data.groups is not None:
        known = [str(group) for group in numpy.unique(data.groups[parts["train"]]).tolist()]
    labelled = LabelledMatrices(as_tensor(data.inputs), torch.from_numpy(division.codes))
    if known:
        labelled = replace(labelled, domain=torch.from_numpy(data.group_codes(known)))
    where = {k: torch.from_numpy(data.index[v]) for k, v in parts.items()}
    own = {"digest": data.digest, "digest_of_inputs": data.inputs_digest, "parts": where}
    pieces = {name: labelled.part(torch.from_numpy(index)) for name, index in parts.items()}
    if settings.class_weight == "balanced":  # the test part is scored as it is
        weight = torch.from_numpy(division.balanced_weights).to(labelled.X.dtype)
        for name in ("train", "val"):
            pieces[name] = replace(pieces[name], weight=weight[torch.from_numpy(parts[name])])
    model = build(recipe, dims, len(data.classes), pieces["train"], seed=settings.seed)
    trainer = Trainer(
        model,
        pieces["train"],
        recipe,
        val=pieces["val"] if len(pieces["val"]) else None,
        test=pieces["test"] if curves and len(pieces["test"]) else None,
        patience=settings.patience,
        seed=settings.seed,
        fabric=fabric,
        index=torch.from_numpy(data.index[parts["train"]]),
    )
    scale = InputScale.of(pieces["train"].X, signals=preprocessing.raw)
    trained = TrainedModel(
        model, data.classes, preprocessing, recipe, own, known, scale, bad=settings.bad
    )
    full = settings.changed(dims=dims)
    common = {**trained.state(), "identity": full.identity(data.digest)}
    chosen = " (chosen)" if settings.dims is None else ""
    watch.say(
        f"{describe(data, preprocessing, division)}\n"
        f"{recipe.network}, dims {','.join(map(str, dims))}{chosen}, recipe {settings.recipe}"
    )
    for note in notes if judged else ():
        watch.say(f"note: {note}")
    files = folder.checkpoints()
    going_on = resume and files.any()
    fabric.barrier()  # all have looked before one writes
    if fabric.is_global_zero:
        folder.create(full, data.digest)
    if going_on:
        state, faults = files.load_last(needs=(*common, "trainer"))
        for fault in faults:
            watch.say(f"warning: {fault}; resuming from the previous one")
        resume_training(trainer, state, common, folder)
        fabric.barrier()  # all have read before one is set aside
        if faults and fabric.is_global_zero:
            files.set_aside_last()
        watch.say(f"resuming {_position(trainer)}")
    elif fabric.is_global_zero:
        files.save_last({**common, "trainer": trainer.state_dict()})

    def save(trainer: Trainer) -> None:
        progress = trainer.progress
        if not fabric.is_global_zero:
            return
        if progress.best_epoch == progress.epoch:
            files.save_best({**common, "model": model.state_dict(), "epoch": progress.epoch})
        files.save_last({**common, "trainer": trainer.state_dict()})
        folder.write_metrics(progress.history)
        watch.epoch(trainer)

    watch.begin(trainer)
    try:
        with watch.stop.deferred():
            progress = trainer.run(save, watch.batch, lambda: watch.stop.is_made)
    finally:
        watch.end()
    if not trainer.finished:
        if fabric.is_global_zero:
            files.save_last({**common, "trainer": trainer.state_dict()})
            watch.say(f"checkpoint written {_position(trainer)}")
        raise Terminated
    if not fabric.is_global_zero:
        fabric.barrier()  # the first one has the results
        return None
    folder.write_metrics(progress.history)  # killed between checkpoint and table
    with threads_for(preprocessing.n):
        found = outcome(settings, data, division, trained, trainer, notes, watch)
    folder.write_results(found)
    if on_finished is not None:
        on_finished(folder)
    fabric.barrier()
    return found


def _position(trainer: Trainer) -> str:
    """Describe how far a training has come."""
    text = f"after epoch {trainer.progress.epoch}"
    partial = trainer.progress.partial
    return text if partial is None else f"{text}, batch {partial.batches}"


def _dims(settings: Settings, n: int) -> tuple[int, ...]:
    recipe = settings.make_recipe()
    if settings.dims is None:
        return recipe.choose_dims(n)
    if recipe.takes_signals:
        require_two("train", settings.dims)
    elif settings.dims[0] != n:
        raise ValueError(
            f"train: expected dims to begin with the size of the matrices, {n}, got "
            f"{','.join(map(str, settings.dims))}"
        )
    elif len(settings.dims) == 1 and (recipe.model != "spdnet" or recipe.norm is not None):
        raise ValueError(
            f"train: expected a BiMap, dims such as {n},{n}, for {recipe.network}, got dims {n}"
        )
    return settings.dims
