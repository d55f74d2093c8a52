"""Every double-precision value that the authors' released code gave, to nine digits.

The files in tests/files were written by that code in double precision. Their layout: SPD stacks
``(n, d, d)``, ``W (d_in, d_out)``, classifier ``(d^2, C)``, logits ``(C, n)``, 1-based labels,
losses summed over the batch. What is named ``shipped`` there is single precision and not used.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import loadmat
from torch.nn.functional import cross_entropy

from spdnet import SPDNet
from spdnet.linalg import clamp_eig, congruence, logm
from spdnet.manifolds import stiefel
from spdnet.optim import RiemannianSGD

DATA = Path(__file__).parent / "files"


def load(name, prefix=""):
    """The arrays of a file, those with a prefix only and without it."""
    return {
        key.removeprefix(prefix): torch.from_numpy(np.asarray(value, dtype=np.float64))
        for key, value in loadmat(DATA / f"{name}.mat").items()
        if key.startswith(prefix) and not key.startswith("__")
    }


def assert_same(got, expected):
    """Within 1e-9, relative to the largest entry."""
    expected = expected.reshape(got.shape)
    scale = expected.abs().max().item()
    torch.testing.assert_close(got.detach(), expected, rtol=0, atol=1e-9 * scale)


@pytest.mark.parametrize("layer", ["bfc1_", "bfc2_", "bfc3_"])
def test_bimap(layer):
    v = load("layers_small", layer)
    X, W = v["X"].requires_grad_(), v["W"].requires_grad_()
    Y = congruence(X, W)
    dX, dW = torch.autograd.grad(Y, (X, W), v["dY"])
    assert_same(Y, v["Y"])
    assert_same(dX, v["dX"])
    assert_same(dW, v["dW"])


@pytest.mark.parametrize("layer", ["bfc1_", "bfc2_", "bfc3_"])
def test_stiefel(layer):
    v = load("layers_small", layer)
    W, G = v["W"], stiefel.riemannian_gradient(v["W"], v["dW"])
    assert_same(G, v["rgrad"])
    assert_same(stiefel.riemannian_gradient(W, v["dW"], "grassmann"), v["rgrad_paper"])
    assert_same(-0.01 * G, v["retr_step"])
    assert_same(stiefel.retract(W, -0.01 * G), v["retr"])
    assert_same(stiefel.retract(W, -10 * G / G.norm()), v["retr_big"])


@pytest.mark.parametrize("layer", ["rec1_", "rec2_"])
def test_reeig(layer):
    v, eps = load("layers_small", layer), load("layers_small")["epsilon"].item()
    X = v["X"].requires_grad_()
    Y = clamp_eig(X, eps)
    assert_same(Y, v["Y"])
    for given, expected in (("dY", "dX"), ("dY_asym", "dX_asym")):
        (dX,) = torch.autograd.grad(Y, X, v[given], retain_graph=True)
        assert_same(dX, v[expected])
    assert (torch.linalg.eigvalsh(X) < eps).sum(-1).max() == v["n_below"]


def test_logeig():
    v = load("layers_small", "log_")
    X = v["X"].requires_grad_()
    Y = logm(X)
    (dX,) = torch.autograd.grad(Y, X, v["dY"])
    assert_same(Y, v["Y"])
    assert_same(dX, v["dX"])


def test_classifier():
    v = load("layers_small", "fc_")
    model = SPDNet((4,), 3, log=False, dtype=torch.float64)
    with torch.no_grad():
        model.classifier.weight.copy_(v["W"].mT)
    X = v["X"].requires_grad_()
    logits = model(X, check=False)
    dX, dW = torch.autograd.grad(logits, (X, model.classifier.weight), v["dY"].mT)
    assert_same(logits.mT, v["Y"])
    assert_same(dX.flatten(-2).mT, v["dX"])
    assert_same(dW.mT, v["dW"])


def test_loss():
    v = load("layers_small", "sm_")
    logits = v["X"].mT.clone().requires_grad_()
    loss = cross_entropy(logits, v["c"].flatten().long() - 1, reduction="sum")
    loss.backward()
    assert_same(loss, v["loss"])
    assert_same(logits.grad.mT, v["dX"])


def network(v):
    """The model with the initial weights of a run."""
    dims = [int(d) for d in v["dims"].flatten()]
    model = SPDNet(dims, int(v["nclass"]), eps=v["epsilon"].item(), dtype=torch.float64)
    with torch.no_grad():
        for k, bimap in enumerate(model.bimaps, 1):
            bimap.weight.copy_(v[f"W{k}_0"])
        model.classifier.weight.copy_(v["Wfc_0"].mT)
    return model


def batch(v, step):
    chosen = v["batch_idx"][step, : int(v["batch_n"][step])].long() - 1
    return v["X"][chosen], v["label"].flatten().long()[chosen] - 1


runs = pytest.mark.parametrize("run", ["net_small_c3", "net_small_c10"])


@runs
def test_activations_and_gradients_of_the_first_batch(run):
    v = load(run)
    model = network(v)
    X, y = batch(v, 0)
    b, r = model.bimaps, model.reeigs
    layers = [b[0], r[0], b[1], r[1], b[2], model.logeig, lambda X: model.classifier(X.flatten(-2))]
    activations = [X.requires_grad_()]
    for layer in layers:
        activations.append(layer(activations[-1]))
    torch.testing.assert_close(model(X), activations[-1])
    loss = cross_entropy(activations[-1], y, reduction="sum")
    gradients = torch.autograd.grad(loss, [*activations, *model.parameters()])
    for k, (activation, gradient) in enumerate(zip(activations, gradients, strict=False), 1):
        if k == 8:
            activation, gradient = activation.mT, gradient.mT
        elif k == 7:
            gradient = gradient.flatten(-2).mT
        assert_same(activation, v[f"act{k}"])
        assert_same(gradient, v[f"dact{k}"])
    *dW, dWfc = gradients[8:]
    assert_same(dWfc.mT, v["dWfc"])
    for k, (bimap, G) in enumerate(zip(b, dW, strict=True), 1):
        assert_same(G, v[f"dW{k}"])
        mean = G / len(y)
        for metric, name in (("embedded", "rgrad"), ("grassmann", "rgrad_paper")):
            assert_same(stiefel.riemannian_gradient(bimap.weight, mean, metric), v[f"{name}{k}"])


@runs
def test_twenty_training_steps(run):
    v = load(run)
    model = network(v)
    optimizer = RiemannianSGD(model.parameters(), lr=v["lr"].item())
    for step in range(20):
        X, y = batch(v, step)
        optimizer.zero_grad()
        logits = model(X)
        assert_same(cross_entropy(logits, y, reduction="sum"), v["loss"][step])
        assert (logits.argmax(-1) != y).sum() == v["nerr"][step]
        cross_entropy(logits, y).backward()
        optimizer.step()
        for k, bimap in enumerate(model.bimaps, 1):
            assert_same(bimap.weight, v[f"W{k}"][step])
        assert_same(model.classifier.weight.mT, v["Wfc"][step])
