"""Compute the scores of a trained network: parts, classes, baseline, spectra."""

import time
import warnings
from collections import Counter
from typing import Any, cast

import numpy
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor
from torch.nn.functional import cross_entropy

from spdnet._precision import accurate_dtype
from spdnet.baselines import LogEuclideanClassifier
from spdnet.baselines.estimator import subsample
from spdnet.data import Dataset, Split, StoredArray
from spdnet.data.io.readers import IN_MEMORY
from spdnet.nn import BiMap, CovPool
from spdnet.nn.layer import SPDLayer
from spdnet.runs.results import (
    BaselineScore,
    LayerSpectrum,
    Orthonormality,
    Part,
    PartScore,
)
from spdnet.training.evaluation import unchecked

BASELINE = "log-Euclidean logistic regression"


def score(logits: Tensor, y: NDArray[numpy.int64], groups: int | None = None) -> PartScore:
    """Compute loss and accuracy."""
    loss = cross_entropy(logits.double(), torch.from_numpy(y)).item()
    accuracy = float(numpy.mean(logits.argmax(-1).numpy() == y))
    return PartScore(len(y), loss, accuracy, groups)


def baseline(data: Dataset, split: Split) -> BaselineScore:
    """Fit and score the log-Euclidean linear classifier on the same parts.

    The cross-validation that chooses its penalty keeps groups together. If the matrices do not fit
    in memory, it is fitted to a stratified subset of the training set.
    """
    X, y, groups, started = data.X, split.codes, data.groups, time.perf_counter()
    train = split.parts["train"]
    if isinstance(X, StoredArray):
        codes = numpy.unique(y[train], return_inverse=True)[1]
        train = train[subsample(codes, max(1, IN_MEMORY // 2 * len(X) // X.nbytes))]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        within = None if groups is None else groups[train]
        model = LogEuclideanClassifier().fit(X[train], y[train], groups=within)
    others = [w for w in caught if not issubclass(w.category, ConvergenceWarning)]
    for w in others:
        warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)
    converged = len(others) == len(caught)
    accuracy: dict[Part, float] = {}
    for name, index in {**split.parts, "train": train}.items():
        if len(index):
            blocks = numpy.split(index, range(1024, len(index), 1024))
            correct = [model.predict(X[i]) == y[i] for i in blocks]
            accuracy[cast(Part, name)] = float(numpy.concatenate(correct).mean())
    return BaselineScore(BASELINE, accuracy, len(train), converged, time.perf_counter() - started)


@torch.no_grad()
def layer_spectra(model: torch.nn.Module, *inputs: Tensor) -> tuple[LayerSpectrum, ...]:
    """Compute quantiles of the eigenvalues of the input and of the output of each layer.

    The model is in evaluation mode; the first of its inputs are matrices or signals.
    """
    outputs: list[tuple[str, Tensor, Tensor]] = []  # layer, its input, its output

    def record(layer: torch.nn.Module, given: tuple[Any, ...], output: Any) -> None:
        if isinstance(output, Tensor) and output.ndim > 2 and output.shape[-1] == output.shape[-2]:
            outputs.append((type(layer).__name__, given[0], output))

    layers = [m for m in model.modules() if isinstance(m, (SPDLayer, CovPool))]
    hooks = [layer.register_forward_hook(record) for layer in layers]
    try:
        model(*inputs, **unchecked(model))
    finally:
        for hook in hooks:
            hook.remove()
    spectra: list[LayerSpectrum] = []
    X = inputs[0]
    if X.shape[-1] == X.shape[-2] and not any(name == "CovPool" for name, _, _ in outputs):
        spectra.append(_spectrum("input", _eigenvalues(X)))
    total = Counter(name for name, _, _ in outputs)
    number: Counter[str] = Counter()
    for name, given, output in outputs:
        number[name] += 1
        repeated = total[name] > 1 or name in ("BiMap", "ReEig")
        s = _eigenvalues(output)
        clipped = None
        if name == "ReEig":
            clipped = (s > _eigenvalues(given) * (1 + 1e-9)).double().mean().item()
        spectra.append(_spectrum(f"{name} {number[name]}" if repeated else name, s, clipped))
    return tuple(spectra)


def _eigenvalues(X: Tensor) -> Tensor:
    """Return the eigenvalues ``(N, n)`` of all matrices, in descending order."""
    n = X.shape[-1]
    return torch.linalg.eigvalsh(X.to(accurate_dtype(X)).cpu().reshape(-1, n, n)).flip(-1)


def _spectrum(layer: str, s: Tensor, clipped: float | None = None) -> LayerSpectrum:
    quantiles = torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64)
    low, median, high = map(tuple, torch.quantile(s, quantiles, dim=0).tolist())
    return LayerSpectrum(layer, low, median, high, clipped)


def orthonormality(model: torch.nn.Module) -> tuple[Orthonormality, ...]:
    """Measure how far the columns of each Stiefel weight are from orthonormal."""
    rows = []
    bimaps = [layer for layer in model.modules() if isinstance(layer, BiMap)]
    for i, weight in enumerate(bimap.get_parameter("weight") for bimap in bimaps):
        W = weight.detach().to(accurate_dtype(weight)).cpu()
        gap = (W.mH @ W - torch.eye(W.shape[-1], dtype=W.dtype)).abs().max().item()
        rows.append(Orthonormality(f"BiMap {i + 1}", tuple(W.shape), gap))
    return tuple(rows)
