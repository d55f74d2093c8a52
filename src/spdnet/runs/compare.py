"""Compare methods on the same splits of the same data."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from spdnet._checks import require_choice
from spdnet.data import Dataset, Preprocessing, hold_out, load_dataset, prepare
from spdnet.data.digits import EMBEDDED
from spdnet.options.kinds import Number
from spdnet.options.option import check_options, document, same
from spdnet.options.run import TEST_SIZE, DataOptions, RunOptions
from spdnet.runs.cell import Cell, Task, fit_and_score
from spdnet.runs.comparison import ComparisonResults, MethodRow
from spdnet.runs.comparison_folder import ComparisonFolder
from spdnet.runs.folder import write
from spdnet.runs.methods import METHODS, Method, Where
from spdnet.runs.pace import Pace
from spdnet.runs.watch import Watch
from spdnet.training import make_fabric

PROTOCOLS = ("file", "groups", "random-halves")


@document()
@dataclass(frozen=True, kw_only=True)
class Comparison(DataOptions):
    """Settings of a comparison: the data, the methods, the splits.

    Parameters
    ----------
    methods : sequence of str, optional
        Names such as ``spdnet-2``. All that the data allow if not given.
    protocol : {"file", "groups", "random-halves"}, optional
        The split of the data (validation counts as training), random groups, or random stratified
        halves. The first of these that the data allow if not given.
    tune : bool
        Search the parameters of each method by cross-validation on the training set.
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

    def identity(self) -> dict[str, Any]:
        """Return the settings that decide the result, with absolute paths."""
        plain = {k: v for k, v in asdict(self).items() if k not in ("methods", "device")}
        for name in ("data", "labels", "groups"):
            path = plain[name]
            if path is not None and not (name == "data" and path in EMBEDDED):
                plain[name] = str(Path(path).resolve())
        return plain


def compare(
    settings: Comparison, folder: ComparisonFolder, *, watch: Watch | None = None
) -> ComparisonResults:
    """Fit and score every method in every repeat.

    Cells that the folder holds already are not computed again. If a method fails, its cell holds
    the error, and the others continue.

    Parameters
    ----------
    settings : Comparison
    folder : ComparisonFolder
    watch : Watch, optional

    Returns
    -------
    ComparisonResults

    Examples
    --------
    >>> import tempfile
    >>> from spdnet.runs import Comparison, ComparisonFolder, compare
    >>> settings = Comparison(data="digits", methods=("logistic",), repeats=1, device="cpu")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = compare(settings, ComparisonFolder(folder))
    >>> [row.title for row in found.rows]
    ['log-Euclidean logistic regression']
    """
    watch = Watch() if watch is None else watch
    arrays = load_dataset(settings.data, settings.labels, settings.groups, on_file=watch.file)
    is_signal = settings.signals or not arrays.is_matrices
    preprocessing = Preprocessing(
        is_signal, arrays.X.shape[-2], settings.estimator, settings.reg, raw=is_signal
    )
    data = prepare(replace(arrays, X=numpy.asarray(arrays.X)), preprocessing, settings.bad)
    if data.note:
        watch.say(data.note)
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
    plain = settings.identity() | {
        "protocol": protocol,
        "repeats": repeats,
        "digest": data.digest,
    }
    folder.require_same(plain)
    n_train = tuple(int((~held).sum()) for held in parts)
    what = replace(preprocessing, raw=False).describe(len(codes))
    watch.say(
        f"{what}, {len(classes)} classes; {protocol}: {repeats} x {n_train[0]} training and "
        f"{len(codes) - n_train[0]} test matrices{_groups(groups, parts[0])}; {len(methods)} methods"
    )
    with folder.locked():
        earlier = folder.require_same(plain).get("methods")  # may have changed meanwhile
        known = earlier if isinstance(earlier, list) else []
        named = [name for name in METHODS if name in methods or name in known]
        folder.begin({**plain, "methods": named})
        cells: dict[str, list[Cell | None]] = {name: [] for name in named}
        pace = Pace(repeats)
        for i, held in enumerate(parts):
            fresh = False
            for name in named:
                file = folder.cell_file(name, i)
                cell = Cell.find(file, "accuracy")
                if cell is None and name in methods:
                    method, fresh = methods[name], True
                    watch.working(f"repeat {i + 1}: {method.title}")
                    where = Where(preprocessing.n, settings.seed + i, device, settings.epochs)
                    task = Task(inputs[method.takes], codes, held, groups)
                    cell = fit_and_score(method, task, where, tune=settings.tune)
                    cell.write(file)
                    watch.say(f"repeat {i + 1}  {method.title:36} {_line(cell)}")
                cells[name].append(cell)
            if left := pace.after(i + 1, counts=fresh):
                watch.say(f"repeat {i + 1} of {repeats} done{left}")
        shown = ("protocol", "repeats", "tune", "digest", "signals", "estimator", "reg")
        results = ComparisonResults(
            settings={name: value for name, value in plain.items() if name not in shown},
            protocol=protocol,
            repeats=repeats,
            tune=settings.tune,
            data=what,
            n=len(codes),
            size=preprocessing.n,
            classes=tuple(classes),
            n_train=n_train,
            chance=float(numpy.mean([_chance(codes, held) for held in parts])),
            rows=tuple(
                MethodRow.from_cells(
                    name, METHODS[name].title, METHODS[name].dims_for(preprocessing.n), found
                )
                for name, found in cells.items()
            ),
        )
        folder.write_results(results)
        write(folder.path / "table.txt", results.as_text())
        write(folder.path / "table.csv", results.as_csv())
        write(folder.path / "table.tex", results.as_latex())
    return results


def _line(cell: Cell) -> str:
    if cell.score is None:
        return str(cell.error)
    seconds = cell.fit_seconds + cell.predict_seconds
    return f"{100 * cell.score.values['accuracy']:6.2f} %   {seconds:8.2f} s"


def _inputs(data: Dataset, settings: Comparison) -> dict[str, Any]:
    """Return the inputs that the data have, by kind."""
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
    """Return a mask of the test set of a repeat, the same for all methods."""
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
    """Return the accuracy of always predicting the most frequent class of the training set."""
    return float(numpy.mean(codes[held] == numpy.bincount(codes[~held]).argmax()))


def _groups(groups: NDArray[Any] | None, held: NDArray[numpy.bool_]) -> str:
    """Say how many groups are in the test set."""
    if groups is None:
        return ""
    return f" ({len(numpy.unique(groups[held]))} of {len(numpy.unique(groups))} groups)"
