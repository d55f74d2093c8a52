"""Files that try to run code or exhaust memory, and names with markup or control characters."""

import csv
import os
import pickle
import re
import struct
import subprocess
import sys
import zipfile
import zlib
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from scipy.io import savemat
from typer.testing import CliRunner

from spdnet.cli import app
from spdnet.data import DataError, open_stored, read
from spdnet.data.io import matlab73 as version73_module
from spdnet.data.io.files import open_files
from spdnet.data.io.frames import read_images, read_video
from spdnet.data.io.matlab import load_mat
from spdnet.data.io.motion import read_amc, read_asf
from spdnet.data.names import printable, spreadsheet_safe
from spdnet.data.sources import sequence_sources
from spdnet.runs import TrainedModel
from spdnet.training import checkpoint
from spdnet.training.checkpoint import CheckpointError
from tests.cases import random_spd
from tests.data.io.test_frames import write_video
from tests.data.io.test_matlab import array, deflated, element, put, version5, version73
from tests.data.io.test_motion import MOTION, SKELETON
from tests.hostile import NAMES, limited_memory

X = random_spd(6, 4).numpy()
Y = np.array(["a", "b"] * 3)


# --- code -------------------------------------------------------------------------------------


class Payload:
    """An object that writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch '{self.path}'",)


def objects(payload):
    return np.array([payload] * 6, dtype=object)


def as_npy(path, payload):
    np.save(path / "a.npy", objects(payload), allow_pickle=True)
    (path / "y.txt").write_text("\n".join(Y))
    read(path / "a.npy", path / "y.txt")


def as_labels(path, payload):
    np.save(path / "a.npy", X)
    np.save(path / "y.npy", objects(payload), allow_pickle=True)
    read(path / "a.npy", path / "y.npy")


def as_npz(path, payload):
    np.savez(path / "a.npz", X=X, y=objects(payload))
    read(path / "a.npz")


def as_matrices(path, payload):
    np.savez(path / "a.npz", X=objects(payload), y=Y)
    read(path / "a.npz")


def as_stored(path, payload):
    np.savez(path / "a.npz", X=objects(payload))
    open_stored(path / "a.npz")


def as_sequences(path, payload):
    np.savez(path / "a.npz", frames=X, lengths=np.full(6, 1), label=objects(payload))
    sequence_sources(path / "a.npz")


def as_folder(path, payload):
    (path / "c").mkdir()
    np.save(path / "c" / "a.npy", objects(payload), allow_pickle=True)
    read(path)


def as_plain_pickle(path, payload):
    (path / "a.npy").write_bytes(pickle.dumps(payload))
    read(path / "a.npy", labeled=False)


def as_packed_pickle(path, payload):
    with zipfile.ZipFile(path / "a.npz", "w") as file:
        file.writestr("X.npy", pickle.dumps(payload))
    read(path / "a.npz", labeled=False)


def as_mat(path, payload):
    savemat(path / "a.mat", {"X": np.frombuffer(pickle.dumps(payload), "u1")})
    (path / "b.mat").write_bytes(pickle.dumps(payload))
    load_mat(path / "a.mat")
    load_mat(path / "b.mat")


def as_checkpoint(path, payload):
    torch.save({"format": checkpoint.FORMAT, "version": 1, "state": payload}, path / "a.pt")
    checkpoint.load(path / "a.pt")


def as_old_checkpoint(path, payload):
    state = {"format": checkpoint.FORMAT, "state": payload}
    torch.save(state, path / "a.pt", _use_new_zipfile_serialization=False)
    checkpoint.load(path / "a.pt")


def as_trained(path, payload):
    torch.save(payload, path / "a.pt")
    TrainedModel.load(path / "a.pt", device="cpu")


@pytest.mark.parametrize(
    "use", [value for name, value in list(globals().items()) if name.startswith("as_")]
)
def test_pickled_code_never_runs(tmp_path, use):
    (tmp_path / "data").mkdir()
    with pytest.raises((DataError, CheckpointError)):
        use(tmp_path / "data", Payload(tmp_path / "it-ran"))
    assert not (tmp_path / "it-ran").exists()


# --- sizes ------------------------------------------------------------------------------------


def header(shape, dtype="<f8", order=False):
    text = repr({"descr": dtype, "fortran_order": order, "shape": shape}).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


HUGE = [(10**12, 10**6), (10**12, 10**6, 10**6), (2**31, 4, 4), (2**62, 2, 2), (-1, 4, 4), (2**70,)]


@pytest.mark.parametrize("shape", HUGE)
@pytest.mark.parametrize("dtype", ["<f8", "|S0", "<U0", "|O", "<U100000000"])
def test_npy_and_npz_with_false_shape_are_refused(tmp_path, shape, dtype):
    content = header(shape, dtype) + bytes(100)
    (tmp_path / "a.npy").write_bytes(content)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "a.npy").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        file.writestr("X.npy", content)
    with zipfile.ZipFile(tmp_path / "b.npz", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("X.npy", content)
    for name in ("a.npy", "a.npz", "b.npz", ""):
        refused(DataError, lambda name=name: read(tmp_path / name, labeled=False))
    refused(DataError, lambda: open_stored(tmp_path / "a.npz"))


def refused(kind, call):
    """Check that the call raises the error without a failed memory allocation."""
    with limited_memory(), pytest.raises(kind) as caught:
        call()
    error = caught.value
    while error is not None:
        assert not isinstance(error, MemoryError)
        error = error.__cause__


def test_npz_with_long_empty_array_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        file.writestr("X.npy", header((10**15, 0, 0)))
        file.writestr("y.npy", header((10**15, 0)))
    assert open_stored(tmp_path / "a.npz") is None
    refused(DataError, lambda: read(tmp_path / "a.npz"))


def test_npz_decompression_bomb_is_refused(tmp_path):
    """A gigabyte of zeros in a megabyte is refused; ordinary compression is accepted."""
    path = tmp_path / "a.npz"
    archive = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
    with archive, archive.open("X.npy", "w") as member:
        member.write(header((2**13, 2**7, 2**7)))
        for _ in range(64):
            member.write(bytes(2**24))
    refused(DataError, lambda: read(path, labeled=False))
    with pytest.raises(DataError, match=r"save it again with numpy\.savez"):
        read(path, labeled=False)
    np.savez_compressed(path, X=np.stack([np.eye(40)] * 1000))
    assert read(path, labeled=False).X.shape == (1000, 40, 40)


@pytest.mark.parametrize("kind", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_zip_with_unusual_compression_is_refused(tmp_path, kind):
    """Their decompressors allocate as much memory as a file requests."""
    np.save(tmp_path / "X.npy", X)
    for name in ("a.npz", "a.zip"):
        with zipfile.ZipFile(tmp_path / name, "w", kind) as file:
            file.write(tmp_path / "X.npy", "X.npy")
    with pytest.raises(DataError, match="unsupported compression method"):
        read(tmp_path / "a.npz", labeled=False)
    with pytest.raises(DataError, match="unsupported compression method"):
        open_files(tmp_path / "a.zip")


def test_npz_with_false_member_sizes_is_refused(tmp_path):
    path = tmp_path / "a.npz"
    content = header((10**9, 4, 4)) + bytes(100)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("X.npy", content)
    data = bytearray(path.read_bytes())
    sizes = struct.pack("<2I", 2**31, 2**31)
    for mark, place in ((b"PK\x03\x04", 18), (b"PK\x01\x02", 20)):
        at = data.index(mark) + place
        data[at : at + 8] = sizes
    path.write_bytes(data)
    refused(DataError, lambda: read(path, labeled=False))
    refused(DataError, lambda: open_stored(path))


@pytest.mark.parametrize("shape", [(2**31 - 1, 2**31 - 1), (2**20, 2**10), (2**16, 2**14, 2)])
def test_mat_file_with_false_shape_is_refused(shape):
    numbers = element(9, bytes(80))
    refused(DataError, lambda: load_mat(version5(array(6, shape, numbers))))
    refused(DataError, lambda: load_mat(version5(deflated(array(6, shape, numbers)))))
    refused(DataError, lambda: load_mat(version5(array(1, shape))))  # a cell
    refused(DataError, lambda: load_mat(version5(array(4, shape, element(16, b"ab")))))


def test_npz_with_highly_compressible_names_is_accepted(tmp_path):
    n = 250_000
    columns = {"y": np.arange(n) % 2, "groups": np.full(n, "subject-001-session")}
    np.savez_compressed(tmp_path / "a.npz", X=np.ones((n, 1, 1)), **columns)
    found = read(tmp_path / "a.npz")
    assert found.groups.nbytes > 2**24
    assert (found.groups == "subject-001-session").all()


def test_mat_file_decompression_bomb_is_refused(monkeypatch):
    monkeypatch.setattr(version73_module, "SMALL_ARRAY", 2**24)
    stream = zlib.compressobj()
    size = 2**30
    packed = stream.compress(struct.pack("<2I", 14, size))
    for _ in range(size // 2**24):
        packed += stream.compress(bytes(2**24))
    packed += stream.flush()
    data = version5(struct.pack("<2I", 15, len(packed)) + packed)
    with pytest.raises(DataError, match="100-fold compression"):
        load_mat(data)
    refused(DataError, lambda: load_mat(data))

    def never_written(file, h5py):
        file.create_dataset("X", (2**14, 2**13), "f8").attrs["MATLAB_class"] = np.bytes_("double")

    def chunked(file, h5py):
        put(file, "X", "double", np.zeros((2**12, 2**10)), chunks=(2**10, 2**10), compression=9)

    for fill in (never_written, chunked):
        data = version73(fill)
        with pytest.raises(DataError, match="100-fold compression"):
            load_mat(data)


def rewritten(path, change):
    """Modify the pickle of a checkpoint and leave its other members unchanged."""
    with zipfile.ZipFile(path) as old:
        members = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(path, "w") as new:
        for name, data in members.items():
            new.writestr(name, change(data) if name.endswith("data.pkl") else data)


def test_checkpoint_with_false_tensor_size_is_refused(tmp_path):
    path = tmp_path / "a.pt"
    billion = b"J" + struct.pack("<i", 10**9)
    for change in (
        lambda data: data.replace(b"K\x07t", billion + b"t"),  # size of the storage
        lambda data: data.replace(b"K\x07\x85", billion + b"\x85"),  # shape
        lambda data: data.replace(b"K\x07\x85", billion + b"\x85").replace(
            b"K\x01\x85", b"K\x00\x85"
        ),  # stride 0
    ):
        checkpoint.save({"a": torch.zeros(7)}, path)
        rewritten(path, change)
        refused(CheckpointError, lambda: checkpoint.load(path))
    checkpoint.save({"a": torch.zeros(7)}, path)
    rewritten(path, lambda data: data)
    assert checkpoint.load(path)["a"].shape == (7,)


def test_compressed_checkpoint_is_refused(tmp_path):
    checkpoint.save({"a": torch.zeros(7)}, tmp_path / "a.pt")
    packed = zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(tmp_path / "a.pt") as old, packed:
        for name in old.namelist():
            packed.writestr(name, old.read(name))
    with pytest.raises(CheckpointError):
        checkpoint.load(tmp_path / "b.pt")


@pytest.mark.parametrize(
    "pickled",
    [
        b"]q\x00" + b"]q\x01h\x00ah\x00a" * 1 + b"0h\x00h\x00a.",  # a list that contains itself
        b"]" * 100_000 + b"a" * 99_999 + b".",  # deep nesting
        b"cbuiltins\nbytearray\n\x8a\x05\x00\x00\x00\x00\x10\x85R.",  # a long bytearray
        b"cbuiltins\nset\ncbuiltins\nbytearray\n\x8a\x05\x00\x00\x00\x00\x10\x85R\x85R.",
        b"cposix\nsystem\n.",
    ],
    ids=["cycle", "deep", "bytes", "set", "name"],
)
def test_checkpoint_with_malicious_pickle_is_refused(tmp_path, pickled):
    checkpoint.save({}, tmp_path / "a.pt")
    rewritten(tmp_path / "a.pt", lambda _: b"\x80\x02" + pickled)
    refused(CheckpointError, lambda: checkpoint.load(tmp_path / "a.pt"))


def test_checkpoint_with_exponential_references_is_refused(tmp_path):
    """Thirty nested lists, each with two references to the next: 2^30 leaves."""
    state = ["x"]
    for _ in range(30):
        state = [state, state]
    payload = {"format": checkpoint.FORMAT, "version": 1, "digest": "", "state": state}
    torch.save(payload, tmp_path / "a.pt")
    with pytest.raises(CheckpointError):
        checkpoint.load(tmp_path / "a.pt")


def test_checkpoint_with_dims_larger_than_weights_is_refused(tmp_path):
    from tests.runs.test_train import file_of

    data = file_of(tmp_path)
    flags = ("--recipe", "fast", "--epochs", 1, "--out", tmp_path / "r")
    assert invoke("train", data, *flags).exit_code == 0
    path = tmp_path / "r" / "checkpoints" / "best.pt"
    state = checkpoint.load(path)
    state["network"]["dims"] = [10**6, 10**5]
    checkpoint.save(state, tmp_path / "a.pt")
    refused(CheckpointError, lambda: TrainedModel.load(tmp_path / "a.pt", device="cpu"))


def test_images_and_videos_with_false_size_are_refused(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    file = tmp_path / "a.png"
    pillow.fromarray(np.zeros((4, 4), np.uint8)).save(file)
    data = bytearray(file.read_bytes())
    data[16:24] = struct.pack(">2I", 2**20, 2**20)
    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    file.write_bytes(data)
    refused(DataError, lambda: read_images(tmp_path))
    file.unlink()
    (tmp_path / "a.pgm").write_bytes(b"P5 1000000 1000000 255\n" + bytes(100))
    refused(DataError, lambda: read_images(tmp_path))
    clip = tmp_path / "a.avi"
    write_video(clip, np.zeros((3, 32, 48), np.uint8))
    sizes = struct.pack("<2I", 48, 32)
    clip.write_bytes(clip.read_bytes().replace(sizes, struct.pack("<2I", 2**15, 2**15)))
    with limited_memory():
        try:
            read_video(clip)
        except DataError as error:
            assert not isinstance(error.__cause__, MemoryError)  # noqa: PT017


def test_cyclic_and_oversized_skeletons_are_refused(tmp_path):
    """A root that is its own descendant, and 20,000 bones."""
    (tmp_path / "a.amc").write_text(MOTION)
    circle = SKELETON.replace("name shin", "name root").replace("thigh shin", "thigh root")
    (tmp_path / "a.asf").write_text(circle)
    with pytest.raises(ValueError, match="'root'"):
        read_asf(tmp_path / "a.asf")
    bone = SKELETON[SKELETON.index("  begin\n    id 2") : SKELETON.index(":hierarchy")]
    many = "".join(bone.replace("shin", f"b{i}") for i in range(20_000))
    names = " ".join(f"b{i}" for i in range(20_000))
    text = SKELETON.replace(bone, bone + many).replace(
        "thigh shin", f"thigh shin\n    root {names}"
    )
    (tmp_path / "a.asf").write_text(text)
    (tmp_path / "a.amc").write_text(
        "".join(f"{i}\nroot 0 0 0 0 0 0\nthigh 0 0\n" for i in range(2000))
    )
    with pytest.raises(ValueError, match="joint positions"):
        read_amc(tmp_path / "a.amc", read_asf(tmp_path / "a.asf"))


# --- names ------------------------------------------------------------------------------------


def invoke(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], prog_name="spdnet")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with hostile names of classes, files and folder."""
    place = tmp_path_factory.mktemp("hostile")
    names = np.array([name for name in NAMES if name.strip()])
    y = np.repeat(names, 6)
    matrices = random_spd(len(y), 3).numpy()
    np.savez(place / "a.npz", X=matrices, y=y, names=y)
    out = place / "<script>alert(1)<"
    trained = invoke("train", place / "a.npz", "--epochs", 1, "--out", out)
    assert trained.exit_code == 0, trained.output
    return place, out, trained


class Page(HTMLParser):
    """Elements, attributes and text of an HTML page."""

    def __init__(self):
        super().__init__()
        self.elements, self.attributes, self.text = set(), set(), ""

    def handle_starttag(self, tag, attributes):
        self.elements.add(tag)
        self.attributes |= {name for name, _ in attributes}

    def handle_data(self, data):
        self.text += data


def test_report_escapes_names(run):
    _, out, _ = run
    text = (out / "report.html").read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    assert not page.elements & {"script", "img", "iframe", "a", "object", "link"}
    assert not {name for name in page.attributes if name.startswith("on") or name == "src"}
    assert "<script" not in text
    assert harmless(text)
    assert "document.body.dataset.hacked" in page.text  # shown as text
    for picture in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        drawn = Page()
        drawn.feed(picture)
        known = {"svg", "g", "defs", "style", "path", "text", "use", "clippath", "rect", "image"}
        assert drawn.elements <= known | {"tspan"}


def from_spreadsheet(cell):
    """Return the name that a spreadsheet cell was made from."""
    return cell[1:] if cell.startswith("'") and spreadsheet_safe(cell[1:]) == cell else cell


def test_prediction_csv_escapes_names(run, tmp_path):
    place, out, _ = run
    file = tmp_path / "p.csv"
    assert invoke("predict", out, place / "a.npz", "--out", file).exit_code == 0
    with file.open(newline="", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    classes = {name for name in NAMES if name.strip()}
    assert len(rows) == 6 * len(classes)
    assert {from_spreadsheet(row["label"]) for row in rows} <= classes
    assert {from_spreadsheet(row["file"]) for row in rows} == classes
    for row in rows:
        for cell in (*row.values(), *row):
            assert cell[:1] not in tuple("=+-@\t\r\n")


@pytest.mark.parametrize("name", ["-1", "+1", "-0.5", "1e-3", "-1e-3", "walk", "a=b", "'tis", ""])
def test_spreadsheet_safe_keeps_plain_names(name):
    assert spreadsheet_safe(name) == name
    assert from_spreadsheet(name) == name


def test_spreadsheet_safe_is_invertible():
    for name in [*NAMES, "''=1", "-", "+a", "-1-1", "=", "'", "''", "-1\n=2"]:
        cell = spreadsheet_safe(name)
        assert from_spreadsheet(cell) == name
        assert cell[:1] not in tuple("=@\t\r\n")
    cells = [spreadsheet_safe(name) for name in ("=1", "'=1", "''=1")]
    assert len(set(cells)) == 3


def harmless(text):
    return not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)


def test_terminal_output_escapes_names(run):
    place, out, trained = run
    assert harmless(trained.output)
    shown = invoke("data", "info", place / "a.npz")
    assert shown.exit_code == 0
    assert harmless(shown.output)
    assert "two\\nlines" in shown.output
    assert "[bold red]markup[/]" in shown.output
    scored = invoke("evaluate", out, place / "a.npz", "--part", "all")
    assert scored.exit_code == 0
    assert harmless(scored.output)
    np.savez(place / "b.npz", X=random_spd(4, 3).numpy(), y=np.array(["\x1b[2J", "\u202e"] * 2))
    wrong = invoke("evaluate", out, place / "b.npz")
    assert wrong.exit_code == 2
    assert harmless(wrong.output)
    missing = invoke("data", "info", place / "\x1b[31m\u202e.npz")
    assert missing.exit_code == 2
    assert harmless(missing.output)
    compared = invoke(
        "compare", place / "a.npz", "--methods", "mdm", "--repeats", 1, "--out", place / "c\x1b[3m"
    )
    assert compared.exit_code == 0, compared.output
    assert harmless(compared.output)


def test_info_and_build_escape_names_of_class_folders(tmp_path):
    for name in ("\x1b[31mred", "=1+1", "two\nlines", os.fsdecode(b"caf\xe9")):
        (tmp_path / "data" / name).mkdir(parents=True)
        np.save(tmp_path / "data" / name / "a.npy", X[0])
    shown = invoke("data", "info", tmp_path / "data")
    assert shown.exit_code == 0
    assert harmless(shown.output)
    built = invoke("data", "build", tmp_path / "data", tmp_path / "b\x1b[1m.npz")
    assert built.exit_code == 0, built.output
    assert harmless(built.output)


@pytest.mark.slow
def test_paths_that_are_not_utf8(tmp_path):
    """Run folders may have such paths; data files are refused with an explanation."""
    odd = os.fsdecode(bytes(tmp_path) + b"/caf\xe9")
    os.mkdir(odd)
    np.savez(odd + "/a.npz", X=np.stack([X, X]).reshape(12, 4, 4), y=np.arange(12) % 2)
    os.rename(odd + "/a.npz", tmp_path / "a.npz")
    command = [sys.executable, "-m", "spdnet", "train", str(tmp_path / "a.npz"), "--epochs", "1"]
    done = subprocess.run([*command, "--out", odd + "/run"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert b"run folder: " in done.stdout
    assert os.path.isfile(odd + "/run/report.html")
    os.rename(tmp_path / "a.npz", odd + "/a.npz")
    refused = invoke("train", odd + "/a.npz", "--epochs", "1", "--out", tmp_path / "r")
    assert refused.exit_code == 2
    assert "a path in UTF-8" in refused.stderr


def test_settings_file_round_trips_hostile_paths(tmp_path):
    for data in ("a\x1b[31m", "a'\"\n[x]", "\u202e"):
        from spdnet.runs.settings import Settings, from_mapping, read_toml

        settings = Settings(data=data)
        (tmp_path / "s.toml").write_text(settings.to_toml(), encoding="utf-8")
        assert from_mapping(read_toml(tmp_path / "s.toml"), "a file").data == data


def test_printable_escapes_control_characters():
    assert printable("wälk ∀ سلام नमस्ते 歩く 🙂") == "wälk ∀ سلام नमस्ते 歩く 🙂"
    assert printable("\x1b[1m\n\u202e\udce9") == "\\x1b[1m\\n\\u202e\\udce9"
    assert printable("a\nb\x07", keep="\n") == "a\nb\\x07"


# --- numbers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--dtype", "float32", "--eps", "1e300"), "eps of at most 3.4e+38 with dtype float32"),
        (("--batch-size", "9" * 30), "batch_size of at most 2147483647"),
        (("--device", "cpu:7"), "got 'cpu:7'"),
        (("--settings", "s.toml"), "lr >= 0 and finite"),
        (("--settings", "deep.toml"), "expected a TOML file"),
    ],
)
def test_train_refuses_out_of_range_settings(tmp_path, monkeypatch, flags, message):
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "a.npz", X=X, y=Y)
    (tmp_path / "s.toml").write_text(f"lr = 1{'0' * 400}\n")
    (tmp_path / "deep.toml").write_text(f"dims = {'[' * 5000}\n")
    refused = invoke("train", tmp_path / "a.npz", *flags)
    assert refused.exit_code == 2
    assert message in refused.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--clip-length", "inf"), "clip_length"),
        (("--every", "-1"), "every >= 1"),
        (("--every", "0"), "every >= 1"),
        (("--reg", "nan"), "reg"),
        (("--clip-length", "2", "--clips", 10**12), "clips of at most 2147483647"),
        (("--clip-length", "2", "--clips", 10**9), None),
    ],
)
def test_build_validates_numeric_options(tmp_path, flags, message):
    split = np.array(["train", "test"])
    frames = np.random.default_rng(0).normal(size=(8, 3))
    arrays = {"frames": frames, "lengths": np.array([4, 4]), "label": Y[:2], "split": split}
    np.savez(tmp_path / "s.npz", **arrays)
    with limited_memory():
        built = invoke(
            "data", "build", tmp_path / "s.npz", tmp_path / "b.npz", "--of", "sequences", *flags
        )
    assert built.exit_code == (2 if message else 0), built.output
    assert (message or "file:") in built.output


def test_labels_with_invalid_code_points_are_escaped(tmp_path):
    """NumPy strings can contain integers that are not Unicode code points, and surrogates."""
    y = np.array(["ab", "cd"] * 3)
    y.view(np.uint32)[:2] = 0xFFFFFFFF, 0xD800
    np.savez(tmp_path / "a.npz", X=X, y=y)
    escaped = r"\xff\xff\xff\xff\x00\xd8\x00\x00"
    assert read(tmp_path / "a.npz").y.tolist() == [escaped, "cd", "ab", "cd", "ab", "cd"]


def test_big_endian_arrays_are_converted(tmp_path):
    np.savez(tmp_path / "a.npz", X=X.astype(">f8"), y=np.arange(6, dtype=">i4"))
    found = read(tmp_path / "a.npz")
    assert found.X.dtype.isnative
    np.testing.assert_array_equal(found.X, X)
    np.testing.assert_array_equal(open_stored(tmp_path / "a.npz")[[1, 0]], X[[1, 0]])
    assert invoke("data", "info", tmp_path / "a.npz").exit_code == 0
