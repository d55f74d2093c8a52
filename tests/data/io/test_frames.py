import sys

import numpy as np
import pytest
from sklearn.decomposition import PCA

from spdnet.data.descriptor import fit_pca
from spdnet.data.errors import DataError
from spdnet.data.io import frames
from spdnet.data.io.frames import equalize, read_images, read_video
from spdnet.data.io.motion import read_c3d

# --- equalize ---------------------------------------------------------------------------------


def images(*shape, seed=0, low=40, high=200):
    """Smooth grey images with many levels, none of them frequent."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=shape).cumsum(-1).cumsum(-2)
    noise -= noise.min((-2, -1), keepdims=True)
    return (low + (high - low) * noise / noise.max((-2, -1), keepdims=True)).astype(np.uint8)


def slow_equalize(image):
    count = [(image <= v).sum() for v in range(256)]
    lowest = count[image.min()]
    if lowest == image.size:
        return image
    return np.array([[round(255 * (count[v] - lowest) / (image.size - lowest)) for v in row]
                     for row in image])  # fmt: skip


@pytest.mark.parametrize("shape", [(20, 20), (1, 7), (31, 3)])
def test_equalize_is_its_formula(shape):
    for seed in range(5):
        image = images(*shape, seed=seed)
        np.testing.assert_array_equal(equalize(image), slow_equalize(image))


def test_equalize_laws():
    X = images(6, 20, 20)
    Y = equalize(X)
    assert Y.shape == X.shape
    assert Y.dtype == np.uint8
    assert (Y.min((1, 2)) == 0).all()
    assert (Y.max((1, 2)) == 255).all()
    for x, y in zip(X, Y, strict=True):
        assert (np.diff(y.ravel()[np.argsort(x, axis=None)].astype(int)) >= 0).all()  # monotone
        np.testing.assert_array_equal(equalize(x), y)  # whatever the others of the batch are
    # levels that fall together move later counts by less than half a level: one after rounding
    np.testing.assert_allclose(equalize(Y).astype(int), Y, atol=1)
    np.testing.assert_array_equal(equalize(X.reshape(2, 3, 20, 20)), Y.reshape(2, 3, 20, 20))


def test_equalize_at_the_edges():
    for level in (0, 7, 255):
        constant = np.full((4, 5), level, np.uint8)
        np.testing.assert_array_equal(equalize(constant), constant)
    both = np.stack([np.full((3, 3), 9, np.uint8), np.eye(3, dtype=np.uint8)])
    np.testing.assert_array_equal(equalize(both), [both[0], 255 * both[1]])
    assert equalize(np.zeros((0, 3, 3), np.uint8)).shape == (0, 3, 3)
    for bad in (np.zeros((3, 3)), np.zeros(3, np.uint8)):
        with pytest.raises(ValueError, match="equalize: expected uint8"):
            equalize(bad)


def test_equalize_is_near_to_pillow():
    Image, ImageOps = pytest.importorskip("PIL.Image"), pytest.importorskip("PIL.ImageOps")
    image = images(512, 512, low=0, high=255)
    theirs = np.asarray(ImageOps.equalize(Image.fromarray(image)), dtype=int)
    counts = np.bincount(image.ravel(), minlength=256)
    most, last = counts.max(), counts[image.max()]
    # Pillow counts below a level, without the highest: two differences of one level's pixels;
    # it cuts the pixels a step to a whole number; and both round
    bound = 510 * most / (image.size - most) + 255 / ((image.size - last) // 255) + 1
    assert bound < 10
    assert np.abs(equalize(image) - theirs).max() <= bound


# --- images -----------------------------------------------------------------------------------


@pytest.fixture
def pillow():
    return pytest.importorskip("PIL.Image")


@pytest.mark.parametrize("suffix", [*frames.IMAGE_SUFFIXES, ".PNG"])
def test_colours_become_grey(pillow, tmp_path, suffix):
    mode = "L" if suffix == ".pgm" else "RGB"
    pillow.new("RGB", (40, 30), (200, 100, 50)).convert(mode).save(tmp_path / f"a{suffix}")
    X = read_images(tmp_path, size=(3, 5), equalized=False)
    assert X.shape == (1, 15)
    assert X.dtype == np.float64
    expected = (0.299 * 200 + 0.587 * 100 + 0.114 * 50) / 255  # luma of ITU-R 601
    np.testing.assert_allclose(X, expected, atol=(2 if "j" in suffix else 1) / 255)


def test_natural_order_and_other_files(pillow, tmp_path):
    for level, name in enumerate(["A1.png", "a2.png", "a10.png", "a10b3.png", "b.png"]):
        pillow.new("L", (4, 4), 10 * level).save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("not an image")
    (tmp_path / "._a2.png").write_bytes(b"left by another system")
    X = read_images(tmp_path, size=(1, 1), equalized=False)
    np.testing.assert_allclose(X[:, 0] * 255, [0, 10, 20, 30, 40])


def test_resized_row_by_row_then_equalised(pillow, tmp_path):
    small = images(6, 4)
    large = np.kron(small, np.ones((10, 10), np.uint8))
    pillow.fromarray(large).save(tmp_path / "a.png")
    plain = read_images(tmp_path, size=(6, 4), equalized=False)
    # every pixel weighs blocks of neighbours too, so by the order only
    assert np.corrcoef(plain[0], small.ravel())[0, 1] > 0.95
    levels = np.rint(plain * 255).astype(np.uint8).reshape(6, 4)
    equal = read_images(tmp_path, size=(6, 4))
    np.testing.assert_array_equal(equal.reshape(6, 4) * 255, equalize(levels))
    assert (equal.min(), equal.max()) == (0, 1)
    whole = read_images(tmp_path, size=large.shape, equalized=False)
    np.testing.assert_array_equal(whole.reshape(large.shape) * 255, large)


def test_no_aliasing(pillow, tmp_path):
    stripes = np.tile(np.array([0, 255], np.uint8), (64, 32))
    pillow.fromarray(stripes).save(tmp_path / "a.png")
    X = read_images(tmp_path, size=(8, 8), equalized=False)
    np.testing.assert_allclose(X, 0.5, atol=0.1)


@pytest.mark.parametrize("kind", ["16 bit", "16 bit tiff", "palette", "see-through palette",
                                  "alpha", "grey alpha", "1 bit"])  # fmt: skip
def test_kinds_of_images(pillow, tmp_path, kind):
    grey = images(24, 24)
    image, suffix = pillow.fromarray(grey), ".png"
    if kind.startswith("16 bit"):
        image = pillow.fromarray(grey.astype(np.uint16) * 257)
        suffix = ".tiff" if "tiff" in kind else ".png"
    elif "palette" in kind:
        image = image.convert("P")
    elif "alpha" in kind:
        image = image.convert("LA" if "grey" in kind else "RGBA")
        image.putalpha(77)
    elif kind == "1 bit":
        grey = np.where(grey > 100, 255, 0)
        image = image.point(lambda v: 255 * (v > 100)).convert("1")
    settings = {"transparency": bytes(range(256))} if "see-through" in kind else {}
    image.save(tmp_path / f"a{suffix}", **settings)
    X = read_images(tmp_path, size=(24, 24), equalized=False)
    np.testing.assert_allclose(X[0] * 255, grey.ravel(), atol=0.51)


def test_images_of_other_numbers(pillow, tmp_path):
    for values in (np.full((4, 4), 0.5, np.float32), np.full((4, 4), 70000, np.int32)):
        pillow.fromarray(values).save(tmp_path / "a.tiff")
        with pytest.raises(DataError, match=r"a\.tiff.*(real numbers|70000)"):
            read_images(tmp_path)


def test_no_images(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(DataError, match=r"expected images.*got none"):
            read_images(folder)


@pytest.mark.parametrize("size", [(0, 4), (4,), (4, -1)])
def test_bad_sizes(tmp_path, size):
    for read in (read_images, read_video):
        with pytest.raises(ValueError, match="size"):
            read(tmp_path, size=size)


@pytest.mark.parametrize("pixels", [300, 150])  # beyond twice the limit Pillow itself refuses
def test_bombs(pillow, tmp_path, monkeypatch, pixels):
    pillow.new("L", (pixels, 1)).save(tmp_path / "bomb.png")
    monkeypatch.setattr(pillow, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(DataError, match=r"bomb\.png.*DecompressionBomb"):
        read_images(tmp_path)


@pytest.mark.parametrize("suffix", frames.IMAGE_SUFFIXES)
def test_truncated_images(pillow, tmp_path, suffix):
    file = tmp_path / f"cut{suffix}"
    pillow.fromarray(images(64, 64)).save(file)
    content = file.read_bytes()
    for length in (0, 1, 20, len(content) // 2):
        file.write_bytes(content[:length])
        with pytest.raises(DataError, match=f"cut{suffix}"):
            read_images(tmp_path)


def flipped(content, seed, bits=8):
    """The same bytes with a few bits changed, half of them near the beginning."""
    rng = np.random.default_rng(seed)
    damaged = bytearray(content)
    for i in range(bits):
        place = rng.integers(len(content) if i % 2 else min(len(content), 512))
        damaged[place] ^= 1 << rng.integers(8)
    return bytes(damaged)


def damage(file, read, seeds):
    """Read damaged copies of a file: how many failed, all of them by our error."""
    content, failed = file.read_bytes(), 0
    for seed in range(seeds):
        file.write_bytes(flipped(content, seed))
        try:
            read()
        except DataError as error:
            assert file.name in str(error)  # noqa: PT017
            failed += 1
    return failed


@pytest.mark.parametrize("suffix", frames.IMAGE_SUFFIXES)
def test_flipped_bits_of_images(pillow, tmp_path, suffix):
    file = tmp_path / f"a{suffix}"
    pillow.fromarray(images(32, 32)).save(file)
    assert damage(file, lambda: read_images(tmp_path), 60) > 0


# --- videos -----------------------------------------------------------------------------------


def write_video(file, clip, codec="mpeg4", pixels="yuv420p"):
    av = pytest.importorskip("av")
    with av.open(str(file), "w") as container:
        stream = container.add_stream(codec, rate=25)
        stream.bit_rate = 8_000_000
        stream.height, stream.width = clip.shape[1:]
        stream.pix_fmt = pixels
        for image in clip:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="gray")))
        container.mux(stream.encode())


@pytest.fixture
def clip():
    """Ten frames of a smooth pattern that moves, from black to white."""
    y, x = np.mgrid[:48, :64]
    waves = [np.cos(x / 9 + t / 3) * np.sin(y / 7 - t / 5) for t in range(10)]
    return np.rint(127.5 * (1 + np.array(waves))).astype(np.uint8)


@pytest.mark.parametrize(("name", "codec", "pixels", "error"), [
    ("a.avi", "ffv1", "gray", 0),  # without loss
    ("a.mkv", "ffv1", "yuv420p", 1),  # only the range from 16 to 235 rounds
    ("a.mp4", "mpeg4", "yuv420p", 15),  # with loss; neighbours in time differ by 40
])  # fmt: skip
def test_videos_are_their_frames(pillow, tmp_path, clip, name, codec, pixels, error):
    write_video(tmp_path / name, clip, codec, pixels)
    X = read_video(tmp_path / name, size=(48, 64), equalized=False)
    assert X.shape == (10, 48 * 64)
    np.testing.assert_allclose(X * 255, clip.reshape(10, -1), atol=error + 1e-9)


def test_videos_equal_images(pillow, tmp_path, clip):
    write_video(tmp_path / "a.avi", clip, "ffv1", "gray")
    (tmp_path / "a").mkdir()
    for i, image in enumerate(clip):
        pillow.fromarray(image).save(tmp_path / "a" / f"{i}.png")
    for settings in ({}, {"size": (7, 9)}, {"equalized": False}):
        expected = read_images(tmp_path / "a", **settings)
        np.testing.assert_array_equal(read_video(tmp_path / "a.avi", **settings), expected)


def test_truncated_videos(pillow, tmp_path, clip):
    for name in ("a.mp4", "a.avi"):
        file = tmp_path / name
        write_video(file, clip)
        content = file.read_bytes()
        for length in (0, 1, 100):
            file.write_bytes(content[:length])
            with pytest.raises(DataError, match=name):
                read_video(file)
    write_video(file, images(10, 48, 64))  # an .avi file needs no table at its end
    file.write_bytes(file.read_bytes()[:-5000])
    assert 0 < len(read_video(file)) < 10


@pytest.mark.parametrize("name", ["a.mp4", "a.avi", "a.mkv"])
def test_flipped_bits_of_videos(pillow, tmp_path, clip, name):
    write_video(tmp_path / name, clip)
    assert damage(tmp_path / name, lambda: read_video(tmp_path / name), 60) > 0


def test_videos_that_are_none(pillow, tmp_path, clip):
    pytest.importorskip("av")
    with pytest.raises(DataError, match="nowhere"):
        read_video(tmp_path / "nowhere.mp4")
    with pytest.raises(DataError, match="video"):
        read_video(tmp_path)
    (tmp_path / "text.mp4").write_text("this is text\n" * 100)
    with pytest.raises(DataError, match=r"text\.mp4"):
        read_video(tmp_path / "text.mp4")
    write_video(tmp_path / "a.avi", clip)
    (tmp_path / "list.mp4").write_text("ffconcat version 1.0\nfile a.avi\n")
    with pytest.raises(DataError, match=r"list\.mp4"):
        read_video(tmp_path / "list.mp4")


def test_sound_alone(pillow, tmp_path):
    av = pytest.importorskip("av")
    with av.open(str(tmp_path / "a.wav"), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=8000, layout="mono")
        sound = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), layout="mono")
        sound.sample_rate = 8000
        container.mux(stream.encode(sound))
    with pytest.raises(DataError, match=r"a\.wav"):
        read_video(tmp_path / "a.wav")


# --- markers ----------------------------------------------------------------------------------


@pytest.fixture
def markers():
    """Positions of 6 frames and 3 markers, in numbers that float32 holds exactly."""
    return np.random.default_rng(0).integers(-4000, 4000, (6, 3, 3)) / 4


def write_c3d(file, positions, unseen=(), labels=("LEFT", "RIGHT", "TOP"), scale=-1.0):
    c3d = pytest.importorskip("c3d")
    writer = c3d.Writer(point_rate=120, point_scale=scale)
    if labels:
        writer.set_point_labels(list(labels))
    for t, points in enumerate(positions):
        rows = np.hstack([points, np.zeros((len(points), 2))]).astype(np.float32)
        rows[[m for s, m in unseen if s == t], 3] = -1
        writer.add_frames([(rows, np.zeros((0, 0)))])
    with pytest.warns(UserWarning, match="No analog data|missing parameter"), file.open("wb") as f:
        writer.write(f)


def test_c3d_round_trip(tmp_path, markers):
    write_c3d(tmp_path / "a.c3d", markers)
    positions, names = read_c3d(tmp_path / "a.c3d")
    np.testing.assert_array_equal(positions, markers)
    assert positions.dtype == np.float64
    assert names == ["LEFT", "RIGHT", "TOP"]
    write_c3d(tmp_path / "b.c3d", markers, scale=0.25)  # whole numbers of quarters
    np.testing.assert_array_equal(read_c3d(tmp_path / "b.c3d")[0], markers)


def test_c3d_without_all_labels(tmp_path, markers):
    for labels, names in [((), ["point 1", "point 2", "point 3"]),
                          (("A", "B"), ["A", "B", "point 3"])]:  # fmt: skip
        write_c3d(tmp_path / "a.c3d", markers, labels=labels)
        assert read_c3d(tmp_path / "a.c3d")[1] == names


def test_unseen_points_are_interpolated(tmp_path, markers):
    write_c3d(tmp_path / "a.c3d", markers, unseen=[(2, 0), (3, 0), (0, 1), (4, 2), (5, 2)])
    expected = markers.copy()
    expected[2, 0] = markers[1, 0] + (markers[4, 0] - markers[1, 0]) / 3
    expected[3, 0] = markers[1, 0] + (markers[4, 0] - markers[1, 0]) * 2 / 3
    expected[0, 1] = markers[1, 1]
    expected[4:, 2] = markers[3, 2]
    np.testing.assert_allclose(read_c3d(tmp_path / "a.c3d")[0], expected, rtol=0, atol=1e-9)


def test_markers_never_seen(tmp_path, markers):
    file = tmp_path / "a.c3d"
    write_c3d(file, markers, unseen=[(t, 1) for t in range(6)])
    with pytest.raises(DataError, match="RIGHT never are; remove"):
        read_c3d(file)
    write_c3d(file, markers, unseen=[(t, m) for t in range(6) for m in range(3)])
    with pytest.raises(DataError, match="LEFT, RIGHT, TOP"):
        read_c3d(file)


def test_damaged_c3d(tmp_path):
    markers = np.random.default_rng(1).normal(size=(200, 3, 3))
    file = tmp_path / "a.c3d"
    write_c3d(file, markers)
    content = file.read_bytes()
    for length in (0, 100, 600, 1100, len(content) - 1024):
        file.write_bytes(content[:length])
        with pytest.raises(DataError, match=r"a\.c3d"):
            read_c3d(file)
    file.write_bytes(content)
    assert damage(file, lambda: read_c3d(file), 150) > 0
    with pytest.raises(DataError, match="nowhere"):
        read_c3d(tmp_path / "nowhere.c3d")


@pytest.mark.parametrize(("library", "read", "extra"), [
    ("PIL", read_images, "video"), ("PIL", read_video, "video"),
    ("av", read_video, "video"), ("c3d", read_c3d, "c3d"),
])  # fmt: skip
def test_missing_libraries(tmp_path, monkeypatch, library, read, extra):
    (tmp_path / "a.png").touch()
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(DataError, match=rf'{library}.*pip install "spdnet\[{extra}\]"'):
        read(tmp_path if read is read_images else tmp_path / "a.png")


# --- principal components ---------------------------------------------------------------------


def sequences(d, lengths, mean=0.0):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(d, d)) * 0.8 ** np.arange(d)[:, None]  # variances apart
    return [mean + rng.normal() + rng.normal(size=(T, d)) @ A for T in lengths]


@pytest.mark.parametrize("mean", [0.0, 1e4])
@pytest.mark.parametrize(("d", "lengths", "k"), [
    (12, [7, 1, 30, 0, 22], 5),
    (12, [40], 12),
    (30, [5, 6, 4], 8),  # more features than frames
])  # fmt: skip
def test_pca_is_that_of_scikit_learn(d, lengths, k, mean):
    X = sequences(d, lengths, mean)
    ours = fit_pca(iter(X), k)
    theirs = PCA(k, svd_solver="full").fit(np.concatenate(X))
    np.testing.assert_allclose(ours.mean, theirs.mean_, atol=1e-8)
    np.testing.assert_allclose(ours.components, theirs.components_, atol=1e-8)
    np.testing.assert_allclose(ours(X[0]), theirs.transform(X[0]), atol=1e-8)
    largest = np.abs(ours.components).argmax(1)
    assert (ours.components[np.arange(k), largest] > 0).all()
    np.testing.assert_allclose(ours.components @ ours.components.T, np.eye(k), atol=1e-12)


def test_pca_does_not_depend_on_the_cuts():
    X = np.concatenate(sequences(9, [50], 1e3))
    whole, pieces = fit_pca([X], 4), fit_pca(np.split(X, [1, 2, 20]), 4)
    np.testing.assert_allclose(pieces.components, whole.components, atol=1e-10)


@pytest.mark.parametrize(("X", "k", "facts"), [
    (sequences(5, [3, 1]), 4, "4 frames of length 5 that vary in 3"),
    (sequences(5, [30]), 6, "30 frames of length 5 that vary in 5"),
    ([np.full((30, 5), 0.1)], 1, "vary in 0"),
    ([np.full((3, 5), 0.1), np.full((9, 5), 0.3)], 2, "vary in 1"),
    ([], 1, "0 frames of length 0"),
    ([np.zeros((0, 4))], 1, "0 frames of length 4"),
    ([np.zeros((4, 3)), np.zeros((4, 2))], 1, r"\(T, 3\), got shape \(4, 2\), .* in sequence 1"),
    ([np.zeros(4)], 1, r"got shape \(4,\), .* in sequence 0"),
    ([np.full((4, 3), np.nan)], 1, "or NaN or infinity, in sequence 0"),
])  # fmt: skip
def test_pca_refuses(X, k, facts):
    with pytest.raises(DataError, match=facts):
        fit_pca(X, k)


def test_bad_arguments_of_pca():
    with pytest.raises(ValueError, match="n_components of at least 1"):
        fit_pca(sequences(5, [30]), 0)
    with pytest.raises(ValueError, match=r"\(T, 5\), got \(7, 4\)"):
        fit_pca(sequences(5, [30]), 2)(np.zeros((7, 4)))
