"""Train and evaluate in a run folder; a run can be interrupted and resumed at any time."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import KW_ONLY, asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy
import torch

from spdnet._files import atomic_write
from spdnet.data import Dataset, Preprocessing, load_dataset, prepare
from spdnet.models.model import get_trait
from spdnet.models.registry import find_model, import_model
from spdnet.runs.checkpoints import Checkpoints
from spdnet.runs.divide import advice, describe, divide
from spdnet.runs.outcome import outcome
from spdnet.runs.parallel import default_jobs, run_parallel
from spdnet.runs.results import PART_TITLES, RepeatResults, RunResults, StoredChoice
from spdnet.runs.run_folder import RunFolder
from spdnet.runs.session import Session
from spdnet.runs.settings import Settings
from spdnet.runs.trained_model import TrainedModel
from spdnet.runs.watch import Terminated, Watch
from spdnet.training import InputScale, Samples, Trainer, build, choose_members
from spdnet.training.data import as_tensor
from spdnet.training.device import threads_for
from spdnet.training.recipe import NETWORK_OPTIONS, require_taken

if TYPE_CHECKING:
    from spdnet.training.device import Fabric

_LARGE = 2**30  # bytes: each process has a copy of the data


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
        Resume the run in the folder. A CPU run ends as if it had not been interrupted.
    watch : Watch, optional
        Receives messages. If its ``stop`` is requested, a checkpoint is written.
    on_finished : callable, optional
        Called with each folder whose results are written, for example to write the report.
    fabric : Fabric, optional
        Launched Fabric, for several processes.

    Returns
    -------
    RunResults or RepeatResults or None
        Contents of ``results.json``; None in all processes but the first.

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
    session = Session(settings.device, watch=watch, on_finished=on_finished, fabric=fabric)
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
        first.model  # noqa: B018, built before anything is written
    settings = settings.changed(dims=first.settings.dims)
    session.first(folder.claim)
    with folder.locked() if session.is_first else nullcontext():
        session.first(lambda: _begin(settings, folder, data.digest, resume))
        session.barrier()
        if alone:
            return first.run(folder, session)
        found = _run_all(trainings, folder, session, settings.jobs)
        if found is not None:
            session.finish(folder, found)
        return found


@dataclass
class Training:
    """One training on prepared data: split, build, fit, evaluate, write.

    The split is made at construction, the network when it is first used.
    """

    settings: Settings
    data: Dataset
    preprocessing: Preprocessing
    _: KW_ONLY
    alone: bool = False  # advise repeating the run
    notes: bool = True  # show notes about the test part
    curves: bool = False  # evaluate the test part after each epoch

    def __post_init__(self) -> None:
        self.recipe = self.settings.make_recipe()
        self.split = divide(self.data, self.settings)
        self.choice: StoredChoice | None = None
        self.chosen = self.settings.dims is None
        self.settings = self.settings.changed(dims=self._dims(self.settings.dims))

    @cached_property
    def domains(self) -> list[str]:
        """Groups of the training part, for a model that uses them."""
        if not self.recipe.uses_domains or self.data.groups is None:
            return []
        groups = numpy.unique(self.data.groups[self.split.parts["train"]])
        return [str(group) for group in groups.tolist()]

    @cached_property
    def samples(self) -> dict[str, Samples]:
        """The training, validation and test parts."""
        all_samples = Samples(as_tensor(self.data.inputs), torch.from_numpy(self.split.codes))
        if self.domains:
            codes = torch.from_numpy(self.data.group_codes(self.domains))
            all_samples = replace(all_samples, domain=codes)
        index = {name: torch.from_numpy(i) for name, i in self.split.parts.items()}
        parts = {name: all_samples.take(i) for name, i in index.items()}
        if self.settings.class_weight == "balanced":  # the test part has no weights
            weight = torch.from_numpy(self.split.balanced_weights).to(all_samples.X.dtype)
            for name in ("train", "val"):
                parts[name] = replace(parts[name], weight=weight[index[name]])
        return parts

    @cached_property
    def model(self) -> torch.nn.Module:
        """The network, with random weights at first."""
        settings, train = self.settings, self.samples["train"]
        n_classes = len(self.data.classes)
        if self.recipe.members is not None:
            self.recipe = self.recipe.changed(n_samples=len(train))
        return build(self.recipe, settings.dims or (), n_classes, train, seed=settings.seed)

    def run(self, folder: RunFolder, session: Session) -> RunResults | None:
        """Train or resume, evaluate and write the results; return them in the first process."""
        if self.recipe.needs_choice:
            self._choose(folder, session)
        trainer = self._trainer(session)
        trained = self._trained_model()
        more = advice(self.split, self.settings, self.model, alone=self.alone)
        reasons = [] if self.choice is None else [self.choice.describe()]
        notes = [*reasons, *self.split.notes, *more]
        self._introduce(session.watch, notes)
        identity = self.settings.identity(self.data.digest)
        checkpoints = Checkpoints(
            folder, trainer, {**trained.state(), "identity": identity}, session
        )
        session.first(lambda: folder.create(self.settings, self.data.digest))
        checkpoints.start()
        watch = session.watch
        watch.begin(trainer)
        try:
            with watch.stop.deferred():
                trainer.run(checkpoints.save_epoch, watch.batch, lambda: watch.stop.is_made)
        finally:
            watch.end()
        if not trainer.finished:
            checkpoints.save_partial()
            raise Terminated
        found = None
        if session.is_first:
            folder.write_metrics(trainer.progress.history)  # killed between checkpoint and table
            with threads_for(self.preprocessing.n):
                found = outcome(self, trained, trainer, notes, watch)
            session.finish(folder, found)
        session.barrier()
        return found

    def _choose(self, folder: RunFolder, session: Session) -> None:
        """Choose the members of the portfolio, or read the choice of an interrupted run."""
        watch, train = session.watch, self.samples["train"]
        if (found := session.look(lambda: _read_choice(folder, watch))) is None:
            watch.say(f"{self.described}\ncomparing networks by cross-validation")
            session.first(lambda: folder.create(self.settings, self.data.digest))
            groups = self.data.groups
            choice = choose_members(
                self.recipe,
                train,
                len(self.data.classes),
                groups=None if groups is None else groups[self.split.parts["train"]],
                seed=self.settings.seed,
                fabric=session.fabric,
                on_batch=lambda done, total: watch.count("comparing", done, total),
            )
            text = (found := StoredChoice(**asdict(choice))).to_text()
            session.first(lambda: atomic_write(folder.choice_file, text))
            session.barrier()
        self.recipe = self.recipe.changed(members=found.members)
        self.choice = found

    def _trainer(self, session: Session) -> Trainer:
        parts = {name: part for name, part in self.samples.items() if len(part)}
        return Trainer(
            self.model,
            parts["train"],
            self.recipe,
            val=parts.get("val"),
            test=parts.get("test") if self.curves else None,
            patience=self.settings.patience,
            seed=self.settings.seed,
            fabric=session.fabric,
            index=torch.from_numpy(self.data.index[self.split.parts["train"]]),
        )

    def _trained_model(self) -> TrainedModel:
        data, preprocessing = self.data, self.preprocessing
        index = {k: torch.from_numpy(data.index[v]) for k, v in self.split.parts.items()}
        return TrainedModel(
            self.model,
            data.classes,
            preprocessing,
            self.recipe,
            {"digest": data.digest, "digest_of_inputs": data.inputs_digest, "parts": index},
            self.domains,
            InputScale.of(self.samples["train"].X, signals=preprocessing.raw),
            bad=self.settings.bad,
        )

    def _introduce(self, watch: Watch, notes: list[str]) -> None:
        network = self.recipe.network
        if self.settings.dims is not None:
            network += f", dims {','.join(map(str, self.settings.dims))}"
            network += " (chosen)" if self.chosen else ""
        line = f"{network}, recipe {self.settings.recipe_name}"
        watch.say(line if self.choice else f"{self.described}\n{line}")
        for note in notes if self.notes else ():
            watch.say(f"note: {note}")

    @property
    def described(self) -> str:
        """Description of the data and their split."""
        return describe(self.data, self.preprocessing, self.split)

    def _dims(self, dims: tuple[int, ...] | None) -> tuple[int, ...] | None:
        n, recipe = self.preprocessing.n, self.recipe
        if dims is None:
            return get_trait(find_model(recipe.model), "choose_dims")(n) or None
        if not recipe.takes_signals and dims[0] != n:
            raise ValueError(
                f"train: expected dims to begin with the size of the matrices, {n}, got "
                f"{','.join(map(str, dims))}"
            )
        return dims


def _read_choice(folder: RunFolder, watch: Watch) -> StoredChoice | None:
    """Return the choice of an interrupted run; None if there is none, or if it is damaged."""
    if not folder.choice_file.is_file():
        return None
    try:
        return StoredChoice.load(folder.choice_file, "")
    except ValueError as error:
        watch.say(f"warning: {error}; comparing networks again")
        return None


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
    data = prepare(arrays, preprocessing, settings.bad, settings.dtype, on_matrix=watch.matrix)
    if data.note:
        watch.say(data.note)
    return data, preprocessing


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
    if settings.repeat > 1:  # a single training writes its own
        folder.create(settings, digest)


def _run_all(
    trainings: list[Training], folder: RunFolder, session: Session, jobs: int | None
) -> RepeatResults | None:
    """Train all repeats that are not finished; return their summary in the first process."""
    seeds, watch = [training.settings.seed for training in trainings], session.watch
    n_jobs = _jobs(jobs, trainings[0].data, session)
    unfinished: list[tuple[Training, RunFolder]] = []
    for seed in seeds:
        training, one = trainings.pop(0), folder.of_seed(seed)
        finished, exists = session.look(lambda: (one.finished, one.exists))  # noqa: B023
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
    if jobs is not None and n_jobs > 1:  # no training will introduce itself here
        watch.say(f"{unfinished[0][0].described}; {n_left} repeats in {n_jobs} processes")
        watch.working(f"{n_left} repeats left")
    # a training that is done is not kept
    given = (unfinished.pop(0) for _ in range(len(unfinished)))
    for one in run_parallel(_run_one, given, n_jobs, here=run_here, at_once=jobs is not None):
        n_left -= 1
        if one is not None:  # trained in another process
            results = one.run_results()
            title, accuracy = PART_TITLES[results.scored], 100 * results.accuracy
            watch.say(f"{one.path.name}: {title.lower()} accuracy {accuracy:.2f} %")
            watch.working(f"{n_left} repeats left")
            session.on_finished(one)
    if not session.is_first:
        return None
    return RepeatResults.of([folder.of_seed(seed).run_results() for seed in seeds], seeds)


def _jobs(jobs: int | None, data: Dataset, session: Session) -> int:
    """Return the number of processes for the repeats."""
    if session.fabric.world_size > 1:
        return 1
    is_large = 8 * math.prod(data.inputs.shape) > _LARGE
    return jobs or (1 if is_large or session.fabric.device.type != "cpu" else default_jobs())


def _run_one(training: Training, folder: RunFolder) -> RunFolder:
    """Train a repeat in a process of its own."""
    import_model(training.recipe.model)
    training.run(folder, Session(training.settings.device))
    return folder
