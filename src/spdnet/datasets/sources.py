"""What matrices are built from: files of matrices, or sequences of frames, one after another."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import ArrayLike, NDArray

from spdnet.datasets.errors import DataError
from spdnet.datasets.files import Files, open_files
from spdnet.datasets.frames import (
    IMAGE_SUFFIXES,
    VIDEO_SUFFIXES,
    read_images,
    read_video,
)
from spdnet.datasets.index import Index
from spdnet.datasets.markers import read_c3d
from spdnet.datasets.motion import Skeleton, read_amc, read_asf
from spdnet.datasets.readers import matrix_of
from spdnet.datasets.split import hold_out

#: names of folders, and the parts of a data set that they stand for
PARTS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation"), "val"),
    **dict.fromkeys(("test", "testing", "control", "handheld", "query", "target"), "test"),
}
_HDM05 = re.compile(r"HDM_(?P<actor>[a-z]+)_(?P<action>.+)_(?P<take>\d+)_(?P<rate>\d+)$")


@dataclass(frozen=True)
class Source:
    """One matrix, or one sequence of frames, that can be loaded.

    Attributes
    ----------
    name : str
        By which it is known: a path below the folder or in the archive.
    load : callable
        Gives the matrix ``(n, n)``, or the frames ``(T, ...)``.
    y : str, optional
        Class.
    split : {"train", "val", "test"}, optional
    group : str, optional
        What must not be divided, such as the video of a clip, or a subject.
    """

    name: str
    load: Callable[[], NDArray[Any]]
    y: str | None = None
    split: str | None = None
    group: str | None = None


def matrix_sources(path: str | Path, index: Index | None = None) -> list[Source]:
    r"""One source for each ``.mat`` or ``.npy`` file of a folder or a zip archive, at any depth.

    The class is the last folder that is not the name of a part, such as ``train``. A clip
    ``video_3.mat`` belongs to the group ``video`` of its folder.

    Parameters
    ----------
    path : path
    index : Index, optional
        Gives the files, their classes and parts instead.
    """
    files = open_files(path)
    if index is not None:
        return _indexed(files, index)
    sources = []
    for parts in files.ending_with(".mat", ".npy"):
        split, y = _place(parts[:-1])
        group = "/".join([*parts[:-1], _without_clip(parts[-1].rsplit(".", 1)[0])])
        load = partial(_matrix, files, parts)
        sources.append(Source("/".join(parts), load, y, split, group))
    return _labelled(sources, path, ".mat or .npy files")


def sequence_sources(
    path: str | Path, *, size: tuple[int, int] = (20, 20), every: int = 1
) -> list[Source]:
    """One source for each sequence of frames.

    ==================================  ====================================================
    ``file.npz``                        ``frames (sum of T, ...)``, ``lengths (N,)``, ``label``;
                                        optional ``classes``, ``subject``, ``split``, ``name``
    ``<class>/*.amc`` with ``.asf``     joints of motion capture; HDM05's names tell the class
    ``<class>/*.c3d``                   markers of motion capture
    ``<class>/*.mp4`` and the like      videos, to small grey frames
    ``<class>/<video>/*.png``, ...      images of one video in a folder
    ``<class>/*.npy`` or ``.mat``       features of the frames ``(T, d)``
    ==================================  ====================================================

    Folders ``train``, ``val`` and ``test`` above the classes name the parts.

    Parameters
    ----------
    path : path
    size : (int, int)
        Of the grey frames of videos.
    every : int
        Take every so-many-th frame.
    """
    path = Path(path)
    if path.suffix.lower() == ".npz" and path.is_file():
        return [_thinned(source, every) for source in _packed(path)]
    files = open_files(path)
    if not path.is_dir():
        sources = [_features(files, p) for p in files.ending_with(".npy", ".mat")]
        return _labelled([_thinned(s, every) for s in sources], path, "files of features")
    sources = _motions(files)
    sources += [_file_of(files, p, lambda f: read_c3d(f)[0]) for p in files.ending_with(".c3d")]
    read = partial(read_video, size=size, every=every)
    videos = [_file_of(files, p, read) for p in files.ending_with(*VIDEO_SUFFIXES)]
    folders = sorted({parts[:-1] for parts in files.ending_with(*IMAGE_SUFFIXES)})
    images = partial(read_images, size=size)
    sources += [_file_of(files, p, images) for p in folders if p]
    if not sources and not videos:
        sources = [_features(files, p) for p in files.ending_with(".npy", ".mat")]
    sources = [*(_thinned(source, every) for source in sources), *videos]
    return _labelled(sources, path, "motions, videos, images or files of features")


def divided(sources: list[Source], fraction: float, *, seed: int = 0) -> list[Source]:
    """The sources with a random part of them, in whole groups, named ``test``, the others
    ``train``.
    """
    y = numpy.array([source.y for source in sources])
    groups = None
    if all(source.group is not None for source in sources):
        groups = numpy.array([source.group for source in sources])
    if groups is not None and len(set(groups.tolist())) == len(sources):
        groups = None  # each is a group of its own
    held = hold_out(y, fraction, groups=groups, seed=seed)
    return [
        replace(source, split="test" if test else "train")
        for source, test in zip(sources, held, strict=True)
    ]


def _place(folders: tuple[str, ...]) -> tuple[str | None, str | None]:
    """The part and the class that the folders of a file tell."""
    split = next((PARTS[f.lower()] for f in folders if f.lower() in PARTS), None)
    classes = [f for f in folders if f.lower() not in PARTS]
    return split, classes[-1] if classes else None


def _without_clip(stem: str) -> str:
    return re.sub(r"_\d+$", "", stem)


def _labelled(sources: list[Source], path: str | Path, what: str) -> list[Source]:
    if not sources:
        raise DataError(f"build: expected {what} in {path}, got none")
    without = [source.name for source in sources if source.y is None]
    if without:
        raise DataError(
            f"build: expected every file of {path} below a folder named after its class, got "
            f"{without[0]}"
        )
    parts = {source.split for source in sources}
    if None in parts and len(parts) > 1:
        stray = next(source.name for source in sources if source.split is None)
        raise DataError(
            f"build: expected all files of {path} in the parts of the data, such as train and "
            f"test, or none, got {stray} in none"
        )
    return sources


def _matrix(files: Files, parts: tuple[str, ...]) -> NDArray[Any]:
    return matrix_of(files.read(parts), "/".join(parts))


def _indexed(files: Files, index: Index) -> list[Source]:
    sources = []
    for i, parts in enumerate(index.files):
        found = files.find(parts)
        if found is None:
            raise DataError(
                f"build: expected {'/'.join(parts)} in {files.root}, as the index says, got none; "
                f"{i} of {len(index)} files were there"
            )
        load = partial(_matrix, files, found)
        about = (str(index.y[i]), str(index.split[i]), str(index.groups[i]))
        sources.append(Source("/".join(parts), load, *about))
    return sources


def _features(files: Files, parts: tuple[str, ...]) -> Source:
    split, y = _place(parts[:-1])
    name = "/".join(parts)
    return Source(name, partial(_matrix, files, parts), y, split, name)


def _file_of(files: Files, parts: tuple[str, ...], read: Callable[[Path], NDArray[Any]]) -> Source:
    split, y = _place(parts[:-1])
    name = "/".join(parts)
    return Source(name, partial(read, files.root.joinpath(*parts)), y, split, name)


def _motions(files: Files) -> list[Source]:
    """Acclaim motions with the skeleton of their folder, or of the actor, or the only one."""
    skeletons = {parts: parts[-1].rsplit(".", 1)[0] for parts in files.ending_with(".asf")}
    sources = []
    for parts in files.ending_with(".amc"):
        stem, (split, y) = parts[-1].rsplit(".", 1)[0], _place(parts[:-1])
        known = _HDM05.match(stem)
        near = [s for s, name in skeletons.items() if stem.startswith(name)]
        near = near or [s for s in skeletons if s[:-1] == parts[:-1]] or list(skeletons)
        if len(near) == 0 or (len(near) > 1 and len({s[-1] for s in near}) > 1):
            raise DataError(
                f"build: expected one skeleton (.asf) for {'/'.join(parts)}, beside it or called "
                f"like the beginning of its name, got {len(near)}"
            )
        load = partial(_joints, files.root.joinpath(*near[0]), files.root.joinpath(*parts))
        if known:
            y = known["action"]
        sources.append(Source("/".join(parts), load, y, split, "/".join(parts)))
    return sources


def _joints(skeleton: Path, motion: Path) -> NDArray[Any]:
    known: Skeleton = read_asf(skeleton)
    return read_amc(motion, known)


def _thinned(source: Source, every: int) -> Source:
    if every == 1:
        return source
    return replace(source, load=partial(_every, source.load, every))


def _every(load: Callable[[], NDArray[Any]], every: int) -> NDArray[Any]:
    return load()[::every]


def _packed(path: Path) -> list[Source]:
    """Sequences one after another in one array."""
    try:
        with path.open("rb") as handle, numpy.load(handle, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, KeyError) as error:
        raise DataError(f"build: expected a .npz file of sequences, but {path}: {error}") from error
    missing = [name for name in ("frames", "lengths", "label") if name not in arrays]
    if missing:
        raise DataError(
            f"build: expected arrays frames, lengths and label in {path}, got no {missing[0]}"
        )
    frames, lengths, y = arrays["frames"], arrays["lengths"], arrays["label"]
    if lengths.ndim != 1 or lengths.sum() != len(frames) or y.shape != lengths.shape:
        raise DataError(
            f"build: expected a label for each of the lengths in {path}, which sum to the number "
            f"of frames, got {len(frames)} frames, lengths {lengths.shape}, labels {y.shape}"
        )
    if "classes" in arrays and y.dtype.kind in "iu":
        y = arrays["classes"][y]
    ends = numpy.cumsum(lengths)
    sources = []
    for i, (a, b) in enumerate(zip(ends - lengths, ends, strict=True)):
        name = str(arrays["name"][i]) if "name" in arrays else f"{path.stem}/{i}"
        split = str(arrays["split"][i]) if "split" in arrays else None
        load = partial(numpy.asarray, frames[a:b])
        sources.append(Source(name, load, str(y[i]), split, name))
    return sources


def as_sources(X: ArrayLike, y: ArrayLike, split: ArrayLike | None = None) -> list[Source]:
    """Sequences of equal length ``(N, T, d)`` in memory."""
    frames, labels = numpy.asarray(X), numpy.asarray(y)
    parts = [None] * len(labels) if split is None else [str(s) for s in numpy.asarray(split)]
    return [
        Source(str(i), partial(numpy.asarray, frames[i]), str(labels[i]), parts[i], str(i))
        for i in range(len(labels))
    ]
