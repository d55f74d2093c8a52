"""Train and evaluate, in a run folder that can be left at any moment and gone on with."""

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy
import torch
from numpy.typing import NDArray

from spdnet import metrics
from spdnet.datasets import hold_out
from spdnet.datasets.readers import SPLITS
from spdnet.experiments import results
from spdnet.experiments.data import Matrices, Preprocessing, load_arrays, prepare
from spdnet.experiments.run_folder import RunFolder
from spdnet.experiments.settings import Settings
from spdnet.experiments.trained import Trained
from spdnet.training import Fabric, LabelledMatrices, Trainer, build, make_fabric
from spdnet.training.checkpoint import CheckpointError
from spdnet.training.device import threads_for
from spdnet.training.network import require_two

_SPECTRA_OF = 256  # matrices are enough for quantiles


class Watch:
    """What is told while a run goes on; this one keeps silent."""

    def say(self, text: str) -> None:
        """Something a person should know."""

    def file(self, done: int, total: int) -> None:
        """Files read."""

    def matrix(self, done: int, total: int) -> None:
        """Matrices looked at."""

    def begin(self, trainer: Trainer) -> None:
        """A training begins, or goes on."""

    def batch(self, trainer: Trainer, done: int, total: int) -> None:
        """A batch is done."""

    def epoch(self, trainer: Trainer) -> None:
        """An epoch is done, and saved."""

    def end(self) -> None:
        """The training is at its end, or was broken off."""


def train(
    settings: Settings,
    folder: RunFolder,
    *,
    resume: bool = False,
    watch: Watch | None = None,
    on_finished: Callable[[RunFolder], object] | None = None,
    fabric: Fabric | None = None,
) -> dict[str, Any]:
    """Train a network, or several, and evaluate.

    Nothing is written before the data have been read and found good. Of several processes that
    train together, the first one writes and tells, and evaluates at the end.

    Parameters
    ----------
    settings : Settings
        With ``resume`` those of the folder.
    folder : RunFolder
    resume : bool
        Go on with the run in the folder; a CPU run ends as if it had never been interrupted.
    watch : Watch, optional
    on_finished : callable, optional
        Called with each folder whose results are written, for example to write the report.
    fabric : Fabric, optional
        That has been launched, for several processes; one for ``settings.device`` when not given.

    Returns
    -------
    dict
        What is in ``results.json``; empty in all processes but the first.

    Raises
    ------
    ValueError, TypeError, OSError
        Of settings, data or files.
    FloatingPointError
        The loss is not finite; the last good checkpoint is kept.
    """
    fabric = make_fabric(settings.device) if fabric is None else fabric
    watch = Watch() if watch is None or not fabric.is_global_zero else watch
    if fabric.is_global_zero and not (resume or folder.numbered or folder.is_free):
        raise FileExistsError(
            f"train: expected a new folder, but {folder.path} is not empty; name another, or go on "
            "with the run in it with --resume"
        )
    arrays = load_arrays(settings.data, settings.labels, on_file=watch.file)
    preprocessing = Preprocessing.of(arrays, settings)
    data = prepare(arrays, preprocessing, settings.bad, settings.dtype, on_matrix=watch.matrix)
    del arrays
    if data.note:
        watch.say(data.note)
    for run in _repeats(settings):
        _divide(data, run)  # complain before anything is written
    dims = _dims(settings, preprocessing.n)
    settings = settings.with_absolute_paths()
    if fabric.is_global_zero:
        folder.create(replace(settings, dims=dims))
    fabric.barrier()  # from here on the others find what the first one has written
    common = (data, preprocessing, folder)
    with folder.locked() if fabric.is_global_zero else nullcontext():
        if settings.repeat == 1:
            return train_one(settings, *common, resume, watch, on_finished, fabric=fabric)
        return _train_many(settings, *common, watch, on_finished, fabric)


def _repeats(settings: Settings) -> list[Settings]:
    """The settings of each repeat: the same with the next seed."""
    return [replace(settings, repeat=1, seed=settings.seed + i) for i in range(settings.repeat)]


def _train_many(
    settings: Settings,
    data: Matrices,
    preprocessing: Preprocessing,
    folder: RunFolder,
    watch: Watch,
    on_finished: Callable[[RunFolder], object] | None,
    fabric: Fabric,
) -> dict[str, Any]:
    runs = _repeats(settings)
    found = []
    for i, run in enumerate(runs, 1):
        one = folder.of_seed(run.seed)
        finished, exists = one.finished, one.exists
        fabric.barrier()  # all have looked before one writes
        if finished:
            found.append(one.results())
            continue
        watch.say(f"repeat {i} of {settings.repeat}, seed {run.seed}")
        common = (data, preprocessing, one)
        found.append(train_one(run, *common, exists, watch, on_finished, fabric=fabric))
    if not fabric.is_global_zero:
        return {}
    summary = _summary(found, [run.seed for run in runs])
    folder.write_results(summary)
    if on_finished is not None:
        on_finished(folder)
    return summary


def train_one(
    settings: Settings,
    data: Matrices,
    preprocessing: Preprocessing,
    folder: RunFolder,
    resume: bool,
    watch: Watch,
    on_finished: Callable[[RunFolder], object] | None = None,
    *,
    curves: bool = False,
    judged: bool = True,
    fabric: Fabric | None = None,
) -> dict[str, Any]:
    """Train one network on data that are ready.

    With ``curves``, the test part is scored after each epoch, by which nothing is decided. What is
    not ``judged`` here needs no test part: it is judged elsewhere.
    """
    fabric = make_fabric(settings.device) if fabric is None else fabric
    recipe = settings.make_recipe()
    codes, parts, notes = _divide(data, settings)
    dims = _dims(settings, preprocessing.n)
    domains = _domains(data, parts["train"]) if recipe.takes_signals else []
    labelled = LabelledMatrices(data.tensor, torch.from_numpy(codes))
    where = {k: torch.from_numpy(data.index[v]) for k, v in parts.items()}
    own = {"digest": data.digest, "parts": where}
    if domains:
        codes_of_domains = data.domain_codes(domains)
        labelled = replace(labelled, domain=torch.from_numpy(codes_of_domains))
    pieces = {name: labelled.part(torch.from_numpy(index)) for name, index in parts.items()}
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
    trained = Trained(model, data.classes, preprocessing, recipe, own, domains)
    common = trained.state()
    watch.say(_introduction(data, parts, dims, settings))
    for note in notes if judged else ():
        watch.say(f"note: {note}")
    files = folder.checkpoints()
    going_on = resume and files.any()
    fabric.barrier()  # all have looked before one writes
    if fabric.is_global_zero:
        folder.create(replace(settings, dims=dims))
    if going_on:
        state, faults = files.load_last(needs=(*common, "trainer"))
        for fault in faults:
            watch.say(f"warning: {fault}; going on from the one before")
        _take_up(trainer, state, common, folder)
        fabric.barrier()  # all have read before one is set aside
        if faults and fabric.is_global_zero:
            files.set_aside_last()
        watch.say(f"going on after epoch {trainer.progress.epoch}")
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
        progress = trainer.run(save, watch.batch)
    finally:
        watch.end()
    if not fabric.is_global_zero:
        fabric.barrier()  # the first one has the results
        return {}
    folder.write_metrics(progress.history)  # killed between checkpoint and table
    with threads_for(preprocessing.n):
        found = _results(settings, data, codes, parts, trained, trainer, notes, watch)
    folder.write_results(found)
    if on_finished is not None:
        on_finished(folder)
    fabric.barrier()
    return found


def _divide(
    data: Matrices, settings: Settings
) -> tuple[NDArray[numpy.int64], dict[str, NDArray[numpy.int64]], list[str]]:
    """Classes as numbers, the indices of the parts, and what a reader should know about them."""
    assert data.y is not None  # the data were read with labels
    if len(data.classes) < 2:
        raise ValueError(f"train: expected at least two classes, got one: {data.classes[0]!r}")
    place = {name: i for i, name in enumerate(data.classes)}
    codes = numpy.array([place[label] for label in data.y])
    everything = numpy.arange(len(codes))
    if data.split is None:
        parts = {"train": everything, "val": everything[:0], "test": everything[:0]}
    else:
        parts = {name: numpy.flatnonzero(data.split == name) for name in SPLITS}
    fractions = settings.fractions(named_parts=data.split is not None)
    for offset, name in enumerate(("test", "val")):
        if len(parts[name]) == 0 and fractions[name] > 0:
            rest = parts["train"]
            groups = None if data.groups is None else data.groups[rest]
            held = hold_out(
                codes[rest], fractions[name], groups=groups, seed=2 * settings.seed + offset
            )
            parts["train"], parts[name] = rest[~held], rest[held]
    if len(parts["train"]) == 0:
        raise ValueError("train: expected matrices to train on, got none in the part 'train'")
    seen = set(codes[parts["train"]].tolist())
    if len(seen) < 2:
        raise ValueError(
            f"train: expected at least two classes to train on, got only "
            f"{data.classes[next(iter(seen))]!r} in the part 'train'"
        )
    notes = []
    if settings.patience is not None and len(parts["val"]) == 0:
        raise ValueError("train: expected validation data with patience, got none; set val above 0")
    missing = [name for i, name in enumerate(data.classes) if i not in seen]
    if missing:
        notes.append(
            f"{len(missing)} of {len(data.classes)} classes have no matrix to train on, such as "
            f"{missing[0]!r}"
        )
    if len(parts["test"]) == 0:
        notes.append(
            "there is no test part: the validation accuracy is that of the epoch that was chosen "
            "by it, and so optimistic"
            if len(parts["val"])
            else "there is neither a test part nor a validation part: the accuracy is that on the "
            "matrices of the training itself, and says nothing about others"
        )
    for name, fraction in fractions.items():
        share = len(parts[name]) / len(codes)
        if data.split is None and fraction > 0 and not 0.5 < share / fraction < 2:
            notes.append(
                f"the part {name!r} holds {100 * share:.1f} % of the matrices instead of "
                f"{100 * fraction:g} %, because classes or groups are few"
            )
    if data.groups is not None:
        sets = [set(data.groups[index].tolist()) for index in parts.values()]
        if sum(map(len, sets)) > len(set.union(*sets)):
            notes.append("some groups are in more than one part, as the split of the data has it")
    return codes, parts, notes


def _domains(data: Matrices, train: NDArray[numpy.int64]) -> list[str]:
    """The groups that are trained on, by name; none where the data have no groups."""
    if data.groups is None:
        return []
    return [str(group) for group in numpy.unique(data.groups[train]).tolist()]


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


def _introduction(
    data: Matrices,
    parts: dict[str, NDArray[numpy.int64]],
    dims: tuple[int, ...],
    settings: Settings,
) -> str:
    sizes = ", ".join(f"{len(index)} {name}" for name, index in parts.items() if len(index))
    chosen = " (chosen)" if settings.dims is None else ""
    n, network = data.X.shape[-1], settings.make_recipe().network
    what = f"matrices of {n} x {n}" if data.signals is None else f"signals of {n} channels"
    return (
        f"{len(data.X)} {what}, {len(data.classes)} classes: {sizes}\n"
        f"{network}, dims {','.join(map(str, dims))}{chosen}, recipe {settings.recipe}"
    )


def _take_up(
    trainer: Trainer, state: dict[str, Any], common: dict[str, Any], folder: RunFolder
) -> None:
    """Go on from the state of a checkpoint, which somebody may have made up."""
    try:
        difference = _difference(state, common, folder)
        if difference is None:
            trainer.load_state_dict(state["trainer"])
    except torch.OutOfMemoryError:
        raise
    except (LookupError, AttributeError, TypeError, RuntimeError, ValueError) as error:
        raise CheckpointError(
            f"train: expected the checkpoint of a training in {folder.path}, but what it holds "
            f"does not fit: {error or type(error).__name__}; start a new run"
        ) from error
    if difference is not None:
        raise ValueError(difference)


def _difference(state: dict[str, Any], common: dict[str, Any], folder: RunFolder) -> str | None:
    """Why a checkpoint is not of this training: it has other data, network or recipe."""
    if state["data"]["digest"] != common["data"]["digest"]:
        return (
            f"train: expected the data that the run in {folder.path} began with, got others; start "
            "a new run, or bring the data back"
        )
    for part in ("network", "recipe"):
        for name, value in state[part].items():
            if common[part].get(name) != value:
                return (
                    f"train: expected {name} = {value!r}, with which the run in {folder.path} "
                    f"began, got {common[part].get(name)!r} from {folder.settings_file.name}"
                )
    return None


def _results(
    settings: Settings,
    data: Matrices,
    codes: NDArray[numpy.int64],
    parts: dict[str, NDArray[numpy.int64]],
    trained: Trained,
    trainer: Trainer,
    notes: list[str],
    watch: Watch,
) -> dict[str, Any]:
    history = trainer.progress.history
    seconds = sum(row["seconds"] for row in history)
    scored = next(name for name in ("test", "val", "train") if len(parts[name]))
    trained.model.eval()
    started = time.perf_counter()
    logits = trained.logits(data)
    evaluation = time.perf_counter() - started
    found: dict[str, Any] = {
        "scored": scored,
        "parts": {k: results.score(logits[i], codes[i]) for k, i in parts.items() if len(i)},
        "classes": data.classes,
        **results.by_class(logits[parts[scored]], codes[parts[scored]], data.classes),
        "network": trained.recipe.network,
        "dims": list(trained.model.dims),
        "parameters": sum(p.numel() for p in trained.model.parameters()),
        "epochs": trainer.progress.epoch,
        "best_epoch": trainer.progress.best_epoch,
        "seconds": {"training": seconds, "evaluation": evaluation},
        "matrices_per_second": len(parts["train"]) * len(history) / seconds,
        "device": str(trainer.fabric.device),
        "orthonormality": results.orthonormality(trained.model),
        "notes": [*([data.note] if data.note else []), *notes],
        "baseline": None,
    }
    found["spectra"] = trained.spectra(data.some(parts[scored][:_SPECTRA_OF]))
    if settings.baseline:
        watch.say(f"fitting the {results.BASELINE} beside it")
        found["baseline"] = results.baseline(data.X, codes, parts)
        found["seconds"]["baseline"] = found["baseline"]["seconds"]
        if found["baseline"]["fitted"] < len(parts["train"]):
            found["notes"].append(
                f"the {results.BASELINE} was fitted to {found['baseline']['fitted']} of "
                f"{len(parts['train'])} matrices, as many as are held in memory"
            )
    return found


def _summary(found: list[dict[str, Any]], seeds: list[int]) -> dict[str, Any]:
    """Mean and deviation over the repeats."""
    scored = found[0]["scored"]

    def spread(values: list[float]) -> dict[str, Any]:
        return {**metrics.spread(values)._asdict(), "values": values}

    summary: dict[str, Any] = {
        "scored": scored,
        "seeds": seeds,
        "accuracy": spread([r["parts"][scored]["accuracy"] for r in found]),
        "seconds": spread([r["seconds"]["training"] for r in found]),
        "classes": found[0]["classes"],
        "network": found[0]["network"],
        "dims": found[0]["dims"],
        "confusion": numpy.sum([r["confusion"] for r in found], axis=0).tolist(),
        "notes": found[0]["notes"],
        "baseline": None,
    }
    if all(r["baseline"] for r in found):
        accuracy = spread([r["baseline"]["accuracy"][scored] for r in found])
        summary["baseline"] = {"name": found[0]["baseline"]["name"], "accuracy": accuracy}
    return summary
