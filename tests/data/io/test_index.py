import numpy as np
import pytest
from scipy.io import savemat

from spdnet.data import DataError
from spdnet.data.io.index import read_index
from spdnet.data.sources import matrix_sources
from tests.cases import REAL_DATA, random_spd

REAL = REAL_DATA / "spddb_afew_train_spd400_int_histeq.mat"
NAMES = [r"train\1\10_1.mat", r"train\1\10_2.mat", r"train\2\7_1.mat", r"val\2\a_b_3.mat"]


def write_index(folder, names=NAMES, labels=(1, 1, 2, 2), sets=(1, 1, 1, 2)):
    spd = {
        "name": np.array(names, dtype=object),
        "label": np.array(labels),
        "set": np.array(sets),
        "id": np.arange(len(names)),
    }
    path = folder / "index.mat"
    savemat(path, {"spd_train": {"spdDir": r".\data", "spd": spd}})
    return path


@pytest.mark.skipif(not REAL.is_file(), reason="needs the authors' index")
def test_the_authors_index():
    index = read_index(REAL)
    train, test = index.split == "train", index.split == "test"
    assert (train.sum(), test.sum()) == (1747, 371)
    assert np.bincount(index.y[train])[1:].tolist() == [267, 235, 173, 292, 342, 288, 150]
    assert np.bincount(index.y[test])[1:].tolist() == [59, 39, 44, 63, 61, 59, 46]
    assert len(set(index.groups[train])) == 557
    assert len(set(index.groups[test])) == 371
    assert index.files[0] == ("train", "1", "10_1.mat")


def test_files_are_found_at_any_depth(tmp_path):
    index = read_index(write_index(tmp_path))
    assert index.groups.tolist() == ["train/1/10", "train/1/10", "train/2/7", "val/2/a_b"]
    X = random_spd(4, 3).numpy()
    for i, parts in enumerate(index.files):
        file = tmp_path.joinpath("deep", "er", *parts)
        file.parent.mkdir(parents=True, exist_ok=True)
        savemat(file.with_suffix(".MAT" if i == 1 else ".mat"), {"Y1" if i else "Z": X[i]})
    sources = matrix_sources(tmp_path, index)
    np.testing.assert_array_equal([s.load() for s in sources], X)
    assert [s.y for s in sources] == ["1", "1", "2", "2"]
    assert [s.split for s in sources] == ["train", "train", "train", "test"]
    assert sources[3].name == "val/2/a_b_3.mat"
    (tmp_path / "deep" / "er" / "train" / "2" / "7_1.mat").unlink()
    with pytest.raises(DataError, match=r"train/2/7_1\.mat.*2 of 4"):
        matrix_sources(tmp_path, index)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"names": [r"..\a.mat", *NAMES[1:]]}, "below one folder"),
        ({"names": ["/etc/a.mat", *NAMES[1:]]}, "below one folder"),
        ({"names": [r"C:\a.mat", *NAMES[1:]]}, "below one folder"),
        ({"names": ["a.exe", *NAMES[1:]]}, "below one folder"),
        ({"sets": (1, 1, 3, 2)}, "got 3"),
        ({"labels": (1, 2)}, "4, 2 and 4"),
        ({"labels": (1, 1, np.nan, 2)}, "integers"),
    ],
)
def test_bad_indices(tmp_path, change, message):
    with pytest.raises(DataError, match=message):
        read_index(write_index(tmp_path, **change))


def test_other_files(tmp_path):
    path = tmp_path / "a.mat"
    savemat(path, {"x": np.eye(2)})
    with pytest.raises(DataError, match="index"):
        read_index(path)
    path.write_bytes(b"no")
    with pytest.raises(DataError, match="version 5"):
        read_index(path)
    with pytest.raises(FileNotFoundError):
        read_index(tmp_path / "b.mat")
    with pytest.raises(FileNotFoundError):
        matrix_sources(tmp_path / "none", read_index(write_index(tmp_path)))
