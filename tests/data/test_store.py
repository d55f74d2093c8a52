import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
import zipfile
from multiprocessing import get_context

import numpy as np
import pytest

from spdnet._lock import LockedError
from spdnet.data import DataError, StoredArray, StoreWriter, clean, examine, open_stored, read
from spdnet.data.io import readers as readers_module
from tests.cases import random_spd

X = random_spd(10, 4).numpy()


def write(path, count=10, plan=None, dtype="float64"):
    with StoreWriter(path, plan or {"a": 1}) as writer:
        for i in range(len(writer.done), count):
            writer.add(
                f"s{i}", X[i : i + 1].astype(dtype), y=f"c{i % 2}", groups=i // 3, split=None
            )
        return writer.finish({"from": "a test"})


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_numpy_reads_the_file_and_its_rows_can_be_mapped(tmp_path, dtype):
    path = write(tmp_path / "a.npz", dtype=dtype)
    assert [p.name for p in tmp_path.iterdir()] == ["a.npz"]
    with np.load(path, allow_pickle=False) as file:
        assert set(file.files) == {"X", "y", "groups", "names", "provenance"}  # no split: all None
        np.testing.assert_array_equal(file["X"], X.astype(dtype))
        assert file["y"].tolist() == [f"c{i % 2}" for i in range(10)]
        assert json.loads(str(file["provenance"])) == {"from": "a test"}
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None  # checksums hold
    stored = open_stored(path)
    assert stored.offset % 64 == 0
    np.testing.assert_array_equal(stored.mapped(), X.astype(dtype))


@pytest.mark.parametrize(
    "index",
    [3, -1, slice(2, 7), slice(None, None, -2), [5, 5, 0, 9], np.arange(10) % 3 == 0, [], slice(0)],
    ids=str,
)
def test_indexing_is_that_of_an_array(tmp_path, index):
    stored = open_stored(write(tmp_path / "a.npz"))
    index = np.array(index, dtype=int) if isinstance(index, list) else index
    np.testing.assert_array_equal(stored[index], X[index])
    if not isinstance(index, int):
        part = stored.take(np.arange(10)[index])
        assert isinstance(part, StoredArray)
        assert part.shape == X[index].shape
        np.testing.assert_array_equal(part[:], X[index])
        np.testing.assert_array_equal(part.take(np.arange(len(part))[::-1])[:], X[index][::-1])
    with pytest.raises(IndexError):
        stored[10]


def test_it_looks_like_an_array(tmp_path):
    stored = open_stored(write(tmp_path / "a.npz"))
    assert (stored.shape, stored.ndim, stored.nbytes, len(stored)) == (X.shape, 3, X.nbytes, 10)
    np.testing.assert_array_equal(np.asarray(stored), X)
    single = stored.astype("float32")
    assert single[0].dtype == np.asarray(single).dtype == np.float32
    np.testing.assert_array_equal(np.concatenate(list(stored.blocks(3))), X)
    assert "StoredArray" in repr(stored)
    again = pickle.loads(pickle.dumps(stored.take([4, 2])))
    np.testing.assert_array_equal(again[:], X[[4, 2]])
    with pytest.raises(TypeError, match="rows"):
        stored[0, 0]
    with pytest.raises(TypeError, match="integer indices"):
        stored.take(np.ones(10, dtype=bool))  # numpy would take them for 0 and 1
    with pytest.raises(ValueError, match="axis 0"):
        stored.take([0], axis=1)
    with pytest.raises(ValueError, match="copy"):
        np.asarray(stored, copy=False)


def _child(stored, queue):
    queue.put(stored[[1, 2]])


def test_other_processes_read_it_too(tmp_path):
    stored = open_stored(write(tmp_path / "a.npz"))
    stored[0]  # opened here
    context = get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=_child, args=(stored, queue))
    child.start()
    np.testing.assert_array_equal(queue.get(timeout=60), X[[1, 2]])
    child.join()


def test_a_file_that_shrinks_is_an_error_and_no_crash(tmp_path):
    path = write(tmp_path / "a.npz")
    stored = open_stored(path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        stored[0]
    path = write(tmp_path / "b.npz")
    stored = open_stored(path)
    os.truncate(path, stored.offset + X[0].nbytes)
    with pytest.raises(DataError, match="it was modified"):
        stored[5]
    path = write(tmp_path / "c.npz")
    stored = open_stored(path)
    state = path.stat()
    os.truncate(path, stored.offset + X[0].nbytes)
    stored._state = (path.stat().st_size, path.stat().st_mtime_ns)  # between two looks
    with pytest.raises(DataError, match="shorter"):
        stored[5]
    assert state.st_size > path.stat().st_size


def test_what_cannot_be_read_in_parts(tmp_path):
    np.savez_compressed(tmp_path / "packed.npz", X=X)
    assert open_stored(tmp_path / "packed.npz") is None
    np.savez(tmp_path / "columns.npz", X=np.asfortranarray(X))
    assert open_stored(tmp_path / "columns.npz") is None
    np.savez(tmp_path / "scalar.npz", X=np.float64(1))
    assert open_stored(tmp_path / "scalar.npz") is None


def test_a_header_that_says_more_than_there_is(tmp_path):
    path = write(tmp_path / "a.npz")
    data = bytearray(path.read_bytes())
    place = data.index(b"(10, 4, 4)")
    data[place : place + 10] = b"(99, 4, 4)"
    path.write_bytes(data)
    with pytest.raises(DataError, match="expected the"):
        open_stored(path)
    data[64:70] = b"broken"
    path.write_bytes(data)
    with pytest.raises(DataError, match="an array X"):
        open_stored(path)


def test_large_files_stay_on_disk(tmp_path, monkeypatch):
    path = write(tmp_path / "a.npz")
    assert isinstance(read(path).X, np.ndarray)
    monkeypatch.setattr(readers_module, "IN_MEMORY", X.nbytes - 1)
    data = read(path)
    assert isinstance(data.X, StoredArray)
    assert data.is_matrices
    assert data.names.tolist() == [f"s{i}" for i in range(10)]
    np.savez(tmp_path / "signals.npz", X=np.ones((20, 3, 50)), y=np.arange(20))
    assert isinstance(read(tmp_path / "signals.npz").X, np.ndarray)


def test_faults_are_found_where_they_lie(tmp_path):
    bad = X.copy()
    bad[3], bad[7, 0, 1] = 0, 5
    with StoreWriter(tmp_path / "a.npz", {}) as writer:
        writer.add("all", bad, y="a")
        writer.finish({})
    stored = open_stored(tmp_path / "a.npz")
    found = examine(stored)
    assert found.bad.tolist() == [3, 7]
    kept, index, report = clean(stored, "drop")
    assert isinstance(kept, StoredArray)
    assert index.tolist() == [0, 1, 2, 4, 5, 6, 8, 9]
    np.testing.assert_array_equal(kept[:], bad[index])
    assert "dropped 2" in report
    with pytest.raises(ValueError, match=r"choose 'drop' \(--bad\)$"):
        clean(stored, "repair")


def test_a_writer_goes_on(tmp_path):
    path = tmp_path / "a.npz"
    with StoreWriter(path, {"a": 1}) as writer:
        for i in range(4):
            writer.add(f"s{i}", X[i : i + 1], y="a")
        writer.flush()
        writer.add("s4", X[4:5], y="a")  # flushed when it is closed
    with StoreWriter(path, {"a": 1}) as writer:
        assert writer.done == ["s0", "s1", "s2", "s3", "s4"]
        for i in range(5, 10):
            writer.add(f"s{i}", X[i : i + 1], y="a")
        writer.add("none", X[:0], y="a")
        assert writer.empty == ["none"]
        writer.finish({})
    np.testing.assert_array_equal(np.load(path)["X"], X)


def write_some(path):
    with StoreWriter(path, {"a": 1}) as writer:
        for i in range(6):
            writer.add(f"s{i}", X[i : i + 1], y="a")
            if i % 2:
                writer.flush()


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("number", range(1, 5))
def test_writing_that_is_broken_off_is_done_again(tmp_path, monkeypatch, error, number):
    """Matrices or their note may be on the disk already, or a part of them."""
    path, real, left = tmp_path / "a.npz", os.fsync, number

    def fsync(file):
        nonlocal left
        left -= 1
        if left == 0:
            raise error
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(error):
        write_some(path)
    with StoreWriter(path, {"a": 1}) as writer:
        for i in range(len(writer.done), 10):
            writer.add(f"s{i}", X[i : i + 1], y="a")
        writer.finish({})
    with np.load(path) as file:
        np.testing.assert_array_equal(file["X"], X)
        assert file["names"].tolist() == [f"s{i}" for i in range(10)]


@pytest.mark.parametrize("again", [False, True], ids=["next process", "same process"])
def test_an_end_that_is_broken_off_is_written_again(tmp_path, monkeypatch, again):
    """What the first attempt has added after the matrices is taken away."""
    path, real = tmp_path / "a.npz", np.lib.format.write_array
    left = 2

    def write_array(*args, **more):
        nonlocal left
        left -= 1
        real(*args, **more)
        if left == 0:
            raise OSError("no space")

    monkeypatch.setattr(np.lib.format, "write_array", write_array)
    with StoreWriter(path, {"a": 1}) as writer:
        for i in range(10):
            writer.add(f"s{i}", X[i : i + 1], y="a")
        with pytest.raises(OSError, match="no space"):
            writer.finish({})
        if again:
            writer.finish({})
    if not again:
        with StoreWriter(path, {"a": 1}) as writer:
            assert len(writer.done) == 10
            writer.finish({})
    np.testing.assert_array_equal(read(path).X, X)
    np.testing.assert_array_equal(open_stored(path)[:], X)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None


def test_a_writer_takes_up_only_what_is_its_own(tmp_path):
    path = tmp_path / "a.npz"
    with StoreWriter(path, {"a": 1}) as writer:
        writer.add("s0", X[:1], y="a")
        writer.flush()
        with pytest.raises(LockedError, match="another process"):
            StoreWriter(path, {"a": 1})
        with pytest.raises(DataError, match="one size, 4 x 4, got 3 x 3"):
            writer.add("s1", np.eye(3)[None], y="a")
    with pytest.raises(DataError, match="different a"):
        StoreWriter(path, {"a": 2})
    os.truncate(f"{path}.part", 100)
    with pytest.raises(DataError, match="damaged"):
        StoreWriter(path, {"a": 1})
    (tmp_path / "a.npz.part.json").write_text("{}\n")
    with pytest.raises(DataError, match="damaged"):
        StoreWriter(path, {"a": 1})
    (tmp_path / "a.npz.part.json").write_text("")  # killed before a word of it was written
    (tmp_path / "a.npz.part").write_bytes(bytes(500))
    with StoreWriter(path, {"a": 1}) as writer:
        writer.add("s0", X[:1], y="a")
        writer.finish({})
    np.testing.assert_array_equal(np.load(path)["X"], X[:1])
    with pytest.raises(FileExistsError, match="created meanwhile"):
        StoreWriter(path, {"a": 1})
    path.unlink()
    (tmp_path / "a.npz.part.json").write_text('{"plan": {"a": 1}}\n')
    with StoreWriter(path, {"a": 1}) as writer:  # a note without matrices is of no use
        assert writer.done == []
        with pytest.raises(DataError, match="got none"):
            writer.finish({})
    assert list(tmp_path.iterdir()) == []


WRITER = """
import sys, time, numpy
from spdnet.data import store_writer
from spdnet.data import StoreWriter
store_writer._BLOCK = 4096
X = numpy.load(sys.argv[2])
with StoreWriter(sys.argv[1], {"a": 1}) as writer:
    print(len(writer.done), flush=True)
    for i in range(len(writer.done), len(X)):
        writer.add(f"s{i}", X[i : i + 1], y="a" if i % 2 else "b")
        time.sleep(0.002)
    writer.finish({})
"""


def kill_until_done(tmp_path, kills, seed):
    """Run a writer, kill it at random moments, then let it end; how often it was killed."""
    X = np.random.default_rng(seed).normal(size=(300, 6, 6))
    np.save(tmp_path / "X.npy", X)
    path, rng, killed = tmp_path / "a.npz", random.Random(seed), 0
    command = [sys.executable, "-c", WRITER, str(path), str(tmp_path / "X.npy")]
    for i in range(kills + 1):
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        process.stdout.readline()  # it has begun
        if i < kills:
            time.sleep(rng.uniform(0, 0.3))  # of the 0.6 seconds that all of it takes at least
            process.send_signal(signal.SIGKILL)
        process.stdout.close()
        killed += process.wait() == -signal.SIGKILL
        if path.exists():
            break
    with np.load(path) as file:
        np.testing.assert_array_equal(file["X"], X)
        assert file["y"].tolist() == ["b", "a"] * 150
    np.testing.assert_array_equal(open_stored(path)[:], X)
    assert not (tmp_path / "a.npz.part").exists()
    return killed


def test_a_writer_that_is_killed_goes_on(tmp_path):
    assert kill_until_done(tmp_path, 3, seed=1) >= 1
