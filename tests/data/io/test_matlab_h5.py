"""Files of version 7.3 with the types that MATLAB itself writes, made with the low-level h5py API.

The defaults of h5py differ from those of MATLAB: its strings are padded with nulls, while those of
MATLAB end with one.
"""

from io import BytesIO

import numpy as np
import pytest

from spdnet.data import read
from spdnet.data.errors import DataError
from spdnet.data.io.matlab import load_mat
from tests.data.io.test_matlab import damaged, outcomes

h5py = pytest.importorskip("h5py")
h5a, h5d, h5g, h5p = h5py.h5a, h5py.h5d, h5py.h5g, h5py.h5p
h5r, h5s, h5t = h5py.h5r, h5py.h5s, h5py.h5t

HEADER = b"MATLAB 7.3 MAT-file, Platform: GLNXA64, Created on: Mon Jan  1 00:00:00 2024 HDF5 schema"
HEADER = (HEADER + b" 1.00 .").ljust(116) + bytes(8) + b"\0\2IM"
STORED = {
    "f8": h5t.IEEE_F64LE,
    "f4": h5t.IEEE_F32LE,
    "u1": h5t.STD_U8LE,
    "u2": h5t.STD_U16LE,
    "i4": h5t.STD_I32LE,
    "u4": h5t.STD_U32LE,
    "i8": h5t.STD_I64LE,
    "u8": h5t.STD_U64LE,
    "ref": h5t.STD_REF_OBJ,
}


def string_type(size, padding=h5t.STR_NULLTERM, letters=h5t.CSET_ASCII):
    kind = h5t.C_S1.copy()
    kind.set_size(size)
    kind.set_strpad(padding)
    kind.set_cset(letters)
    return kind


def attach(item, name, value, **kind):
    """A scalar attribute: text as MATLAB stores it, of exactly its length, or a number."""
    if isinstance(value, bytes):
        stored, array = string_type(len(value), **kind), np.array(value, f"S{len(value)}")
    else:
        array = np.asarray(value)
        stored = STORED[array.dtype.str[1:]]
    attribute = h5a.create(item, name.encode(), stored, h5s.create(h5s.SCALAR))
    attribute.write(array, mtype=stored)


def attach_fields(item, *names):
    """``MATLAB_fields``: for each name a sequence of strings of one letter."""
    stored = h5t.vlen_create(string_type(1))
    space = h5s.create_simple((len(names),))
    attribute = h5a.create(item, b"MATLAB_fields", stored, space)
    letters = [np.array([letter.encode() for letter in name]) for name in names]
    # the C struct of a sequence: h5py has no Python value for sequences of strings
    values = np.array([(len(a), a.ctypes.data) for a in letters], [("len", "u8"), ("p", "u8")])
    attribute.write(values, mtype=stored)


def dataset(group, name, X, kind=None, stored=None, chunks=None, path=None):
    """An array with its axes in reverse; ``chunks`` in the file's order, compressed."""
    X = np.asarray(X)
    values = np.ascontiguousarray(X.T)
    stored = stored or STORED[X.dtype.str[1:]]
    plan = h5p.create(h5p.DATASET_CREATE)
    if chunks is not None:
        plan.set_chunk(chunks)
        plan.set_deflate(3)
    item = h5d.create(group, name.encode(), stored, h5s.create_simple(values.shape), dcpl=plan)
    item.write(h5s.ALL, h5s.ALL, values, mtype=stored)
    if path is not None:
        attach(item, "H5PATH", path)
    if kind is not None:
        attach(item, "MATLAB_class", kind.encode())
    return item


def text(group, name, letters, **settings):
    rows = [letters] if isinstance(letters, str) else letters
    codes = [np.frombuffer(row.encode("utf-16-le"), "<u2") for row in rows]
    item = dataset(group, name, np.stack(codes), "char", **settings)
    attach(item, "MATLAB_int_decode", np.int32(2))
    return item


def logical(group, name, X):
    item = dataset(group, name, np.asarray(X, "u1"), "logical")
    attach(item, "MATLAB_int_decode", np.int32(1))
    return item


def empty(group, name, shape, kind):
    item = dataset(group, name, np.array(shape, "u8"), kind)
    attach(item, "MATLAB_empty", np.uint8(1))
    return item


def references(file, group, name, shape, items, kind=None):
    """Cells, or with no class a field of an array of structs; in the order of MATLAB's columns."""
    refs = np.empty(len(items), h5py.ref_dtype)
    refs[:] = [h5r.create(file, b"/#refs#/" + item.encode(), h5r.OBJECT) for item in items]
    space = h5s.create_simple(shape[::-1])
    item = h5d.create(group, name.encode(), h5t.STD_REF_OBJ, space)
    item.write(h5s.ALL, h5s.ALL, refs.reshape(shape[::-1]))
    if kind is not None:
        attach(item, "MATLAB_class", kind)
    return item


def complex_type(part, size):
    kind = h5t.create(h5t.COMPOUND, 2 * size)
    kind.insert(b"real", 0, part)
    kind.insert(b"imag", size, part)
    return kind


def group_of(parent, name, kind, *fields):
    found = h5g.create(parent, name.encode())
    attach(found, "MATLAB_class", kind)
    if fields:
        attach_fields(found, *fields)
    return found


def mat73(fill):
    """The bytes of a file with the header of MATLAB and its user block of 512 bytes."""
    place = BytesIO()
    with h5py.File(place, "w", userblock_size=512, libver="earliest") as file:
        fill(file.id)
    return HEADER + place.getvalue()[128:]


RANDOM = np.random.default_rng(0).normal(size=(30, 40))
BIG = np.round(RANDOM, 1)


def fill_as_matlab(file):
    refs = h5g.create(file, b"#refs#")
    blank = dataset(refs, "a", np.array([0, 0], "u8"), "canonical empty", path=b"/#refs#/a")
    attach(blank, "MATLAB_empty", np.uint8(1))
    dataset(refs, "b", np.arange(6.0).reshape(2, 3), "double", path=b"/#refs#/b")
    text(refs, "c", "left hand", path=b"/#refs#/c")
    dataset(refs, "d", np.array([[1.0]]), "double", path=b"/#refs#/d")
    dataset(refs, "e", np.array([[2.0]]), "double", path=b"/#refs#/e")

    dataset(file, "X", np.arange(24.0).reshape(2, 3, 4), "double")
    dataset(file, "small", np.array([[1.5, 2.5]], "f4"), "single")
    dataset(file, "big", BIG, "double", chunks=(16, 10))
    dataset(file, "noise", RANDOM, "double", chunks=(16, 10))
    dataset(file, "counts", np.array([[-1, 2], [3, 4]], "i4"), "int32")
    logical(file, "mask", [[True, False], [False, False]])
    text(file, "name", "S01 ∀")
    text(file, "rows", ["ab", "cd"])
    z = np.array([[1 + 2j, 3 - 4j]])
    dataset(
        file,
        "z",
        z.view([("real", "f8"), ("imag", "f8")]),
        "double",
        complex_type(h5t.IEEE_F64LE, 8),
    )
    for name, kind in (("none", "double"), ("nothing", "char"), ("no_cells", "cell")):
        empty(file, name, (0, 3), kind)
    empty(file, "never", (0, 0), "logical")
    references(file, file, "trials", (2, 2), "bcda", b"cell")

    one = group_of(file, "info", b"struct", "fs", "device")
    dataset(one, "fs", np.array([[250.0]]), "double", path=b"/info")
    text(one, "device", "cap", path=b"/info")
    references(file, one, "labels", (1, 1), "c", b"cell")
    many = group_of(file, "events", b"struct", "onset", "label")
    references(file, many, "onset", (1, 2), "de")
    references(file, many, "label", (1, 2), "cc")
    attach_fields(empty(file, "no_events", (0, 0), "struct"), "onset")
    empty(file, "bare", (1, 1), "struct")

    sparse = group_of(file, "sparse", b"double")
    attach(sparse, "MATLAB_sparse", np.uint64(3))
    dataset(sparse, "data", np.array([1.0, 2.0]))
    dataset(sparse, "ir", np.array([0, 2], "u8"))
    dataset(sparse, "jc", np.array([0, 1, 2], "u8"))
    words = dataset(file, "words", np.array([[3707764736, 2, 1, 1, 1, 1]], "u4"), "string")
    attach(words, "MATLAB_object_decode", np.int32(3))
    h5g.create(file, b"#subsystem#")


def test_a_file_as_matlab_writes_it():
    found = load_mat(mat73(fill_as_matlab))
    expected = {
        "X": np.arange(24.0).reshape(2, 3, 4),
        "small": np.array([[1.5, 2.5]], "f4"),
        "big": BIG,
        "noise": RANDOM,
        "counts": np.array([[-1, 2], [3, 4]], "i4"),
        "mask": np.array([[True, False], [False, False]]),
        "z": np.array([[1 + 2j, 3 - 4j]]),
        "none": np.zeros((0, 3)),
        "never": np.zeros((0, 0), bool),
    }
    for name, X in expected.items():
        np.testing.assert_array_equal(found.pop(name), X, strict=True)
    trials = found.pop("trials")
    np.testing.assert_array_equal(trials[0], np.arange(6.0).reshape(2, 3), strict=True)
    assert trials[1:3] == ["left hand", np.array([[1.0]])]
    np.testing.assert_array_equal(trials[3], np.zeros((0, 0)), strict=True)
    assert found == {
        "name": "S01 ∀",
        "rows": ["ab", "cd"],
        "nothing": "",
        "no_cells": [],
        "info": {"fs": [[250.0]], "device": "cap", "labels": ["left hand"]},
        "events": [{"onset": [[time]], "label": "left hand"} for time in (1.0, 2.0)],
        "no_events": [],
        "bare": {},
    }


@pytest.mark.parametrize("chunks", [None, (100, 70)])
def test_large_arrays(chunks):
    X = np.random.default_rng(1).normal(size=(500, 700))
    found = load_mat(mat73(lambda file: dataset(file, "X", X, "double", chunks=chunks)))
    np.testing.assert_array_equal(found["X"], X, strict=True)


@pytest.mark.parametrize("letters", [h5t.CSET_ASCII, h5t.CSET_UTF8])
@pytest.mark.parametrize("padding", [h5t.STR_NULLTERM, h5t.STR_NULLPAD, h5t.STR_SPACEPAD])
@pytest.mark.parametrize("length", [5, 6, 12])
def test_every_fixed_length_string_is_read(padding, letters, length):
    fill_up = b" " if padding == h5t.STR_SPACEPAD else b"\0"

    def fill(file):
        item = dataset(file, "X", np.eye(2, dtype="i4"))
        attach(
            item, "MATLAB_class", b"int32".ljust(length, fill_up), padding=padding, letters=letters
        )

    np.testing.assert_array_equal(load_mat(mat73(fill))["X"], np.eye(2, dtype="i4"), strict=True)


def test_sparse_alone_says_what_to_do():
    def fill(file):
        sparse = group_of(file, "S", b"double")
        attach(sparse, "MATLAB_sparse", np.uint64(3))

    with pytest.raises(DataError, match=r"got only sparse, .* full\(X\)"):
        load_mat(mat73(fill))


def array_of_classes(file):
    item = dataset(file, "X", np.eye(2))
    stored = string_type(6)
    attribute = h5a.create(item, b"MATLAB_class", stored, h5s.create_simple((2,)))
    attribute.write(np.array([b"double"] * 2), mtype=stored)


def variable_class(file):
    item = h5py.Dataset(dataset(file, "X", np.eye(2)))
    item.attrs["MATLAB_class"] = "double"


@pytest.mark.parametrize("fill", [array_of_classes, variable_class])
def test_other_attributes_are_refused(fill):
    with pytest.raises(DataError, match="expected MATLAB_class to be an integer or text of fixed"):
        load_mat(mat73(fill))


@pytest.mark.parametrize("shape", [np.array([-1, 2**40]), np.ones(40, "u8"), np.ones(2) / 2])
def test_false_shapes_of_empty_structs(shape):
    def fill(file):
        attach(dataset(file, "X", shape, "struct"), "MATLAB_empty", np.uint8(1))

    with pytest.raises(DataError, match="expected the shape of an empty array"):
        load_mat(mat73(fill))


def test_many_structs_without_fields_are_counted():
    def fill(file):
        empty(file, "X", (2**20, 2**20), "struct")

    with pytest.raises(DataError, match="at most"):
        load_mat(mat73(fill))


def test_damaged():
    data = mat73(fill_as_matlab)
    for end in range(0, len(data) - 1, 4999):
        with pytest.raises(DataError):
            load_mat(data[:end])
    intact, refused = outcomes(damaged(data, seed) for seed in range(150))
    assert intact > 15
    assert refused > 15


def test_a_folder_of_files_of_matlab(tmp_path):
    rng = np.random.default_rng(0)
    signals = {kind: rng.normal(size=(3, 40)) for kind in ("left", "right")}
    for kind, X in signals.items():
        (tmp_path / kind).mkdir()
        data = mat73(lambda file, X=X: dataset(file, "X", X, "double"))
        (tmp_path / kind / "1.mat").write_bytes(data)
    found = read(tmp_path)
    assert found.y.tolist() == ["left", "right"]
    np.testing.assert_array_equal(found.X, np.stack(list(signals.values())), strict=True)
