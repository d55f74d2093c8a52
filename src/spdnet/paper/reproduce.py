"""Run an experiment of the paper, on its data or on other data."""

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy
import torch
from numpy.typing import NDArray

from spdnet._files import atomic_write
from spdnet.baselines.estimator import subsample
from spdnet.data import Dataset, Preprocessing, StoredArray, make_split, prepare
from spdnet.manifolds import log_euclidean
from spdnet.paper.data import ExperimentData, held_out, load_data, make_matrices, tasks
from spdnet.paper.folder import ReproductionFolder
from spdnet.paper.reproduction import Experiment, Reproduction, Row
from spdnet.paper.results import ExperimentResults, NetworkCell, ReproductionResults, RowResults
from spdnet.paper.verification import cosines, only, verify
from spdnet.runs.cell import Cell, Score, fit_and_score
from spdnet.runs.methods import METHODS, Method, Where
from spdnet.runs.pace import Pace
from spdnet.runs.settings import Settings
from spdnet.runs.train import train_one
from spdnet.runs.trained_model import TrainedModel
from spdnet.runs.watch import Watch
from spdnet.training import make_fabric
from spdnet.training.data import as_tensor
from spdnet.training.network import in_pieces

#: methods that are run beside the networks in any case
ALWAYS = ("nn-log-euclidean", "ridge")
#: bytes of matrices on disk that other methods get at most
_MOST_BYTES = 2**30
_COSINE = "log-Euclidean cosine"


def reproduce(
    wanted: Reproduction, folder: ReproductionFolder, *, watch: Watch | None = None
) -> ReproductionResults:
    """Run the networks of an experiment, and other methods beside them.

    Results that the folder holds already are not computed again.

    Parameters
    ----------
    wanted : Reproduction
    folder : ReproductionFolder
    watch : Watch, optional

    Returns
    -------
    ReproductionResults

    Raises
    ------
    FileNotFoundError
        The data are missing; the message says how to get them.

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
        for repeat in range(run.repeats):  # raise errors before anything is written
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
        folder.write_results(results)
        atomic_write(folder.path / "table.txt", results.as_text())
        atomic_write(folder.path / "table.csv", results.as_csv())
    return results


class _Run:
    """One experiment of a reproduction."""

    def __init__(
        self,
        wanted: Reproduction,
        experiment: Experiment,
        data: ExperimentData,
        folder: ReproductionFolder,
        watch: Watch,
    ) -> None:
        self.wanted = wanted
        self.experiment = experiment
        self.data = data
        self.folder = folder
        self.watch = watch
        self.repeats = wanted.repeats or (1 if wanted.quick else experiment.repeats)
        self.epochs = wanted.epochs or (2 if wanted.quick else experiment.epochs)
        self.verifies = experiment.protocol == "verification"

    def run(self) -> ExperimentResults:
        """Run all rows in all repeats."""
        experiment = self.experiment
        methods = self._methods()
        cells: dict[str, list[Cell]] = {}
        sizes: dict[str, Any] = {}
        pace = Pace(self.repeats)
        for repeat in range(self.repeats):
            runs = [self.folder.run_of(experiment.data, row, repeat) for row in experiment.rows]
            known = all(run.finished for run in runs)
            file = self.folder.matrices_file(experiment.data, repeat)
            data = make_matrices(
                self.data, experiment, self.wanted, repeat, file, on_source=self.watch.file
            )
            self.preprocessing = Preprocessing(False, data.X.shape[-1], "sample", 0.0)
            ready = prepare(
                data, self.preprocessing, "refuse", self.wanted.dtype, on_matrix=self.watch.matrix
            )
            self.folder.require_digest(experiment.data, repeat, ready.digest)
            if repeat == 0:
                sizes = self._sizes(ready, data)
                self.watch.say(self._results(sizes, ()).introduction)
            for name, method in methods.items():
                cells.setdefault(name, []).append(self._method(name, method, ready, data, repeat))
            for row in experiment.rows:
                cells.setdefault(row.title, []).append(self._network(row, ready, data, repeat))
            file.unlink(missing_ok=True)  # it can be computed again
            if left := pace.after(repeat + 1, counts=not known):
                self.watch.say(f"repeat {repeat + 1} of {self.repeats} done{left}")
        paper = {b["method"]: b["paper"] for b in experiment.baselines}
        rows = [
            RowResults.from_cells(
                _COSINE if method is None else method.title,
                "method",
                paper.get(name, {}),
                cells[name],
            )
            for name, method in methods.items()
        ]
        if self.wanted.baselines:
            rows += [RowResults(kind="cited", **cited) for cited in experiment.cited]
        rows += [
            RowResults.from_cells(
                row.title, "network", row.paper, cells[row.title], timed=row.is_timed
            )
            for row in experiment.rows
        ]
        return self._results(sizes, tuple(rows))

    def _results(self, sizes: dict[str, Any], rows: tuple[RowResults, ...]) -> ExperimentResults:
        return ExperimentResults(
            data=self.experiment.data,
            what=self.data.title,
            standin=self.data.standin,
            protocol=self.data.protocol(self.experiment.protocol),
            repeats=self.repeats,
            epochs=self.epochs,
            minutes=self.experiment.minutes,
            measures=tuple(self.experiment.measures),
            **sizes,
            rows=rows,
        )

    def _methods(self) -> dict[str, Method | None]:
        """Return the methods beside the networks; None is the cosine of logarithms."""
        if self.verifies:
            found: dict[str, Method | None] = {"cosine": None}
        else:
            found = {name: METHODS[name] for name in ALWAYS}
        if self.wanted.baselines:
            found |= {b["method"]: METHODS[b["method"]] for b in self.experiment.baselines}
        return found

    def _sizes(self, ready: Dataset, data: Dataset) -> dict[str, Any]:
        assert ready.split is not None
        assert ready.y is not None
        train = ready.split == "train"
        found = tasks(data, self.experiment.measures) if self.verifies else {}
        return {
            "size": ready.X.shape[-1],
            "classes": len(set(ready.y[train].tolist())),
            "n_train": int(train.sum()),
            "n_test": int((~train).sum()),
            "tasks": {name: int(chosen.sum()) for name, chosen in found.items()},
        }

    def _network(self, row: Row, ready: Dataset, data: Dataset, repeat: int) -> Cell:
        """Train a network; if it fails, the cell holds the error."""
        dims = row.dims_for(ready.X.shape[-1])
        try:
            return self._trained(row, dims, ready, data, repeat)
        except OSError:  # such as a full disk, which is no result
            self.watch.end()
            raise
        except Exception as error:  # reported in its row
            text = f"{type(error).__name__}: {error}"
            self.watch.end()
            self.watch.say(f"{row.title}: {text}")
            return NetworkCell(score=None, error=text, dims=dims)

    def _trained(
        self,
        row: Row,
        dims: tuple[int, ...],
        ready: Dataset,
        data: Dataset,
        repeat: int,
    ) -> NetworkCell:
        """Train or resume a network, or read its results."""
        folder = self.folder.run_of(self.experiment.data, row, repeat)
        if not folder.finished:
            self.watch.say(f"repeat {repeat + 1} of {self.repeats}: {row.title}")
            learn = ready
            if self.verifies:
                assert ready.split is not None  # set by make_matrices()
                learn = only(ready, ready.split == "train")
            train_one(
                self._settings(row, dims, repeat),
                learn,
                self.preprocessing,
                folder,
                folder.exists,
                self.watch,
                curves=not self.verifies,
                judged=not self.verifies,
                alone=False,
            )
        found, history = folder.run_results(), folder.metrics()
        return NetworkCell(
            score=self._verified_network(folder.path, ready, data)
            if self.verifies
            else Score({"accuracy": found.parts["test"].accuracy}),
            dims=dims,
            epoch_seconds=float(numpy.median([epoch["seconds"] for epoch in history])),
            history=tuple(history),
            device=found.device,
            clipped=max(found.raised, default=None),
        )

    def _verified_network(self, path: Any, ready: Dataset, data: Dataset) -> Score:
        trained = TrainedModel.load(path, device=self.wanted.device)
        function = trained.model if self.wanted.score == "logits" else trained.model.features
        weight = next(trained.model.parameters())

        def embed(chosen: Dataset) -> NDArray[Any]:
            with torch.no_grad():
                X = as_tensor(chosen.inputs).to(weight.device)
                return in_pieces(function, X, check=False).flatten(1).double().cpu().numpy()

        return self._verified(lambda chosen: cosines(embed(chosen)), ready, data)

    def _settings(self, row: Row, dims: tuple[int, ...], repeat: int) -> Settings:
        return Settings(
            data=self.wanted.standin or self.experiment.data,
            recipe=self.wanted.recipe,
            dims=dims,
            epochs=self.epochs,
            eps=row.eps,
            log=row.log,
            seed=self.wanted.seed + repeat,
            device=self.wanted.device,
            dtype=self.wanted.dtype,
            baseline=False,
        )

    def _method(
        self, name: str, method: Method | None, ready: Dataset, data: Dataset, repeat: int
    ) -> Cell:
        """Fit another method, or read its result."""
        file = self.folder.cell_file(self.experiment.data, name, repeat)
        if (before := Cell.find(file)) is not None:
            return before
        title = _COSINE if method is None else method.title
        self.watch.say(f"repeat {repeat + 1} of {self.repeats}: {title}")
        if method is None:

            def cosines_of_logs(chosen: Dataset) -> NDArray[Any]:
                X = as_tensor(chosen.inputs)[:].double()
                return cosines(log_euclidean.vectors(X).numpy())

            cell = Cell(score=self._verified(cosines_of_logs, ready, data))
        else:
            device = str(make_fabric(self.wanted.device).device)
            where = Where(ready.X.shape[-1], self.wanted.seed + repeat, device)

            def verified(estimator: Any, X: Any) -> Score:
                return self._verified(
                    lambda chosen: estimator.similarity(chosen.X[:], chosen.X[:]), ready, data
                )

            some, notes = _in_memory(ready)
            split = make_split(some, who="reproduce")
            score_with = verified if self.verifies else None
            cell = fit_and_score(method, some.X, split, where, score=score_with, notes=notes)
            if cell.error:
                self.watch.say(f"{title}: {cell.error}")
        cell.write(file)
        return cell

    def _verified(
        self, similarity: Callable[[Dataset], NDArray[Any]], ready: Dataset, data: Dataset
    ) -> Score:
        return verify(similarity, ready, tasks(data, self.experiment.measures))


def _in_memory(ready: Dataset) -> tuple[Dataset, tuple[str, ...]]:
    """Load the matrices for a method into memory, with a note if they are a subset."""
    assert ready.split is not None  # set by make_matrices()
    if not isinstance(ready.X, StoredArray) or ready.X.nbytes <= _MOST_BYTES:
        return replace(ready, X=numpy.asarray(ready.X)), ()
    train, test = (numpy.flatnonzero(ready.split == part) for part in ("train", "test"))
    n = max(1, _MOST_BYTES * len(ready) // ready.X.nbytes)
    few = train[subsample(ready.codes[train], n)]
    some = ready.take(numpy.sort(numpy.concatenate([few, test])))
    note = f"fitted to {len(few)} of {len(train)} matrices, as many as fit in memory"
    return replace(some, X=some.X[:]), (note,)
