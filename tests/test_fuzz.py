"""Fuzz tests of every file reader and of the command line with damaged or invented input.

``SPDNET_FUZZ_EXAMPLES=2000 pytest tests/test_fuzz.py`` tries many more random inputs.
"""

import json
import os
import random
import shutil
import sys
import warnings
import zipfile
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest
import torch
import typer
from hypothesis import given
from hypothesis import strategies as st
from scipy.io import savemat
from typer.testing import CliRunner

from spdnet.cli import app
from spdnet.data import (
    DataError,
    StoreWriter,
    build,
    examine,
    load_dataset,
    open_stored,
    prepare,
    read,
)
from spdnet.data.descriptor import Descriptor
from spdnet.data.io.files import open_files
from spdnet.data.io.frames import read_images, read_video
from spdnet.data.io.index import read_index
from spdnet.data.io.matlab import load_mat
from spdnet.data.io.motion import read_amc, read_asf, read_c3d
from spdnet.data.sources import matrix_sources, sequence_sources
from spdnet.data.summary import describe
from spdnet.paper.published import import_dataset
from spdnet.runs import (
    Comparison,
    ComparisonFolder,
    RunFolder,
    Settings,
    TrainedModel,
    compare,
    train,
)
from spdnet.runs.report import make_page, write_report
from spdnet.runs.settings import from_mapping, read_toml
from spdnet.training import checkpoint
from spdnet.training.checkpoint import CheckpointError
from tests.cases import random_spd
from tests.data.io.test_frames import write_c3d, write_video
from tests.data.io.test_index import write_index
from tests.data.io.test_matlab import NESTED, fill_all, saved, version73
from tests.data.io.test_motion import MOTION, SKELETON
from tests.hostile import (
    EXAMPLES,
    NAMES,
    REFUSED,
    TRIED,
    accidents,
    changed,
    damage,
    fuzz,
    try_to,
    values,
)
from tests.runs.test_train import file_of

X = random_spd(8, 4).numpy()
Y = np.array(["walk", "run"] * 4)
LOST = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)


@pytest.fixture(scope="module", autouse=True)
def _print_counts():
    """Print the number of inputs after a long run."""
    yield
    if EXAMPLES:
        for name, count in sorted(TRIED.items()):
            sys.__stderr__.write(f"{name}: {count} tried, {REFUSED[name]} refused\n")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


# --- readers: for each kind, write a valid file and return its path and a reader --------------


def look(path, labels=None):
    """Read and describe data like ``spdnet data info``."""
    data = read(path, labels, labeled=None)
    describe(data, examine(data.X) if data.is_matrices else None)


def npz(folder):
    split, groups = np.array(["train", "test"] * 4), np.arange(8)
    np.savez(folder / "a.npz", X=X, y=Y, split=split, groups=groups, names=Y)
    return folder / "a.npz", look


def packed_npz(folder):
    np.savez_compressed(folder / "a.npz", X=X.astype("f4"), y=np.arange(8.0), groups=Y)
    return folder / "a.npz", look


def npy(folder):
    np.save(folder / "a.npy", X)
    (folder / "y.txt").write_text("\n".join(Y))
    return folder / "a.npy", lambda path: look(path, folder / "y.txt")


def labels_npy(folder):
    np.save(folder / "a.npy", X)
    np.save(folder / "y.npy", Y)
    return folder / "y.npy", lambda path: look(folder / "a.npy", path)


def labels_text(folder):
    np.save(folder / "a.npy", X)
    (folder / "y.txt").write_text("\n".join(Y))
    return folder / "y.txt", lambda path: look(folder / "a.npy", path)


def folder_of_classes(folder):
    for i in range(4):
        (folder / "data" / f"c{i % 2}").mkdir(parents=True, exist_ok=True)
        np.save(folder / "data" / f"c{i % 2}" / f"{i}.npy", X[i])
    return folder / "data" / "c0" / "0.npy", lambda path: look(folder / "data")


def folder_with_mat(folder):
    _, read_it = folder_of_classes(folder)
    file = folder / "data" / "c0" / "0.mat"
    savemat(file, {"C": X[0]})
    return file, read_it


def stored(folder):
    with StoreWriter(folder / "a.npz", {"a": 1}) as writer:
        for i in range(8):
            writer.add(f"s{i}", X[i : i + 1], y=f"c{i % 2}", split=None)
        path = writer.finish({})

    def rows(path):
        if (found := open_stored(path)) is not None:
            found[:], found[[-1, 0]], list(found.blocks())

    return path, rows


def leftovers(folder, which):
    """Return a file of an interrupted build, and a function that resumes the build."""
    writer = StoreWriter(folder / "a.npz", {"a": 1})
    for i in range(4):
        writer.add(f"s{i}", X[i : i + 1], y=f"c{i % 2}", split=None)
    writer.close()
    kept = {p.name: p.read_bytes() for p in folder.iterdir()}
    damaged = folder / f"a.npz.part{which}"

    def resume(path):
        content = path.read_bytes()
        for name, data in kept.items():
            (folder / name).write_bytes(data)
        damaged.write_bytes(content)
        (folder / "a.npz").unlink(missing_ok=True)
        with StoreWriter(folder / "a.npz", {"a": 1}) as writer:
            for i in range(len(writer.done), 8):
                writer.add(f"s{i}", X[i : i + 1], y=f"c{i % 2}", split=None)
            look(writer.finish({}))

    return damaged, resume


def journal(folder):
    return leftovers(folder, ".json")


def part(folder):
    return leftovers(folder, "")


def mat5(folder):
    (folder / "a.mat").write_bytes(saved(NESTED))
    return folder / "a.mat", load_mat


def mat5_packed(folder):
    (folder / "a.mat").write_bytes(saved(NESTED, do_compression=True))
    return folder / "a.mat", load_mat


def mat73(folder):
    (folder / "a.mat").write_bytes(version73(fill_all))
    return folder / "a.mat", load_mat


def index(folder):
    return write_index(folder), read_index


def read_all(path):
    files = open_files(path)
    for parts in files.members:
        files.read(parts), files.stamp(parts)


def archive(folder):
    folder_of_classes(folder)
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted((folder / "data").rglob("*.npy")):
            file.write(path, path.relative_to(folder))
    return folder / "a.zip", read_all


def build_from(path):
    """Build a file like ``spdnet data build``."""
    out = path.with_name("built.npz")
    for old in path.parent.glob("built.npz*"):
        old.unlink()
    build(matrix_sources(path), out, bad="drop")
    look(out)


def archive_to_build(folder):
    return archive(folder)[0], build_from


def archive_to_import(folder):
    def bring(path):
        os.environ["SPDNET_DATA"] = str(folder / "home")
        shutil.rmtree(folder / "home", ignore_errors=True)
        import_dataset("hdm05", path)

    return archive(folder)[0], bring


def sequences(folder):
    frames = np.random.default_rng(0).normal(size=(24, 3))
    more = {"classes": np.array(["a", "b"]), "split": np.array(["train", "test"] * 2)}
    lengths, label = np.full(4, 6), np.array([0, 1, 1, 0])
    arrays = {"frames": frames, "lengths": lengths, "label": label, "name": np.arange(4)}
    np.savez(folder / "s.npz", **arrays, **more)

    def build_them(path):
        out = path.with_name("built.npz")
        for old in path.parent.glob("built.npz*"):
            old.unlink()
        build(sequence_sources(path), out, Descriptor(clip_length=0.5, clips=2, pca=2))

    return folder / "s.npz", build_them


def skeleton(folder):
    (folder / "a.asf").write_text(SKELETON)
    (folder / "a.amc").write_text(MOTION)
    return folder / "a.asf", lambda path: read_amc(folder / "a.amc", read_asf(path))


def motion(folder):
    skeleton(folder)
    return folder / "a.amc", lambda path: read_amc(path, read_asf(folder / "a.asf"))


def markers(folder):
    write_c3d(folder / "a.c3d", np.arange(54.0).reshape(6, 3, 3))
    return folder / "a.c3d", read_c3d


def image(folder, suffix):
    pillow = pytest.importorskip("PIL.Image")
    (folder / "images").mkdir()
    levels = np.random.default_rng(0).integers(0, 255, (24, 20)).astype(np.uint8)
    pillow.fromarray(levels).save(folder / "images" / f"a{suffix}")
    return folder / "images" / f"a{suffix}", lambda path: read_images(path.parent)


def video(folder, name):
    y, x = np.mgrid[:32, :48]
    waves = [np.cos(x / 9 + t / 3) * np.sin(y / 7 - t / 5) for t in range(4)]
    write_video(folder / name, np.rint(127.5 * (1 + np.array(waves))).astype(np.uint8))
    return folder / name, read_video


#: function that writes a file, errors that reading may raise, number of examples
READERS = {
    "npz": (npz, (DataError, *LOST), 60),
    "npz, packed": (packed_npz, (DataError, *LOST), 60),
    "npy": (npy, (DataError, *LOST), 40),
    "labels, npy": (labels_npy, (DataError, *LOST), 40),
    "labels, text": (labels_text, (DataError, *LOST), 30),
    "folder of classes": (folder_of_classes, (DataError, *LOST), 40),
    "folder with .mat": (folder_with_mat, (DataError, *LOST), 40),
    "stored": (stored, (DataError, *LOST), 40),
    "journal of a build": (journal, (DataError, FileExistsError, *LOST), 40),
    "part of a build": (part, (DataError, FileExistsError, *LOST), 20),
    "mat 5": (mat5, DataError, 60),
    "mat 5, packed": (mat5_packed, DataError, 30),
    "mat 7.3": (mat73, DataError, 40),
    "index": (index, DataError, 40),
    "zip": (archive, (DataError, *LOST), 60),
    "build": (archive_to_build, (DataError, *LOST), 30),
    "import": (archive_to_import, (DataError, FileExistsError, *LOST), 30),
    "sequences": (sequences, (DataError, *LOST), 50),
    "asf": (skeleton, ValueError, 40),
    "amc": (motion, ValueError, 40),
    "c3d": (markers, DataError, 40),
    **{
        f"image {suffix}": (lambda f, s=suffix: image(f, s), DataError, 15)
        for suffix in (".png", ".jpg", ".bmp", ".pgm", ".tif")
    },
    **{
        f"video {name}": (lambda f, n=name: video(f, n), DataError, 10)
        for name in ("a.avi", "a.mp4", "a.mkv")
    },
}


@pytest.mark.parametrize("name", READERS)
def test_damaged_file_is_read_or_refused(tmp_path, name):
    make, errors, examples = READERS[name]
    path, read_it = make(tmp_path)
    whole = path.read_bytes()
    read_it(path)

    @fuzz(examples)
    @given(accidents)
    def damaged(steps):
        path.write_bytes(damage(whole, steps))
        # libav asks for as much as a packet tells, up to 2 GiB, and gives it back unused
        try_to(name, lambda: read_it(path), errors, frugal="video" not in name)

    damaged()


@pytest.mark.parametrize("name", ["labels, text", "asf", "amc", "journal of a build"])
def test_random_text_file_is_read_or_refused(tmp_path, name):
    make, errors, examples = READERS[name]
    path, read_it = make(tmp_path)
    words = st.sampled_from([*path.read_text().split(), *NAMES, "nan", "1e400", "root", ":root"])
    ends = st.sampled_from([" ", "\n", "\n\n", "\t", "\r\n", "#"])

    @fuzz(examples)
    @given(st.lists(st.tuples(words | st.text(max_size=5), ends), max_size=40) | st.text())
    def made_up(pieces):
        text = pieces if isinstance(pieces, str) else "".join(a + b for a, b in pieces)
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        try_to(f"{name}, made up", lambda: read_it(path), errors)

    made_up()


# --- checkpoints, runs, settings --------------------------------------------------------------


@pytest.fixture(scope="module")
def run(place):
    """A small finished run with a report."""
    (place / "data").mkdir()
    data = file_of(place / "data", n=30, size=4)
    folder = RunFolder(place / "run")
    train(
        Settings(data=data, epochs=2, dims=(4, 3), device="cpu"), folder, on_finished=write_report
    )
    return folder


@pytest.fixture
def copy(run, tmp_path):
    """A copy of the run that a test may damage."""
    shutil.copytree(run.path, tmp_path / "run")
    return RunFolder(tmp_path / "run")


def use(path, data):
    """Compute logits like ``spdnet predict``."""
    trained = TrainedModel.load(path, device="cpu")
    trained.logits(
        prepare(load_dataset(data, None), trained.preprocessing, "refuse", trained.dtype)
    )


def test_damaged_checkpoint_is_refused(copy):
    path = copy.checkpoints().best
    whole = path.read_bytes()
    checkpoint.load(path)

    @fuzz(40)
    @given(accidents)
    def damaged(steps):
        path.write_bytes(damage(whole, steps))
        try_to("checkpoint", lambda: checkpoint.load(path), (CheckpointError, FileNotFoundError))

    damaged()


def tensors_as_lists(state):
    """Replace tensors by plain values that ``changed`` can modify."""
    if isinstance(state, torch.Tensor):
        return {"tensor": state.tolist(), "dtype": str(state.dtype).removeprefix("torch.")}
    if isinstance(state, dict):
        return {k: tensors_as_lists(v) for k, v in state.items()}
    return [tensors_as_lists(v) for v in state] if isinstance(state, list | tuple) else state


def lists_as_tensors(tree):
    if isinstance(tree, dict) and set(tree) == {"tensor", "dtype"}:
        try:
            return torch.tensor(tree["tensor"], dtype=getattr(torch, tree["dtype"]))
        except (TypeError, ValueError, RuntimeError, AttributeError, OverflowError):
            return tree["tensor"]
    if isinstance(tree, dict):
        return {k: lists_as_tensors(v) for k, v in tree.items()}
    return [lists_as_tensors(v) for v in tree] if isinstance(tree, list) else tree


@pytest.mark.parametrize("which", ["best", "last"])
def test_checkpoint_with_invalid_state_is_refused(copy, which):
    """The digest of the checkpoint is valid."""
    files = copy.checkpoints()
    path = getattr(files, which)
    data = copy.settings().data
    tree = tensors_as_lists(checkpoint.load(path))
    if which == "last":
        files.best.unlink()
        files.previous.unlink()

    @fuzz(25)
    @given(changed(tree))
    def made_up(state):
        checkpoint.save(lists_as_tensors(state), path)
        errors = (CheckpointError, FloatingPointError, ValueError)
        try_to("checkpoint, made up", lambda: use(copy.path, data), errors)
        try_to("checkpoint, made up", lambda: files.load_last(needs=["trainer"]), CheckpointError)

    made_up()


@pytest.mark.parametrize(
    "name", ["results.json", "environment.json", "metrics.csv", "settings.toml"]
)
def test_report_of_damaged_run(copy, name):
    path = copy.path / name
    whole = path.read_bytes()

    @fuzz(8)
    @given(accidents)
    def damaged(steps):
        path.write_bytes(damage(whole, steps))
        try_to(f"report, {name}", lambda: make_page(copy), (ValueError, TypeError, *LOST))

    damaged()


@pytest.mark.parametrize("name", ["results.json", "environment.json"])
def test_report_of_run_with_invalid_values(copy, name):
    path = copy.path / name
    whole = json.loads(path.read_text())

    @fuzz(10)
    @given(changed(whole))
    def made_up(tree):
        path.write_text(json.dumps(tree))
        try_to(f"report, {name}, made up", lambda: make_page(copy), (ValueError, TypeError, *LOST))

    made_up()


def test_invalid_settings_are_refused(tmp_path):
    whole = Settings(data="digits", dims=(5, 4), labels="y.txt", test=0.1, patience=3)
    path = tmp_path / "s.toml"
    names = list(whole.as_dict())
    whole = whole.to_toml()

    @fuzz(100)
    @given(accidents, st.dictionaries(st.sampled_from(names), values, max_size=3))
    def settings(steps, more):
        path.write_bytes(damage(whole.encode(), steps))
        errors = (ValueError, TypeError)
        try_to("settings", lambda: from_mapping(read_toml(path), "a file"), errors)

        def round_trip():
            settings = from_mapping({"data": "digits", **more}, "a test")
            path.write_text(settings.to_toml(), encoding="utf-8")
            again = from_mapping(read_toml(path), "a file")
            assert again.as_dict() == settings.as_dict()

        try_to("settings, made up", round_trip, errors)

    settings()


def test_compare_resumes_or_refuses_damaged_folder(tmp_path, run):
    folder = ComparisonFolder(tmp_path / "c")
    wanted = Comparison(data=run.settings().data, methods=("mdm",), repeats=2, device="cpu")
    compare(wanted, folder)
    files = [folder.path / name for name in ("comparison.json", "cells/mdm-0.json")]
    wholes = {path: json.loads(path.read_text()) for path in files}

    @fuzz(15)
    @given(st.sampled_from(files), st.data(), accidents)
    def comparisons(path, data, steps):
        for file, whole in wholes.items():
            file.write_text(json.dumps(whole))
        if data.draw(st.booleans()):
            path.write_text(json.dumps(data.draw(changed(wholes[path]))))
        else:
            path.write_bytes(damage(json.dumps(wholes[path]).encode(), steps))
        try_to("compare", lambda: compare(wanted, folder), (ValueError, *LOST))

    comparisons()


# --- the command line -------------------------------------------------------------------------


def commands(group, words=()):
    """Yield the words that call each command, and the command."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name), command


COMMANDS = dict(commands(typer.main.get_command(app)))
INTEGERS = ["1", "2", "3", "0", "-1", "7.5", "nan", "", "9" * 30, "9" * 5000, "x", "٣", "\x1b[2J"]
REALS = ["0.5", "0.01", "1", "0", "-1", "nan", "inf", "-inf", "1e308", "1e-320", "", "x", "\udcff"]
TEXTS = ["adam", "sgd", "cosine", "constant", "log_euclidean", "affine_invariant", "log_cholesky"]
TEXTS += ["brooks", "none", "linear", "spdnet", "multibranch", "tsmnet", "paper", "auto", "fast"]
TEXTS += ["refuse", "drop", "repair", "float32", "float64", "sample", "oas", "ledoit_wolf"]
TEXTS += ["cpu", "auto", "cuda:99", "cpu:7", "meta", "mps", "gpu", "4,3", "4,4,2", "9,3", "1e-3"]
TEXTS += ["10%", "matrices", "sequences", "covariance", "gaussian", "trace", "train", "test", "all"]
TEXTS += ["file", "groups", "random-halves", "features", "logits", *NAMES, "\udcff", "a" * 5000]
#: valid values of text options
GOOD = {
    "optimizer": ["adam", "sgd"],
    "schedule": ["cosine", "constant"],
    "center": ["log_euclidean", "affine_invariant", "none"],
    "norm": ["brooks", "log_euclidean", "none"],
    "head": ["linear", "mlp", "log_euclidean", "log_cholesky"],
    "dims": ["4,3", "4,4,2", "4"],
    "eps": ["1e-3", "10%", "0"],
    "of": ["matrices", "sequences", "sequences"],
    "bad": ["drop", "repair", "refuse"],
    "device": ["cpu"],
    "kind": ["gaussian", "covariance"],
    "mode": ["trace", "mean", "absolute", "shrinkage", "none"],
    "part": ["train", "test", "all"],
    "model": ["spdnet", "multibranch", "tsmnet"],
    "data": ["good.npz", "good.npz", "odd.npz", "folder/data", "huge.npz", "signals.npz"],
    "run": ["run", "run", "run/checkpoints/last.pt", "bad-run"],
    "labels": ["y.txt"],
    "settings": ["s.toml", "run/settings.toml"],
    "source": ["folder/data", "zip/a.zip", "seq/s.npz", "motion", "matrices"],
    "path": ["folder/data", "zip/a.zip", "seq/s.npz", "matrices", "motion"],
    "standin": ["seq/s.npz", "good.npz", "digits", "odd.npz", "generated"],
    "out": ["out", "out.npz", "out.npz", "new.npz", "p.csv", "a/b", "\udcff", "o\nut", "stopped"],
}
#: values of options that could take long or need a network
LIMITED = {
    "epochs": ["1", "0", "-1", "x"],
    "repeat": ["1", "2", "0"],
    "repeats": ["1", "2", "0"],
    "devices": ["1", "0", "-1"],
    "methods": ["mdm", "ridge,mdm", "nope", "", ",", "\x1b[31m"],
    "size": ["4", "0", "-1", "x"],
    "experiment": ["convergence", "afew", "nope", "\u202e"],
    "name": ["afew", "hdm05", "pasc", "nope", "../x"],
}
ALWAYS = {
    "train": {"--epochs": "1", "--device": "cpu"},
    "compare": {"--epochs": "1", "--repeats": "1", "--methods": "mdm"},
    "reproduce": {"--quick": None, "--epochs": "1", "--standin": "seq/s.npz"},
}
ODD_PATHS = ["digit", "", "\0", "\udcff", "a" * 300]
PATHS = ("out", "data", "run", "source", "path", "labels", "settings", "index", "standin")


def value_of(command, parameter, files, rng):
    """Draw a value for a parameter, usually a valid one."""
    if parameter.name in LIMITED:
        return rng.choice(LIMITED[parameter.name])
    hint = get_type_hints(command.callback)[parameter.name]
    kinds = {hint, *get_args(hint)}
    if int in kinds:
        return rng.choice([*INTEGERS, *["1", "2", "3"] * 6])
    if float in kinds:
        return rng.choice([*REALS, *["0.5", "0.1", "0.01"] * 6])
    likely = GOOD.get(parameter.name)
    odd = [*files, *ODD_PATHS] if parameter.name in PATHS else TEXTS
    return rng.choice(likely if likely and rng.random() < 0.7 else odd)


#: valid commands, which ``call`` modifies
VALID = [
    "train good.npz --out out",
    "train odd.npz",
    "train signals.npz --model tsmnet",
    "train --resume --out stopped",
    "train --settings s.toml",
    "train a.npy --labels y.txt --test 0.3",
    "compare good.npz",
    "reproduce convergence",
    "evaluate run good.npz",
    "predict run good.npz --out p.csv",
    "predict run/checkpoints/last.pt a.npy",
    "report run",
    "data info odd.npz",
    "data info huge.npz",
    "data info a.npy --labels y.txt",
    "data build matrices out.npz",
    "data build zip/a.zip out.npz --test 0.5",
    "data build seq/s.npz out.npz --of sequences --clip-length 0.5",
    "data build motion out.npz --of sequences",
    "data import afew matrices",
    "data import hdm05 seq/s.npz",
    "data fetch afew",
]


def call(rng, files):
    """Draw a valid command or one with random arguments, and add random options."""
    found = rng.choice(VALID).split()
    words = tuple(found[: 1 + (found[0] == "data")])
    command = COMMANDS[words]
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    some = [p for p in command.params if p not in arguments and "--help" not in p.opts]
    if rng.random() < 0.4:
        found = [*words, *(value_of(command, p, files, rng) for p in arguments)]
    chosen = rng.choices(some, k=rng.choice((0, 1, 1, 2, 3))) if some else []
    for parameter in chosen:
        found.append(rng.choice([*parameter.opts, *parameter.secondary_opts]))
        if not parameter.is_flag:
            found.append(value_of(command, parameter, files, rng))
    if rng.random() < 0.05:
        found.pop()
    for name, value in ALWAYS.get(words[-1], {}).items():
        if name not in found and "--resume" not in found:
            found += [name] if value is None else [name, value]
    return found


class Watcher:
    """An audit hook that records writes outside a folder."""

    inside = None
    outside = None

    def __call__(self, event, arguments):
        if Watcher.inside is None:
            return
        if event == "open":
            path, _, flags = arguments
            wrote = isinstance(path, str) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        else:
            path = arguments[0] if arguments else None
            wrote = event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate")
        if wrote and isinstance(path, str) and not self.is_ours(path):
            Watcher.outside.append((event, path))

    def is_ours(self, path):
        path = os.path.abspath(path)
        return path.startswith((str(Watcher.inside), "/dev/", "/proc/")) or "__pycache__" in path


@pytest.fixture(scope="module")
def watcher():
    found = Watcher()
    sys.addaudithook(found)  # cannot be removed, only disabled
    yield found
    Watcher.inside = None


@pytest.fixture
def files(tmp_path, run, place):
    """Valid, damaged and unusual files and folders for the command line."""
    home = tmp_path / "files"
    home.mkdir()
    shutil.copytree(run.path, home / "run")
    shutil.copytree(run.path, home / "bad-run")
    shutil.copytree(run.path, home / "stopped")
    (home / "stopped" / "results.json").unlink()
    (home / "bad-run" / "results.json").write_text('{"scored": 3, "network": []}')
    (home / "bad-run" / "checkpoints" / "best.pt").write_bytes(b"PK\x03\x04")
    shutil.copy(run.settings().data, home / "good.npz")
    whole = Path(run.settings().data).read_bytes()
    (home / "bad.npz").write_bytes(damage(whole, [("flip", 1), ("flip", 2), ("number", 3)]))
    names = np.array(NAMES)[np.arange(144) % len(NAMES)]
    np.savez(home / "odd.npz", X=random_spd(144, 4).numpy(), y=names, groups=np.arange(144))
    np.savez(home / "huge.npz", X=1e300 * random_spd(20, 4).numpy(), y=np.arange(20) % 2)
    np.savez(
        home / "signals.npz",
        X=np.random.default_rng(0).normal(size=(20, 4, 9)),
        y=Y[np.arange(20) % 2],
    )
    np.save(home / "a.npy", random_spd(8, 4).numpy())
    (home / "y.txt").write_text("\n".join(Y))
    (home / "s.toml").write_text('data = "good.npz"\nepochs = 1\n')
    (home / "bad.toml").write_text("[" * 5000)
    for i, matrix in enumerate(random_spd(24, 4).numpy()):
        folder = home / "matrices" / ("train" if i % 2 else "val") / str(i % 3)
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / f"video{i}_1.npy", matrix)
    makers = {"folder": folder_of_classes, "zip": archive, "seq": sequences, "motion": motion}
    for name, make in {**makers, "mat": index}.items():
        (home / name).mkdir()
        make(home / name)
    good = ["run", "good.npz", "good.npz", "odd.npz", "seq/s.npz", "folder/data", "zip/a.zip"]
    odd = ["digits", "bad-run", "stopped", "bad.npz", "huge.npz", "signals.npz", "a.npy", "y.txt"]
    odd += ["s.toml", "bad.toml", "motion", "mat/index.mat", "run/checkpoints/best.pt", "."]
    return home, [*good, *odd]


def test_random_commands_end_as_documented(tmp_path, monkeypatch, files, watcher):
    home, names = files
    import requests

    def nowhere(*_, **__):
        raise requests.ConnectionError("no network in tests")

    monkeypatch.setattr(requests, "get", nowhere)
    monkeypatch.setattr("spdnet.data.io.download._RETRIES", 0)
    monkeypatch.setenv("SPDNET_DATA", str(tmp_path / "data"))
    invoke(["--help"], tmp_path)  # exclude files that the first import loads or caches

    @fuzz(60)
    @given(st.integers(0, 2**64))
    def called(seed):
        arguments = call(random.Random(seed), names)
        cwd = tmp_path / "cwd"
        for old in (cwd, tmp_path / "data"):
            shutil.rmtree(old, ignore_errors=True)
        shutil.copytree(home, cwd)
        monkeypatch.chdir(cwd)
        name = f"command {' '.join(arguments[: 1 + (arguments[0] == 'data')])}"
        TRIED[name] += 1
        result = invoke(arguments, tmp_path)
        REFUSED[name] += result.exit_code != 0
        monkeypatch.chdir(tmp_path)

    called()


def invoke(arguments, inside):
    """Run a command in this process; check its exit code and that it writes only inside."""
    Watcher.inside, Watcher.outside = inside, []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = CliRunner().invoke(app, arguments, prog_name="spdnet")
        finally:
            outside, Watcher.inside = Watcher.outside, None
    error = result.exception
    if error is not None and not isinstance(error, SystemExit):
        raise AssertionError(f"{arguments} ends with {error!r}") from error
    assert result.exit_code in (0, 1, 2), arguments
    assert "Traceback" not in result.output
    assert outside == [], arguments
    assert not caught, (arguments, caught[0])
    return result
