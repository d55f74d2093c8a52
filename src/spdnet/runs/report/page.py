"""The report of a run, or of its repeats."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spdnet.runs import RunFolder
from spdnet.runs.confusion import Confusion
from spdnet.runs.findings import percent, structure
from spdnet.runs.run_folder import write
from spdnet.plots.style import MAX_LABELED_CLASSES
from spdnet.runs.report import figures
from spdnet.runs.report.render import Table, environment_table, named, render, results_of

PARTS = {"train": "training", "val": "validation", "test": "test"}
#: with more classes there is no picture of the confusion: a class would be less than two pixels
_DRAWN = 400
_PAIRS = 20


def write_report(folder: RunFolder) -> Path:
    """Write ``report.html`` into a finished run folder, and return its path.

    Examples
    --------
    >>> import tempfile
    >>> from spdnet.runs import RunFolder, Settings, train
    >>> from spdnet.runs.report import write_report
    >>> settings = Settings(data="digits", epochs=1, dims=(17, 8), device="cpu", baseline=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = train(settings, RunFolder(f"{folder}/run"))
    ...     write_report(RunFolder(f"{folder}/run")).name
    'report.html'
    """
    write(folder.report_file, make_page(folder))
    return folder.report_file


def make_page(folder: RunFolder) -> str:
    """Make the report of a run, or of its repeats: one HTML page that loads nothing else.

    Examples
    --------
    >>> import tempfile
    >>> from spdnet.runs import RunFolder, Settings, train
    >>> from spdnet.runs.report import make_page
    >>> settings = Settings(data="digits", epochs=1, dims=(17, 8), device="cpu", baseline=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = train(settings, RunFolder(f"{folder}/run"))
    ...     make_page(RunFolder(f"{folder}/run"))[:15]
    '<!doctype html>'
    """
    found, history = folder.results(), folder.metrics()
    settings, environment = folder.settings().as_dict(), folder.environment()
    name = folder.path.resolve().name
    with results_of(folder.results_file):
        repeated = "seeds" in found
        return render(
            "repeats.html" if repeated else "run.html",
            title=f"{name}: {found['network']}",
            heading=name,
            network=f"{found['network']}: {' → '.join(map(str, found['dims']))}",
            data=found.get("data"),  # not in runs of earlier versions
            confusion=_confusion(found),
            settings=_settings(settings, found),
            environment=environment_table(environment),
            **(_repeats(found) if repeated else _one_run(found, history)),
        )


def _one_run(found: dict[str, Any], history: list[dict[str, float]]) -> dict[str, Any]:
    scored, base, seconds = found["scored"], found["baseline"], found["seconds"]
    accuracy = found["parts"][scored]["accuracy"]
    tiles = [(f"{PARTS[scored]} accuracy", f"{100 * accuracy:.2f} %")]
    notes = list(found["notes"])
    if base:
        linear = base["accuracy"][scored]
        tiles.append((base["name"], f"{100 * linear:.2f} %"))
        if scored != "train":
            tiles.append(("gain of the network, points", f"{100 * (accuracy - linear):+.2f}"))
        if not base["converged"]:
            notes.append("the baseline did not converge within its maximum number of iterations")
    tiles += [
        *_chance(found),
        ("classes", str(len(found["classes"]))),
        ("training", _duration(seconds["training"])),
    ]
    meaning = structure(found)
    return {
        "parameters": f"{found['parameters']:,}",
        "best_epoch": found["best_epoch"],
        "epochs": found["epochs"],
        "tiles": tiles,
        "notes": notes,
        "scores": _scores(found),
        "curves": figures.learning_curves(history, found["best_epoch"]),
        "classes": Table(
            [
                (row["class"], row["n"], *(_percent(row[k]) for k in ("precision", "recall", "f1")))
                for row in found["per_class"]
            ],
            ("class", "matrices", "precision", "recall", "F1"),
        ),
        "raised": [
            f"{entry['layer']} raised {percent(entry['clipped'])} of the eigenvalues"
            for entry in found["spectra"]
            if "clipped" in entry
        ],
        "structure": f"{meaning[:1].upper()}{meaning[1:]}",
        "spectra": [figures.spectrum(entry) for entry in found["spectra"]],
        "orthonormality": Table(
            [
                (row["layer"], " x ".join(map(str, row["shape"])), f"{row['gap']:.1e}")
                for row in found["orthonormality"]
            ],
            ("weight", "shape", "largest |WᵀW - I|"),
        ),
        "times": Table(
            [
                *((what, f"{s:.2f} s") for what, s in seconds.items()),
                ("per epoch", f"{seconds['training'] / max(found['epochs'], 1):.3f} s"),
                ("matrices per second", f"{found['matrices_per_second']:,.0f}"),
            ]
        ),
    }


def _scores(found: dict[str, Any]) -> Table:
    parts, base = found["parts"], found["baseline"]
    grouped = all("groups" in part for part in parts.values())
    rows = [
        (
            PARTS[name],
            part["n"],
            f"{100 * part['accuracy']:.2f} %",
            f"{part['loss']:.4f}",
            f"{100 * base['accuracy'][name]:.2f} %" if base else "-",
            *([part["groups"]] if grouped else []),
        )
        for name, part in parts.items()
    ]
    head = ("part", "matrices", "accuracy", "loss", "baseline", *(["groups"] if grouped else []))
    return Table(rows, head)


def _repeats(found: dict[str, Any]) -> dict[str, Any]:
    scored, accuracy, base = found["scored"], found["accuracy"], found["baseline"]
    tiles = [(f"{PARTS[scored]} accuracy, mean", _spread(accuracy))]
    linear = base["accuracy"]["values"] if base else None
    if base:
        tiles.append((base["name"], _spread(base["accuracy"])))
        gain = 100 * (accuracy["mean"] - base["accuracy"]["mean"])
        tiles.append(("gain of the network, points", f"{gain:+.2f}"))
    tiles += [*_chance(found), ("training, per repeat", _duration(found["seconds"]["mean"]))]
    rows = [
        (
            seed,
            f"{100 * accuracy['values'][i]:.2f} %",
            f"{100 * linear[i]:.2f} %" if linear else "-",
            f"{found['seconds']['values'][i]:.1f}",
        )
        for i, seed in enumerate(found["seeds"])
    ]
    return {
        "tiles": tiles,
        "notes": found["notes"],
        "structure": found.get("structure"),
        "picture": figures.repeats(accuracy["values"], linear, found["seeds"], found["network"]),
        "runs": Table(rows, ("seed", "accuracy", "baseline", "seconds")),
    }


@dataclass(frozen=True)
class _ConfusionShown:
    """The picture for not too many classes, and the pairs where it has no numbers."""

    part: str
    picture: figures.Picture | None
    pairs: Table


def _confusion(found: dict[str, Any]) -> _ConfusionShown:
    classes = found["classes"]
    counts = Confusion.read(found["confusion"], len(classes))
    drawn = len(classes) <= _DRAWN
    worst = counts.most_confused(_PAIRS) if len(classes) > MAX_LABELED_CLASSES else []
    return _ConfusionShown(
        PARTS[found["scored"]],
        figures.confusion(counts.dense(), classes) if drawn else None,
        Table([(classes[t], classes[p], n) for t, p, n in worst], ("true", "predicted", "count")),
    )


def _settings(settings: dict[str, Any], found: dict[str, Any]) -> Table:
    """The settings, with what the run took the data for; earlier versions did not record it."""
    signals = found.get("signals")
    if signals is None:
        del settings["signals"]
    else:
        settings["signals"] = "yes" if signals else "no"
    if signals is False:
        del settings["estimator"], settings["reg"]  # those of covariances of signals
    return named(settings)


def _chance(found: dict[str, Any]) -> list[tuple[str, str]]:
    if "chance" not in found:  # in runs of earlier versions
        return []
    return [("most frequent class", f"{100 * found['chance']:.2f} %")]


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _spread(values: dict[str, Any]) -> str:
    return f"{100 * values['mean']:.2f} ± {100 * values['deviation']:.2f} %"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
