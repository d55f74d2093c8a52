import os

import numpy as np
import pytest
from scipy.io import savemat

from spdnet.datasets import DataError, read
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
    assert data.are_matrices
    assert len(data) == 6
    bare = read(save(tmp_path / "b.npz", X=np.ones((6, 3, 50)), y=np.arange(6)))
    assert bare.split is None
    assert bare.groups is None
    assert not bare.are_matrices


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
        "damaged or holds Python objects",
    ),
    "objects": (
        lambda p: read(save(p / "a.npz", X=X, y=np.array([Anything()] * 6, dtype=object))),
        DataError,
        "Python objects, which are not loaded",
    ),
    "no labels": (
        lambda p: (np.save(p / "X.npy", X), read(p / "X.npy")),
        DataError,
        "expected labels beside X.npy",
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
    "complex": (lambda p: read(save(p / "a.npz", X=X * 1j, y=Y)), DataError, "real numbers"),
    "text in X": (
        lambda p: read(save(p / "a.npz", X=X.astype(str), y=Y)),
        DataError,
        "real numbers",
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
        "'train', 'val' and 'test' .*got 'dev'",
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
        "which has its own",
    ),
    "a part of another name": (
        lambda p: (
            with_folder(p / "x", a1=X[0]),
            (p / "x" / "a").rename(p / "validation"),
            (p / "train").mkdir(),
            read(p),
        ),
        DataError,
        "nothing beside train .*got validation",
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
    assert read(path, labelled=False).y is None
    with pytest.raises(DataError, match="such as nan"):
        read(path, labelled=None)
    assert read(save(tmp_path / "b.npz", X=X), labelled=None).y is None
    assert read(save(tmp_path / "c.npz", X=X, y=Y), labelled=None).y.tolist() == Y.tolist()


def test_names_that_are_no_text_and_matrices_of_one_entry(tmp_path):
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    savemat(folder / "1.MAT", {"C": np.eye(1)}, appendmat=False)
    data = read(tmp_path)
    assert data.y.tolist() == ["caf\ufffd"]
    assert data.X.shape == (1, 1, 1)
