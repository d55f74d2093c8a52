import http.server
import threading
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.io import savemat

from spdnet.data import DataError, Descriptor, read
from spdnet.paper import published as module
from spdnet.paper.published import PUBLISHED, data_file, fetch, how_to_get, import_dataset
from tests.cases import random_spd
from tests.data.io.test_index import write_index
from tests.data.io.test_motion import MOTION, SKELETON
from tests.data.test_build import zipped

X = random_spd(4, 5).numpy()
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SPDNET_DATA", str(tmp_path / "home"))
    return tmp_path / "home"


def afew(folder):
    """Files as the index of :func:`write_index` names them."""
    names = ["train/1/10_1", "train/1/10_2", "train/2/7_1", "val/2/a_b_3"]
    for matrix, name in zip(X, names, strict=True):
        file = folder / "spdface_400_inter_histeq" / f"{name}.mat"
        file.parent.mkdir(parents=True, exist_ok=True)
        savemat(file, {"Y1": matrix})
    return folder


def check_afew(file):
    data = read(file)
    np.testing.assert_array_equal(data.X, X)
    assert data.y.tolist() == ["1", "1", "2", "2"]
    assert data.split.tolist() == ["train", "train", "train", "test"]  # validation is tested on
    assert [g.rsplit("/", 1)[1] for g in data.groups] == ["10", "10", "7", "a_b"]


@pytest.mark.parametrize("index", ["named", "among the files", "none"])
@pytest.mark.parametrize("form", ["folder", "zip", "backslashes"])
def test_the_authors_matrices(tmp_path, home, index, form):
    folder = afew(tmp_path / "AFEW_SPD_data")
    own = write_index(tmp_path)
    if index == "among the files":
        own.rename(folder / "spddb_afew.mat")
    slash = "\\" if form == "backslashes" else "/"
    path = folder if form == "folder" else zipped(folder, tmp_path / "AFEW_SPD_data.zip", slash)
    file = import_dataset("afew", path, index=own if index == "named" else None)
    assert file == data_file("afew") == home / "afew.npz"
    check_afew(file)
    with pytest.raises(FileExistsError, match="delete it"):
        import_dataset("afew", path)


def test_fetching(tmp_path, monkeypatch):
    zipped(afew(tmp_path / "data"), tmp_path / "AFEW_SPD_data.zip")
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path)
    monkeypatch.setattr(http.server.SimpleHTTPRequestHandler, "log_message", lambda *a: None)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/AFEW_SPD_data.zip"
        monkeypatch.setitem(PUBLISHED, "afew", replace(PUBLISHED["afew"], url=url))
        seen, counted = [], []
        try:
            file = fetch(
                "afew",
                on_bytes=lambda *now: seen.append(now),
                on_source=lambda *now: counted.append(now),
            )
        finally:
            server.shutdown()
            thread.join()
    check_afew(file)
    assert seen[-1][0] == seen[-1][1] > 0
    assert counted[-1] == (4, 4)
    with pytest.raises(FileExistsError, match="delete it"):
        fetch("afew")


def test_motions_are_kept_as_sequences(tmp_path):
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "HDM_bd.asf").write_text(SKELETON)
    for i, action in enumerate(("kick", "clap", "kick")):
        (raw / f"HDM_bd_{action}_00{i}_120.amc").write_text(MOTION)
    with np.load(import_dataset("hdm05", raw)) as file:
        assert file["label"].tolist() == ["clap", "kick", "kick"]
        assert file["frames"].shape[1:] == (3, 3)
        assert file["lengths"].sum() == len(file["frames"])


def test_features_become_gaussians(tmp_path, monkeypatch):
    small = replace(PUBLISHED["pasc"], descriptor=Descriptor(kind="gaussian", pca=3, clip_length=5))
    monkeypatch.setitem(PUBLISHED, "pasc", small)
    for part, T in (("train", 10), ("control", 8), ("handheld", 8)):
        for person in ("p1", "p2"):
            folder = tmp_path / "raw" / part / f"{part}-{person}"
            folder.mkdir(parents=True)
            savemat(folder / "video.mat", {"features": RNG.normal(size=(T, 7))})
    data = read(import_dataset("pasc", tmp_path / "raw"))
    assert data.X.shape[1:] == (4, 4)
    assert sorted(set(data.split)) == ["test", "train"]
    assert (data.split == "test").sum() == 4
    assert (data.split == "train").sum() > 2


def test_frames_of_one_shape(tmp_path):
    for i, joints in enumerate((3, 4)):
        folder = tmp_path / "raw" / f"c{i}"
        folder.mkdir(parents=True)
        np.save(folder / "a.npy", RNG.normal(size=(6, joints)))
    with pytest.raises(DataError, match="one shape"):
        import_dataset("hdm05", tmp_path / "raw")
    assert not data_file("hdm05").exists()


def test_two_indices(tmp_path):
    folder = afew(tmp_path / "data")
    for i in range(2):
        write_index(tmp_path).rename(folder / f"spddb_{i}.mat")
    with pytest.raises(DataError, match="one index"):
        import_dataset("afew", folder)


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_to_put_where(name, monkeypatch, tmp_path):
    text = how_to_get(name)
    assert str(data_file(name)) in text
    assert f"spdnet data import {name}" in text
    monkeypatch.delenv("SPDNET_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert module.data_folder() == tmp_path / "cache" / "spdnet"
    with pytest.raises(ValueError, match="name"):
        data_file("mnist")
