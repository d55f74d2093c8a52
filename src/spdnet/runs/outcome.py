"""All that is written about a finished run, and about its repeats."""

import operator
import time
from functools import reduce
from typing import Any

import numpy

from spdnet import metrics
from spdnet.data import Dataset, Split
from spdnet.runs import findings, results
from spdnet.runs.confusion import Confusion
from spdnet.runs.divide import describe
from spdnet.runs.settings import Settings
from spdnet.runs.trained_model import TrainedModel
from spdnet.runs.watch import Watch
from spdnet.training import Trainer

#: matrices whose spectra are taken: so many at least, more where they are small
_SPECTRA_OF = 256
_SPECTRA_ENTRIES = 2**21


def outcome(
    settings: Settings,
    data: Dataset,
    division: Split,
    trained: TrainedModel,
    trainer: Trainer,
    notes: list[str],
    watch: Watch,
) -> dict[str, Any]:
    """What goes into ``results.json``: scores, the baseline beside them, spectra, times."""
    codes, parts, scored = division.codes, division.parts, division.scored
    history = trainer.progress.history
    seconds = sum(row["seconds"] for row in history)
    trained.model.eval()
    started = time.perf_counter()
    logits = trained.logits(data)
    evaluation = time.perf_counter() - started
    scores = {k: results.score(logits[i], codes[i]) for k, i in parts.items() if len(i)}
    for name, count in division.groups.items():
        scores[name]["groups"] = count
    found: dict[str, Any] = {
        "data": describe(data, trained.preprocessing, division),
        "signals": trained.preprocessing.signals,
        "scored": scored,
        "parts": scores,
        "chance": division.chance,
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
    n = trained.model.dims[0]
    many = max(_SPECTRA_OF, _SPECTRA_ENTRIES // n**2)
    some = parts[scored][:many]
    found["spectra_of"] = len(some)
    found["spectra"] = trained.spectra(data.take(some))
    learnt = parts["train"][:many]
    found["raised_in_training"] = findings.raised({"spectra": trained.spectra(data.take(learnt))})
    found["raised_of"] = len(learnt)
    found["linear"] = findings.is_linear(found)
    found["structure"] = findings.structure(found)
    if text := findings.flattened(found, trained.recipe.eps):
        found["notes"].append(text)
        watch.say(f"note: {text}")
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


def summary(found: list[dict[str, Any]], seeds: list[int]) -> dict[str, Any]:
    """Mean and deviation over the repeats."""
    first, scored = found[0], found[0]["scored"]

    def spread(values: list[float]) -> dict[str, Any]:
        return {**metrics.spread(values)._asdict(), "values": values}

    counts = [Confusion.read(r["confusion"], len(first["classes"])) for r in found]
    summary: dict[str, Any] = {
        "data": first.get("data", ""),
        "signals": first.get("signals"),
        "scored": scored,
        "seeds": seeds,
        "accuracy": spread([r["parts"][scored]["accuracy"] for r in found]),
        "seconds": spread([r["seconds"]["training"] for r in found]),
        "classes": first["classes"],
        "network": first["network"],
        "dims": first["dims"],
        "confusion": reduce(operator.add, counts).as_dict(),
        "notes": first["notes"],
        "linear": all(findings.is_linear(r) for r in found),
        "baseline": None,
    }
    same = {findings.structure(r) for r in found}
    summary["structure"] = findings.structure(first) if len(same) == 1 else ""
    if all("chance" in r for r in found):  # not in runs of earlier versions
        summary["chance"] = float(numpy.mean([r["chance"] for r in found]))
    if all(r["baseline"] for r in found):
        accuracy = spread([r["baseline"]["accuracy"][scored] for r in found])
        summary["baseline"] = {"name": first["baseline"]["name"], "accuracy": accuracy}
    return summary
