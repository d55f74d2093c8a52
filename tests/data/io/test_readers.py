import os

import numpy as np
import pytest
from scipy.io import savemat

from spdnet.data import DataError, read
from spdnet.data.io.readers import _with_groups as with_groups
from spdnet.data.sources import matrix_sources
from tests.cases import random_spd

X = random_spd(6, 4).numpy()
Y = np.array(["walk", "run", "walk", "run", "walk", "run"])


def save(path, **arrays):
    np.savez(path, **arrays)
    return path


def test_npz(tmp_path):
    split = np.array(["train"] * 4 + ["test"] * 2)
    path = save(tmp_path / "a.npz", X=X, y=Y, split=split, groups=np.arange(6))
    data = read(path)
    np.testing.assert_array_equal(data.X, X)
    assert data.y.tolist() == Y.tolist()
    assert data.split.tolist() == split.tolist()
    assert data.groups.tolist() == list(range(6))
    assert data.is_matrices
    assert len(data) == 6
    bare = read(save(tmp_path / "b.npz", X=np.ones((6, 3, 50)), y=np.arange(6)))
    assert bare.split is None
    assert bare.groups is None
    assert not bare.is_matrices


def test_npy_with_labels(tmp_path):
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", Y)
    (tmp_path / "y.txt").write_text("\n".join(Y) + "\n\n")
    (tmp_path / "bom.txt").write_text("\n".join(Y), encoding="utf-8-sig")
    np.save(tmp_path / "bytes.npy", Y.astype("S"))
    for labels in ("y.npy", "y.txt", "bom.txt", "bytes.npy"):
        data = read(tmp_path / "X.npy", tmp_path / labels)
        assert data.y.tolist() == Y.tolist()


@pytest.mark.parametrize("suffix", [".npy", ".mat"])
@pytest.mark.parametrize("splits", [True, False])
def test_folder_of_classes(tmp_path, suffix, splits):
    for i, (matrix, label) in enumerate(zip(X, Y, strict=True)):
        split = ("train", "val")[i % 2] if splits else "."
        folder = tmp_path / split / label
        folder.mkdir(parents=True, exist_ok=True)
        if suffix == ".npy":
            np.save(folder / f"{i}.npy", matrix)
        else:
            savemat(folder / f"{i}.mat", {f"Y{i}": matrix, "fs": 100.0})
        (folder / "notes.txt").write_text("not data")
    if splits:
        (tmp_path / "notes").mkdir()
    steps = []
    data = read(tmp_path, on_file=lambda done, total: steps.append((done, total)))
    assert steps == [(k, 6) for k in range(1, 7)]
    assert sorted(data.y) == sorted(Y)
    for matrix, label in zip(data.X, data.y, strict=True):
        (i,) = np.flatnonzero((matrix == X).all((1, 2)))
        assert Y[i] == label
    assert (data.split is not None) == splits
    if splits:
        assert sorted(set(data.split)) == ["train", "val"]


def damaged(path):
    save(path, X=X, y=Y)
    path.write_bytes(path.read_bytes()[:300])
    return path


def with_folder(tmp_path, **files):
    tmp_path.mkdir(exist_ok=True)
    for name, content in files.items():
        folder = tmp_path / name[0]
        folder.mkdir(exist_ok=True)
        np.save(folder / f"{name}.npy", content)
    return tmp_path


def one_mat(tmp_path, content):
    (tmp_path / "a").mkdir()
    if isinstance(content, bytes):
        (tmp_path / "a" / "1.mat").write_bytes(content)
    else:
        savemat(tmp_path / "a" / "1.mat", content)
    return tmp_path


class Anything:
    pass


BAD = {
    "absent": (lambda p: read(p / "no.npz"), FileNotFoundError, "expected a file or folder"),
    "suffix": (
        lambda p: ((p / "a.csv").write_text("1,2"), read(p / "a.csv")),
        DataError,
        "a .npz or a .npy file, got a.csv; save X and y",
    ),
    "names": (lambda p: read(save(p / "a.npz", data=X)), DataError, "arrays X and y in .*got data"),
    "truncated": (lambda p: read(damaged(p / "a.npz")), DataError, "a.npz is damaged"),
    "text": (
        lambda p: ((p / "a.npz").write_text("hello"), read(p / "a.npz")),
        DataError,
        "damaged or has Python objects",
    ),
    "objects": (
        lambda p: read(save(p / "a.npz", X=X, y=np.array([Anything()] * 6, dtype=object))),
        DataError,
        "Python objects, which are not loaded",
    ),
    "no labels": (
        lambda p: (np.save(p / "X.npy", X), read(p / "X.npy")),
        DataError,
        "expected labels for X.npy",
    ),
    "absent labels": (
        lambda p: (np.save(p / "X.npy", X), read(p / "X.npy", p / "y.txt")),
        FileNotFoundError,
        "expected labels at",
    ),
    "empty folder": (lambda p: read(p), DataError, r"<class>/\*.npy or \*.mat"),
    "shapes": (
        lambda p: read(with_folder(p, a1=X[0], b1=X[0, :3, :3])),
        DataError,
        r"one shape, \(4, 4\).*got \(3, 3\)",
    ),
    "vectors": (
        lambda p: read(with_folder(p, a1=X[0, 0])),
        DataError,
        r"a matrix in .*shape \(4,\)",
    ),
    "two matrices": (
        lambda p: read(one_mat(p, {"A": X[0], "B": X[1]})),
        DataError,
        "a single matrix in .*got A, B",
    ),
    "broken mat": (
        lambda p: read(one_mat(p, b"garbage" * 40)),
        DataError,
        "expected a MATLAB file",
    ),
    "dimensions": (
        lambda p: read(save(p / "a.npz", X=X[0], y=Y[:4])),
        DataError,
        r"shape \(4, 4\)",
    ),
    "text in X": (
        lambda p: read(save(p / "a.npz", X=X.astype(str), y=Y)),
        DataError,
        "X of numbers",
    ),
    "labels": (
        lambda p: read(save(p / "a.npz", X=X, y=Y[:5])),
        DataError,
        r"y of shape \(6,\), one for each of X, .*got \(5,\)",
    ),
    "groups": (
        lambda p: read(save(p / "a.npz", X=X, y=Y, groups=np.ones((6, 2)))),
        DataError,
        "expected groups of shape",
    ),
    "split": (
        lambda p: read(save(p / "a.npz", X=X, y=Y, split=np.array(["dev"] * 6))),
        DataError,
        "'train', 'val' and 'test', got 'dev'",
    ),
    "infinite class": (
        lambda p: read(save(p / "a.npz", X=X, y=np.array([0, 1, 0, 1, 0, np.inf]))),
        DataError,
        "such as inf",
    ),
    "dates": (
        lambda p: read(save(p / "a.npz", X=X, y=Y, groups=np.arange(6).astype("M8[s]"))),
        DataError,
        "numbers or text in groups",
    ),
    "a blank line": (
        lambda p: (
            np.save(p / "X.npy", X),
            (p / "y.txt").write_text("a\n\nb\na\nb\na\nb"),
            read(p / "X.npy", p / "y.txt"),
        ),
        DataError,
        "got none on line 2",
    ),
    "a header": (
        lambda p: (
            np.save(p / "X.npy", X),
            (p / "y.txt").write_text("label\na\nb\na\nb\na\nb"),
            read(p / "X.npy", p / "y.txt"),
        ),
        DataError,
        r"labels of shape \(6,\).* in .*y.txt, got \(7,\); is the first value, 'label', a header",
    ),
    "labels in another encoding": (
        lambda p: (
            np.save(p / "X.npy", X),
            (p / "y.txt").write_bytes(b"caf\xe9\n" * 6),
            read(p / "X.npy", p / "y.txt"),
        ),
        DataError,
        r"text in UTF-8, but .*y.txt",
    ),
    "labels twice": (
        lambda p: read(save(p / "a.npz", X=X, y=Y), p / "y.txt"),
        DataError,
        "which contains its own labels",
    ),
    "a part of another name": (
        lambda p: (
            with_folder(p / "x", a1=X[0]),
            (p / "x" / "a").rename(p / "validation"),
            (p / "train").mkdir(),
            read(p),
        ),
        DataError,
        "only train .*got validation",
    ),
    "regression": (
        lambda p: read(save(p / "a.npz", X=X, y=np.linspace(0, 1, 6))),
        DataError,
        "expected classes in y",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files(tmp_path, case):
    call, kind, message = BAD[case]
    with pytest.raises(kind, match=message):
        call(tmp_path)


def test_labels_may_be_missing_or_ignored(tmp_path):
    path = save(tmp_path / "a.npz", X=X, y=np.full(6, np.nan))
    assert read(path, labeled=False).y is None
    with pytest.raises(DataError, match="such as nan"):
        read(path, labeled=None)
    assert read(save(tmp_path / "b.npz", X=X), labeled=None).y is None
    assert read(save(tmp_path / "c.npz", X=X, y=Y), labeled=None).y.tolist() == Y.tolist()


def test_names_that_are_no_text_and_matrices_of_one_entry(tmp_path):
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    savemat(folder / "1.MAT", {"C": np.eye(1)}, appendmat=False)
    data = read(tmp_path)
    assert data.y.tolist() == ["caf\\xe9"]
    assert data.X.shape == (1, 1, 1)


SIGNALS = np.random.default_rng(0).normal(size=(6, 3, 20))


def tables(place, arrays=SIGNALS, suffix=".csv", **how):
    """A folder of classes with a table in each file."""
    for i, (values, label) in enumerate(zip(arrays, Y, strict=True)):
        (place / label).mkdir(parents=True, exist_ok=True)
        np.savetxt(place / label / f"{i}{suffix}", values, **{"delimiter": ",", **how})
    return place


@pytest.mark.parametrize("suffix", [".csv", ".CSV", ".tsv", ".txt"])
def test_folder_of_tables(tmp_path, suffix):
    data = read(tables(tmp_path, suffix=suffix))
    assert data.notes == ()
    for values, label, name in zip(data.X, data.y, data.names, strict=True):
        i = int(name.split("/")[1].split(".")[0])
        assert label == Y[i]
        np.testing.assert_array_equal(values, SIGNALS[i])
    assert read(tables(tmp_path / "m", X, suffix)).is_matrices


def test_folders_of_parts_with_capitals_and_headers(tmp_path):
    for part in ("Train", "TEST"):
        names = "\t".join(f"t{i}" for i in range(SIGNALS.shape[-1]))
        tables(tmp_path / part, suffix=".tsv", delimiter="\t", header=names, comments="")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "readme.txt").write_text("not data")
    (tmp_path / "labels.csv").write_text("a,b")
    data = read(tmp_path)
    assert sorted(data.split) == ["test"] * 6 + ["train"] * 6
    assert data.notes == ("not read: 1 .csv file, 1 .txt file, such as docs/readme.txt",)


def test_damage_is_named_by_file_and_line(tmp_path):
    tables(tmp_path)
    file = tmp_path / "run" / "1.csv"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([lines[0], lines[1].replace(",", ",x", 1), lines[2]]))
    with pytest.raises(DataError, match=r"line 2, column 2 of .*run/1.csv, got 'x"):
        read(tmp_path)
    file.write_bytes(b"\x89PNG\r\n\x1a\n" * 9)
    with pytest.raises(DataError, match=r"UTF-8, but line 1 of .*run/1.csv"):
        read(tmp_path)


def test_text_beside_arrays_is_told_not_read(tmp_path):
    with_folder(tmp_path, a1=X[0], b1=X[1])
    (tmp_path / "a" / "notes.txt").write_text("1 2\n3 4")
    (tmp_path / "a" / "picture.png").write_bytes(b"")
    (tmp_path / "b" / ".hidden.npy").write_bytes(b"")
    (tmp_path / "b" / "README").write_text("")
    (tmp_path / "README.md").write_text("of no class")
    data = read(tmp_path)
    assert len(data) == 2
    (note,) = data.notes
    assert note == "not read: 1 unnamed file, 1 .png file, 1 .txt file, such as a/notes.txt"


def test_a_class_without_files_that_can_be_read_is_an_error(tmp_path):
    with_folder(tmp_path, a1=X[0], a2=X[1])
    (tmp_path / "empty").mkdir()
    assert len(read(tmp_path)) == 2
    (tmp_path / "b").mkdir()
    for i in range(20):
        (tmp_path / "b" / f"{i}.xyz").write_text("1")
    with pytest.raises(DataError, match=r"got 20 .xyz files in b; save them as .npy, .mat, .csv"):
        read(tmp_path)
    for file in (tmp_path / "b").iterdir():
        file.rename(file.with_suffix(".csv"))
    with pytest.raises(DataError, match=r"got 20 .csv files in b; save all files in one format"):
        read(tmp_path)


def test_a_folder_says_what_it_holds_instead(tmp_path):
    (tmp_path / "a").mkdir()
    for i in range(3):
        (tmp_path / "a" / f"{i}.edf").write_text("1")
    with pytest.raises(DataError, match=r"val and test, got 3 .edf files$"):
        read(tmp_path)
    np.save(tmp_path / "1.npy", X[0])
    with pytest.raises(DataError, match=r"got 1 .npy file outside of class folders$"):
        read(tmp_path)
    data = read(tmp_path, labeled=False)
    assert len(data) == 1
    assert data.notes == ("not read: 3 .edf files",)


def test_arrays_that_are_not_used_are_told(tmp_path):
    arrays = {"subject": np.arange(6), "Labels": Y, "fs": 128.0, "provenance": "x"}
    data = read(save(tmp_path / "a.npz", X=X, y=Y, **arrays))
    assert data.notes == (
        "not used: array 'subject' (did you mean groups?)",
        "not used: array 'Labels'",
        "not used: array 'fs'",
    )
    data = read(save(tmp_path / "b.npz", X=X, y=Y, groups=Y, subject=Y, Split=Y, files=Y))
    assert data.notes == (
        "not used: array 'subject'",
        "not used: array 'Split' (did you mean split?)",
        "not used: array 'files' (did you mean names?)",
    )
    assert read(save(tmp_path / "c.npz", X=X, y=Y)).notes == ()


def test_axes_that_seem_to_be_swapped_are_told(tmp_path):
    (note,) = read(save(tmp_path / "a.npz", X=np.ones((2, 200, 12)), y=[0, 1])).notes
    assert note.startswith("12 samples of 200 channels: are the axes swapped?")
    assert "--of sequences" in note
    assert read(save(tmp_path / "b.npz", X=np.ones((2, 12, 200)), y=[0, 1])).notes == ()


@pytest.mark.parametrize(
    ("arrays", "call"),
    [
        ({"covs": X, "labels": Y}, "X=covs, y=labels"),
        ({"data": X, "condition": Y}, "X=data, y=condition"),
        ({"data": X, "subject": Y, "condition": Y}, "X=data, y=condition"),
        ({"X": X, "one": Y, "two": Y}, r"X=X, y=\.\.\."),
        ({"flat": X[0]}, r"X=\.\.\., y=\.\.\."),
    ],
)
def test_other_names_come_with_the_line_that_mends_them(tmp_path, arrays, call):
    path = save(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError, match=rf"np.savez\('a.npz', {call}\)$"):
        read(path)
    (tmp_path / "b.npz").write_bytes(path.read_bytes()[:-200])
    with pytest.raises(DataError, match="damaged"):
        read(tmp_path / "b.npz")


def test_labels_of_pandas_come_with_the_call_that_mends_them(tmp_path):
    objects = Y.astype(object)
    with pytest.raises(DataError, match=r"in y of .*a.npz, got Python objects.*; save y.astype"):
        read(save(tmp_path / "a.npz", X=X, y=objects))
    with pytest.raises(DataError, match=r"in groups of .*; save groups.astype\(str\)"):
        read(save(tmp_path / "a.npz", X=X, y=Y, groups=objects))
    with pytest.raises(DataError, match="Python objects, which are not loaded"):
        read(save(tmp_path / "a.npz", X=X.astype(object), y=Y))
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", objects)
    with pytest.raises(DataError, match=r"in .*y.npy, got Python objects.*astype\(str\)"):
        read(tmp_path / "X.npy", tmp_path / "y.npy")


def test_recordings_of_unequal_length_come_with_a_way_out(tmp_path):
    with_folder(tmp_path, a1=np.ones((3, 20)), b1=np.ones((3, 25)))
    with pytest.raises(DataError, match=r"one shape.*channels in rows.*--of signals$"):
        read(tmp_path)
    with_folder(tmp_path, b1=np.ones((25, 20)))
    with pytest.raises(DataError, match=r"one shape.*frames in rows.*--of sequences$"):
        read(tmp_path)
    with_folder(tmp_path, b1=np.ones((5, 5)))
    with pytest.raises(DataError, match=r"one shape.*b1.npy$"):
        read(tmp_path)


def test_groups_from_a_file(tmp_path):
    folder = tables(tmp_path / "rec")
    (tmp_path / "g.txt").write_text("anna\nanna\nben\nben\ncleo\ncleo\n")
    np.save(tmp_path / "g.npy", np.arange(6.0) // 2)
    assert read(folder, groups=tmp_path / "g.txt").groups.tolist()[::2] == ["anna", "ben", "cleo"]
    assert read(folder, groups=tmp_path / "g.npy").groups.tolist() == [0, 0, 1, 1, 2, 2]
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", Y)
    data = read(tmp_path / "X.npy", tmp_path / "y.npy")
    assert with_groups(data, str(tmp_path / "g.txt")).groups[0] == "anna"
    path = save(tmp_path / "a.npz", X=X, y=Y, groups=Y)
    with pytest.raises(DataError, match="data without groups"):
        read(path, groups=tmp_path / "g.txt")
    (tmp_path / "short.txt").write_text("anna\nben")
    with pytest.raises(DataError, match=r"groups of shape \(6,\).*short.txt, got \(2,\)"):
        with_groups(data, tmp_path / "short.txt")
    with pytest.raises(FileNotFoundError, match=r"groups at .*shrt.txt, got none; did you mean"):
        with_groups(data, tmp_path / "shrt.txt")
    np.save(tmp_path / "real.npy", np.linspace(0, 1, 6))
    with pytest.raises(DataError, match="names or integers in groups"):
        with_groups(data, tmp_path / "real.npy")


def test_split_with_capitals(tmp_path):
    split = np.array(["Train", "TRAIN", " train", "Val", "Test", "test "])
    data = read(save(tmp_path / "a.npz", X=X, y=Y, split=split))
    assert data.split.tolist() == ["train"] * 3 + ["val"] + ["test"] * 2


@pytest.mark.parametrize(
    ("there", "wanted", "meant"),
    [
        (["tc.npz"], "nosuch.npz", None),
        (["psq.csv", "covs.npz"], "covs.csv", "covs.npz"),
        (["covs.txt", "covs.npy", "covs.npz"], "covs.csv", "covs.npz"),
        (["recordings.npz", "recording.txt"], "recordings", "recordings.npz"),
        (["recordings.npz"], "Recording.npz", "recordings.npz"),
        (["a.npz", "b.npz"], "c.npz", None),
    ],
)
def test_the_file_that_was_meant(tmp_path, there, wanted, meant):
    for name in there:
        (tmp_path / name).write_text("")
    end = f"; did you mean '{meant}'\\?$" if meant else "got none$"
    with pytest.raises(FileNotFoundError, match=end):
        read(tmp_path / wanted)


LONE = np.array(["\ud800", "\udc00", "\ue000"])


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (np.array([b"\xe9", b"\xe8", "é".encode()]), ["\\xe9", "\\xe8", "é"]),
        (np.array([b"a\xc3", b"\xa9bc"]), ["a\\xc3", "\\xa9bc"]),  # valid in a row, not alone
        (LONE, ["\\x00\\xd8\\x00\\x00", "\\x00\\xdc\\x00\\x00", "\ue000"]),
        (np.array([b"left", b"right"]), ["left", "right"]),
    ],
)
def test_distinct_names_stay_distinct(tmp_path, names, expected):
    y = np.resize(names, 6)
    found = read(save(tmp_path / "a.npz", X=X, y=y, groups=y, names=y))
    for values in (found.y, found.groups, found.names):
        assert values.tolist() == np.resize(expected, 6).tolist()
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    found = read(tmp_path / "X.npy", tmp_path / "y.npy", groups=tmp_path / "y.npy")
    assert found.y.tolist() == found.groups.tolist() == np.resize(expected, 6).tolist()


@pytest.mark.parametrize("array", ["y", "groups"])
def test_names_that_would_be_merged_are_refused(tmp_path, array):
    names = np.resize(np.array([b"\xe9", b"\\xe9"]), 6)
    path = save(tmp_path / "a.npz", **{"X": X, "y": Y, array: names})
    with pytest.raises(
        DataError, match=rf"distinct names in {array} of .*a\.npz, got b'\\xe9.*' and b'"
    ):
        read(path)


def test_folders_of_undecodable_names_stay_distinct(tmp_path):
    for name in (b"\xe8", b"\xe9", b"fine"):
        folder = tmp_path / "data" / os.fsdecode(name)
        folder.mkdir(parents=True)
        np.save(folder / "1.npy", X[0])
    assert read(tmp_path / "data").y.tolist() == ["fine", "\\xe8", "\\xe9"]
    assert {source.y for source in matrix_sources(tmp_path / "data")} == {
        *("fine", "\\xe8", "\\xe9"),
    }
    (tmp_path / "data" / "\\xe9").mkdir()
    np.save(tmp_path / "data" / "\\xe9" / "1.npy", X[0])
    for reader in (read, matrix_sources):
        with pytest.raises(DataError, match=r"expected distinct names .*b'\\+xe9'.*; rename"):
            reader(tmp_path / "data")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_end_at_newlines_alone(tmp_path, end):
    """Other characters that ``str.splitlines`` divides at are part of a label."""
    labels = ["a\u2028b", "c\x0bd", "e\x85f", "g\x1ch", "i\u2029j", "k\x0cl"]
    np.save(tmp_path / "X.npy", X)
    (tmp_path / "y.txt").write_bytes((end.join(labels) + end).encode())
    found = read(tmp_path / "X.npy", tmp_path / "y.txt", groups=tmp_path / "y.txt")
    assert found.y.tolist() == found.groups.tolist() == labels
