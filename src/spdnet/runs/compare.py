"""Compare methods on the same splits of the same data."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from spdnet._checks import require_choice
from spdnet.data import Dataset, Preprocessing, Split, load_dataset, make_split, prepare
from spdnet.options.option import check_options, document
from spdnet.options.run import EMBEDDED, CompareOptions
from spdnet.runs.cell import Cell, fit_and_score
from spdnet.runs.comparison import ComparisonFolder, ComparisonResults, MethodRow
from spdnet.runs.conditioning import accepts_singular, fit_conditioner, transform
from spdnet.runs.methods import METHODS, FitSettings
from spdnet.runs.pace import Pace
from spdnet.runs.parallel import run_parallel
from spdnet.runs.settings import Settings
from spdnet.runs.watch import Watch
from spdnet.training import make_fabric
from spdnet.training.many import default_jobs


@document
@dataclass(frozen=True, kw_only=True)
class Comparison(CompareOptions):
    """Settings of a comparison: the data, the methods, the splits.

    Parameters
    ----------
    {options}

    Examples
    --------
    >>> from spdnet.runs import Comparison
    >>> Comparison(data="digits", methods=["cdl", "spdnet-2"], repeats=3).repeats
    3
    """

    def __post_init__(self) -> None:
        who = "compare"
        if self.methods is not None:
            if not self.methods:
                raise ValueError(f"{who}: expected names of methods, got none")
            for name in self.methods:
                require_choice(who, "method", name, METHODS)
            object.__setattr__(self, "methods", tuple(dict.fromkeys(self.methods)))
        check_options(who, self)

    def identity(self) -> dict[str, Any]:
        """Return the settings that determine the result, with absolute paths."""
        plain = {k: v for k, v in asdict(self).items() if k not in ("methods", "device", "jobs")}
        files = Settings(data=self.data, labels=self.labels, groups=self.groups)
        return plain | files.with_absolute_paths().paths()


def compare(
    settings: Comparison, folder: ComparisonFolder, *, watch: Watch | None = None
) -> ComparisonResults:
    """Fit and score every method in every repeat, in parallel.

    Cells that the folder already contains are not recomputed. If a method fails, its cell contains
    the error, and the others continue.

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
    data, preprocessing = _load(settings, watch)
    inputs = _inputs(data, settings)
    methods = _methods(settings, inputs)
    protocol = _protocol(settings, data)
    repeats = settings.repeats or (1 if protocol == "file" else 10)
    splits = [_split(protocol, data, settings, i) for i in range(repeats)]
    groups = data.groups if protocol == "groups" else None
    device = str(make_fabric(settings.device).device)
    chosen = {"protocol": protocol, "repeats": repeats, "digest": data.digest}
    plain = {**settings.identity(), **chosen}
    what = replace(preprocessing, raw=False).describe(len(data))

    def arguments(name: str, repeat: int) -> tuple[Any, ...]:
        X = {**inputs, "matrices": conditioned[repeat]}[METHODS[name].takes]
        n = conditioned[repeat].shape[-1]
        where = FitSettings(n, settings.seed + repeat, device, settings.epochs)
        return name, repeat, X, splits[repeat], where, groups, settings.tune

    folder.require_same(plain)
    conditioned = [_condition(data, split, settings, watch, i) for i, split in enumerate(splits)]
    watch.say(
        f"{what}, {len(data.classes)} classes; {protocol}, {repeats} repeat{'s' * (repeats != 1)}: "
        f"{splits[0].sizes}; {len(methods)} methods"
    )
    with folder.locked():
        known = folder.require_same(plain).get("methods")  # may have changed meanwhile
        known = known if isinstance(known, list) else []
        cells: dict[str, list[Cell | None]] = {
            name: [Cell.find(folder.cell_file(name, i), "accuracy") for i in range(repeats)]
            for name in METHODS
            if name in methods or name in known
        }
        folder.begin({**plain, "methods": list(cells)})
        missing = [(k, i) for i in range(repeats) for k in methods if cells[k][i] is None]
        jobs = settings.jobs or (default_jobs() if device == "cpu" else 1)
        pace = Pace(len(missing))
        watch.working(f"{len(missing)} fits")
        for done, (name, i, cell) in enumerate(
            run_parallel(_fit, [arguments(*one) for one in missing], jobs), 1
        ):
            cell.write(folder.cell_file(name, i))
            cells[name][i] = cell
            watch.say(f"repeat {i + 1}  {METHODS[name].title:36} {_shown(cell)}")
            left = pace.after(done)
            if left and done % len(methods) == 0:
                watch.say(f"{done} of {len(missing)} fits done{left}")
            watch.working(f"{done} of {len(missing)} fits done{left}")
        shown = ("protocol", "repeats", "tune", "digest", "signals", "estimator", "reg")
        results = ComparisonResults(
            settings={name: value for name, value in plain.items() if name not in shown},
            protocol=protocol,
            repeats=repeats,
            tune=settings.tune,
            data=what,
            n=len(data),
            size=preprocessing.n,
            classes=tuple(data.classes),
            n_train=tuple(len(split.parts["train"]) for split in splits),
            chance=float(numpy.mean([split.chance for split in splits])),
            rows=tuple(
                MethodRow.from_cells(name, METHODS[name], preprocessing.n, row)
                for name, row in cells.items()
            ),
        )
        folder.write_results(
            results, txt=results.as_text(), csv=results.as_csv(), tex=results.as_latex()
        )
    return results


def _fit(
    name: str, repeat: int, X: Any, split: Split, where: FitSettings, groups: Any, tune: bool
) -> tuple[str, int, Cell]:
    """Fit and score one method in one repeat, possibly in another process."""
    return name, repeat, fit_and_score(METHODS[name], X, split, where, groups=groups, tune=tune)


def _shown(cell: Cell) -> str:
    """Return accuracy and time, or the error."""
    if cell.accuracy is None:
        return str(cell.error)
    return f"{100 * cell.accuracy:6.2f} %   {cell.fit_seconds + cell.predict_seconds:8.2f} s"


def _load(settings: Comparison, watch: Watch) -> tuple[Dataset, Preprocessing]:
    """Read and validate the data."""
    arrays = load_dataset(settings.data, settings.labels, settings.groups, on_file=watch.file)
    chosen = {name: getattr(settings, name) for name in ("estimator", "reg", "signals")}
    preprocessing = Preprocessing.of(arrays, **chosen)
    preprocessing = replace(preprocessing, raw=preprocessing.signals)
    arrays = replace(arrays, X=numpy.asarray(arrays.X))
    singular = accepts_singular(arrays, settings)
    data = prepare(arrays, preprocessing, settings.bad, singular=singular, missing=True)
    if data.note:
        watch.say(f"note: {data.note}")
    seen = set(data.label_names.tolist())
    return replace(data, classes=[name for name in data.classes if name in seen]), preprocessing


def _condition(
    data: Dataset, split: Split, settings: Comparison, watch: Watch, repeat: int
) -> NDArray[Any]:
    """Return the matrices of a repeat, conditioned by steps fitted to its training part."""
    data = replace(data, signals=None)  # only for methods that take sets
    conditioner = fit_conditioner("compare", data, split, settings)
    for note in conditioner.notes_:
        watch.say(f"repeat {repeat + 1}  {note}")
    made, notes = transform(conditioner, data)
    for note in notes:
        watch.say(f"repeat {repeat + 1}  {note}")
    return numpy.asarray(made.X)


def _inputs(data: Dataset, settings: Comparison) -> dict[str, Any]:
    """Return the available inputs by kind."""
    inputs: dict[str, Any] = {"matrices": data.X}
    if data.signals is not None and numpy.isfinite(data.signals).all():
        inputs["sets"] = [signal.T for signal in data.signals]
    if settings.data in EMBEDDED:
        inputs["images"] = load_digits().images[data.index]
    return inputs


def _methods(settings: Comparison, inputs: dict[str, Any]) -> list[str]:
    """Return the names of the methods; raise an error if the data lack the input of one."""
    for name in settings.methods or ():
        if METHODS[name].takes not in inputs:
            images = f"images, which only {' and '.join(map(repr, EMBEDDED))} have"
            what = "signals" if METHODS[name].takes == "sets" else images
            raise ValueError(
                f"compare: expected data with {what} for {name}, got matrices, or signals with NaN"
            )
    return [*(settings.methods or (k for k, m in METHODS.items() if m.takes in inputs))]


def _protocol(settings: Comparison, data: Dataset) -> str:
    available = {"file": data.split is not None, "groups": data.groups is not None}
    available["random-halves"] = True
    protocol = settings.protocol or next(name for name, has in available.items() if has)
    if not available[protocol]:
        what = "a split" if protocol == "file" else "groups"
        raise ValueError(f"compare: expected data with {what} for protocol {protocol!r}, got none")
    return protocol


def _split(protocol: str, data: Dataset, settings: Comparison, repeat: int) -> Split:
    """Split the data for a repeat, the same for all methods."""
    is_file = protocol == "file"
    named = numpy.where(data.split == "test", "test", "train") if is_file else None
    split = make_split(
        replace(data, split=named, groups=data.groups if protocol == "groups" else None),
        test=0.0 if is_file else settings.test_size,
        seed=settings.seed + repeat,
        who="compare",
    )
    if split.scored != "test":
        raise ValueError(
            "compare: expected a test set, got none"
            + (" in the split of the data" if is_file else "; classes have too few members")
        )
    return split
