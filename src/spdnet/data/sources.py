"""What matrices are built from: files of matrices, or sequences of frames, one after another."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from spdnet._checks import require_count
from spdnet.data.dataset import SPLITS
from spdnet.data.errors import DataError
from spdnet.data.io.arrays import names_in, read_npz
from spdnet.data.io.files import Files, open_files, stamp_of, text
from spdnet.data.io.folders import matrix_of
from spdnet.data.io.frames import (
    IMAGE_SUFFIXES,
    VIDEO_SUFFIXES,
    read_images,
    read_video,
)
from spdnet.data.io.index import Index
from spdnet.data.io.markers import read_c3d
from spdnet.data.io.motion import Skeleton, read_amc, read_asf
from spdnet.data.io.readers import as_text, unused
from spdnet.data.io.unread import READABLE, kinds_of, of_one_kind, on_the_rest
from spdnet.data.split import draw_parts

#: names of folders, and the parts of a data set that they stand for
PARTS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
_PACKED = ("frames", "lengths", "label", "classes", "name", "split", "groups")
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
    stamp : str
        Changes when the file does, or how it is read.
    features : bool
        Whether it is a table of frames whose axes could be swapped.
    """

    name: str
    load: Callable[[], NDArray[Any]]
    y: str | None = None
    split: str | None = None
    group: str | None = None
    stamp: str = ""
    features: bool = False


def matrix_sources(
    path: str | Path,
    index: Index | None = None,
    *,
    clips: bool = False,
    parts: Mapping[str, str] = PARTS,
) -> list[Source]:
    r"""One source for each ``.mat`` or ``.npy`` file of a folder or a zip archive, at any depth.

    Where there are none, for each table of numbers: ``.csv`` or ``.tsv``, or else ``.txt``. The
    class is the folder of the file; a folder above it may name the part, such as ``train``.

    Parameters
    ----------
    path : path
    index : Index, optional
        Gives the files, their classes and parts instead.
    clips : bool
        Whether ``video_3.mat`` is a clip of the group ``video``.
    parts : mapping
        From names of folders, in small letters, to the parts they stand for.
    """
    files = open_files(path)
    if index is not None:
        return _indexed(files, index)
    sources = []
    for file in of_one_kind(files.members):
        source = _source(files, file, partial(_matrix, files, file), parts)
        if clips:
            source = replace(source, group=re.sub(r"_\d+$", "", source.name.rsplit(".", 1)[0]))
        sources.append(source)
    return _labelled(sources, files, f"{READABLE} files", parts)


def sequence_sources(
    path: str | Path,
    *,
    size: tuple[int, int] = (20, 20),
    every: int = 1,
    parts: Mapping[str, str] = PARTS,
    transposed: bool = False,
) -> list[Source]:
    """One source for each sequence of frames.

    ==================================  ====================================================
    ``file.npz``                        ``frames (sum of T, ...)``, ``lengths (N,)``, ``label``;
                                        optional ``classes``, ``split``, ``name``, ``groups``
    ``<class>/*.amc`` with ``.asf``     joints of motion capture; HDM05's names tell the class
    ``<class>/*.c3d``                   markers of motion capture
    ``<class>/*.mp4`` and the like      videos, to small grey frames
    ``<class>/<video>/*.png``, ...      images of one video in a folder
    ``<class>/*.npy`` or ``.mat``       features of the frames ``(T, d)``, or with
                                        ``transposed`` signals ``(channels, T)``
    ``<class>/*.csv``, ``.tsv``         the same as text, where there are none of these; where
                                        there are none either, ``.txt``
    ==================================  ====================================================

    Folders ``train``, ``val`` and ``test`` above the classes name the parts.

    Parameters
    ----------
    path : path
    size : (int, int)
        Of the grey frames of videos.
    every : int
        Take every so-many-th frame.
    parts : mapping
        See :func:`matrix_sources`.
    transposed : bool
        Whether all are tables with channels in rows, as ``spdnet train`` takes signals.
    """
    require_count("build", "every", every)
    path = Path(path)
    if path.suffix.lower() == ".npz" and path.is_file():
        if transposed:
            raise DataError(
                f"build: expected a folder or an archive of signals, got {path}; spdnet train "
                "reads a .npz file with X (N, channels, time) as it is"
            )
        return [
            replace(_thinned(s, every), stamp=f"{s.stamp} every {every}") for s in _packed(path)
        ]
    files = open_files(path)
    found: list[Source] = []
    if transposed:
        pass
    elif path.is_dir():
        found = _motions(files, parts)
        for file in files.ending_with(".c3d"):
            found.append(_source(files, file, partial(_markers, path.joinpath(*file)), parts))
        for file in files.ending_with(*VIDEO_SUFFIXES):
            read = partial(read_video, path.joinpath(*file), size=size)
            found.append(_source(files, file, read, parts))
        for folder in sorted({file[:-1] for file in files.ending_with(*IMAGE_SUFFIXES)} - {()}):
            read = partial(read_images, path.joinpath(*folder), size=size)
            found.append(_source(files, folder, read, parts))
    elif files.ending_with(".amc", ".c3d", *VIDEO_SUFFIXES, *IMAGE_SUFFIXES):
        raise DataError(f"build: expected motions and videos in a folder, got {path}; unpack it")
    if not found:
        load = _transposed if transposed else _matrix
        for file in of_one_kind(files.members):
            source = _source(files, file, partial(load, files, file), parts)
            found.append(replace(source, features=True))
    how = f"{size} {every}{' transposed' * transposed}"
    found = [replace(_thinned(s, every), stamp=f"{s.stamp} {how}") for s in found]
    what = f"{READABLE} files" if transposed else f"motions, videos, images or {READABLE} files"
    return _labelled(found, files, what, parts)


def left_out(path: str | Path, sources: Sequence[Source]) -> list[str]:
    """Notes on what a folder, an archive or a ``.npz`` file holds besides its sources.

    Raises
    ------
    DataError
        A folder beside those of the classes holds files, and none that is a source.
    """
    path = Path(path)
    if path.suffix.lower() == ".npz" and path.is_file():
        return list(unused(names_in(path), _PACKED))
    files = open_files(path).members
    known = {text("/".join(parts[:-1])): parts[:-1] for parts in files}  # folders of images
    known |= {text("/".join(parts)): parts for parts in files}
    used = [(known[source.name], source.y) for source in sources if source.name in known]
    named_so = {parts[:-1] for parts, y in used if len(parts) > 1 and text(parts[-2]) == y}
    return on_the_rest("build", files, {parts for parts, _ in used}, named_so)


def grouped(sources: Sequence[Source], groups: NDArray[Any]) -> list[Source]:
    """The sources with groups from a file, one for each in their order, as :func:`read` has it."""
    if groups.shape != (len(sources),):
        raise DataError(
            f"build: expected groups of shape ({len(sources)},), one for each source, in the order "
            f"of parts, classes and names, got {groups.shape}"
        )
    return [
        replace(source, group=str(group))
        for source, group in zip(sources, as_text(groups, "the groups").tolist(), strict=True)
    ]


def divided(sources: list[Source], fraction: float, *, seed: int = 0) -> list[Source]:
    """The sources with a random part of them, in whole groups, named ``test``, the others
    ``train``.
    """
    named = next((source.name for source in sources if source.split is not None), None)
    if named is not None:
        raise DataError(
            f"build: expected folders that name no parts, to draw some at random, got {named}; "
            "leave test out"
        )
    y = numpy.array([source.y for source in sources])
    groups = None
    if all(source.group is not None for source in sources):
        groups = numpy.array([source.group for source in sources])
    test = set(draw_parts(y, test=fraction, groups=groups, seed=seed)["test"].tolist())
    return [
        replace(source, split="test" if i in test else "train") for i, source in enumerate(sources)
    ]


def _source(
    files: Files,
    parts: tuple[str, ...],
    load: Callable[[], NDArray[Any]],
    names: Mapping[str, str],
) -> Source:
    """What the folders of a file tell: its class, and above that its part."""
    folders = [text(part) for part in parts[:-1]]
    split = next((names[f.lower()] for f in folders[:-1] if f.lower() in names), None)
    y = folders[-1] if folders else None
    if y is not None and y.lower() in names and split is None:
        split, y = names[y.lower()], None  # the folder of a part, without one for the class
    name = text("/".join(parts))
    return Source(name, load, y, split, name, files.stamp(parts))


def _labelled(
    sources: list[Source], files: Files, what: str, names: Mapping[str, str]
) -> list[Source]:
    path = files.root
    if not sources:
        raise DataError(f"build: expected {what} in {path}, got {kinds_of(files.members)}")
    without = [source.name for source in sources if source.y is None]
    if without:
        raise DataError(
            f"build: expected every file of {path} in a folder named after its class, got "
            f"{without[0]}; folders called {', '.join(names)} are parts of the data"
        )
    parts = {source.split for source in sources}
    if None in parts and len(parts) > 1:
        stray = next(source.name for source in sources if source.split is None)
        raise DataError(
            f"build: expected all files of {path} in the parts of the data, such as train and "
            f"test, or none, got {stray} in none"
        )
    # in the order in which a folder is read: a file of groups goes with both
    return sorted(sources, key=lambda s: 0 if s.split is None else SPLITS.index(s.split))


def _matrix(files: Files, parts: tuple[str, ...]) -> NDArray[Any]:
    return matrix_of(files.read(parts), "/".join(parts))


def _transposed(files: Files, parts: tuple[str, ...]) -> NDArray[Any]:
    return _matrix(files, parts).T


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
        sources.append(Source("/".join(parts), load, *about, files.stamp(found)))
    return sources


def _motions(files: Files, names: Mapping[str, str]) -> list[Source]:
    """Acclaim motions, each with the skeleton whose name its own begins with, or that lies beside
    it, or that is the only one.
    """
    skeletons = {parts: parts[-1].rsplit(".", 1)[0] for parts in files.ending_with(".asf")}
    sources = []
    for parts in files.ending_with(".amc"):
        stem = parts[-1].rsplit(".", 1)[0]
        near = [s for s, name in skeletons.items() if stem.startswith(name)]
        near = [s for s in near if len(s[-1]) == max(len(n[-1]) for n in near)]
        beside = [s for s in near or skeletons if s[:-1] == parts[:-1]]
        near = beside or near or list(skeletons)
        if len({s[-1] for s in near}) != 1:
            raise DataError(
                f"build: expected one skeleton (.asf) for {text('/'.join(parts))}, beside it or "
                f"called like the beginning of its name, got {len(near)}"
            )
        load = partial(_joints, files.root.joinpath(*near[0]), files.root.joinpath(*parts))
        source = _source(files, parts, load, names)
        known = _HDM05.match(stem)
        sources.append(replace(source, y=known["action"]) if known else source)
    return sources


def _joints(skeleton: Path, motion: Path) -> NDArray[Any]:
    known: Skeleton = read_asf(skeleton)
    return read_amc(motion, known)


def _markers(file: Path) -> NDArray[Any]:
    return read_c3d(file)[0]


def _thinned(source: Source, every: int) -> Source:
    if every == 1:
        return source
    return replace(source, load=partial(_every, source.load, every))


def _every(load: Callable[[], NDArray[Any]], every: int) -> NDArray[Any]:
    return load()[::every]


def _packed(path: Path) -> list[Source]:
    """Sequences one after another in one array."""
    arrays = read_npz(path, _PACKED)
    missing = [name for name in ("frames", "lengths", "label") if name not in arrays]
    if missing:
        raise DataError(
            f"build: expected arrays frames, lengths and label in {path}, got no {missing[0]}"
        )
    frames, lengths, y = arrays["frames"], arrays["lengths"], arrays["label"]
    whole = lengths.ndim == 1 and lengths.dtype.kind in "iu" and not (lengths < 0).any()
    total = len(frames) if frames.ndim else 0
    # by Python, whose numbers have no end
    if not whole or sum(lengths.tolist()) != total or y.shape != lengths.shape:
        raise DataError(
            f"build: expected a label for each of the lengths in {path}, which sum to the number "
            f"of frames, got {total} frames, lengths {lengths.shape}, labels {y.shape}"
        )
    for name in ("name", "split", "groups"):
        if name in arrays and arrays[name].shape != y.shape:
            raise DataError(
                f"build: expected {name} of shape {y.shape}, one for each label, in {path}, got "
                f"{arrays[name].shape}"
            )
    if "classes" in arrays and y.dtype.kind in "iu":
        classes = arrays["classes"]
        if classes.ndim != 1 or not ((y >= 0) & (y < len(classes))).all():
            raise DataError(
                f"build: expected labels that are places in classes of {path}, got others for "
                f"classes of shape {classes.shape}"
            )
        y = classes[y]
    arrays = {
        name: as_text(values, f"{name} of {path}")
        for name, values in {**arrays, "label": y}.items()
    }
    y, lengths = arrays["label"], lengths.astype(numpy.int64)
    splits = [str(s).strip().lower() for s in arrays.get("split", ())]
    unknown = {*splits} - {*PARTS.values()}
    if unknown:
        raise DataError(
            f"build: expected split to hold 'train', 'val' and 'test' in {path}, got "
            f"{min(unknown)!r}"
        )
    ends = numpy.cumsum(lengths)
    stamp = stamp_of(path)
    sources = []
    for i, (a, b) in enumerate(zip(ends - lengths, ends, strict=True)):
        name = str(arrays["name"][i]) if "name" in arrays else f"{path.stem}/{i}"
        group = str(arrays["groups"][i]) if "groups" in arrays else name
        load = partial(numpy.asarray, frames[a:b])
        split = splits[i] if splits else None
        sources.append(Source(name, load, str(y[i]), split, group, stamp))
    return sources
