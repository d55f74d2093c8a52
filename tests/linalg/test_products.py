"""Products with MKL and with oneDNN, each forced on every processor."""

import pytest
import torch

from spdnet.linalg import congruence, products
from spdnet.manifolds import stiefel
from spdnet.nn import BiMap
from tests.cases import random_matrix, random_spd

HAS_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


@pytest.fixture(params=["MKL", "a batch", "oneDNN"])
def library(request, monkeypatch):
    is_onednn = request.param == "oneDNN"
    if is_onednn and not HAS_ONEDNN:
        pytest.skip("torch is built without oneDNN")
    monkeypatch.setattr(products, "_mkl_lacks_avx512", lambda: is_onednn)
    monkeypatch.setattr(products, "_MIN_PRODUCT", 0)
    monkeypatch.setattr(products, "_MIN_SUM", 0)
    if request.param == "a batch":
        monkeypatch.setattr(products, "_MIN_SINGLE", 0)
    return request.param


@pytest.fixture
def calls(monkeypatch):
    """Return a list with one entry for each product by oneDNN."""
    made, product = [], products._onednn_product
    monkeypatch.setattr(products, "_onednn_product", lambda A, B: made.append(0) or product(A, B))
    return made


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
@torch.no_grad()
def test_products(library, dtype):
    shapes = (6, 5, 4), (4, 3), (3, 4), (6, 5, 7)
    X, W, V, Y = (random_matrix(*shape, dtype=dtype).to(dtype) for shape in shapes)
    torch.testing.assert_close(products.multiply(X[0], W), X[0] @ W)
    torch.testing.assert_close(products.multiply(X, W), X @ W)
    torch.testing.assert_close(products.right_multiply(X, W), X @ W)
    torch.testing.assert_close(products.right_multiply(X, V.mH), X @ V.mH)
    torch.testing.assert_close(products.right_multiply(Y.mH, X[0]), Y.mH @ X[0])
    torch.testing.assert_close(products.left_multiply(W.mH, Y[:, :4]), W.mH @ Y[:, :4])
    torch.testing.assert_close(products.sum_of_products(X, Y), (X.mH @ Y).sum(0))


def test_which_products_use_onednn(library, calls):
    X, W = random_spd(6, 5, dtype=torch.float32), random_matrix(5, 3).float()
    expected = library == "oneDNN"
    with torch.no_grad():
        products.right_multiply(X.double(), W.double())
        torch.backends.mkldnn.set_flags(False)
        try:
            products.right_multiply(X, W)
        finally:
            torch.backends.mkldnn.set_flags(True)
        assert not calls
        products.right_multiply(X, W)
        assert bool(calls) == expected
    calls.clear()
    products.right_multiply(X, W)  # may be differentiated
    assert not calls
    Y = BiMap(5, 3)(X)
    assert bool(calls) == expected
    calls.clear()
    Y.sum().backward()
    assert bool(calls) == expected


def test_derivatives_do_not_depend_on_the_library(library):
    X, W = random_spd(6, 5), random_matrix(5, 3)
    G, H = random_spd(6, 3), random_matrix(5, 3)
    results = []
    for dtype in (torch.float32, torch.float64):
        inputs = [A.to(dtype).requires_grad_() for A in (X, W)]
        Y = congruence(*inputs)
        first = torch.autograd.grad((Y * G.to(dtype)).sum(), inputs, create_graph=True)
        second = torch.autograd.grad((first[1] * H.to(dtype)).sum(), inputs)
        plain = torch.autograd.grad((congruence(*inputs) * G.to(dtype)).sum(), inputs)
        results.append([A.double() for A in (Y, *first, *second, *plain)])
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)
    V = H.float().requires_grad_()
    stiefel.project_tangent(stiefel.random_point(5, 3), V).sum().backward()
    assert V.grad is not None


def test_exported_programs_do_not_need_onednn(library):
    X = random_spd(6, 5, dtype=torch.float32)
    with torch.no_grad():
        program = torch.export.export(BiMap(5, 3, check=False).eval(), (X,))
    assert not any("mkldnn" in str(node.target) for node in program.graph.nodes)


@pytest.mark.parametrize(
    ("capability", "processor", "expected"),
    [
        ("AVX512", "vendor_id : AuthenticAMD", HAS_ONEDNN),
        ("AVX512", "vendor_id : GenuineIntel", False),
        ("AVX2", "vendor_id : AuthenticAMD", False),
    ],
)
def test_choice_of_the_library(monkeypatch, capability, processor, expected):
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(products, "_processor", lambda: processor)
    assert products._mkl_lacks_avx512.__wrapped__() == expected
    assert products._processor()
