"""Evaluate a trained network: everything that ``results.json`` holds."""

import time
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from spdnet.models.model import dims_of, get_trait
from spdnet.runs import findings, scores
from spdnet.runs.confusion import Confusion
from spdnet.runs.divide import describe
from spdnet.runs.results import Part, RunResults, Seconds
from spdnet.runs.trained_model import TrainedModel
from spdnet.runs.watch import Watch
from spdnet.training import Trainer

if TYPE_CHECKING:
    from spdnet.runs.train import Training

#: spectra are computed for this many matrices at least, for more if they are small
_SPECTRA_OF = 256
_SPECTRA_ENTRIES = 2**21


def outcome(
    training: "Training", trained: TrainedModel, trainer: Trainer, notes: list[str], watch: Watch
) -> RunResults:
    """Score the network and the baseline on all parts, and compute spectra and times."""
    data, split = training.data, training.split
    codes, parts, scored = split.codes, split.parts, cast(Part, split.scored)
    history = trainer.progress.history
    trained.model.eval()
    started = time.perf_counter()
    logits = trained.logits(data)
    evaluation = time.perf_counter() - started
    confusion = Confusion.of(
        codes[parts[scored]], logits[parts[scored]].argmax(-1).numpy(), len(data.classes)
    )
    n_spectra = max(_SPECTRA_OF, _SPECTRA_ENTRIES // trained.size**2)
    seen, learned = parts[scored][:n_spectra], parts["train"][:n_spectra]
    in_training = trained.spectra(data.take(learned))
    notes = [*([data.note] if data.note else []), *notes]
    baseline, seconds = None, sum(row["seconds"] for row in history)
    found = RunResults(
        data=describe(data, trained.preprocessing, split),
        signals=trained.preprocessing.signals,
        scored=scored,
        parts={
            cast(Part, name): scores.score(logits[i], codes[i], split.groups.get(name))
            for name, i in parts.items()
            if len(i)
        },
        chance=split.chance,
        classes=tuple(data.classes),
        confusion=confusion,
        per_class=scores.class_scores(confusion, data.classes),
        network=trained.recipe.network,
        dims=dims_of(trained.model),
        parameters=sum(p.numel() for p in trained.model.parameters()),
        epochs=trainer.progress.epoch,
        best_epoch=trainer.progress.best_epoch,
        seconds=Seconds(seconds, evaluation),
        matrices_per_second=len(parts["train"]) * len(history) / seconds,
        device=str(trainer.fabric.device),
        orthonormality=scores.orthonormality(trained.model),
        spectra_of=len(seen),
        spectra=trained.spectra(data.take(seen)),
        raised_in_training=tuple(row.clipped for row in in_training if row.clipped is not None),
        raised_of=len(learned),
        choice=training.choice,
    )
    can_center = "center" in get_trait(trained.model, "hyperparameters")
    if text := findings.flattened(found, trained.recipe.eps, can_center=can_center):
        notes.append(text)
        watch.say(f"note: {text}")
    if training.settings.baseline:
        watch.say(f"fitting the baseline, {scores.BASELINE}")
        baseline = scores.baseline(data.X, codes, parts, data.groups)
        if baseline.fitted < len(parts["train"]):
            notes.append(
                f"the {scores.BASELINE} was fitted to {baseline.fitted} of {len(parts['train'])} "
                "matrices, as many as fit in memory"
            )
    return replace(
        found,
        notes=tuple(notes),
        baseline=baseline,
        seconds=Seconds(seconds, evaluation, None if baseline is None else baseline.seconds),
        linear=findings.is_linear(found, trained.model),
        structure=findings.structure(found, trained.model),
    )
