from functools import partial

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from spdnet.linalg import symmetrize, unvech, vech
from spdnet.linalg.symmetric import fix_signs
from tests.cases import BATCH_SHAPES, every_dtype, random_symmetric


def test_symmetrize_tensors_and_arrays():
    parts = np.random.default_rng(0).normal(size=(2, 2, 3, 3))
    for dtype in (np.float32, np.float64, np.longdouble, np.complex64, np.complex128):
        X = (parts[0] + (1j * parts[1] if np.dtype(dtype).kind == "c" else 0)).astype(dtype)
        Y, expected = symmetrize(X), (X + X.swapaxes(-1, -2).conj()) / 2
        assert Y.dtype == dtype
        np.testing.assert_allclose(Y, expected, rtol=1e-6)
        np.testing.assert_array_equal(Y, Y.swapaxes(-1, -2).conj())
        if dtype != np.longdouble:
            assert torch.equal(symmetrize(torch.from_numpy(X)), torch.from_numpy(Y))


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_invalid_input_is_refused(kind):
    for bad in ([[1.0, 2.0, 3.0]], [1.0, 2.0], 1.0):
        with pytest.raises(ValueError, match=r"symmetrize: expected X of shape \(..., n, n\), got"):
            symmetrize(kind(bad))
    with pytest.raises(
        TypeError, match="symmetrize: expected X with a floating or complex dtype, got"
    ):
        symmetrize(kind([[1, 2], [3, 4]]))


def test_symmetrize_refuses_lists():
    with pytest.raises(TypeError, match=r"symmetrize: expected X to be a torch.Tensor, got list"):
        symmetrize([[1.0]])


@every_dtype
@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("batch", BATCH_SHAPES)
def test_vech_is_an_isometry_and_unvech_its_inverse(batch, n, dtype):
    A, B = (
        random_symmetric(*batch, n, dtype=dtype),
        random_symmetric(*batch, n, seed=1, dtype=dtype),
    )
    exact = {"rtol": 1e-14, "atol": 1e-14}
    product = (A @ B).diagonal(dim1=-2, dim2=-1).sum(-1)
    torch.testing.assert_close((vech(A) * vech(B)).sum(-1).to(dtype), product, **exact)
    torch.testing.assert_close(unvech(vech(A), hermitian=dtype.is_complex), A, **exact)
    assert vech(A).shape == (*batch, n * n if dtype.is_complex else n * (n + 1) // 2)
    assert vech(A).dtype == torch.float64


@every_dtype
def test_fixed_signs_do_not_depend_on_those_given(dtype):
    X = random_symmetric(9, 4, dtype=dtype)
    F = torch.linalg.eigh(X.mean(0)).eigenvectors
    phases = torch.tensor([1, -1, -1, 1], dtype=dtype)
    if dtype.is_complex:
        phases = phases * torch.polar(torch.ones(4).double(), torch.arange(4.0).double())
    expected = fix_signs(F, X @ F[:, 0])
    # the first column decides, and its own phase is arbitrary
    other = F * phases
    torch.testing.assert_close(fix_signs(other, X @ other[:, 0]), expected * phases[0])
    c = torch.einsum("i,nij,jk->nk", expected[:, 0].conj(), X, expected)
    moments = (c.abs().square() * c).sum(0)
    torch.testing.assert_close(moments[1:], moments[1:].abs().to(dtype))
    assert torch.equal(fix_signs(F, torch.zeros_like(X[:, 0])), F)


def test_vech_is_in_row_major_order():
    X = torch.tensor([[1.0, 2, 3], [2, 4, 5], [3, 5, 6]])
    root = 2**0.5
    torch.testing.assert_close(vech(X), torch.tensor([1, 2 * root, 3 * root, 4, 5 * root, 6]))


def test_vech_of_the_real_part_comes_first():
    X = random_symmetric(3, dtype=torch.complex128)
    assert torch.equal(vech(X)[:6], vech(X.real))
    assert torch.equal(vech(X)[6:], 2**0.5 * X.imag[torch.triu(torch.ones(3, 3), 1) > 0])


@every_dtype
def test_vech_derivatives(dtype):
    X, is_complex = random_symmetric(2, 3, dtype=dtype), dtype.is_complex
    assert gradcheck(vech, X.clone().requires_grad_(), check_forward_ad=True)
    inverse = partial(unvech, hermitian=is_complex)
    assert gradcheck(inverse, vech(X).requires_grad_(), check_forward_ad=True)


def test_unvech_of_hermitian_matrices_refuses_other_lengths():
    with pytest.raises(ValueError, match=r"unvech: expected v of shape \(..., n \* n\)"):
        unvech(torch.ones(3), hermitian=True)
