"""What a run found: scores of its parts, by class, the baseline, spectra."""

import math
import time
import warnings
from collections import Counter
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor
from torch.nn.functional import cross_entropy

from spdnet.baselines import LogEuclideanClassifier
from spdnet.baselines.estimator import subsample
from spdnet.data import StoredArray
from spdnet.data.io.readers import IN_MEMORY
from spdnet.runs.confusion import Confusion
from spdnet.nn import BiMap, CovPool
from spdnet.nn.layer import SPDLayer

BASELINE = "log-Euclidean logistic regression"


def score(logits: Tensor, y: NDArray[numpy.int64]) -> dict[str, Any]:
    """Number of matrices, loss and accuracy."""
    target = torch.from_numpy(y)
    return {
        "n": len(y),
        "loss": cross_entropy(logits.double(), target).item(),
        "accuracy": float(numpy.mean(logits.argmax(-1).numpy() == y)),
    }


def by_class(logits: Tensor, y: NDArray[numpy.int64], classes: list[str]) -> dict[str, Any]:
    """Confusion counts, and precision, recall and F1 of each class.

    A class that is never predicted has no precision, one that does not occur has no recall: None.
    """
    counts = Confusion.of(y, logits.argmax(-1).numpy(), len(classes))
    table = [
        {"class": name, "n": int(n)}
        | {
            key: None if math.isnan(value) else value
            for key, value in zip(("precision", "recall", "f1"), values, strict=True)
        }
        for name, (n, *values) in zip(classes, counts.per_class().tolist(), strict=True)
    ]
    return {"confusion": counts.as_dict(), "per_class": table}


def baseline(
    X: NDArray[Any] | StoredArray, y: NDArray[Any], parts: dict[str, NDArray[numpy.int64]]
) -> dict[str, Any]:
    """The log-Euclidean linear classifier on the same parts.

    Where the matrices do not fit in memory it is fitted to as many of the training part as do, each
    class in its share; ``fitted`` tells how many.
    """
    started, train = time.perf_counter(), parts["train"]
    if isinstance(X, StoredArray):
        codes = numpy.unique(y[train], return_inverse=True)[1]
        train = train[subsample(codes, max(1, IN_MEMORY // 2 * len(X) // X.nbytes))]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = LogEuclideanClassifier().fit(X[train], y[train])
    converged = not any(issubclass(w.category, ConvergenceWarning) for w in caught)
    for warning in caught:
        if not issubclass(warning.category, ConvergenceWarning):
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    right = {
        name: [
            model.predict(X[i]) == y[i] for i in numpy.split(index, range(1024, len(index), 1024))
        ]
        for name, index in {**parts, "train": train}.items()
        if len(index)
    }
    return {
        "name": BASELINE,
        "accuracy": {name: float(numpy.concatenate(v).mean()) for name, v in right.items()},
        "fitted": len(train),
        "converged": converged,
        "seconds": time.perf_counter() - started,
    }


@torch.no_grad()
def layer_spectra(model: torch.nn.Module, *inputs: Tensor) -> list[dict[str, Any]]:
    """Eigenvalues of the data and of what comes out of each layer, descending.

    Of each place in the order: the median over the matrices, and their 5 and 95 percent quantiles;
    of each ReEig also ``clipped``, the share of the eigenvalues that it raised.

    Parameters
    ----------
    model : Module
        In evaluation mode.
    *inputs : Tensor
        What it is called with; the first are matrices or signals.
    """
    outputs: list[tuple[str, Tensor, Tensor]] = []  # the layer, what it was given, what it made

    def note(layer: torch.nn.Module, given: tuple[Any, ...], made: Any) -> None:
        if isinstance(made, Tensor) and made.ndim > 2 and made.shape[-1] == made.shape[-2]:
            outputs.append((type(layer).__name__, given[0], made))

    layers = [m for m in model.modules() if isinstance(m, (SPDLayer, CovPool))]
    hooks = [layer.register_forward_hook(note) for layer in layers]
    try:
        model(*inputs, check=False)
    finally:
        for hook in hooks:
            hook.remove()
    spectra: list[dict[str, Any]] = []
    X = inputs[0]
    if X.shape[-1] == X.shape[-2] and not any(name == "CovPool" for name, _, _ in outputs):
        spectra.append({"layer": "input", **_quantiles(_eigenvalues(X))})
    total = Counter(name for name, _, _ in outputs)
    number: Counter[str] = Counter()
    for name, given, made in outputs:
        number[name] += 1
        repeated = total[name] > 1 or name in ("BiMap", "ReEig")
        s = _eigenvalues(made)
        row = {"layer": f"{name} {number[name]}" if repeated else name, **_quantiles(s)}
        if name == "ReEig":
            raised = s > _eigenvalues(given) * (1 + 1e-9)
            row["clipped"] = raised.double().mean().item()
        spectra.append(row)
    return spectra


def _eigenvalues(X: Tensor) -> Tensor:
    """``(N, n)``, descending, of all matrices."""
    n = X.shape[-1]
    return torch.linalg.eigvalsh(X.double().cpu().reshape(-1, n, n)).flip(-1)


def _quantiles(s: Tensor) -> dict[str, Any]:
    quantiles = torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64)
    low, middle, high = torch.quantile(s, quantiles, dim=0).tolist()
    return {"low": low, "median": middle, "high": high}


def orthonormality(model: torch.nn.Module) -> list[dict[str, Any]]:
    """Of each Stiefel weight: its shape, and the largest entry of :math:`|W^T W - I|`."""
    rows = []
    bimaps = [layer for layer in model.modules() if isinstance(layer, BiMap)]
    for i, weight in enumerate(bimap.get_parameter("weight") for bimap in bimaps):
        W = weight.detach().double().cpu()
        gap = (W.mT @ W - torch.eye(W.shape[-1], dtype=W.dtype)).abs().max().item()
        rows.append({"layer": f"BiMap {i + 1}", "shape": list(W.shape), "gap": gap})
    return rows
