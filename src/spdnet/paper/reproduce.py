"""Run an experiment of the paper, on its data or on others, in a folder that can be left at any
moment and gone on with.
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy
import torch
from numpy.typing import NDArray

from spdnet import metrics
from spdnet.baselines.estimator import subsample
from spdnet.data import Dataset, Preprocessing, StoredArray, prepare
from spdnet.manifolds import log_euclidean
from spdnet.paper.folder import ReproductionFolder
from spdnet.paper.problems import Problem, divide, held_out, load_problem, tasks
from spdnet.paper.reproduction import Experiment, Reproduction, Row
from spdnet.paper.tables import as_csv, as_text
from spdnet.paper.verification import cosines, only, verify
from spdnet.runs.cell import Task, fit_and_score
from spdnet.runs.methods import METHODS, Method, Where
from spdnet.runs.pace import Pace
from spdnet.runs.run_folder import RunFolder, read_json, write
from spdnet.runs.settings import Settings
from spdnet.runs.train import Watch, train_one
from spdnet.runs.trained_model import TrainedModel
from spdnet.training import make_fabric
from spdnet.training.data import as_tensor
from spdnet.training.evaluation import run_in_chunks

#: shown beside every network, whatever is asked for
ALWAYS = ("nn-log-euclidean", "ridge")
#: bytes of matrices that other methods are given at most, of those that are on disk
_ROOM = 2**30


def reproduce(
    wanted: Reproduction,
    folder: ReproductionFolder,
    *,
    watch: Watch | None = None,
    on_finished: Callable[[ReproductionFolder], object] | None = None,
) -> dict[str, Any]:
    """Run the networks of an experiment, and the methods beside them; what a folder holds already
    is not done again.

    Parameters
    ----------
    wanted : Reproduction
    folder : ReproductionFolder
    watch : Watch, optional
    on_finished : callable, optional
        Called with the folder when the results are written.

    Returns
    -------
    dict
        What is in ``results.json``.

    Raises
    ------
    FileNotFoundError
        The data are not there; the message says what to put where.

    Examples
    --------
    >>> import tempfile
    >>> from spdnet.paper import Reproduction, ReproductionFolder, reproduce
    >>> wanted = Reproduction(experiment="epsilon", standin="digits", quick=True, device="cpu")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = reproduce(wanted, ReproductionFolder(f"{folder}/epsilon"))
    >>> len(found["experiments"])
    1
    """
    watch = Watch() if watch is None else watch
    experiments = wanted.experiments()
    problems = [load_problem(wanted, experiment) for experiment in experiments]
    runs = [
        _Run(wanted, experiment, problem, folder, watch)
        for experiment, problem in zip(experiments, problems, strict=True)
    ]
    for run in runs:
        for repeat in range(run.repeats):  # complain before anything is written
            held_out(run.problem, run.experiment.protocol, wanted.seed + repeat)
    plain = asdict(wanted)
    folder.require_same(plain)
    folder.path.mkdir(parents=True, exist_ok=True)
    with RunFolder(folder.path).locked():
        folder.begin(plain)
        found = [run.run() for run in runs]
        results = {**plain, "title": wanted.title, "experiments": found}
        write(folder.results_file, json.dumps(results, indent=1, allow_nan=False) + "\n")
        write(folder.path / "table.txt", as_text(results))
        write(folder.path / "table.csv", as_csv(results))
        if on_finished is not None:
            on_finished(folder)
    return results


class _Run:
    """One experiment of a reproduction."""

    def __init__(
        self,
        wanted: Reproduction,
        experiment: Experiment,
        problem: Problem,
        folder: ReproductionFolder,
        watch: Watch,
    ) -> None:
        self.wanted = wanted
        self.experiment = experiment
        self.problem = problem
        self.folder = folder
        self.watch = watch
        self.repeats = wanted.repeats or (1 if wanted.quick else experiment.repeats)
        self.epochs = wanted.epochs or (2 if wanted.quick else experiment.epochs)
        self.verifies = experiment.protocol == "verification"

    def run(self) -> dict[str, Any]:
        """All rows in all repeats."""
        methods = self._methods()
        cells: dict[str, list[dict[str, Any]]] = {}
        sizes: dict[str, Any] = {}
        pace = Pace(self.repeats)
        for repeat in range(self.repeats):
            known = self._is_known(repeat)
            file = self.folder.matrices_of(self.experiment.data, repeat)
            data = divide(
                self.problem,
                self.experiment,
                self.wanted,
                repeat,
                file,
                on_source=self.watch.file,
            )
            ready = self._ready(data)
            self.folder.require_digest(self.experiment.data, repeat, ready.digest)
            if repeat == 0:
                sizes = self._sizes(ready, data)
                self.watch.say(self._introduction(sizes))
            for name, method in methods.items():
                cell = self._method(name, method, ready, data, repeat)
                cells.setdefault(name, []).append(cell)
            for row in self.experiment.rows:
                cell = self._network(row, ready, data, repeat)
                cells.setdefault(row.title, []).append(cell)
            file.unlink(missing_ok=True)  # they can be made again
            if left := pace.after(repeat + 1, counts=not known):
                self.watch.say(f"repeat {repeat + 1} of {self.repeats} done{left}")
        paper = {b["method"]: b["paper"] for b in self.experiment.baselines}
        rows = [
            _row(METHODS[name].title, "method", paper.get(name, {}), cells[name])
            if name in METHODS
            else _row(_COSINE, "method", {}, cells[name])
            for name in methods
        ]
        rows += [
            {"title": c["title"], "kind": "cited", "paper": c["paper"], "why": c["why"]}
            for c in self.experiment.cited
            if self.wanted.baselines
        ]
        for r in self.experiment.rows:
            found = _row(r.title, "network", r.paper, cells[r.title])
            rows.append(found | {"timed": r.is_timed})
        return {
            "data": self.experiment.data,
            "what": self.problem.title,
            "standin": self.problem.standin,
            "protocol": self.problem.division(self.experiment.protocol),
            "repeats": self.repeats,
            "epochs": self.epochs,
            "minutes": self.experiment.minutes,
            "measures": self.experiment.measures,
            **sizes,
            "rows": rows,
        }

    def _is_known(self, repeat: int) -> bool:
        """Whether the networks of a repeat were trained before."""
        runs = (self.folder.run_of(self.experiment.data, r, repeat) for r in self.experiment.rows)
        return all(run.finished for run in runs)

    def _methods(self) -> dict[str, Method | None]:
        """What is fitted beside the networks: by name, None for cosines of logarithms."""
        if self.verifies:
            found: dict[str, Method | None] = {_COSINE: None}
        else:
            found = {name: METHODS[name] for name in ALWAYS}
        if self.wanted.baselines:
            found |= {b["method"]: METHODS[b["method"]] for b in self.experiment.baselines}
        return found

    def _ready(self, data: Dataset) -> Dataset:
        preprocessing = Preprocessing(False, data.X.shape[-1], "sample", 0.0)
        self.preprocessing = preprocessing
        return prepare(
            data, preprocessing, "refuse", self.wanted.dtype, on_matrix=self.watch.matrix
        )

    def _sizes(self, ready: Dataset, data: Dataset) -> dict[str, Any]:
        assert ready.split is not None
        assert ready.y is not None
        train = ready.split == "train"
        sizes = {
            "size": ready.X.shape[-1],
            "classes": len(set(ready.y[train].tolist())),
            "n_train": int(train.sum()),
            "n_test": int((~train).sum()),
        }
        if self.verifies:
            found = tasks(data, self.experiment.measures)
            sizes["tasks"] = {name: int(chosen.sum()) for name, chosen in found.items()}
        return sizes

    def _introduction(self, sizes: dict[str, Any]) -> str:
        instead = f" in place of {self.experiment.data}" if self.problem.standin else ""
        return (
            f"{self.problem.title}{instead}: matrices of {sizes['size']} x {sizes['size']}, "
            f"{sizes['classes']} classes, {sizes['n_train']} to train on, {sizes['n_test']} to "
            f"test on; {self.problem.division(self.experiment.protocol)}, {self.repeats} "
            f"repeat{'' if self.repeats == 1 else 's'}, {self.epochs} epochs"
        )

    def _network(self, row: Row, ready: Dataset, data: Dataset, repeat: int) -> dict[str, Any]:
        """What a network comes to; if it fails, that is what was found, and the others go on."""
        dims = row.dims_for(ready.X.shape[-1])
        try:
            return {"dims": list(dims), **self._trained(row, dims, ready, data, repeat)}
        except OSError:  # a full disk is no result
            self.watch.end()
            raise
        except Exception as error:  # reported in its row
            text = f"{type(error).__name__}: {error}"
            self.watch.end()
            self.watch.say(f"{row.title}: {text}")
            return {"error": text, "dims": list(dims)}

    def _trained(
        self,
        row: Row,
        dims: tuple[int, ...],
        ready: Dataset,
        data: Dataset,
        repeat: int,
    ) -> dict[str, Any]:
        """Train, or go on, or read what was found."""
        folder = self.folder.run_of(self.experiment.data, row, repeat)
        if folder.finished:
            found = folder.results()
        else:
            self.watch.say(f"repeat {repeat + 1} of {self.repeats}: {row.title}")
            learn = ready
            if self.verifies:
                assert ready.split is not None  # divide() has named the parts
                learn = only(ready, ready.split == "train")
            found = train_one(
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
        history = folder.metrics()
        cell: dict[str, Any] = {
            "error": None,
            "seconds": float(numpy.median([epoch["seconds"] for epoch in history])),
            "history": history,
            "device": found["device"],
        }
        clipped = [layer["clipped"] for layer in found["spectra"] if "clipped" in layer]
        if clipped:
            cell["clipped"] = max(clipped)
        if not self.verifies:
            return {**cell, "accuracy": found["parts"]["test"]["accuracy"]}
        trained = TrainedModel.load(folder.path, device=self.wanted.device)
        function = trained.model if self.wanted.score == "logits" else trained.model.features
        weight = next(trained.model.parameters())

        def embed(chosen: Dataset) -> NDArray[Any]:
            with torch.no_grad():
                X = as_tensor(chosen.inputs).to(weight.device)
                return run_in_chunks(function, X, check=False).flatten(1).double().cpu().numpy()

        return {**cell, **self._verified(lambda chosen: cosines(embed(chosen)), ready, data)}

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
    ) -> dict[str, Any]:
        """Fit another method, or read what was found."""
        file = self.folder.cell_of(
            self.experiment.data, "cosine" if method is None else name, repeat
        )
        if file.is_file():
            before = read_json(file, "delete it to have it made again")
            if before.get("error") is None:
                return before
        title = _COSINE if method is None else method.title
        self.watch.say(f"repeat {repeat + 1} of {self.repeats}: {title}")
        if method is None:
            found: dict[str, Any] = {"error": None, "warnings": []}
            found |= self._verified(
                lambda chosen: cosines(
                    log_euclidean.vectors(as_tensor(chosen.inputs)[:].double()).numpy()
                ),
                ready,
                data,
            )
        else:
            device = str(make_fabric(self.wanted.device).device)
            where = Where(ready.X.shape[-1], self.wanted.seed + repeat, device)
            score = None
            if self.verifies:

                def score(estimator: Any, X: Any) -> dict[str, float]:
                    return self._verified(
                        lambda chosen: estimator.similarity(chosen.X[:], chosen.X[:]), ready, data
                    )

            task, note = _task(ready)
            found = fit_and_score(method, task, where, score=score)
            found["notes"] = [note] if note else []
            if found["error"]:
                self.watch.say(f"{title}: {found['error']}")
        file.parent.mkdir(parents=True, exist_ok=True)
        write(file, json.dumps(found, indent=1) + "\n")
        return found

    def _verified(
        self, similarity: Callable[[Dataset], NDArray[Any]], ready: Dataset, data: Dataset
    ) -> dict[str, Any]:
        return verify(similarity, ready, tasks(data, self.experiment.measures))


_COSINE = "log-Euclidean cosine"


def _task(ready: Dataset) -> tuple[Task, str]:
    """What a method is fitted to and scored on, in memory; and a note if it is not all there is."""
    assert ready.y is not None  # divide() has given it
    assert ready.split is not None
    codes = numpy.unique(ready.y, return_inverse=True)[1].reshape(-1)
    held = ready.split == "test"
    if not isinstance(ready.X, StoredArray) or ready.X.nbytes <= _ROOM:
        return Task(numpy.asarray(ready.X), codes, held, None), ""
    learn = numpy.flatnonzero(~held)
    few = learn[subsample(codes[learn], max(1, _ROOM * len(codes) // ready.X.nbytes))]
    places = numpy.sort(numpy.concatenate([few, numpy.flatnonzero(held)]))
    task = Task(ready.X[places], codes[places], held[places], None)
    return task, f"fitted to {len(few)} of {len(learn)} matrices, as many as are held in memory"


def _row(
    title: str, kind: str, paper: dict[str, float], cells: list[dict[str, Any]]
) -> dict[str, Any]:
    """Mean and deviation over the repeats that did not fail."""
    good = [cell for cell in cells if cell["error"] is None]
    names = ("accuracy", "control", "handheld", "all")
    ours = {}
    for name in names:
        values = [cell[name] for cell in good if name in cell]
        if values:
            spread = metrics.spread(values)
            deviation = spread.deviation if len(values) > 1 else None
            ours[name] = {"mean": spread.mean, "deviation": deviation, "values": values}
    row: dict[str, Any] = {
        "title": title,
        "kind": kind,
        "paper": paper,
        "ours": ours,
        "repeats": len(good),
        "of": len(cells),
        "errors": list(dict.fromkeys(cell["error"] for cell in cells if cell["error"])),
    }
    row["notes"] = list(dict.fromkeys(note for cell in good for note in cell.get("notes", [])))
    for name in ("dims", "history", "roc", "equal_error", "device", "clipped"):
        if good and name in good[0]:
            row[name] = good[0][name]  # of the first repeat
    if good and "seconds" in good[0]:
        row["seconds"] = float(numpy.mean([cell["seconds"] for cell in good]))
    return row
