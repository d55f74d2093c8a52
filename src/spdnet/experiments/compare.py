"""Many methods on the same parts of the same data: the paper's table, on data of your own."""

import csv
import io
import json
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, StratifiedGroupKFold, StratifiedKFold

from spdnet._checks import require_choice, require_count, require_number
from spdnet.covariance import ESTIMATORS
from spdnet.datasets import hold_out
from spdnet.datasets.examine import REMEDIES
from spdnet.experiments.data import Matrices, Preprocessing, load_arrays, prepare
from spdnet.experiments.methods import METHODS, Method, Where
from spdnet.experiments.run_folder import RunFolder, environment, is_draft, read_json, write
from spdnet.experiments.settings import EMBEDDED
from spdnet.training import make_fabric
from spdnet.training.device import threads_for

PROTOCOLS = ("file", "groups", "random-halves")
_FOLDS = 3  # of --tune
#: what the file of a cell holds
_CELL = {"error", "parameters", "warnings", "device"}


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What to compare on what.

    Parameters
    ----------
    data, labels, signals, estimator, reg, bad
        As in :class:`Settings`.
    methods : sequence of str, optional
        Names of :data:`METHODS`; all that the data allow when not given.
    repeats : int, optional
        Random parts, each with the next seed; 10 when not given, or 1 where the data name them.
    test_size : float
        Part that is held out.
    protocol : {"file", "groups", "random-halves"}, optional
        The parts that the data name (validation counts as training), whole groups, or random
        stratified parts. When not given, the first of these that the data allow.
    tune : bool
        Search each method's few parameters by cross-validation on the training part.
    seed : int
    device : str
    epochs : int, optional
        Of the SPDNets; those of the default recipe when not given.

    Examples
    --------
    >>> from spdnet.experiments import Comparison
    >>> Comparison(data="digits", methods=["cdl", "spdnet-2"], repeats=3).repeats
    3
    """

    data: str
    labels: str | None = None
    signals: bool = False
    estimator: str = "sample"
    reg: float = 1e-3
    bad: str = "refuse"
    methods: tuple[str, ...] | None = None
    repeats: int | None = None
    test_size: float = 0.5
    protocol: str | None = None
    tune: bool = False
    seed: int = 0
    device: str = "auto"
    epochs: int | None = None

    def __post_init__(self) -> None:
        who = "compare"
        if self.methods is not None:
            if not self.methods:
                raise ValueError(f"{who}: expected names of methods, got none")
            for name in self.methods:
                require_choice(who, "method", name, METHODS)
            object.__setattr__(self, "methods", tuple(dict.fromkeys(self.methods)))
        require_choice(who, "estimator", self.estimator, ESTIMATORS)
        require_choice(who, "bad", self.bad, REMEDIES)
        require_number(who, "reg", self.reg, at_least=0)
        if self.repeats is not None:
            require_count(who, "repeats", self.repeats)
        require_number(who, "test_size", self.test_size, above=0, below=1)
        if self.protocol is not None:
            require_choice(who, "protocol", self.protocol, PROTOCOLS)
        if self.epochs is not None:
            require_count(who, "epochs", self.epochs)
        if type(self.seed) is not int or not 0 <= self.seed < 2**31:
            raise ValueError(
                f"{who}: expected seed to be a whole number from 0 to 2147483647, got {self.seed!r}"
            )


class ComparisonFolder:
    """A comparison on disk.

    ====================  ==================================================
    ``comparison.json``   settings, and a digest of the data
    ``environment.json``  versions, machine, command
    ``cells/``            one file for each method and repeat
    ``results.json``      the table with all that is known
    ``table.txt .csv .tex``  the table to read, to compute with, to print
    ``report.html``       the same for people
    ====================  ==================================================

    Parameters
    ----------
    path : path
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def results_file(self) -> Path:
        """The table with all that is known."""
        return self.path / "results.json"

    @property
    def report_file(self) -> Path:
        """The report."""
        return self.path / "report.html"

    def require_same(self, settings: dict[str, Any]) -> list[str]:
        """See that nothing is here, or this comparison; the methods that it has had so far."""
        if not self._file_of("comparison").is_file():
            there = self.path.iterdir() if self.path.exists() else ()
            if any(p.name != "cells" and not is_draft(p) for p in there):
                raise FileExistsError(
                    f"compare: expected a new folder or one of a comparison, but {self.path} holds "
                    "something else; name another"
                )
            return []
        before = self._read("comparison")
        for name, value in settings.items():
            if before.get(name) != value and name not in ("methods", "repeats"):
                raise ValueError(
                    f"compare: expected the comparison that {self.path} holds, with {name} = "
                    f"{before.get(name)!r}, got {value!r}; name another folder"
                )
        return [name for name in before.get("methods", []) if name in METHODS]

    def begin(self, settings: dict[str, Any]) -> None:
        """Write what is compared."""
        (self.path / "cells").mkdir(exist_ok=True)
        write(self._file_of("comparison"), json.dumps(settings, indent=1) + "\n")
        if not self._file_of("environment").is_file():
            text = json.dumps(environment(settings["seed"]), indent=2)
            write(self._file_of("environment"), text + "\n")

    def environment(self) -> dict[str, Any]:
        """Versions, machine and command."""
        return self._read("environment")

    def cell(self, method: str, repeat: int) -> dict[str, Any] | None:
        """What was found, if it was; a failure or a damaged file counts as nothing."""
        file = self._cell_file(method, repeat)
        if not file.is_file():
            return None
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
        except ValueError:
            return None
        whole = isinstance(found, dict) and set(found) >= _CELL
        return found if whole and found["error"] is None else None

    def keep(self, method: str, repeat: int, found: dict[str, Any]) -> None:
        """Write what was found."""
        write(self._cell_file(method, repeat), json.dumps(found, indent=1) + "\n")

    def results(self) -> dict[str, Any]:
        """What :func:`compare` wrote."""
        return self._read("results")

    def _file_of(self, what: str) -> Path:
        return self.path / f"{what}.json"

    def _read(self, what: str) -> dict[str, Any]:
        return read_json(self._file_of(what), "spdnet compare writes it")

    def _cell_file(self, method: str, repeat: int) -> Path:
        return self.path / "cells" / f"{method}-{repeat}.json"


def compare(
    settings: Comparison,
    folder: ComparisonFolder,
    *,
    say: Callable[[str], None] | None = None,
    on_cell: Callable[[str, int, dict[str, Any] | None], None] | None = None,
    on_finished: Callable[[ComparisonFolder], object] | None = None,
) -> dict[str, Any]:
    """Fit and score every method on every repeat; what a folder holds already is not done again.

    A method that fails says so in its cell, and the others go on.

    Parameters
    ----------
    settings : Comparison
    folder : ComparisonFolder
    say : callable, optional
        Called with what a person should know.
    on_cell : callable, optional
        Called with the title of a method, the repeat from 1, and None when it begins, its result
        when it is done.
    on_finished : callable, optional
        Called with the folder when the results are written.

    Returns
    -------
    dict
        What is in ``results.json``.
    """
    say = say or (lambda text: None)
    on_cell = on_cell or (lambda title, repeat, found: None)
    arrays = load_arrays(settings.data, settings.labels)
    is_signal = settings.signals or not arrays.are_matrices
    preprocessing = Preprocessing(
        is_signal, arrays.X.shape[-2], settings.estimator, settings.reg, raw=is_signal
    )
    data = prepare(arrays, preprocessing, settings.bad)
    if data.note:
        say(data.note)
    assert data.y is not None  # the data were read with labels
    classes = [name for name in data.classes if name in set(data.y.tolist())]
    codes = numpy.array([classes.index(label) for label in data.y])
    if len(classes) < 2:
        raise ValueError(f"compare: expected at least two classes, got {classes[0]!r} only")
    inputs = _inputs(data, settings)
    methods = _methods(settings, inputs)
    protocol = _protocol(settings, data)
    repeats = settings.repeats or (1 if protocol == "file" else 10)
    parts = [_part(protocol, data, codes, settings, i) for i in range(repeats)]
    groups = data.groups if protocol == "groups" else None
    device = str(make_fabric(settings.device).device)
    plain = {k: v for k, v in asdict(settings).items() if k not in ("methods", "device")}
    plain |= {
        "data": settings.data if settings.data in EMBEDDED else str(Path(settings.data).resolve()),
        "labels": None if settings.labels is None else str(Path(settings.labels).resolve()),
        "protocol": protocol,
        "repeats": repeats,
        "digest": data.digest,
    }
    earlier = folder.require_same(plain)
    named = [name for name in METHODS if name in methods or name in earlier]
    plain["methods"] = named
    n_train = [int((~held).sum()) for held in parts]
    n = preprocessing.n
    what = f"signals of {n} channels" if is_signal else f"matrices of {n} x {n}"
    say(
        f"{len(codes)} {what}, {len(classes)} classes; {protocol}: {repeats} x {n_train[0]} to "
        f"train on, {len(codes) - n_train[0]} held out; {len(methods)} methods"
    )
    cells: dict[str, list[dict[str, Any] | None]] = {name: [] for name in named}
    folder.path.mkdir(parents=True, exist_ok=True)
    with RunFolder(folder.path).locked():
        folder.begin(plain)
        for i, held in enumerate(parts):
            for name in named:
                found = folder.cell(name, i)
                if found is None and name in methods:
                    method = methods[name]
                    on_cell(method.title, i + 1, None)
                    where = Where(preprocessing.n, settings.seed + i, device, settings.epochs)
                    task = _Task(inputs[method.takes], codes, held, groups)
                    found = _cell(method, task, where, settings.tune)
                    folder.keep(name, i, found)
                    on_cell(method.title, i + 1, found)
                cells[name].append(found)
        results = {
            **plain,
            "n": len(codes),
            "size": preprocessing.n,
            "classes": classes,
            "n_train": n_train,
            "rows": [_row(name, METHODS[name], found) for name, found in cells.items()],
        }
        write(folder.results_file, json.dumps(results, indent=1, allow_nan=False) + "\n")
        for name, make in (("txt", as_text), ("csv", as_csv), ("tex", as_latex)):
            write(folder.path / f"table.{name}", make(results))
        if on_finished is not None:
            on_finished(folder)
    return results


def _inputs(data: Matrices, settings: Comparison) -> dict[str, Any]:
    """What methods are fitted to, where the data have it."""
    inputs: dict[str, Any] = {"matrices": data.X}
    if data.signals is not None:
        inputs["sets"] = [signal.T for signal in data.signals]
    if settings.data == "digits":
        inputs["images"] = load_digits().images[data.index]
    return inputs


def _methods(settings: Comparison, inputs: dict[str, Any]) -> dict[str, Method]:
    if settings.methods is None:
        return {name: m for name, m in METHODS.items() if m.takes in inputs}
    chosen = {name: METHODS[name] for name in settings.methods}
    for name, method in chosen.items():
        if method.takes not in inputs:
            what = "signals" if method.takes == "sets" else "images, which only 'digits' has"
            raise ValueError(f"compare: expected data with {what} for {name}, got matrices")
    return chosen


def _protocol(settings: Comparison, data: Matrices) -> str:
    there = {"file": data.split is not None, "groups": data.groups is not None}
    if settings.protocol is None:
        return next((name for name, has in there.items() if has), "random-halves")
    if not there.get(settings.protocol, True):
        what = "a split" if settings.protocol == "file" else "groups"
        raise ValueError(
            f"compare: expected data with {what} for protocol {settings.protocol!r}, got none"
        )
    return settings.protocol


def _part(
    protocol: str,
    data: Matrices,
    codes: NDArray[numpy.int64],
    settings: Comparison,
    repeat: int,
) -> NDArray[numpy.bool_]:
    """What is held out in a repeat; the same for all methods."""
    if protocol == "file":
        held = numpy.asarray(data.split == "test")
    else:
        groups = data.groups if protocol == "groups" else None
        held = hold_out(codes, settings.test_size, groups=groups, seed=settings.seed + repeat)
    if not held.any():
        raise ValueError(
            "compare: expected matrices to hold out, got none"
            + (" in the part 'test'" if protocol == "file" else "; classes have too few members")
        )
    if len(set(codes[~held].tolist())) < 2:
        raise ValueError("compare: expected two classes or more to train on, got fewer")
    return held


@dataclass(frozen=True)
class _Task:
    """What a method is fitted to and scored on."""

    X: Any
    codes: NDArray[numpy.int64]
    held: NDArray[numpy.bool_]
    groups: NDArray[Any] | None


def _cell(method: Method, task: _Task, where: Where, tune: bool) -> dict[str, Any]:
    """Fit and score once; an error is what was found."""
    X, codes = task.X, task.codes
    learn, test = numpy.flatnonzero(~task.held), numpy.flatnonzero(task.held)
    groups = None if task.groups is None else task.groups[learn]
    found: dict[str, Any] = {"error": None, "parameters": {}, "device": where.device}
    with warnings.catch_warnings(record=True) as caught, threads_for(where.n):
        warnings.simplefilter("always")
        try:
            estimator = method.make(where)
            grid = method.grid(where.n) if tune else {}
            more = {}
            if grid:
                estimator = _search(estimator, grid, codes[learn], groups, where.seed)
                more = {} if groups is None else {"groups": groups}
            started = time.perf_counter()
            estimator.fit(_some(X, learn), codes[learn], **more)
            fitted = time.perf_counter()
            predicted = estimator.predict(_some(X, test))
            found["predict_seconds"] = time.perf_counter() - fitted
            found["fit_seconds"] = fitted - started
            found["accuracy"] = float(numpy.mean(predicted == codes[test]))
            if grid:
                found["parameters"] = {k: _plain(v) for k, v in estimator.best_params_.items()}
        except Exception as error:  # reported in its cell; the other methods go on
            found |= {"error": f"{type(error).__name__}: {error}"}
    texts = [f"{w.category.__name__}: {w.message}" for w in caught]
    found["warnings"] = list(dict.fromkeys(texts))[:5]
    return found


def _search(
    estimator: Any,
    grid: dict[str, list[Any]],
    codes: NDArray[numpy.int64],
    groups: NDArray[Any] | None,
    seed: int,
) -> GridSearchCV:
    """Folds that keep groups whole where the test part does."""
    fewest = int(numpy.sort(numpy.bincount(codes))[-2])  # two classes in every fold
    most = fewest if groups is None else min(fewest, len(numpy.unique(groups)))
    if most < 2:
        raise ValueError(
            "compare: expected two members, or groups, of two classes to tune with, got fewer"
        )
    kind = StratifiedKFold if groups is None else StratifiedGroupKFold
    folds = kind(min(_FOLDS, most), shuffle=True, random_state=seed)
    return GridSearchCV(estimator, grid, cv=folds, error_score="raise")


def _some(X: Any, index: NDArray[numpy.int64]) -> Any:
    return [X[i] for i in index] if isinstance(X, list) else X[index]


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, numpy.generic) else value


def _row(name: str, method: Method, cells: list[dict[str, Any] | None]) -> dict[str, Any]:
    """Mean and deviation of the repeats that were done and did not fail; None for the others."""
    good = [None if cell is None or cell["error"] else cell for cell in cells]
    done = [cell for cell in good if cell is not None]
    row: dict[str, Any] = {
        "method": name,
        "title": method.title,
        "repeats": len(done),
        "complete": len(done) == len(cells),
    }
    for key in ("accuracy", "fit_seconds", "predict_seconds"):
        values = [cell[key] for cell in done]
        row[key] = {
            "mean": float(numpy.mean(values)) if values else None,
            "deviation": float(numpy.std(values, ddof=1)) if len(values) > 1 else None,
            "values": [None if cell is None else cell[key] for cell in good],
        }
    failed = [cell["error"] for cell in cells if cell is not None and cell["error"]]
    row["errors"] = list(dict.fromkeys(failed))
    row["warnings"] = list(dict.fromkeys(w for cell in done for w in cell["warnings"]))
    row["parameters"] = [cell["parameters"] for cell in done]
    row["devices"] = sorted({cell["device"] for cell in done})
    return row


def best(results: dict[str, Any]) -> set[str]:
    """The methods with the highest accuracy over all repeats, as a table shows it."""
    shown = {r["method"]: r["accuracy"]["mean"] for r in results["rows"] if r["complete"]}
    shown = {name: round(100 * mean, 2) for name, mean in shown.items()}
    return {name for name, mean in shown.items() if mean == max(shown.values())}


def seconds(value: float | None) -> str:
    """Two digits, or whole seconds."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def accuracy(row: dict[str, Any], sign: str = "±") -> str:
    """In percent, with the deviation where there are several repeats."""
    mean, deviation = row["accuracy"]["mean"], row["accuracy"]["deviation"]
    if mean is None:
        return "failed"
    return f"{100 * mean:.2f}" + ("" if deviation is None else f" {sign} {100 * deviation:.2f}")


def remark(row: dict[str, Any]) -> str:
    """How many repeats a row stands for, where some are missing."""
    total = len(row["accuracy"]["values"])
    return "" if row["complete"] else f" ({row['repeats']} of {total})"


def _notes(results: dict[str, Any]) -> Iterable[str]:
    for row in results["rows"]:
        for error in row["errors"]:
            yield f"{row['title']}: {error}"


def as_text(results: dict[str, Any]) -> str:
    """The table for a terminal; a star marks the best."""
    width = max(len(row["title"] + remark(row)) for row in results["rows"]) + 2
    lines = [f"{'':{width}}{'accuracy, %':>16}{'fit, s':>10}{'predict, s':>12}"]
    for row in results["rows"]:
        star = " *" if row["method"] in best(results) else ""
        fit, predict = (seconds(row[k]["mean"]) for k in ("fit_seconds", "predict_seconds"))
        title = row["title"] + remark(row)
        lines.append(f"{title:{width}}{accuracy(row):>16}{fit:>10}{predict:>12}{star}")
    return "\n".join([*lines, *(f"failed: {note}" for note in _notes(results))]) + "\n"


def as_csv(results: dict[str, Any]) -> str:
    """The table for machines: one row for each method and repeat that was done."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["method", "repeat", "accuracy", "fit_seconds", "predict_seconds"])
    for row in results["rows"]:
        columns = (row[k]["values"] for k in ("accuracy", "fit_seconds", "predict_seconds"))
        for i, values in enumerate(zip(*columns, strict=True), 1):
            if values[0] is not None:
                table.writerow([row["method"], i, *values])
    return text.getvalue()


def as_latex(results: dict[str, Any]) -> str:
    """The table for a paper, with the booktabs package."""
    lines = [r"\begin{tabular}{lrrr}", r"\toprule"]
    lines += [r"Method & Accuracy, \% & Fit, s & Predict, s \\", r"\midrule"]
    for row in results["rows"]:
        shown = accuracy(row, r"\pm")
        shown = f"${shown}$" if row["accuracy"]["mean"] is not None else shown
        if row["method"] in best(results):
            shown = rf"\boldmath{shown}"
        fit, predict = (seconds(row[k]["mean"]) for k in ("fit_seconds", "predict_seconds"))
        title = row["title"] + remark(row)
        lines.append(rf"{title} & {shown} & {fit} & {predict} \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"
