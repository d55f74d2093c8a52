import logging
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from spdnet.training import RECIPES, Trainer, build, checkpoint
from spdnet.training.checkpoint import CheckpointError, CheckpointFolder
from tests.training.test_loop import problem

STATE = {
    "weights": torch.arange(6.0).view(2, 3),
    "empty": torch.empty(0, 3),
    "half": torch.ones(2, dtype=torch.bfloat16),
    "nested": [{"a": 1, "b": (2.5, None, True)}, "text"],
}
RECIPE = RECIPES["fast"].changed(epochs=6, batch_size=8, eps="20%")


def trainer():
    torch.manual_seed(0)
    data = problem(40)
    train, val = data[torch.arange(30)], data[torch.arange(30, 40)]
    return Trainer(build(RECIPE, (5, 4, 3), 2, train), train, RECIPE, val=val, seed=3)


def assert_equal(a, b):
    assert checkpoint._digest(a) == checkpoint._digest(b)


def without_times(state):
    rows = [{k: v for k, v in row.items() if k != "seconds"} for row in state["history"]]
    return {**state, "history": rows}


def test_round_trip(tmp_path):
    path = tmp_path / "last.pt"
    checkpoint.save(STATE, path)
    assert_equal(checkpoint.load(path), STATE)
    assert [p.name for p in tmp_path.iterdir()] == ["last.pt"]


def test_things_that_are_not_data_are_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(TypeError, match=r"expected tensors, numbers.*got (Posix|Windows)Path"):
        checkpoint.save({"path": tmp_path}, tmp_path / "last.pt")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_state(tmp_path, monkeypatch):
    path = tmp_path / "last.pt"
    checkpoint.save(STATE, path)
    real = torch.save

    def full_disk(payload, file):
        real(payload, file)
        file.truncate(100)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full_disk)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save({"epoch": 1}, path)
    monkeypatch.undo()
    assert_equal(checkpoint.load(path), STATE)
    assert [p.name for p in tmp_path.iterdir()] == ["last.pt"]


def damage(path, how):
    content = bytearray(path.read_bytes())
    if how == "truncated":
        content = content[: len(content) // 2]
    elif how == "empty":
        content = bytearray()
    elif how == "text":
        content = bytearray(b"not a checkpoint at all\n" * 50)
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("how", ["truncated", "empty", "text"])
def test_damaged_files_are_refused(tmp_path, how):
    path = tmp_path / "last.pt"
    checkpoint.save(STATE, path)
    damage(path, how)
    with pytest.raises(CheckpointError, match=r"last.pt is (truncated or damaged|something else)"):
        checkpoint.load(path)


def test_a_flipped_bit_never_goes_unnoticed(tmp_path):
    """Every byte in turn: the state that comes back is the one that was written, or an error."""
    path = tmp_path / "last.pt"
    checkpoint.save({"weights": torch.arange(4.0), "epoch": 3}, path)
    whole = path.read_bytes()
    generator = random.Random(0)
    refused = 0
    for position in generator.sample(range(len(whole)), 150):
        content = bytearray(whole)
        content[position] ^= 1 << generator.randrange(8)
        path.write_bytes(bytes(content))
        try:
            assert_equal(checkpoint.load(path), {"weights": torch.arange(4.0), "epoch": 3})
        except CheckpointError:
            refused += 1
    assert refused > 0


class Malicious:
    def __reduce__(self):
        return os.system, ("touch /tmp/should-not-exist-spdnet",)


def test_code_in_a_file_is_never_run(tmp_path):
    for write in (
        lambda path: path.write_bytes(pickle.dumps(Malicious(), protocol=2)),
        lambda path: torch.save({"format": checkpoint.FORMAT, "state": Malicious()}, path),
    ):
        path = tmp_path / "last.pt"
        write(path)
        with pytest.raises(CheckpointError, match="no code in it was executed"):
            checkpoint.load(path)
    assert not Path("/tmp/should-not-exist-spdnet").exists()


def test_foreign_files_and_other_versions(tmp_path):
    path = tmp_path / "last.pt"
    for content in (b"\x80\x02.", b"\x80\x02K\x01.", b"\x80"):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match="expected"):
            checkpoint.load(path)
    torch.save({"state_dict": {}}, path)
    with pytest.raises(CheckpointError, match="something else"):
        checkpoint.load(path)
    torch.save({"format": checkpoint.FORMAT, "version": 99}, path)
    with pytest.raises(CheckpointError, match=r"expected version 1, but .* has version 99"):
        checkpoint.load(path)
    with pytest.raises(FileNotFoundError, match="got none"):
        checkpoint.load(tmp_path / "absent.pt")


def test_folder_keeps_the_one_before(tmp_path):
    folder = CheckpointFolder(tmp_path / "new" / "run")
    with pytest.raises(FileNotFoundError, match="start a new training"):
        folder.load_last()
    for epoch in range(3):
        folder.save_last({"epoch": epoch})
    assert folder.load_last() == ({"epoch": 2}, [])
    damage(folder.last, "truncated")
    state, faults = folder.load_last()
    assert state == {"epoch": 1}
    assert "last.pt is truncated or damaged" in faults[0]
    folder.last.unlink()  # killed between the two renames
    assert folder.load_last() == ({"epoch": 1}, [])
    damage(folder.previous, "text")
    with pytest.raises(CheckpointError, match=r"previous.pt"):
        folder.load_last()


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("after", [1, 3, 5])
def test_stopped_and_continued_is_bit_equal(tmp_path, after):
    whole = trainer()
    whole.run()
    folder = CheckpointFolder(tmp_path)

    def stop(trainer):
        folder.save_last(trainer.state_dict())
        if trainer.progress.epoch == after:
            raise StoppedError

    with pytest.raises(StoppedError):
        trainer().run(stop)
    resumed = trainer()
    resumed.load_state_dict(folder.load_last()[0])
    assert resumed.progress.epoch == after
    resumed.run()
    assert_equal(without_times(resumed.state_dict()), without_times(whole.state_dict()))


SCRIPT = """
import sys, torch
torch.set_num_threads(1)
from spdnet.training.checkpoint import CheckpointFolder
from tests.training.test_checkpoint import trainer
folder = CheckpointFolder(sys.argv[1])
t = trainer()
if folder.last.exists() or folder.previous.exists():
    t.load_state_dict(folder.load_last()[0])
print("started", flush=True)
t.run(lambda t: folder.save_last(t.state_dict()))
folder.save_last(t.state_dict())
"""


def killed_and_resumed(folder, kills, seed):
    """Run the script, killing it at random moments; the number of times it was killed."""
    generator = random.Random(seed)
    done = 0
    while True:
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(folder)], stdout=subprocess.PIPE, text=True
        )
        process.stdout.readline()
        if done < kills:
            time.sleep(generator.uniform(0, 0.15))
            process.send_signal(signal.SIGKILL)
        code = process.wait()
        process.stdout.close()
        if code == 0:
            return done
        assert code == -signal.SIGKILL
        done += 1


def assert_ends_as_if_never_killed(folder, kills, seed):
    whole = trainer()
    whole.run()
    killed = killed_and_resumed(folder, kills, seed)
    state, faults = CheckpointFolder(folder).load_last()
    assert faults == []
    assert_equal(without_times(state), without_times(whole.state_dict()))
    return killed


@pytest.mark.slow
def test_killed_and_resumed_is_bit_equal(tmp_path):
    assert_ends_as_if_never_killed(tmp_path, kills=1, seed=0)


@pytest.mark.slow
def test_killed_many_times(tmp_path):
    killed = 0
    for seed in range(6):
        killed += assert_ends_as_if_never_killed(tmp_path / str(seed), kills=5, seed=seed)
    assert killed > 5
    logging.getLogger(__name__).info("trainings were killed %d times", killed)
