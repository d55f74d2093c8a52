"""Tables, signals and groups as sources, and what is told of the rest."""

import zipfile

import numpy as np
import pytest

from spdnet import covariance
from spdnet.data import DataError, Descriptor, build, read
from spdnet.data.sources import (
    matrix_sources,
    notes_on_unused,
    sequence_sources,
    with_groups,
    with_random_split,
)
from tests.cases import random_spd

MATRICES = random_spd(6, 3).numpy()
SIGNALS = [np.random.default_rng(i).normal(size=(3, 20 + i)) for i in range(6)]


def folder_of(place, arrays, suffix=".csv", layout="{label}/{i}"):
    for i, values in enumerate(arrays):
        file = place / (layout.format(label="ab"[i % 2], i=i) + suffix)
        file.parent.mkdir(parents=True, exist_ok=True)
        if suffix == ".npy":
            np.save(file, values)
        else:
            np.savetxt(file, values, delimiter={".tsv": "\t", ".txt": " "}.get(suffix, ","))
    return place


def zipped(folder, path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(p for p in folder.rglob("*") if p.is_file()):
            archive.write(file, file.relative_to(folder))
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".txt"])
@pytest.mark.parametrize("layout", ["{label}/{i}", "train/deep/{label}/{i}"])
@pytest.mark.parametrize("form", ["folder", "zip"])
def test_tables_of_matrices(tmp_path, suffix, layout, form):
    path = folder_of(tmp_path / "data", MATRICES, suffix, layout)
    if suffix != ".txt":  # which counts where there is no other table
        (path / f"labels{suffix}").write_text("beside the folders")
    if form == "zip":
        path = zipped(path, tmp_path / "data.zip")
    found = matrix_sources(path)
    assert {source.y for source in found} == {"a", "b"}
    out = build(found, tmp_path / "out.npz")
    order = [int(name.rsplit("/", 1)[1].split(".")[0]) for name in read(out).names]
    np.testing.assert_array_equal(read(out).X, MATRICES[order])


@pytest.mark.parametrize("suffix", [".npy", ".csv"])
def test_signals_of_unequal_length_are_as_in_training(tmp_path, suffix):
    found = sequence_sources(folder_of(tmp_path / "data", SIGNALS, suffix), transposed=True)
    notes = []
    out = build(found, tmp_path / "out.npz", Descriptor(mode="mean"), on_note=notes.append)
    for matrix, name in zip(read(out).X, read(out).names, strict=True):
        signal = SIGNALS[int(name[2:].split(".")[0])]
        np.testing.assert_allclose(matrix, covariance.estimate(signal), rtol=1e-12)
    assert notes == []
    thin = sequence_sources(tmp_path / "data", transposed=True, every=2)
    assert thin[0].load().shape == (10, 3)
    assert thin[0].stamp != sequence_sources(tmp_path / "data", every=2)[0].stamp


def test_swapped_axes_are_told(tmp_path):
    notes = []
    found = sequence_sources(folder_of(tmp_path / "data", [x[:, :20] for x in SIGNALS]))
    build(found, tmp_path / "out.npz", Descriptor(), on_note=notes.append)
    (note,) = notes
    assert note.startswith("fewer samples than channels in 6, such as a/0.csv (3 of 20): are the")
    assert "--of signals" in note
    build(found, tmp_path / "quiet.npz", Descriptor())


def test_swapped_axes_are_told_before_the_error_they_cause(tmp_path):
    notes = []
    found = sequence_sources(folder_of(tmp_path / "data", SIGNALS))
    with pytest.raises(DataError, match="one size, 20 x 20, got 22 x 22"):
        build(found, tmp_path / "out.npz", Descriptor(), on_note=notes.append)
    assert notes[0].startswith("fewer samples than channels in 2")


def test_recordings_are_no_matrices(tmp_path):
    found = matrix_sources(folder_of(tmp_path / "data", SIGNALS))
    with pytest.raises(DataError, match=r"a/0.csv: expected a square.*--of signals, channels in"):
        build(found, tmp_path / "out.npz")


def test_signals_of_a_npz_file_are_read_by_training(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.ones((2, 3, 9)), y=[0, 1])
    with pytest.raises(DataError, match=r"spdnet train reads a .npz file"):
        sequence_sources(tmp_path / "a.npz", transposed=True)


def test_what_a_folder_holds_instead_is_told(tmp_path):
    folder_of(tmp_path / "data", MATRICES, ".xyz")
    for call in (matrix_sources, sequence_sources):
        with pytest.raises(DataError, match=r".csv, .tsv or .txt files in .*, got 6 .xyz files$"):
            call(tmp_path / "data")


@pytest.mark.parametrize("form", ["folder", "zip"])
def test_files_that_are_left_out(tmp_path, form):
    data = folder_of(tmp_path / "data", MATRICES, ".npy")
    (data / "a" / "notes.txt").write_text("1")
    (data / "README.md").write_text("")
    path = zipped(data, tmp_path / "a.zip") if form == "zip" else data
    assert notes_on_unused(path, matrix_sources(path)) == [
        "not read: 1 .txt file, such as a/notes.txt"
    ]
    (data / "c").mkdir()
    (data / "c" / "1.xyz").write_text("")
    path = zipped(data, tmp_path / "a.zip") if form == "zip" else data
    with pytest.raises(DataError, match=r"^build: .*got 1 .xyz file in c; save them as"):
        notes_on_unused(path, matrix_sources(path))


def test_nothing_is_left_out_beside_the_parts(tmp_path):
    data = folder_of(tmp_path / "data", MATRICES, ".npy", "train/{label}/{i}")
    (data / "docs").mkdir()
    (data / "docs" / "figure.png").write_text("")
    assert notes_on_unused(data, matrix_sources(data)) == []


def test_images_and_motions_are_whole_folders(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    for label in "ab":
        place = tmp_path / "data" / label / "video"
        place.mkdir(parents=True)
        for i in range(3):
            pillow.fromarray(np.full((8, 8), i, dtype=np.uint8)).save(place / f"{i}.png")
    found = sequence_sources(tmp_path / "data")
    assert len(found) == 2
    assert not found[0].features
    assert notes_on_unused(tmp_path / "data", found) == []
    (tmp_path / "data" / "c").mkdir()
    (tmp_path / "data" / "c" / "1.csv").write_text("1,2")
    with pytest.raises(DataError, match=r"got 1 .csv file in c; save all files in one format"):
        notes_on_unused(tmp_path / "data", found)


def test_arrays_that_are_left_out(tmp_path):
    frames, lengths, label = np.ones((8, 3)), np.array([4, 4]), np.array([0, 1])
    arrays = {"frames": frames, "lengths": lengths, "label": label}
    np.savez(tmp_path / "a.npz", **arrays, subject=label, fs=1)
    expected = ["not used: array 'subject' (did you mean groups?)", "not used: array 'fs'"]
    assert notes_on_unused(tmp_path / "a.npz", sequence_sources(tmp_path / "a.npz")) == expected
    split = np.array(["Train", "TEST"])
    np.savez(tmp_path / "b.npz", **arrays, groups=np.array(["x", "y"]), split=split)
    found = sequence_sources(tmp_path / "b.npz")
    assert [source.group for source in found] == ["x", "y"]
    assert [source.split for source in found] == ["train", "test"]
    np.savez(tmp_path / "c.npz", **arrays, groups=np.array(["x"]))
    with pytest.raises(DataError, match=r"expected groups of shape \(2,\)"):
        sequence_sources(tmp_path / "c.npz")


def test_groups_of_sources_stay_together(tmp_path):
    found = matrix_sources(folder_of(tmp_path / "data", MATRICES))
    with_them = with_groups(found, np.array([0, 0, 1, 1, 0, 1]))
    assert [source.group for source in with_them] == ["0", "0", "1", "1", "0", "1"]
    parts = {(source.group, source.split) for source in with_random_split(with_them, 0.5)}
    assert len(parts) == 2
    with pytest.raises(DataError, match=r"groups of shape \(6,\), one for each .*got \(2,\)"):
        with_groups(found, np.arange(2))


def test_a_folder_is_built_in_the_order_in_which_it_is_read(tmp_path):
    for part in ("test", "Val", "train"):
        folder_of(tmp_path / "data", MATRICES, ".npy", part + "/{label}/{i}")
    names = [source.name for source in matrix_sources(tmp_path / "data")]
    assert names == read(tmp_path / "data").names.tolist()
    assert [name.split("/")[0] for name in names[::6]] == ["train", "Val", "test"]
