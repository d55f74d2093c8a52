"""One training run: split, build, fit, evaluate, write; it can be interrupted and resumed."""

import time
from dataclasses import KW_ONLY, asdict, dataclass, replace
from functools import cached_property
from typing import cast

import numpy
import torch

from spdnet._precision import real_dtype
from spdnet.data import Dataset, Preprocessing, Split, make_split
from spdnet.models.model import dims_of, get_trait
from spdnet.models.registry import find_model
from spdnet.nn import ReEig
from spdnet.runs import findings, scores
from spdnet.runs.bad_trials import screen_trials
from spdnet.runs.checkpoints import Checkpoints
from spdnet.runs.conditioning import fit_conditioner, is_incomplete, transform
from spdnet.runs.confusion import Confusion
from spdnet.runs.results import Part, RunResults, Seconds, StoredChoice
from spdnet.runs.run_folder import RunFolder
from spdnet.runs.session import Session
from spdnet.runs.settings import Settings
from spdnet.runs.trained_model import TrainedModel
from spdnet.runs.watch import Terminated, Watch
from spdnet.training import RECIPES, InputScale, Samples, Trainer, build, choose_members
from spdnet.training.data import as_tensor
from spdnet.training.device import threads_for

#: minimum number of matrices for spectra; more are used if they are small
_MIN_SPECTRA = 256
_SPECTRA_ENTRIES = 2**21


@dataclass
class Training:
    """One training on prepared data.

    The split is made at construction, the network when it is first used.
    """

    settings: Settings
    data: Dataset
    preprocessing: Preprocessing
    _: KW_ONLY
    alone: bool = False  # recommend repeating the run
    notes: bool = True  # show notes about the test part
    curves: bool = False  # evaluate the test part after each epoch

    def __post_init__(self) -> None:
        self.recipe = self.settings.make_recipe()
        split, treatment = divide(self.data, self.settings), self.settings.bad_trials
        self.conditioner = fit_conditioner("train", self.data, split, self.settings)
        incomplete = is_incomplete(self.data, self.conditioner)
        self.data, on_groups = transform(self.conditioner, self.data)
        screened = screen_trials(self.data, split, treatment, incomplete)
        self.split, self.bad_trials, on_trials = screened
        self._on_data = [*split.notes, *self.conditioner.notes_, *on_groups, *on_trials]
        self.choice: StoredChoice | None = None
        dims, n = self.settings.dims, self.data.inputs.shape[1]
        self.chosen = dims is None
        if dims is None:
            dims = get_trait(find_model(self.recipe.model), "choose_dims")(n) or None
        elif not self.recipe.takes_signals and dims[0] != n:
            raise ValueError(
                f"train: expected dims to begin with the size of the matrices, {n}, got "
                f"{','.join(map(str, dims))}"
            )
        self.settings = self.settings.changed(dims=dims)

    @property
    def described(self) -> str:
        """Description of the data and their split."""
        data, what = self.data, self.preprocessing.describe(len(self.data))
        return f"{what}, {len(data.classes)} classes: {self.split.sizes}"

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
        samples = Samples(as_tensor(self.data.inputs), torch.from_numpy(self.split.codes))
        if self.domains:
            codes = torch.from_numpy(self.data.group_codes(self.domains))
            samples = replace(samples, domain=codes)
        if self.settings.class_weight == "balanced":
            weight = torch.from_numpy(self.split.balanced_weights)
            samples = replace(samples, weight=weight.to(real_dtype(samples.X.dtype)))
        parts = {k: samples.take(torch.from_numpy(i)) for k, i in self.split.parts.items()}
        return {**parts, "test": replace(parts["test"], weight=None)}

    @cached_property
    def model(self) -> torch.nn.Module:
        """The network, initially with random weights."""
        settings, train = self.settings, self.samples["train"]
        n_classes = len(self.data.classes)
        if self.recipe.members is not None:
            self.recipe = self.recipe.changed(n_samples=len(train))
        return build(self.recipe, settings.dims or (), n_classes, train, seed=settings.seed)

    def run(self, folder: RunFolder, session: Session) -> RunResults | None:
        """Train or resume, evaluate and write the results; return them in the first process."""
        watch, digest = session.watch, self.data.digest
        if self.recipe.needs_choice:
            self._choose(folder, session)
        trainer = self._trainer(session)
        trained = self._trained_model()
        notes = self._notes()
        self._print_description(watch, notes)
        common = {**trained.state(), "identity": self.settings.identity(digest)}
        checkpoints = Checkpoints(folder, trainer, common, session)
        session.first(lambda: folder.create(self.settings, digest))
        checkpoints.start()
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
            # a process that was killed may have written only the checkpoint
            folder.write_metrics(trainer.progress.history)
            with threads_for(trained.size):
                found = self._evaluate(trained, trainer, notes, watch)
            folder.write_results(found)
            session.on_finished(folder)
        session.barrier()
        return found

    def _choose(self, folder: RunFolder, session: Session) -> None:
        """Choose the members of the portfolio, or read the choice of an interrupted run."""
        watch = session.watch
        if (found := session.read_before_writing(lambda: _read_choice(folder, watch))) is None:
            watch.say(f"{self.described}\ncomparing networks by cross-validation")
            session.first(lambda: folder.create(self.settings, self.data.digest))
            groups = self.data.groups
            choice = choose_members(
                self.recipe,
                self.samples["train"],
                len(self.data.classes),
                groups=None if groups is None else groups[self.split.parts["train"]],
                seed=self.settings.seed,
                fabric=session.fabric,
                jobs=session.jobs,
                on_batch=lambda done, total: watch.count("comparing networks: batch", done, total),
            )
            found = stored = StoredChoice(**asdict(choice))
            session.first(lambda: stored.write(folder.choice_file))
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
            self.conditioner,
            bad=self.settings.bad,
        )

    def _notes(self) -> list[str]:
        """Return a description of the choice, and notes about the split and the settings."""
        split, eps = self.split, self.settings.eps
        found = [*([] if self.choice is None else [self.choice.describe()]), *self._on_data]
        if self.alone and split.groups.get(split.scored) == 1 and split.scored != "train":
            found.append(findings.one_group(split.scored, drawn=split.drawn))
        is_changed = eps not in (None, RECIPES[self.settings.recipe_name].eps)
        if is_changed and not any(isinstance(layer, ReEig) for layer in self.model.modules()):
            found.append(findings.NO_EFFECT)
        return found

    def _print_description(self, watch: Watch, notes: list[str]) -> None:
        network = self.recipe.network
        if self.settings.dims is not None:
            network += f", dims {','.join(map(str, self.settings.dims))}"
            network += " (chosen)" if self.chosen else ""
        line = f"{network}, recipe {self.settings.recipe_name}"
        watch.say(line if self.choice else f"{self.described}\n{line}")
        for note in notes if self.notes else ():
            watch.say(f"note: {note}")

    def _evaluate(
        self, trained: TrainedModel, trainer: Trainer, notes: list[str], watch: Watch
    ) -> RunResults:
        """Score the network and the baseline on all parts, and compute spectra and times."""
        data, split, progress = self.data, self.split, trainer.progress
        codes, parts, scored = split.codes, split.parts, cast(Part, split.scored)
        trained.model.eval()
        started = time.perf_counter()
        logits = trained.logits(data)
        evaluation = time.perf_counter() - started
        confusion = Confusion.of(
            codes[parts[scored]], logits[parts[scored]].argmax(-1).numpy(), len(data.classes)
        )
        n_spectra = max(_MIN_SPECTRA, _SPECTRA_ENTRIES // trained.size**2)
        seen, learned = parts[scored][:n_spectra], parts["train"][:n_spectra]
        in_training = trained.spectra(data.take(learned))
        baseline = None
        if self.settings.baseline:
            watch.say(f"fitting the baseline, {scores.BASELINE}")
            baseline = scores.baseline(data, split)
        seconds = sum(row["seconds"] for row in progress.history)
        found = RunResults(
            data=self.described,
            signals=self.preprocessing.signals,
            scored=scored,
            parts={
                cast(Part, name): scores.score(logits[i], codes[i], split.groups.get(name))
                for name, i in parts.items()
                if len(i)
            },
            chance=split.chance,
            classes=tuple(data.classes),
            confusion=confusion,
            per_class=confusion.per_class(data.classes),
            network=self.recipe.network,
            dims=dims_of(self.model),
            parameters=sum(p.numel() for p in self.model.parameters()),
            epochs=progress.epoch,
            best_epoch=progress.best_epoch,
            seconds=Seconds(seconds, evaluation, None if baseline is None else baseline.seconds),
            matrices_per_second=len(parts["train"]) * len(progress.history) / seconds,
            device=str(trainer.fabric.device),
            orthonormality=scores.orthonormality(self.model),
            spectra_of=len(seen),
            spectra=trained.spectra(data.take(seen)),
            raised_in_training=tuple(row.clipped for row in in_training if row.clipped is not None),
            raised_of=len(learned),
            baseline=baseline,
            choice=self.choice,
            bad_trials=self.bad_trials,
        )
        notes = [*([data.note] if data.note else []), *notes]
        can_center = "center" in get_trait(self.model, "hyperparameters")
        if text := findings.flattened(found, self.recipe.eps, can_center=can_center):
            notes.append(text)
            watch.say(f"note: {text}")
        if baseline is not None and baseline.fitted < len(parts["train"]):
            notes.append(
                f"the {scores.BASELINE} was fitted to {baseline.fitted} of {len(parts['train'])} "
                "matrices, as many as fit in memory"
            )
        return replace(
            found,
            notes=tuple(notes),
            linear=findings.is_linear(found, self.model),
            structure=findings.structure(found, self.model),
        )


def divide(data: Dataset, settings: Settings) -> Split:
    """Split the data of a run."""
    fractions = settings.fractions(named_parts=data.split is not None)
    split = make_split(data, **fractions, seed=settings.seed, who="train")
    if settings.patience is not None and len(split.parts["val"]) == 0:
        raise ValueError("train: expected validation data with patience, got none; set val above 0")
    return split


def _read_choice(folder: RunFolder, watch: Watch) -> StoredChoice | None:
    """Return the choice of an interrupted run; None if there is none, or if it is damaged."""
    try:
        return StoredChoice.load(folder.choice_file, "")
    except FileNotFoundError:
        return None
    except ValueError as error:
        watch.say(f"warning: {error}; comparing networks again")
        return None
