import stat
import struct
import zipfile

import numpy as np
import pytest

from spdnet.data import DataError
from spdnet.data.io.files import open_files, safe_parts


def make(path, members, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo("placeholder") if not isinstance(name, zipfile.ZipInfo) else name
            if info is not name:
                info.filename = name  # as it is: ZipInfo() would tidy it up
            info.compress_type = compression
            archive.writestr(info, data)
    return path


def test_folders_and_archives_look_the_same(tmp_path):
    folder = tmp_path / "data"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "x.MAT").write_bytes(b"1")
    (folder / "y.npy").write_bytes(b"2")
    archive = make(tmp_path / "data.zip", {"a/b/x.MAT": b"1", "y.npy": b"2", "empty/": b""})
    backslashes = make(tmp_path / "back.zip", {"a\\b\\x.MAT": b"1", ".\\y.npy": b"2"})
    for path in (folder, archive, backslashes):
        files = open_files(path)
        assert len(files.members) == 2
        assert files.ending_with(".mat") == [("a", "b", "x.MAT")]
        assert files.ending_with(".mat", ".npy") == [("a", "b", "x.MAT"), ("y.npy",)]
        assert files.read(("a", "b", "x.MAT")) == b"1"
        assert files.find(("B", "X.mat")) == ("a", "b", "x.MAT")
        assert files.find(("c", "x.mat")) is None


def symlink():
    info = zipfile.ZipInfo("link.mat")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


def device():
    info = zipfile.ZipInfo("device.mat")
    info.external_attr = (stat.S_IFCHR | 0o666) << 16
    return info


HOSTILE = {
    "absolute": ({"/etc/passwd": b""}, "outside of the archive"),
    "drive": ({"C:\\x.mat": b""}, "outside of the archive"),
    "share": ({"\\\\server\\share\\x.mat": b""}, "outside of the archive"),
    "parent": ({"a/../../x.mat": b""}, "outside of the archive"),
    "parent by backslashes": ({"..\\x.mat": b""}, "outside of the archive"),
    "symbolic link": ({symlink(): b"/etc/passwd"}, "a link or a device"),
    "device": ({device(): b""}, "a link or a device"),
    "twice": ({"a/X.mat": b"1", "a\\x.mat": b"2"}, "two files"),
    "bomb": ({"x.mat": bytes(2**25)}, "33554432 bytes packed in"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_archives_are_refused(tmp_path, case):
    members, message = HOSTILE[case]
    with pytest.raises(DataError, match=message):
        open_files(make(tmp_path / "a.zip", members))
    assert [p.name for p in tmp_path.iterdir()] == ["a.zip"]


def test_a_name_with_a_nul_byte_is_refused(tmp_path):
    path = make(tmp_path / "a.zip", {"aXb.mat": b"1"})
    path.write_bytes(path.read_bytes().replace(b"aXb.mat", b"a\0b.mat"))
    with pytest.raises(DataError, match="outside of the archive"):
        open_files(path)


def test_a_password_is_refused(tmp_path):
    path = make(tmp_path / "a.zip", {"x.mat": b"1"})
    data = bytearray(path.read_bytes())
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + place] |= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match="password"):
        open_files(path)


def test_files_that_overlap_are_refused(tmp_path):
    """Many entries of the table of contents for one packed file: small, and huge when unpacked."""
    noise = np.random.default_rng(0).bytes(10_000)
    path = make(tmp_path / "a.zip", {f"{i}.mat": noise for i in range(3)}, zipfile.ZIP_STORED)
    data = path.read_bytes()
    directory = data.index(b"PK\x01\x02")
    entries = bytearray(data[directory:])
    place = 0
    for _ in range(3):  # all point at the first file
        place = entries.index(b"PK\x01\x02", place)
        entries[place + 42 : place + 46] = struct.pack("<I", 0)
        place += 4
    end = entries.index(b"PK\x05\x06")
    first = data[: data.index(b"PK\x03\x04", 4)]
    entries[end + 16 : end + 20] = struct.pack("<I", len(first))
    path.write_bytes(first + entries)
    with pytest.raises(DataError, match="overlap"):
        open_files(path)


def test_damaged_archives(tmp_path):
    path = make(tmp_path / "a.zip", {"x.npy": bytes(range(256)) * 20})
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    with pytest.raises(DataError, match="neither, or damaged"):
        open_files(path)
    path.write_bytes(whole[:45] + b"\xff\xff\xff" + whole[48:])
    files = open_files(path)
    with pytest.raises(DataError, match=r"x\.npy .* is damaged"):
        files.read(("x.npy",))
    with pytest.raises(FileNotFoundError):
        open_files(tmp_path / "none.zip")


def test_bit_flips_give_our_errors(tmp_path):
    rng = np.random.default_rng(0)
    path = make(tmp_path / "a.zip", {f"{i}/x.mat": rng.bytes(50) for i in range(3)})
    whole = path.read_bytes()
    refused = 0
    for _ in range(500):
        data = bytearray(whole)
        for place in rng.integers(0, len(data), rng.integers(1, 4)):
            data[place] ^= 1 << rng.integers(8)
        path.write_bytes(data)
        try:
            files = open_files(path)
            for parts in files.members:
                files.read(parts)
        except DataError:
            refused += 1
    assert refused > 150


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("a/b.mat", ("a", "b.mat")),
        ("a\\b.mat", ("a", "b.mat")),
        (".\\a\\.\\b.mat", ("a", "b.mat")),
        ("", None),
        ("..", None),
        ("/a", None),
        ("c:a", None),
    ],
)
def test_safe_parts(name, parts):
    assert safe_parts(name) == parts
