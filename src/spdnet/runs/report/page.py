"""Report of a training run, or of its repeats."""

from pathlib import Path

from spdnet._files import atomic_write
from spdnet.plots.style import MAX_LABELED_CLASSES
from spdnet.runs.report import figures
from spdnet.runs.report.render import render, results_of
from spdnet.runs.results import PART_TITLES, RepeatResults
from spdnet.runs.run_folder import RunFolder

#: no picture of the confusion for more classes: a class would be less than two pixels wide
_MOST_DRAWN = 400
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
    atomic_write(folder.report_file, make_page(folder))
    return folder.report_file


def make_page(folder: RunFolder) -> str:
    """Return the report of a run, or of its repeats: one HTML page without external resources."""
    found, history, environment = folder.results(), folder.metrics(), folder.environment()
    unused = set() if found.signals else {"estimator", "reg"}  # of the covariances of signals
    settings = {k: v for k, v in folder.settings().as_dict().items() if k not in unused}
    settings["signals"] = "yes" if found.signals else "no"
    classes, confusion = found.classes, found.confusion
    name = folder.path.resolve().name
    with results_of(folder.results_file):
        common = {
            "title": f"{name}: {found.network}",
            "heading": name,
            "found": found,
            "part": PART_TITLES[found.scored],
            "confusion": figures.confusion(confusion.dense(), classes)
            if len(classes) <= _MOST_DRAWN
            else None,
            "pairs": confusion.most_confused(_PAIRS) if len(classes) > MAX_LABELED_CLASSES else [],
            "settings": settings,
            "environment": environment,
        }
        if isinstance(found, RepeatResults):
            return render("repeats.html", **common, picture=figures.repeats(found))
        return render(
            "run.html",
            **common,
            curves=figures.learning_curves(history, found.best_epoch),
            spectra=[figures.spectrum(layer) for layer in found.spectra],
        )
