"""Many methods on the same parts of the same data: the paper's table, on data of your own."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from spdnet._checks import require_choice
from spdnet.data import Dataset, Preprocessing, hold_out, load_dataset, prepare
from spdnet.runs.cell import Task, fit_and_score
from spdnet.runs.comparison_folder import ComparisonFolder
from spdnet.runs.comparison_tables import as_csv, as_latex, as_text
from spdnet.runs.methods import METHODS, Method, Where
from spdnet.runs.pace import Pace
from spdnet.runs.run_folder import RunFolder, write
from spdnet.data.digits import EMBEDDED
from spdnet.options.kinds import Number
from spdnet.options.option import check_options, document, same
from spdnet.options.run import TEST_SIZE, DataOptions, RunOptions
from spdnet.training import make_fabric

PROTOCOLS = ("file", "groups", "random-halves")


@document()
@dataclass(frozen=True, kw_only=True)
class Comparison(DataOptions):
    """Settings of a comparison: the data, the methods, the splits.

    Parameters
    ----------
    methods : sequence of str, optional
        Names such as ``spdnet-2``; all that the data allow when not given.
    protocol : {"file", "groups", "random-halves"}, optional
        The split of the data (validation counts as training), whole groups, or random stratified
        parts. When not given, the first of these that the data allow.
    tune : bool
        Search the parameters of each method by cross-validation on the training part.
    {options}

    Examples
    --------
    >>> from spdnet.runs import Comparison
    >>> Comparison(data="digits", methods=["cdl", "spdnet-2"], repeats=3).repeats
    3
    """

    methods: tuple[str, ...] | None = None
    repeats: int | None = same(
        RunOptions,
        "repeat",
        help="Number of random splits, with seeds SEED, SEED+1, ...",
        default=None,
        unset="10, or 1 for the split of the data",
    )
    test_size: float = same(
        RunOptions, "test", kind=Number(above=0, below=1), default=TEST_SIZE["compare"], unset=""
    )
    protocol: str | None = None
    tune: bool = False
    seed: int = same(RunOptions, "seed")
    device: str = same(RunOptions, "device")
    epochs: int | None = same(RunOptions, "epochs")

    def __post_init__(self) -> None:
        who = "compare"
        if self.methods is not None:
            if not self.methods:
                raise ValueError(f"{who}: expected names of methods, got none")
            for name in self.methods:
                require_choice(who, "method", name, METHODS)
            object.__setattr__(self, "methods", tuple(dict.fromkeys(self.methods)))
        if self.protocol is not None:
            require_choice(who, "protocol", self.protocol, PROTOCOLS)
        check_options(who, self)


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

    Examples
    --------
    >>> import tempfile
    >>> from spdnet.runs import Comparison, ComparisonFolder, compare
    >>> settings = Comparison(data="digits", methods=("logistic",), repeats=1, device="cpu")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = compare(settings, ComparisonFolder(folder))
    >>> [row["title"] for row in found["rows"]]
    ['log-Euclidean logistic regression']
    """
    say = say or (lambda text: None)
    on_cell = on_cell or (lambda title, repeat, found: None)
    arrays = load_dataset(settings.data, settings.labels, settings.groups)
    is_signal = settings.signals or not arrays.is_matrices
    preprocessing = Preprocessing(
        is_signal, arrays.X.shape[-2], settings.estimator, settings.reg, raw=is_signal
    )
    data = prepare(replace(arrays, X=numpy.asarray(arrays.X)), preprocessing, settings.bad)
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
        "groups": None if settings.groups is None else str(Path(settings.groups).resolve()),
        "protocol": protocol,
        "repeats": repeats,
        "digest": data.digest,
    }
    folder.require_same(plain)
    n_train = [int((~held).sum()) for held in parts]
    what = replace(preprocessing, raw=False).describe(len(codes))
    chance = [_chance(codes, held) for held in parts]
    say(
        f"{what}, {len(classes)} classes; {protocol}: {repeats} x {n_train[0]} to train on, "
        f"{len(codes) - n_train[0]} held out{_groups(groups, parts[0])}; {len(methods)} methods"
    )
    folder.path.mkdir(parents=True, exist_ok=True)
    with RunFolder(folder.path).locked():
        earlier = folder.require_same(plain)  # again: another process may have been here
        named = [name for name in METHODS if name in methods or name in earlier]
        cells: dict[str, list[dict[str, Any] | None]] = {name: [] for name in named}
        plain["methods"] = named
        folder.begin(plain)
        pace = Pace(repeats)
        for i, held in enumerate(parts):
            fresh = False
            for name in named:
                found = folder.cell(name, i)
                if found is None and name in methods:
                    method, fresh = methods[name], True
                    on_cell(method.title, i + 1, None)
                    where = Where(preprocessing.n, settings.seed + i, device, settings.epochs)
                    task = Task(inputs[method.takes], codes, held, groups)
                    found = fit_and_score(method, task, where, settings.tune)
                    folder.keep(name, i, found)
                    on_cell(method.title, i + 1, found)
                cells[name].append(found)
            if left := pace.after(i + 1, counts=fresh):
                say(f"repeat {i + 1} of {repeats} done{left}")
        results = {
            **plain,
            "what": what,
            "n": len(codes),
            "size": preprocessing.n,
            "classes": classes,
            "n_train": n_train,
            "chance": float(numpy.mean(chance)),
            "rows": [
                _row(name, METHODS[name], found, preprocessing.n) for name, found in cells.items()
            ],
        }
        write(folder.results_file, json.dumps(results, indent=1, allow_nan=False) + "\n")
        for name, make in (("txt", as_text), ("csv", as_csv), ("tex", as_latex)):
            write(folder.path / f"table.{name}", make(results))
        if on_finished is not None:
            on_finished(folder)
    return results


def _inputs(data: Dataset, settings: Comparison) -> dict[str, Any]:
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


def _protocol(settings: Comparison, data: Dataset) -> str:
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
    data: Dataset,
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


def _chance(codes: NDArray[numpy.int64], held: NDArray[numpy.bool_]) -> float:
    """Accuracy of always naming the largest class of the training part."""
    return float(numpy.mean(codes[held] == numpy.bincount(codes[~held]).argmax()))


def _groups(groups: NDArray[Any] | None, held: NDArray[numpy.bool_]) -> str:
    """How many groups are held out of how many."""
    if groups is None:
        return ""
    return f" ({len(numpy.unique(groups[held]))} of {len(numpy.unique(groups))} groups)"


def _row(name: str, method: Method, cells: list[dict[str, Any] | None], n: int) -> dict[str, Any]:
    """Mean and deviation of the repeats that were done and did not fail; None for the others."""
    good = [None if cell is None or cell["error"] else cell for cell in cells]
    done = [cell for cell in good if cell is not None]
    row: dict[str, Any] = {
        "method": name,
        "title": method.title,
        "dims": None if method.dims is None else list(method.dims(n)),
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
