"""Run an experiment of the paper, on its data or on others, in a folder that can be left at any
moment and gone on with.
"""

import json
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy
import torch
from numpy.typing import NDArray

from spdnet import metrics
from spdnet.baselines.estimator import log_vectors
from spdnet.datasets import LabelledArrays
from spdnet.experiments.cell import Task, fit_and_score
from spdnet.experiments.data import Matrices, Preprocessing, prepare
from spdnet.experiments.methods import METHODS, Method, Where
from spdnet.experiments.problems import Problem, divide, load_problem, tasks
from spdnet.experiments.reproduction import Experiment, Reproduction, Row
from spdnet.experiments.reproduction_tables import as_csv, as_text
from spdnet.experiments.run_folder import RunFolder, environment, is_draft, read_json, write
from spdnet.experiments.settings import Settings
from spdnet.experiments.train import Watch, train_one
from spdnet.experiments.trained import Trained
from spdnet.training import make_fabric
from spdnet.training.network import in_pieces

#: shown beside every network, whatever is asked for
ALWAYS = ("nn-log-euclidean", "ridge")


class ReproductionFolder:
    """A reproduction on disk.

    ======================  ==================================================
    ``reproduction.json``   what is reproduced
    ``environment.json``    versions, machine, command
    ``DATA/NETWORK/*``      a run folder for each repeat
    ``DATA/methods/*``      one file for each other method and repeat
    ``results.json``        the table with all that is known
    ``table.txt .csv``      the table to read and to compute with
    ``report.html``         the same for people, with plots
    ======================  ==================================================

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

    def begin(self, wanted: dict[str, Any]) -> None:
        """See that nothing is here, or this reproduction; more repeats and baselines may come."""
        file = self.path / "reproduction.json"
        may_change = ("repeats", "baselines", "device")
        if file.is_file():
            before = read_json(file, "spdnet reproduce writes it")
            for name, value in wanted.items():
                if before.get(name) != value and name not in may_change:
                    raise ValueError(
                        f"reproduce: expected the reproduction that {self.path} holds, with {name} "
                        f"= {before.get(name)!r}, got {value!r}; name another folder"
                    )
        elif self.path.exists() and not all(map(is_draft, self.path.iterdir())):
            raise FileExistsError(
                f"reproduce: expected a new folder or one of a reproduction, but {self.path} holds "
                "something else; name another"
            )
        self.path.mkdir(parents=True, exist_ok=True)
        write(file, json.dumps(wanted, indent=1) + "\n")
        if not (self.path / "environment.json").is_file():
            text = json.dumps(environment(wanted["seed"]), indent=2)
            write(self.path / "environment.json", text + "\n")

    def run_of(self, data: str, row: Row, repeat: int) -> RunFolder:
        """The folder of a network in one repeat."""
        name = re.sub(r"[^a-z0-9]+", "-", row.title.lower()).strip("-")
        return RunFolder(self.path / data / name / f"repeat-{repeat + 1}")

    def cell_of(self, data: str, method: str, repeat: int) -> Path:
        """The file of another method in one repeat."""
        return self.path / data / "methods" / f"{method}-{repeat + 1}.json"

    def results(self) -> dict[str, Any]:
        """What :func:`reproduce` wrote."""
        return read_json(self.results_file, "spdnet reproduce writes it")

    def environment(self) -> dict[str, Any]:
        """Versions, machine and command."""
        return read_json(self.path / "environment.json", "spdnet reproduce writes it")


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
    """
    watch = Watch() if watch is None else watch
    experiments = wanted.experiments()
    problems = [load_problem(wanted, experiment) for experiment in experiments]
    plain = asdict(wanted)
    folder.begin(plain)
    with RunFolder(folder.path).locked():
        found = [
            _Run(wanted, experiment, problem, folder, watch).run()
            for experiment, problem in zip(experiments, problems, strict=True)
        ]
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
        for repeat in range(self.repeats):
            data = divide(self.problem, self.experiment, self.wanted, repeat)
            ready = self._ready(data)
            if repeat == 0:
                sizes = self._sizes(ready, data)
                self.watch.say(self._introduction(sizes))
            for name, method in methods.items():
                cell = self._method(name, method, ready, data, repeat)
                cells.setdefault(name, []).append(cell)
            for row in self.experiment.rows:
                cell = self._network(row, ready, data, repeat)
                cells.setdefault(row.title, []).append(cell)
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
        rows += [_row(r.title, "network", r.paper, cells[r.title]) for r in self.experiment.rows]
        return {
            "data": self.experiment.data,
            "what": self.problem.title,
            "standin": self.problem.standin,
            "protocol": self.experiment.protocol,
            "repeats": self.repeats,
            "epochs": self.epochs,
            "minutes": self.experiment.minutes,
            "measures": self.experiment.measures,
            **sizes,
            "rows": rows,
        }

    def _methods(self) -> dict[str, Method | None]:
        """What is fitted beside the networks: by name, None for cosines of logarithms."""
        if self.verifies:
            found: dict[str, Method | None] = {_COSINE: None}
        else:
            found = {name: METHODS[name] for name in ALWAYS}
        if self.wanted.baselines:
            found |= {b["method"]: METHODS[b["method"]] for b in self.experiment.baselines}
        return found

    def _ready(self, data: LabelledArrays) -> Matrices:
        preprocessing = Preprocessing(False, data.X.shape[-1], "sample", 0.0)
        self.preprocessing = preprocessing
        return prepare(
            data, preprocessing, "refuse", self.wanted.dtype, on_matrix=self.watch.matrix
        )

    def _sizes(self, ready: Matrices, data: LabelledArrays) -> dict[str, Any]:
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
            f"test on; {self.experiment.protocol}, {self.repeats} repeats, {self.epochs} epochs"
        )

    def _network(
        self, row: Row, ready: Matrices, data: LabelledArrays, repeat: int
    ) -> dict[str, Any]:
        """Train, or go on, or read what was found."""
        folder = self.folder.run_of(self.experiment.data, row, repeat)
        dims = row.dims_for(ready.X.shape[-1])
        if folder.finished:
            found = folder.results()
        else:
            settings = Settings(
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
            self.watch.say(f"repeat {repeat + 1} of {self.repeats}: {row.title}")
            learn = ready
            if self.verifies:
                assert ready.split is not None  # divide() has named the parts
                learn = _only(ready, ready.split == "train")
            try:
                found = train_one(
                    settings,
                    learn,
                    self.preprocessing,
                    folder,
                    folder.exists,
                    self.watch,
                    curves=not self.verifies,
                    judged=not self.verifies,
                )
            except FloatingPointError as error:
                self.watch.say(f"{row.title}: {error}")
                return {"error": str(error), "dims": list(dims)}
        history = folder.metrics()
        cell: dict[str, Any] = {
            "error": None,
            "dims": list(dims),
            "seconds": float(numpy.median([epoch["seconds"] for epoch in history])),
            "history": history,
            "device": found["device"],
        }
        if not self.verifies:
            return {**cell, "accuracy": found["parts"]["test"]["accuracy"]}
        trained = Trained.load(folder.path, device=self.wanted.device)
        function = trained.model if self.wanted.score == "logits" else trained.model.features
        weight = next(trained.model.parameters())

        def embed(chosen: Matrices) -> NDArray[Any]:
            with torch.no_grad():
                X = chosen.tensor.to(weight.device)
                return in_pieces(function, X, check=False).flatten(1).double().cpu().numpy()

        return {**cell, **self._verify(lambda chosen: _cosines(embed(chosen)), ready, data)}

    def _method(
        self, name: str, method: Method | None, ready: Matrices, data: LabelledArrays, repeat: int
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
            found |= self._verify(
                lambda chosen: _cosines(log_vectors(chosen.tensor[:].double()).numpy()), ready, data
            )
        else:
            assert ready.y is not None
            assert ready.split is not None
            device = str(make_fabric(self.wanted.device).device)
            where = Where(ready.X.shape[-1], self.wanted.seed + repeat, device)
            codes = numpy.unique(ready.y, return_inverse=True)[1].reshape(-1)
            task = Task(numpy.asarray(ready.X), codes, ready.split == "test", None)
            score = None
            if self.verifies:

                def score(estimator: Any, X: Any) -> dict[str, float]:
                    return self._verify(
                        lambda chosen: estimator.similarity(chosen.X[:], chosen.X[:]), ready, data
                    )

            found = fit_and_score(method, task, where, score=score)
            if found["error"]:
                self.watch.say(f"{title}: {found['error']}")
        file.parent.mkdir(parents=True, exist_ok=True)
        write(file, json.dumps(found, indent=1) + "\n")
        return found

    def _verify(
        self, similarity: Callable[[Matrices], NDArray[Any]], ready: Matrices, data: LabelledArrays
    ) -> dict[str, Any]:
        """Verification rates at a false acceptance rate of 0.01, all against all, by task."""
        found: dict[str, Any] = {"roc": {}, "equal_error": {}}
        for name, chosen in tasks(data, self.experiment.measures).items():
            part = _only(ready, chosen)
            assert part.y is not None  # divide() has given it
            places = numpy.triu_indices(len(part.y), 1)  # each pair once, none with itself
            scores = similarity(part)[places]
            same = (part.y[:, None] == part.y[None, :])[places]
            found[name] = metrics.verification_rate(scores, same, far=0.01)
            found["equal_error"][name] = metrics.equal_error_rate(scores, same)
            curve = metrics.roc(scores, same)
            at = numpy.geomspace(1e-4, 1, 101)
            rates = numpy.interp(at, curve.far, curve.rate)
            found["roc"][name] = {"far": at.tolist(), "rate": rates.tolist()}
        return found


_COSINE = "log-Euclidean cosine"


def _only(ready: Matrices, chosen: NDArray[numpy.bool_]) -> Matrices:
    """Some matrices, and no classes but theirs."""
    part = ready.some(numpy.flatnonzero(chosen))
    assert part.y is not None  # divide() has given it
    there = set(part.y.tolist())
    return Matrices(**{**vars(part), "classes": [name for name in part.classes if name in there]})


def _cosines(features: NDArray[Any]) -> NDArray[Any]:
    """Cosines ``(N, N)`` of the angles between rows."""
    length = numpy.linalg.norm(features, axis=1, keepdims=True)
    unit = features / numpy.where(length > 0, length, 1)
    return unit @ unit.T


def _row(
    title: str, kind: str, paper: dict[str, float], cells: list[dict[str, Any]]
) -> dict[str, Any]:
    """Mean and deviation over the repeats that did not fail."""
    good = [cell for cell in cells if cell["error"] is None]
    names = ("accuracy", "control", "handheld")
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
    for name in ("dims", "history", "roc", "equal_error", "device"):
        if good and name in good[0]:
            row[name] = good[0][name]  # of the first repeat
    if good and "seconds" in good[0]:
        row["seconds"] = float(numpy.mean([cell["seconds"] for cell in good]))
    return row
