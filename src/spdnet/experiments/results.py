"""What a run found: scores of its parts, by class, the baseline, spectra."""

import time
import warnings
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support
from torch import Tensor
from torch.nn.functional import cross_entropy

from spdnet.baselines import LogEuclideanClassifier
from spdnet.models import SPDNet

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
    """Confusion matrix (rows: true classes), and precision, recall and F1 of each class.

    A class that is never predicted has no precision, one that does not occur has no recall: None.
    """
    predicted, labels = logits.argmax(-1).numpy(), range(len(classes))
    columns = precision_recall_fscore_support(y, predicted, labels=labels, zero_division=numpy.nan)
    table = [
        {"class": name, "n": int(n)}
        | {
            key: None if numpy.isnan(value) else float(value)
            for key, value in zip(("precision", "recall", "f1"), values, strict=True)
        }
        for name, *values, n in zip(classes, *columns, strict=True)
    ]
    return {
        "confusion": confusion_matrix(y, predicted, labels=labels).tolist(),
        "per_class": table,
    }


def baseline(
    X: NDArray[Any], y: NDArray[Any], parts: dict[str, NDArray[numpy.int64]]
) -> dict[str, Any]:
    """The log-Euclidean linear classifier on the same parts."""
    started, train = time.perf_counter(), parts["train"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = LogEuclideanClassifier().fit(X[train], y[train])
    converged = not any(issubclass(w.category, ConvergenceWarning) for w in caught)
    for warning in caught:
        if not issubclass(warning.category, ConvergenceWarning):
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    accuracy = {name: float(model.score(X[i], y[i])) for name, i in parts.items() if len(i)}
    seconds = time.perf_counter() - started
    return {"name": BASELINE, "accuracy": accuracy, "converged": converged, "seconds": seconds}


@torch.no_grad()
def layer_spectra(model: SPDNet, X: Tensor) -> list[dict[str, Any]]:
    """Eigenvalues of the data and of what comes out of each layer, descending.

    Of each place in the order: the median over the matrices, and their 5 and 95 percent quantiles;
    of each ReEig also ``clipped``, the share of the eigenvalues that it raised.
    """
    outputs: list[tuple[str, Tensor]] = [("input", X)]
    layers: list[tuple[str, torch.nn.Module]] = []
    if model.center is not None:
        layers.append(("Center", model.center))
    for i, bimap in enumerate(model.bimaps):
        layers += [(f"ReEig {i}", model.reeigs[i - 1])] if i else []
        layers += [(f"BiMap {i + 1}", bimap)]
    layers += [("LogEig", model.logeig)] if model.logeig is not None else []
    for name, layer in layers:
        outputs.append((name, layer(outputs[-1][1], check=False)))
    quantiles = torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64)
    spectra: list[dict[str, Any]] = []
    before = torch.empty(0)
    for name, Y in outputs:
        s = torch.linalg.eigvalsh(Y.double().cpu()).flip(-1)
        low, middle, high = torch.quantile(s, quantiles, dim=0).tolist()
        spectra.append({"layer": name, "low": low, "median": middle, "high": high})
        if name.startswith("ReEig"):
            spectra[-1]["clipped"] = (s > before * (1 + 1e-9)).double().mean().item()
        before = s
    return spectra


def orthonormality(model: SPDNet) -> list[dict[str, Any]]:
    """Of each Stiefel weight: its shape, and the largest entry of :math:`|W^T W - I|`."""
    rows = []
    for i, weight in enumerate(bimap.get_parameter("weight") for bimap in model.bimaps):
        W = weight.detach().double().cpu()
        gap = (W.mT @ W - torch.eye(W.shape[-1], dtype=W.dtype)).abs().max().item()
        rows.append({"layer": f"BiMap {i + 1}", "shape": list(W.shape), "gap": gap})
    return rows
