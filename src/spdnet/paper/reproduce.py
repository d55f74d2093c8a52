"""Run an experiment of the paper, on its data or on other data."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy
import torch
from numpy.typing import NDArray

from spdnet import metrics
from spdnet.baselines.estimator import subsample
from spdnet.data import Dataset, Preprocessing, StoredArray, make_split, prepare
from spdnet.manifolds import log_euclidean
from spdnet.paper.data import ExperimentData, held_out, load_data, make_matrices, tasks
from spdnet.paper.reproduction import Experiment, Reproduction, Row
from spdnet.paper.results import (
    ExperimentResults,
    NetworkCell,
    ReproductionFolder,
    ReproductionResults,
    RowResults,
)
from spdnet.runs import RunFolder
from spdnet.runs.cell import Cell, RocCurve, Score, fit_and_score
from spdnet.runs.methods import METHODS, FitSettings, Method
from spdnet.runs.pace import Pace
from spdnet.runs.session import Session
from spdnet.runs.settings import Settings
from spdnet.runs.trained_model import TrainedModel
from spdnet.runs.training import Training
from spdnet.runs.watch import Watch
from spdnet.training import make_fabric
from spdnet.training.data import as_tensor
from spdnet.training.evaluation import run_in_chunks

#: maximum size in bytes of matrices on disk that are loaded for the other methods
_MAX_BYTES = 2**30


def reproduce(
    wanted: Reproduction, folder: ReproductionFolder, *, watch: Watch | None = None
) -> ReproductionResults:
    """Run the networks of an experiment, and other methods for comparison.

    Results that the folder already contains are not recomputed.

    Raises
    ------
    FileNotFoundError
        The data are missing; the message explains how to get them.

    Examples
    --------
    >>> import tempfile
    >>> from spdnet.paper import Reproduction, ReproductionFolder, reproduce
    >>> wanted = Reproduction(experiment="epsilon", standin="digits", quick=True, device="cpu")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = reproduce(wanted, ReproductionFolder(f"{folder}/epsilon"))
    >>> len(found.experiments)
    1
    """
    watch = Watch() if watch is None else watch
    runs = [
        _Run(wanted, experiment, load_data(wanted, experiment), folder, watch)
        for experiment in wanted.experiments()
    ]
    for run in runs:
        for repeat in range(run.repeats):  # raise errors before writing anything
            held_out(run.data, run.experiment.protocol, wanted.seed + repeat)
    settings = asdict(wanted)
    folder.require_same(settings)
    with folder.locked():
        folder.require_same(settings)  # may have changed meanwhile
        folder.begin(settings)
        results = ReproductionResults(
            title=wanted.title,
            quick=wanted.quick,
            recipe=wanted.recipe,
            settings=settings,
            experiments=tuple(run.run() for run in runs),
        )
        folder.write_results(results, txt=results.as_text(), csv=results.as_csv())
    return results


@dataclass
class _Run:
    """One experiment of a reproduction."""

    wanted: Reproduction
    experiment: Experiment
    data: ExperimentData
    folder: ReproductionFolder
    watch: Watch

    def __post_init__(self) -> None:
        wanted, experiment = self.wanted, self.experiment
        self.repeats = wanted.repeats or (1 if wanted.quick else experiment.repeats)
        self.epochs = wanted.epochs or (2 if wanted.quick else experiment.epochs)
        self.verifies = experiment.protocol == "verification"
        self.methods = dict(_VERIFIED if self.verifies else _CLASSIFIED)
        if wanted.baselines:
            self.methods |= {name: METHODS[name] for name in experiment.baselines}

    def run(self) -> ExperimentResults:
        """Run all rows in all repeats."""
        experiment, folder, watch = self.experiment, self.folder, self.watch
        cells: dict[str, list[Cell]] = defaultdict(list)
        pace = Pace(self.repeats)
        for repeat in range(self.repeats):
            runs = [folder.run_of(experiment.data, row, repeat) for row in experiment.rows]
            known = all(run.finished for run in runs)
            file = folder.matrices_file(experiment.data, repeat)
            made = make_matrices(
                self.data, experiment, self.wanted, repeat, file, on_source=watch.file
            )
            preprocessing = Preprocessing(False, made.X.shape[-1], "sample", 0.0)
            data = prepare(made, preprocessing, "refuse", self.wanted.dtype, on_matrix=watch.matrix)
            folder.require_digest(experiment.data, repeat, data.digest)
            if repeat == 0:
                found = self._describe(data)
                instead = f" in place of {found.data}" if found.standin else ""
                watch.say(f"{found.what}{instead}: {found.sizes}")
            for name, method in self.methods.items():
                cells[name].append(self._method(name, method, data, repeat))
            for row, run in zip(experiment.rows, runs, strict=True):
                cells[row.title].append(self._network(row, run, data, preprocessing, repeat))
            file.unlink(missing_ok=True)  # can be recomputed
            if left := pace.after(repeat + 1, counts=not known):
                watch.say(f"repeat {repeat + 1} of {self.repeats} done{left}")
        rows = []
        for name, method in self.methods.items():
            about: Any = {"title": method.title, "paper": experiment.baselines.get(name, {})}
            rows.append(RowResults.from_cells(cells[name], kind="method", **about))
        if self.wanted.baselines:
            rows += [RowResults(kind="cited", **c.to_json()) for c in experiment.cited]
        for row in experiment.rows:
            about = {"title": row.title, "paper": row.paper, "timed": row.is_timed}
            rows.append(RowResults.from_cells(cells[row.title], kind="network", **about))
        return replace(found, rows=tuple(rows))

    def _describe(self, data: Dataset) -> ExperimentResults:
        """Return the results without rows."""
        experiment = self.experiment
        train = data.split == "train"
        no_split = self.data.samples.split is None and experiment.protocol == "fixed"
        sizes = tasks(data, experiment.measures) if self.verifies else {}
        return ExperimentResults(
            data=experiment.data,
            what=self.data.title,
            standin=self.data.standin,
            protocol="one random half" if no_split else experiment.protocol,
            repeats=self.repeats,
            epochs=self.epochs,
            minutes=experiment.minutes,
            measures=tuple(experiment.measures),
            size=data.X.shape[-1],
            classes=len(set(data.label_names[train].tolist())),
            n_train=int(numpy.sum(train)),
            n_test=int(numpy.sum(~train)),
            tasks={name: int(chosen.sum()) for name, chosen in sizes.items()},
            rows=(),
        )

    def _method(self, name: str, method: Method, data: Dataset, repeat: int) -> Cell:
        """Fit a method, or read its result."""
        file = self.folder.cell_file(self.experiment.data, name, repeat)
        if (before := Cell.find(file)) is not None:
            return before
        self.watch.say(f"repeat {repeat + 1} of {self.repeats}: {method.title}")

        def verified(estimator: Any, X: Any) -> Score:
            return self._verify(data, lambda part: estimator.similarity(part.X[:], part.X[:]))

        device = str(make_fabric(self.wanted.device).device)
        where = FitSettings(data.X.shape[-1], self.wanted.seed + repeat, device)
        some, notes = _in_memory(data)
        split = make_split(some, who="reproduce")
        score = verified if self.verifies else None
        cell = fit_and_score(method, some.X, split, where, score=score, notes=notes)
        if cell.error:
            self.watch.say(f"{method.title}: {cell.error}")
        cell.write(file)
        return cell

    def _network(
        self, row: Row, run: RunFolder, data: Dataset, preprocessing: Preprocessing, repeat: int
    ) -> NetworkCell:
        """Train or resume a network; if it fails, the cell contains the error."""
        wanted, dims = self.wanted, row.dims_for(preprocessing.n)
        try:
            if not run.finished:
                self.watch.say(f"repeat {repeat + 1} of {self.repeats}: {row.title}")
                settings = Settings(
                    data=wanted.standin or self.experiment.data,
                    recipe=wanted.recipe,
                    dims=dims,
                    epochs=self.epochs,
                    eps=row.eps,
                    log=row.log,
                    seed=wanted.seed + repeat,
                    device=wanted.device,
                    dtype=wanted.dtype,
                    baseline=False,
                )
                # in verification, the test set has other people
                some = only(data, data.split == "train") if self.verifies else data
                shown = {"notes": not self.verifies, "curves": not self.verifies}
                training = Training(settings, some, preprocessing, **shown)
                training.run(run, Session(wanted.device, watch=self.watch))
            found, history = run.run_results(), run.metrics()
            return NetworkCell(
                score=self._verify_network(run, data)
                if self.verifies
                else Score({"accuracy": found.parts["test"].accuracy}),
                dims=dims,
                epoch_seconds=float(numpy.median([epoch["seconds"] for epoch in history])),
                history=tuple(history),
                device=found.device,
                clipped=max(found.raised, default=None),
            )
        except OSError:  # such as a full disk, which is not a result
            self.watch.end()
            raise
        except Exception as error:  # reported in its row
            text = f"{type(error).__name__}: {error}"
            self.watch.end()
            self.watch.say(f"{row.title}: {text}")
            return NetworkCell(score=None, error=text, dims=dims)

    def _verify_network(self, run: RunFolder, data: Dataset) -> Score:
        model: Any = TrainedModel.load(run.path, device=self.wanted.device).model
        function = model.features if self.wanted.score == "features" else model
        device = next(model.parameters()).device

        def similarity(part: Dataset) -> NDArray[Any]:
            with torch.no_grad():
                X = as_tensor(part.inputs).to(device)
                outputs = run_in_chunks(function, X, check=False).flatten(1).double()
            return cosines(outputs.cpu().numpy())

        return self._verify(data, similarity)

    def _verify(self, data: Dataset, similarity: Callable[[Dataset], NDArray[Any]]) -> Score:
        """Compute rates at a false acceptance rate of 0.01, ROCs and equal error rates.

        ``similarity`` maps N matrices, whose classes are people, to scores ``(N, N)``.
        """
        rates, curves, errors = {}, {}, {}
        far = numpy.geomspace(1e-4, 1, 101)
        for task, chosen in tasks(data, self.experiment.measures).items():
            part = only(data, chosen)
            pairs = numpy.triu_indices(len(part), 1)  # each pair once, without the diagonal
            scores = similarity(part)[pairs]
            same = numpy.equal.outer(part.codes, part.codes)[pairs]
            rates[task] = metrics.verification_rate(scores, same, far=0.01)
            errors[task] = metrics.equal_error_rate(scores, same)
            rate = numpy.interp(far, *metrics.roc(scores, same))
            curves[task] = RocCurve(tuple(far.tolist()), tuple(rate.tolist()))
        return Score(rates, curves, errors)


def only(data: Dataset, chosen: Any) -> Dataset:
    """Select matrices by a mask, and keep only their classes."""
    part = data.take(numpy.flatnonzero(chosen))
    present = set(part.label_names.tolist())
    return replace(part, classes=[name for name in part.classes if name in present])


def cosines(features: NDArray[Any]) -> NDArray[Any]:
    """Return the cosines ``(N, N)`` of the angles between rows."""
    length = numpy.linalg.norm(features, axis=1, keepdims=True)
    unit = features / numpy.where(length > 0, length, 1)
    return unit @ unit.T


class _LogCosine:
    """Cosine of the angle between logarithms, with the interface of a verification method."""

    def fit(self, X: Any, y: Any) -> "_LogCosine":
        return self

    def similarity(self, X: Any, Y: Any) -> NDArray[Any]:
        return cosines(log_euclidean.vectors(torch.from_numpy(X).double()).numpy())


#: methods that always run in addition to the networks
_VERIFIED = {"cosine": Method("log-Euclidean cosine", lambda where: _LogCosine())}
_CLASSIFIED = {name: METHODS[name] for name in ("nn-log-euclidean", "ridge")}


def _in_memory(data: Dataset) -> tuple[Dataset, tuple[str, ...]]:
    """Load the matrices for a method into memory, with a note if they are a subset."""
    assert data.split is not None  # set by make_matrices()
    if not isinstance(data.X, StoredArray) or data.X.nbytes <= _MAX_BYTES:
        return replace(data, X=numpy.asarray(data.X)), ()
    train, test = (numpy.flatnonzero(data.split == part) for part in ("train", "test"))
    few = train[subsample(data.codes[train], max(1, _MAX_BYTES * len(data) // data.X.nbytes))]
    some = data.take(numpy.sort(numpy.concatenate([few, test])))
    note = f"fitted to {len(few)} of {len(train)} matrices, as many as fit in memory"
    return replace(some, X=some.X[:]), (note,)
