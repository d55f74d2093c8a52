import math
import random
import struct
import sys
import zlib
from io import BytesIO

import numpy as np
import pytest
from scipy.io import loadmat, savemat
from scipy.sparse import csc_array

from spdnet.data.errors import DataError
from spdnet.data.io import matlab as reader
from spdnet.data.io.matlab import load_mat
from tests.cases import REAL_DATA

REAL = REAL_DATA / "spddb_afew_train_spd400_int_histeq.mat"
NUMBERS = ["f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"]


def saved(variables, **settings):
    file = BytesIO()
    savemat(file, variables, **settings)
    return file.getvalue()


def cell(*values):
    found = np.empty((1, len(values)), object)
    found[0, :] = values
    return found


NESTED = {
    "X": np.arange(12.0).reshape(3, 4),
    "z": np.array([[1 + 2j, 3]]),
    "s": {"p": {"q": np.eye(3), "r": "x"}, "names": cell("a", "bb")},
    "t": ["ab", "cde"],
}


# version 5 by hand


def element(kind, content, order="<"):
    return struct.pack(f"{order}2I", kind, len(content)) + content + bytes(-len(content) % 8)


def small(kind, content, order="<"):
    return struct.pack(f"{order}I", len(content) << 16 | kind) + content.ljust(4, b"\0")


def array(kind, shape, *parts, name=b"X", flags=0, order="<"):
    header = element(6, struct.pack(f"{order}2I", kind | flags, 0), order)
    header += element(5, struct.pack(f"{order}{len(shape)}i", *shape), order)
    return element(14, header + element(1, name, order) + b"".join(parts), order)


def deflated(content):
    packed = zlib.compress(content)
    return struct.pack("<2I", 15, len(packed)) + packed


def version5(*elements, order="<"):
    end = b"\0\1IM" if order == "<" else b"\1\0MI"
    return b"MATLAB 5.0 MAT-file".ljust(124) + end + b"".join(elements)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (3, 4), (1, 5), (2, 3, 4), (0, 0), (0, 3)])
@pytest.mark.parametrize("dtype", [*NUMBERS, "c16", "c8", "?"])
def test_arrays(dtype, shape, packed):
    X = (100 * np.random.default_rng(0).random(shape)).astype(dtype)
    found = load_mat(saved({"X": X, "Y": X.T}, do_compression=packed))
    assert list(found) == ["X", "Y"]
    for Y, expected in ((found["X"], X), (found["Y"], X.T)):
        assert Y.dtype == X.dtype
        assert Y.flags.c_contiguous
        assert Y.flags.writeable
        np.testing.assert_array_equal(Y, expected, strict=True)


def test_special_numbers():
    X = np.array([[np.nan, np.inf, -np.inf, -0.0]])
    np.testing.assert_array_equal(load_mat(saved({"X": X, "Z": X + 0j}))["X"], X)


@pytest.mark.parametrize("packed", [False, True])
def test_text_cells_and_structs(packed):
    variables = {
        "row": "hällo ∀",
        "rows": ["ab", "cde"],
        "none": "",
        "cell": cell("a", np.eye(2), cell("b", "c")),
        "square": np.array([["a", "b"], ["c", "d"]], object),
        "struct": {"x": 1.0, "inner": {"name": "y"}},
        "structs": np.array([(1.0, "p"), (2.0, "q")], [("f", object), ("g", object)]),
        "empty": np.empty((0, 0), object),
    }
    found = load_mat(saved(variables, do_compression=packed))
    assert found["row"] == "hällo ∀"
    assert found["rows"] == ["ab ", "cde"]
    assert found["none"] == ""
    assert found["cell"][0] == "a"
    np.testing.assert_array_equal(found["cell"][1], np.eye(2))
    assert found["cell"][2] == ["b", "c"]
    assert found["square"] == ["a", "c", "b", "d"]
    assert found["struct"] == {"x": [[1]], "inner": {"name": "y"}}
    assert found["structs"] == [{"f": [[1]], "g": "p"}, {"f": [[2]], "g": "q"}]
    assert found["empty"] == []


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("stored", range(10))
def test_numbers_stored_in_other_types(order, stored):
    kind = [9, 7, 1, 2, 3, 4, 5, 6, 12, 13][stored]
    values = np.array([1, 2, 3, 4, 5, 6], order + NUMBERS[stored]).tobytes()
    one = np.array([7], order + NUMBERS[stored]).tobytes()
    part = small(kind, one, order) if len(one) <= 4 else element(kind, one, order)
    text = element(4, "ab".encode("utf-16-le" if order == "<" else "utf-16-be"), order)
    data = version5(
        array(6, (2, 3), element(kind, values, order), name=b"double", order=order),
        array(10, (3, 2), element(kind, values, order), name=b"int16", order=order),
        array(9, (1, 1), part, flags=0x200, name=b"logical", order=order),
        array(6, (1, 1), part, part, flags=0x800, name=b"complex", order=order),
        array(4, (1, 2), text, name=b"char", order=order),
        order=order,
    )
    found = load_mat(data)
    np.testing.assert_array_equal(found["double"], [[1.0, 3, 5], [2, 4, 6]], strict=True)
    expected = np.array([[1, 4], [2, 5], [3, 6]], "i2")
    np.testing.assert_array_equal(found["int16"], expected, strict=True)
    np.testing.assert_array_equal(found["logical"], np.array([[True]]), strict=True)
    np.testing.assert_array_equal(found["complex"], [[7 + 7j]])
    assert found["char"] == "ab"


def test_paths_and_bytes(tmp_path):
    data = saved({"X": np.eye(2)})
    path = tmp_path / "a.mat"
    path.write_bytes(data)
    for file in (path, str(path), data, bytearray(data), memoryview(data)):
        np.testing.assert_array_equal(load_mat(file)["X"], np.eye(2))
    assert load_mat(version5()) == {}
    with pytest.raises(FileNotFoundError, match=r"b\.mat"):
        load_mat(tmp_path / "b.mat")
    with pytest.raises(FileNotFoundError):
        load_mat(tmp_path)
    with pytest.raises(DataError, match="too long"):
        load_mat("a" * 1000)
    with pytest.raises(DataError, match=r"in inner\.mat"):
        load_mat(b"no", "inner.mat")
    path.write_bytes(b"no")
    with pytest.raises(DataError, match=r"a\.mat"):
        load_mat(path)


def test_large_files(tmp_path, monkeypatch):
    path = tmp_path / "a.mat"
    path.write_bytes(saved({"X": np.eye(20)}))
    assert load_mat(path)["X"].shape == (20, 20)
    monkeypatch.setattr(reader, "MAX_BYTES", 3000)
    with pytest.raises(DataError, match="at most 3000 bytes"):
        load_mat(path)


def test_what_is_not_read_is_left_out():
    sparse = saved({"S": csc_array(np.eye(3))})
    with pytest.raises(DataError, match="got only sparse"):
        load_mat(sparse)
    handle = array(16, (1, 1), array(6, (0, 0)))
    opaque = element(14, element(6, struct.pack("<2I", 17, 1)) + element(1, b"o"))
    with pytest.raises(DataError, match="function_handle, opaque object"):
        load_mat(version5(handle, opaque))
    assert list(load_mat(sparse + saved({"X": np.eye(2)})[128:])) == ["X"]
    found = load_mat(saved({"c": cell(csc_array(np.eye(3)), "a")}))
    assert found == {"c": [None, "a"]}
    pages = array(4, (1, 1, 2), element(16, b"ab"))
    with pytest.raises(DataError, match="three axes"):
        load_mat(version5(pages))
    workspace = array(9, (1, 2), element(2, b"ab"), name=b"")
    assert load_mat(version5(workspace)) == {}


VERSION4 = struct.pack("<5I", 0, 2, 2, 0, 2) + b"X\0" + np.eye(2).tobytes()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "0 bytes"),
        (bytes(200), "200 bytes that start with"),
        (VERSION4, "version 4"),
        (struct.pack(">5I", 1000, 2, 2, 0, 2) + VERSION4[20:], "version 4"),
        (b"PK\3\4" + bytes(300), "zip"),
        (b"\x93NUMPY" + bytes(300), r"\.npy"),
        (b"\x89HDF\r\n\x1a\n" + bytes(300), "HDF5"),
        (b"MATLAB 7.3 MAT-file".ljust(124) + b"\0\2IM" + bytes(600), "damaged one of version 7.3"),
        (version5(element(9, bytes(8))), "element of type 9"),
        (version5(deflated(element(9, bytes(8)))), "element of type 9"),
        (version5(b"\0" * 4), "the end"),
        (version5(array(6, (1, 1), element(9, bytes(8)))) + b"\1", "the end"),
        (version5(*[array(6, (1, 1), element(9, bytes(8)))] * 2), "'X' twice"),
        (version5(array(6, (2, 2), element(9, bytes(8)))), "expected 4 numbers, got 1"),
        (version5(array(6, (1, 1), element(9, bytes(7)))), "numbers of 8 bytes"),
        (version5(array(6, (1, 1), element(8, bytes(8)))), "got type 8"),
        (version5(array(6, (1, 1))), "another part"),
        (version5(array(6, (-1, -1), element(9, bytes(8)))), "shape"),
        (version5(array(6, (1,), element(9, bytes(8)))), "shape"),
        (version5(array(6, (1,) * 40, element(9, bytes(8)))), "header"),
        (version5(array(18, (1, 1), element(9, bytes(8)))), "class 18"),
        (version5(array(8, (1, 1), element(9, struct.pack("<d", 2.5)))), "class int8"),
        (version5(array(8, (1, 1), element(9, struct.pack("<d", math.nan)))), "class int8"),
        (version5(array(9, (1, 1), element(3, struct.pack("<h", -1)))), "class uint8"),
        (version5(array(4, (1, 3), element(16, b"ab"))), "3 characters"),
        (version5(array(4, (2, 1), element(16, "ä".encode()))), "2 characters"),
        (version5(array(2, (1, 5), small(5, bytes(4)), element(1, b""))), "fields of 5"),
        (version5(array(2, (1, 1), small(5, b"\2\0\0\0"), element(1, b"a\0a\0"))), "2 names"),
        (version5(array(1, (1, 1), element(9, bytes(8)))), "got type 9"),
    ],
)
def test_other_and_damaged_files(data, message):
    with pytest.raises(DataError, match=message):
        load_mat(data)


HUGE = 2**31 - 1


@pytest.mark.parametrize(
    "content",
    [
        array(6, (HUGE, HUGE), element(9, bytes(8))),
        array(6, (HUGE, HUGE, HUGE, HUGE), element(9, bytes(8))),
        array(6, (0, HUGE, HUGE, HUGE, HUGE, HUGE)),
        array(4, (HUGE, 1), element(16, b"a")),
        array(1, (HUGE, HUGE), array(6, (0, 0))),
        array(2, (HUGE, 1), small(5, b"\1\0\0\0"), element(1, b"")),
        struct.pack("<2I", 14, HUGE) + bytes(64),
        struct.pack("<2I", 15, 2**32 - 1) + bytes(64),
    ],
)
def test_declared_sizes_that_are_not_there(content):
    for data in (version5(content), version5(deflated(content))):
        with pytest.raises(DataError):
            load_mat(data)


def zeros(head, gigabytes):
    """An element that starts with ``head`` and inflates to many zeros."""
    stream = zlib.compressobj(9)
    packed = stream.compress(head)
    block = bytes(2**24)
    packed += stream.compress(block) + stream.flush(zlib.Z_FULL_FLUSH)
    repeat = stream.compress(block) + stream.flush(zlib.Z_FULL_FLUSH)
    packed += repeat * (64 * gigabytes)
    return struct.pack("<2I", 15, len(packed)) + packed


def test_bombs(monkeypatch):
    inner = array(6, (1, 1), element(9, bytes(8)))
    large = struct.pack("<2I", 14, 2**32 - 8) + inner[8:]
    asked = []
    take = reader.Reader.take
    monkeypatch.setattr(reader.Reader, "take", lambda *a: (asked.append(a[1]), take(*a))[1])
    for head, message in ((inner, "more or fewer"), (large, "at most"), (b"", "type 0")):
        with pytest.raises(DataError, match=message):
            load_mat(version5(zeros(head, 3)))
    assert max(asked) == 2**32 - 8  # refused before a byte of it was unpacked
    monkeypatch.setattr(reader, "MAX_BYTES", 2**20)
    many = array(1, (1, 10**5), struct.pack("<2I", 14, 0) * 10**5)
    with pytest.raises(DataError, match="at most"):  # few bytes, many values
        load_mat(version5(deflated(many)))
    with pytest.raises(DataError, match="at most"):  # one byte a number becomes eight
        load_mat(version5(array(6, (1, 2**18), element(1, bytes(2**18)))))
    with pytest.raises(DataError, match="at most"):
        load_mat(version5(array(4, (2**10, 1), element(16, b"a" * 2**10))))


def test_deep_nesting():
    content = array(6, (1, 1), element(9, bytes(8)))
    for depth in range(1, 3000):
        content = array(1, (1, 1), content)
        if depth == 10:
            found = load_mat(version5(content))["X"]
    while isinstance(found, list):
        (found,) = found
    assert found == 0
    with pytest.raises(DataError, match="nesting depth"):
        load_mat(version5(content))


@pytest.mark.parametrize("packed", [False, True])
def test_truncated(packed):
    data = saved(NESTED, do_compression=packed)
    whole = load_mat(data)
    for end in range(0, len(data) - 8, 5):
        try:
            found = load_mat(data[:end])
        except DataError:
            continue
        assert set(found) < set(whole)  # cut between two variables


def damaged(data, seed):
    rng = random.Random(seed)
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        data[rng.randrange(128, len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def outcomes(files):
    """How many of these are read and refused; any other error ends the test."""
    read, refused = 0, []
    for data in files:
        try:
            read += isinstance(load_mat(data), dict)
        except DataError as error:
            refused.append(str(error))
    assert all(message.startswith("load_mat: expected ") for message in refused)
    return read, len(refused)


def test_bit_flips():
    data = saved(NESTED)
    read, refused = outcomes(damaged(data, seed) for seed in range(2000))
    assert read > 100  # of a number or a letter
    assert refused > 100
    data = saved(NESTED, do_compression=True)
    _, refused = outcomes(damaged(data, seed) for seed in range(500))
    assert refused > 450  # the check sum sees them
    one = saved({"s": NESTED["s"]})
    inner = (damaged(one, seed) for seed in range(1000))
    read, refused = outcomes(data[:128] + deflated(data[128:]) for data in inner)
    assert read > 50
    assert refused > 50


@pytest.mark.skipif(not REAL.is_file(), reason="needs the authors' index")
def test_the_authors_index():
    found = load_mat(REAL)["spd_train"]
    expected = loadmat(REAL, simplify_cells=True)["spd_train"]
    assert found["spdDir"] == expected["spdDir"]
    assert found["spd"]["name"] == list(expected["spd"]["name"])
    for key in ("label", "set", "id"):
        assert found["spd"][key].shape == (1, 2118)
        np.testing.assert_array_equal(found["spd"][key][0], expected["spd"][key])


# version 7.3


def version73(fill, **settings):
    h5py = pytest.importorskip("h5py")
    file = BytesIO()
    with h5py.File(file, "w", userblock_size=512, **settings) as group:
        fill(group, h5py)
    header = b"MATLAB 7.3 MAT-file".ljust(124) + b"\0\2IM"
    return header + file.getvalue()[128:]


def put(group, name, kind, X, **settings):
    """A dataset as MATLAB writes it, with the axes in reverse."""
    found = group.create_dataset(name, data=np.asarray(X).T, **settings)
    found.attrs["MATLAB_class"] = np.bytes_(kind)
    return found


def letters(text):
    return np.array([[ord(letter) for letter in text]], "u2")


def fill_all(file, h5py):
    put(file, "X", "double", np.arange(6.0).reshape(2, 3))
    put(file, "i", "int16", np.array([[1, 2]], ">i2"))
    put(file, "packed", "double", np.eye(40), chunks=(7, 7), compression="gzip", shuffle=True)
    put(file, "chunks", "single", np.eye(4, dtype="f4"), chunks=(3, 3))
    put(file, "z", "double", np.ones((2, 1), [("real", "f8"), ("imag", "f8")]))
    put(file, "flag", "logical", np.array([[1, 0]], "u1"))
    put(file, "text", "char", letters("hällo ∀"))
    put(file, "rows", "char", np.vstack([letters("ab"), letters("cd")]))
    put(file, "o", "string", np.array([[1, 2]], "u4"))
    for name, kind in (("none", "single"), ("word", "char"), ("nothing", "cell")):
        put(file, name, kind, np.array([0, 3], "u8")).attrs["MATLAB_empty"] = np.uint8(1)
    refs = file.create_group("#refs#")
    one, two = put(refs, "a", "double", np.eye(2)), put(refs, "b", "char", letters("xy"))
    cells = put(file, "c", "cell", np.array([[one.ref, two.ref]], h5py.ref_dtype))
    assert cells.shape == (2, 1)
    inner = file.create_group("s")
    inner.attrs["MATLAB_class"] = np.bytes_("struct")
    put(inner, "p", "char", letters("q"))
    many = file.create_group("many")
    many.attrs["MATLAB_class"] = np.bytes_("struct")
    many.create_dataset("f", data=np.array([[two.ref], [two.ref]], h5py.ref_dtype))
    sparse = file.create_group("sparse")
    sparse.attrs["MATLAB_class"] = np.bytes_("double")


def test_version_73():
    found = load_mat(version73(fill_all))
    expected = {
        "X": np.arange(6.0).reshape(2, 3),
        "i": np.array([[1, 2]], "i2"),
        "packed": np.eye(40),
        "chunks": np.eye(4, dtype="f4"),
        "z": np.full((2, 1), 1 + 1j),
        "flag": np.array([[True, False]]),
        "none": np.zeros((0, 3), "f4"),
    }
    for name, X in expected.items():
        np.testing.assert_array_equal(found[name], X, strict=True)
        assert found[name].flags.c_contiguous
        assert found[name].dtype.isnative
    assert found["text"] == "hällo ∀"
    assert found["rows"] == ["ab", "cd"]
    assert (found["word"], found["nothing"]) == ("", [])
    assert found["c"][1] == "xy"
    np.testing.assert_array_equal(found["c"][0], np.eye(2))
    assert found["s"] == {"p": "q"}
    assert found["many"] == [{"f": "xy"}, {"f": "xy"}]
    assert not {"o", "sparse", "#refs#"} & set(found)


def test_version_73_needs_h5py(monkeypatch):
    data = version73(fill_all)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(DataError, match=r"install spdnet\[hdf5\]"):
        load_mat(data)


def external(file, h5py):
    file["X"] = h5py.ExternalLink("other.h5", "/X")


def soft(file, h5py):
    file["X"] = h5py.SoftLink("/Y")


def outside(file, h5py):
    file.create_dataset("X", (2, 2), "f8", external=[("/etc/passwd", 0, 32)])


def virtual(file, h5py):
    layout = h5py.VirtualLayout((2, 2), "f8")
    layout[:] = h5py.VirtualSource("other.h5", "X", (2, 2))
    file.create_virtual_dataset("X", layout)


def too_large(file, h5py):
    file.create_dataset("X", (2**20, 2**20), "f8", chunks=(2, 2))


def large_chunk(file, h5py):
    file.create_dataset("X", (1, 1), "f8", chunks=(2**14, 2**14), maxshape=(None, None))


def check_sums(file, h5py):
    file.create_dataset("X", data=np.eye(2), fletcher32=True)


def plugin(file, h5py):
    file.create_dataset("X", data=np.eye(2), compression="lzf")


def cycle(file, h5py):
    cells = file.create_dataset("X", (2, 1), h5py.ref_dtype)
    cells[:, 0] = [cells.ref, cells.ref]


def group_cycle(file, h5py):
    group = file.create_group("X")
    group["X"] = group


def only_text(file, h5py):
    put(file, "X", "string", np.array([[1]], "u4"))


def wrong_shape(file, h5py):
    put(file, "X", "double", np.array([2**40, 3], "u8")).attrs["MATLAB_empty"] = np.uint8(1)


@pytest.mark.parametrize(
    ("fill", "message"),
    [
        (external, "the link 'X'"),
        (soft, "the link 'X'"),
        (outside, "another file"),
        (virtual, "another file"),
        (too_large, "at most"),
        (large_chunk, "at most"),
        (check_sums, r"filters \[3\]"),
        (plugin, r"filters \[32000\]"),
        (cycle, "nesting depth"),
        (group_cycle, "nesting depth"),
        (only_text, "only string"),
        (wrong_shape, "without 0"),
    ],
)
def test_version_73_refused(fill, message):
    with pytest.raises(DataError, match=message):
        load_mat(version73(fill))


def test_version_73_chunks_of_the_wrong_size():
    """They crash libhdf5."""
    data = version73(lambda f, _: put(f, "X", "double", np.eye(9), compression="gzip"))
    packed = zlib.compress(np.eye(9).tobytes(), 4)
    assert data.count(packed) == 1
    other = zlib.compress(bytes(8), 4).ljust(len(packed), b"\0")
    with pytest.raises(DataError, match="chunks of 648 bytes, got 8"):
        load_mat(data.replace(packed, other))


def test_version_73_damaged():
    data = version73(fill_all)
    for end in range(0, len(data) - 1, 997):
        with pytest.raises(DataError):
            load_mat(data[:end])
    read, refused = outcomes(damaged(data, seed) for seed in range(300))
    assert read > 50
    assert refused > 50
