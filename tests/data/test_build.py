import json
import os
import shutil
import zipfile

import numpy as np
import pytest
from scipy.io import savemat

from spdnet.covariance import gaussian_embedding, joint_covariance
from spdnet.data import DataError, Descriptor, build, read
from spdnet.data.sources import Source, matrix_sources, sequence_sources, with_random_split
from tests.cases import REAL_DATA, random_spd
from tests.data.io.test_motion import MOTION, SKELETON

X = random_spd(8, 4).numpy()
RNG = np.random.default_rng(0)


def sources(split=("train", "test"), T=20, d=5):
    frames = RNG.normal(size=(6, T, d))
    return [
        Source(
            f"s{i}", lambda i=i: frames[i], f"c{i % 3}", split[i // 3] if split else None, f"g{i}"
        )
        for i in range(6)
    ]


def folder_of_matrices(folder, suffix=".mat", layout="{part}/{label}/{i}"):
    for i, matrix in enumerate(X):
        place = layout.format(part=("train", "Val")[i // 4], label=f"c{i % 2}", i=i)
        file = folder / f"{place}{suffix}"
        file.parent.mkdir(parents=True, exist_ok=True)
        if suffix == ".npy":
            np.save(file, matrix)
        else:
            savemat(file, {("Y1", "cov")[i % 2]: matrix})
    return folder


def zipped(folder, path, slash="/"):
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(p for p in folder.rglob("*") if p.is_file()):
            info = zipfile.ZipInfo("x")
            info.filename = slash.join(file.relative_to(folder).parts)
            archive.writestr(info, file.read_bytes())
    return path


@pytest.mark.parametrize("suffix", [".mat", ".npy"])
@pytest.mark.parametrize(
    "layout", ["{part}/{label}/{i}", "some/where/{part}/{label}/{i}", "{part}/deep/{label}/{i}"]
)
@pytest.mark.parametrize("form", ["folder", "zip", "zip with backslashes"])
def test_matrices_of_any_layout(tmp_path, suffix, layout, form):
    path = folder_of_matrices(tmp_path / "data", suffix, layout)
    if form != "folder":
        path = zipped(path, tmp_path / "data.zip", "/" if form == "zip" else "\\")
    found = matrix_sources(path)
    order = [int(s.name.rsplit("/", 1)[1].split(".")[0]) for s in found]
    assert sorted(order) == list(range(8))
    for i, source in zip(order, found, strict=True):
        np.testing.assert_array_equal(source.load(), X[i])
        assert (source.split, source.y) == (("train", "val")[i // 4], f"c{i % 2}")


def test_build_and_read(tmp_path):
    path = folder_of_matrices(tmp_path / "data")
    seen = []
    file = build(matrix_sources(path), tmp_path / "a.npz", on_source=lambda *now: seen.append(now))
    assert seen[-1] == (8, 8)
    data = read(file)
    order = [int(name.rsplit("/", 1)[1][:-4]) for name in data.names]
    np.testing.assert_array_equal(data.X, X[order])
    assert data.y.tolist() == [f"c{i % 2}" for i in order]
    assert data.split.tolist() == [("train", "val")[i // 4] for i in order]
    about = json.loads(str(np.load(file)["provenance"]))
    assert about["dtype"] == "float64"
    with pytest.raises(FileExistsError, match="new file"):
        build(matrix_sources(path), file)
    with pytest.raises(ValueError, match=r"\.npz"):
        build(matrix_sources(path), tmp_path / "a.npy")


def test_clips_are_those_of_the_training_part(tmp_path):
    made = sources()
    descriptor = Descriptor(clip_length=10, clip_stride=5)
    data = read(build(made, tmp_path / "a.npz", descriptor))
    assert data.names.tolist() == [f"s{i}" for i in range(6) for _ in range(4 if i < 3 else 1)]
    assert set(data.split[data.names == "s0"]) == {"train"}
    assert set(data.groups) == {f"g{i}" for i in range(6)}
    frames = made[1].load()
    expected = [frames, frames[:10], frames[5:15], frames[10:]]
    for got, part in zip(data.X[data.names == "s1"], expected, strict=True):
        np.testing.assert_allclose(got, joint_covariance(part[:, None]), atol=1e-13)
    np.testing.assert_array_equal(data.X[data.names == "s5"][0], descriptor(made[5].load()))


@pytest.mark.parametrize("setting", [{"clip_length": 5}, {"pca": 3}])
def test_nothing_is_cut_or_learnt_before_the_division(tmp_path, setting):
    with pytest.raises(DataError, match="leak test data"):
        build(sources(split=None), tmp_path / "a.npz", Descriptor(**setting))
    data = read(
        build(with_random_split(sources(None), 0.5), tmp_path / "b.npz", Descriptor(**setting))
    )
    assert set(data.split) == {"train", "test"}
    assert not set(data.groups[data.split == "train"]) & set(data.groups[data.split == "test"])


def test_the_projection_is_learnt_from_the_training_part(tmp_path):
    made = sources()
    data = read(build(made, tmp_path / "a.npz", Descriptor(pca=3)))
    assert data.X.shape == (6, 3, 3)
    other = [s if s.split == "train" else Source(s.name, lambda: 9 * RNG.normal(size=(20, 5)), s.y,
             "test", s.group) for s in made]  # fmt: skip
    again = read(build(other, tmp_path / "b.npz", Descriptor(pca=3)))
    np.testing.assert_array_equal(data.X[:3], again.X[:3])


def test_descriptors():
    joints = RNG.normal(size=(30, 4, 3)) + 5
    np.testing.assert_allclose(Descriptor()(joints), joint_covariance(joints), atol=1e-12)
    np.testing.assert_allclose(
        Descriptor(root=1)(joints), joint_covariance(joints, root=1), atol=1e-12
    )
    flat = joints.reshape(30, -1)
    np.testing.assert_allclose(
        Descriptor(kind="gaussian", reg=0.1, mode="absolute")(joints),
        gaussian_embedding(flat.T, reg=0.1, mode="absolute"),
        atol=1e-12,
    )
    assert Descriptor(clip_length=0.5, clips=4).cut(joints).shape == (5, 12, 12)
    assert Descriptor(clip_length=30).cut(joints).shape == (1, 12, 12)  # too short to be cut
    assert Descriptor(clip_length=0.5, clips=100).cut(joints).shape == (17, 12, 12)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "mean"}, "kind"),
        ({"mode": "no"}, "mode"),
        ({"clip_length": 1.5}, "fraction below 1"),
        ({"clip_length": 1}, "at least two"),
        ({"clip_length": 0}, "clip_length"),
        ({"clip_stride": 3}, "clip_length"),
        ({"clip_length": 3, "clip_stride": 3, "clips": 2}, "clip_stride or clips"),
        ({"pca": 0}, "pca"),
    ],
)
def test_bad_descriptors(settings, message):
    with pytest.raises(ValueError, match=message):
        Descriptor(**settings)


def test_bad_frames(tmp_path):
    with pytest.raises(DataError, match="at least two"):
        Descriptor()(np.ones((1, 4)))
    with pytest.raises(DataError, match="a joint 9"):
        Descriptor(root=9)(np.ones((5, 4, 3)))
    with pytest.raises(DataError, match=r"s0: .*indefinite"):
        build([Source("s0", lambda: -np.eye(3), "a")], tmp_path / "a.npz")
    with pytest.raises(DataError, match=r"s0: .*square"):
        build([Source("s0", lambda: np.ones((2, 3)), "a")], tmp_path / "b.npz")
    assert list(tmp_path.iterdir()) == []  # there is nothing to go on with


@pytest.mark.parametrize(("bad", "kept"), [("drop", ["good"]), ("repair", ["good", "asymmetric"])])
def test_bad_matrices(tmp_path, bad, kept):
    skew = np.eye(3) + np.triu(np.full((3, 3), 0.1), 1)
    made = [
        Source("good", lambda: np.eye(3), "a"),
        Source("asymmetric", lambda: skew, "b"),
        Source("also good", lambda: 2 * np.eye(3), "b"),
    ]
    data = read(build(made, tmp_path / "a.npz", bad=bad))
    assert data.names.tolist() == [*kept, "also good"]
    about = json.loads(str(np.load(tmp_path / "a.npz")["provenance"]))
    assert about["empty"] == ([] if bad == "repair" else ["asymmetric"])


def test_an_interrupted_build_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("spdnet.data.store_writer._BLOCK", 1)
    made = sources()
    calls = []

    def broken(i):
        def load():
            calls.append(i)
            if i == 4 and calls.count(4) == 1:
                raise KeyboardInterrupt
            return made[i].load()

        return load

    watched = [Source(s.name, broken(i), s.y, s.split, s.group) for i, s in enumerate(made)]
    descriptor = Descriptor(clip_length=10)
    with pytest.raises(KeyboardInterrupt):
        build(watched, tmp_path / "a.npz", descriptor)
    with pytest.raises(DataError, match="was started with different descriptor"):
        build(watched, tmp_path / "a.npz", Descriptor(clip_length=12))
    build(watched, tmp_path / "a.npz", descriptor)
    assert calls == [0, 1, 2, 3, 4, 4, 5]  # nothing twice
    build(made, tmp_path / "b.npz", descriptor)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_sequences_of_a_npz_file(tmp_path):
    frames, lengths = RNG.normal(size=(9, 4, 3)), np.array([2, 3, 4])
    about = {"label": np.array([0, 1, 0]), "classes": np.array(["run", "sit"])}
    np.savez(tmp_path / "a.npz", frames=frames, lengths=lengths, **about, name=["x", "y", "z"])
    found = sequence_sources(tmp_path / "a.npz")
    assert [(s.name, s.y, s.split) for s in found] == [
        ("x", "run", None),
        ("y", "sit", None),
        ("z", "run", None),
    ]
    np.testing.assert_array_equal(found[1].load(), frames[2:5])
    np.testing.assert_array_equal(
        sequence_sources(tmp_path / "a.npz", every=2)[2].load(), frames[5:9:2]
    )
    np.savez(tmp_path / "b.npz", frames=frames, lengths=lengths)
    with pytest.raises(DataError, match="no label"):
        sequence_sources(tmp_path / "b.npz")
    np.savez(tmp_path / "c.npz", frames=frames, lengths=lengths + 1, label=lengths)
    with pytest.raises(DataError, match="9 frames"):
        sequence_sources(tmp_path / "c.npz")
    (tmp_path / "d.npz").write_bytes(b"no")
    with pytest.raises(DataError, match=r"d\.npz"):
        sequence_sources(tmp_path / "d.npz")


def test_motions_find_their_skeleton_and_class(tmp_path):
    for actor in ("bd", "mm"):
        (tmp_path / f"HDM_{actor}.asf").write_text(SKELETON)
    (tmp_path / "HDM_bd_kick_RFront_001_120.amc").write_text(MOTION)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "HDM_mm_clap_002_120.amc").write_text(MOTION)
    found = sequence_sources(tmp_path)
    assert [s.y for s in found] == ["kick_RFront", "clap"]
    assert found[0].load().shape[1:] == (3, 3)
    (tmp_path / "walk").mkdir()
    shutil.copy(tmp_path / "HDM_bd.asf", tmp_path / "walk" / "own.asf")
    (tmp_path / "walk" / "take.amc").write_text(MOTION)
    assert sequence_sources(tmp_path)[-1].y == "walk"
    (tmp_path / "walk" / "own.asf").unlink()
    with pytest.raises(DataError, match="one skeleton"):
        sequence_sources(tmp_path)


@pytest.mark.skipif(not (REAL_DATA / "hdm05_raw").is_dir(), reason="needs real motions")
def test_real_motions():
    found = sequence_sources(REAL_DATA / "hdm05_raw")
    assert [s.y for s in found] == ["grabHighR", "grabHighR"]
    assert Descriptor()(found[0].load()).shape == (93, 93)


def test_features_images_and_their_parts(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for part in ("train", "test"):
        folder = tmp_path / "faces" / part / "happy" / "video1"
        folder.mkdir(parents=True)
        for i in range(3):
            image.fromarray(RNG.integers(0, 255, (30, 30), dtype=np.uint8)).save(
                folder / f"{i}.png"
            )
        file = tmp_path / "features" / part / "anna" / "1.npy"
        file.parent.mkdir(parents=True)
        np.save(file, RNG.normal(size=(6, 4)))
    faces = sequence_sources(tmp_path / "faces", size=(4, 5))
    assert [(s.split, s.y) for s in faces] == [("train", "happy"), ("test", "happy")]
    assert faces[0].load().shape == (3, 20)
    features = sequence_sources(zipped(tmp_path / "features", tmp_path / "features.zip"))
    assert [(s.split, s.y) for s in features] == [("train", "anna"), ("test", "anna")]
    assert features[0].load().shape == (6, 4)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "got none"),
        (["1.npy"], r"got 1\.npy"),
        (["train/1.npy"], r"got train/1\.npy"),
        (["train/a/1.npy", "other/a/1.npy"], r"other/a/1\.npy in none"),
        (["test/1.npy", "walk/1.npy"], "folders called train"),
    ],
)
def test_layouts_that_say_too_little(tmp_path, names, message):
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(tmp_path / name, np.eye(2))
    with pytest.raises(DataError, match=message):
        matrix_sources(tmp_path)


def test_folders_of_classes_and_of_parts(tmp_path):
    names = ["control/s0.npy", "patient/s1_1.npy", "patient/s1_2.npy", "patient/._s2.npy"]
    for name in [*names, "__MACOSX/patient/s3.npy"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(tmp_path / name, np.eye(2))
    found = matrix_sources(tmp_path)  # hidden files do not count
    assert [s.y for s in found] == ["control", "patient", "patient"]
    assert [s.group for s in found] == names[:3]
    assert [s.group for s in matrix_sources(tmp_path, clips=True)][1:] == ["patient/s1"] * 2
    (tmp_path / "more" / "train" / "test").mkdir(parents=True)
    np.save(tmp_path / "more" / "train" / "test" / "a.npy", np.eye(2))
    (source,) = matrix_sources(tmp_path / "more")
    assert (source.split, source.y) == ("train", "test")


def test_named_parts_are_not_drawn_again():
    with pytest.raises(DataError, match="omit test"):
        with_random_split(sources(), 0.5)


def test_sources_of_one_name(tmp_path):
    two = [Source("same", lambda: np.eye(2), "a") for _ in range(2)]
    with pytest.raises(DataError, match="2 called 'same'"):
        build(two, tmp_path / "a.npz")


def test_complex_matrices(tmp_path):
    with pytest.raises(DataError, match="real numbers in s"):
        build([Source("s", lambda: np.eye(2) + 0j, "a")], tmp_path / "a.npz")


def test_a_build_does_not_go_on_with_other_files(tmp_path):
    folder = folder_of_matrices(tmp_path / "data", ".npy")
    before = [s.stamp for s in matrix_sources(folder)]
    file = next(folder.rglob("*.npy"))
    np.save(file, 2 * np.load(file))
    assert sum(a != s.stamp for a, s in zip(before, matrix_sources(folder), strict=True)) == 1
    packed = [s.stamp for s in matrix_sources(zipped(folder, tmp_path / "a.zip"))]
    np.save(file, 3 * np.load(file))
    assert packed != [s.stamp for s in matrix_sources(zipped(folder, tmp_path / "a.zip"))]
    np.savez(tmp_path / "s.npz", frames=np.ones((4, 2)), lengths=[2, 2], label=[0, 1])
    for path in (folder, tmp_path / "s.npz"):
        one, other = (sequence_sources(path, every=n)[0].stamp for n in (1, 2))
        assert one != other


def test_names_that_are_no_text(tmp_path):
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    np.save(folder / "a.npy", np.eye(2))
    (source,) = matrix_sources(tmp_path)
    assert source.y == "caf\\xe9"
    np.testing.assert_array_equal(source.load(), np.eye(2))


def test_skeletons_by_number(tmp_path):
    for name in ("10.asf", "103.asf"):
        (tmp_path / name).write_text(SKELETON)
    (tmp_path / "walk").mkdir()
    for name in ("103_01.amc", "10_02.amc"):
        (tmp_path / "walk" / name).write_text(MOTION)
    assert [s.load().shape[1:] for s in sequence_sources(tmp_path)] == [(3, 3), (3, 3)]


def test_motions_in_an_archive(tmp_path):
    (tmp_path / "raw" / "walk").mkdir(parents=True)
    (tmp_path / "raw" / "walk" / "a.amc").write_text(MOTION)
    with pytest.raises(DataError, match="unpack it"):
        sequence_sources(zipped(tmp_path / "raw", tmp_path / "raw.zip"))
