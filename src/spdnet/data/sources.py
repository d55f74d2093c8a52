"""Sources of a data set: matrices, or sequences of frames, loaded one at a time."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from spdnet.data.dataset import SPLITS
from spdnet.data.errors import DataError
from spdnet.data.io.arrays import names_in, read_npz
from spdnet.data.io.files import Files, open_files, stamp_of, text
from spdnet.data.io.folders import READABLE, count_by_suffix, data_files, parse_matrix, unread_notes
from spdnet.data.io.frames import IMAGE_SUFFIXES, VIDEO_SUFFIXES, read_images, read_video
from spdnet.data.io.index import Index
from spdnet.data.io.motion import read_amc, read_asf, read_c3d
from spdnet.data.io.readers import as_parts, as_text, column, unused_notes
from spdnet.data.split import draw_parts

#: folder names and the parts of the data that they stand for
PARTS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
_COLUMNS = ("label", "name", "split", "groups")
_PACKED = ("frames", "lengths", "classes", *_COLUMNS)
_HDM05 = re.compile(r"HDM_(?P<actor>[a-z]+)_(?P<action>.+)_(?P<take>\d+)_(?P<rate>\d+)$")


@dataclass(frozen=True)
class Source:
    """A matrix ``(n, n)`` or a sequence of frames ``(T, ...)`` that is loaded on demand."""

    name: str  # path relative to the folder or archive
    load: Callable[[], NDArray[Any]]
    y: str | None = None
    split: str | None = None
    group: str | None = None
    stamp: str = ""  # changes if the file or the way it is read changes
    features: bool = False  # a table of frames, whose axes could be swapped


def matrix_sources(
    path: str | Path,
    index: Index | None = None,
    *,
    clips: bool = False,
    parts: Mapping[str, str] = PARTS,
) -> list[Source]:
    r"""Return one source per ``.mat`` or ``.npy`` file of a folder or zip archive, at any depth.

    Without such files, tables are used: ``.csv`` and ``.tsv``, else ``.txt``. The class is the
    folder of the file. A folder above it may name the part, such as ``train``: ``parts`` maps such
    names in lowercase to the parts. Alternatively, an ``index`` lists the files with their classes
    and parts. With ``clips``, ``video_3.mat`` is a clip of the group ``video``.
    """
    files = open_files(path)
    if index is not None:
        return _indexed(files, index)
    sources = []
    for file in data_files(files.members):
        source = _source(files, file, partial(_matrix, files, file), parts)
        if clips:
            source = replace(source, group=re.sub(r"_\d+$", "", source.name.rsplit(".", 1)[0]))
        sources.append(source)
    return _ordered(sources, files, f"{READABLE} files", parts)


def sequence_sources(
    path: str | Path,
    *,
    size: tuple[int, int] = (20, 20),
    every: int = 1,
    parts: Mapping[str, str] = PARTS,
    transposed: bool = False,
) -> list[Source]:
    """Return one source per sequence of frames.

    ==================================  ====================================================
    ``file.npz``                        ``frames (sum of T, ...)``, ``lengths (N,)``, ``label``;
                                        optional ``classes``, ``split``, ``name``, ``groups``
    ``<class>/*.amc`` with ``.asf``     joints of motion capture; HDM05's names give the class
    ``<class>/*.c3d``                   markers of motion capture
    ``<class>/*.mp4`` and the like      videos, converted to small gray frames
    ``<class>/<video>/*.png``, ...      images of one video in a folder
    ``<class>/*.npy`` or ``.mat``       features of the frames ``(T, d)``, or with
                                        ``transposed`` signals ``(channels, T)``
    ``<class>/*.csv``, ``.tsv``         the same as text, if there is nothing else; else ``.txt``
    ==================================  ====================================================

    ``size`` is the height and width of the gray video frames; ``every`` is the step between the
    frames that are used. For ``parts``, see :func:`matrix_sources`. With ``transposed``, only
    tables are read, with channels in rows, as ``spdnet train`` reads signals.
    """
    path = Path(path)
    if path.suffix.lower() == ".npz" and path.is_file():
        if transposed:
            raise DataError(
                f"build: expected a folder or an archive of signals, got {path}; spdnet train "
                "reads a .npz file with X (N, channels, time) as it is"
            )
        return [_with_step(source, every, f"every {every}") for source in _packed(path)]
    files = open_files(path)
    found = [] if transposed else _recordings(files, size, parts)
    if not found:
        for file in data_files(files.members):
            source = _source(files, file, partial(_matrix, files, file), parts)
            found.append(replace(source, features=True))
    how = f"{size} {every}{' transposed' * transposed}"
    found = [_with_step(source, every, how, transposed) for source in found]
    what = f"{READABLE} files" if transposed else f"motions, videos, images or {READABLE} files"
    return _ordered(found, files, what, parts)


def notes_on_unused(path: str | Path, sources: Sequence[Source]) -> list[str]:
    """Return notes on the contents of a folder, archive or ``.npz`` file that are not sources."""
    path = Path(path)
    if path.suffix.lower() == ".npz" and path.is_file():
        return list(unused_notes(names_in(path), _PACKED))
    files = open_files(path).members
    known = {text("/".join(parts[:-1])): parts[:-1] for parts in files}  # folders of images
    known |= {text("/".join(parts)): parts for parts in files}
    used = [(known[source.name], source.y) for source in sources if source.name in known]
    classes = {parts[:-1] for parts, y in used if len(parts) > 1 and text(parts[-2]) == y}
    return unread_notes("build", files, {parts for parts, _ in used}, classes)


def with_groups(sources: Sequence[Source], groups: NDArray[Any]) -> list[Source]:
    """Return the sources with the given groups, one for each in order."""
    if groups.shape != (len(sources),):
        raise DataError(
            f"build: expected groups of shape ({len(sources)},), one for each source, in the order "
            f"of parts, classes and names, got {groups.shape}"
        )
    names = as_text(groups, "the groups").tolist()
    return [replace(s, group=str(name)) for s, name in zip(sources, names, strict=True)]


def with_random_split(sources: list[Source], test: float, *, seed: int = 0) -> list[Source]:
    """Return the sources with a random test part; groups stay together."""
    if named := [source.name for source in sources if source.split is not None]:
        raise DataError(
            f"build: expected data without train and test folders for a random split, got "
            f"{named[0]}; omit test"
        )
    y = numpy.array([source.y for source in sources])
    names = [source.group for source in sources]
    groups = None if None in names else numpy.array(names)
    drawn = set(draw_parts(y, test=test, groups=groups, seed=seed)["test"].tolist())
    return [replace(s, split="test" if i in drawn else "train") for i, s in enumerate(sources)]


def _source(
    files: Files,
    parts: tuple[str, ...],
    load: Callable[[], NDArray[Any]],
    names: Mapping[str, str],
) -> Source:
    """Return a source with the class and part that its folders name."""
    folders = [text(part) for part in parts[:-1]]
    split = next((names[f.lower()] for f in folders[:-1] if f.lower() in names), None)
    y = folders[-1] if folders else None
    if y is not None and y.lower() in names and split is None:
        split, y = names[y.lower()], None  # the folder of a part, without a class folder
    name = text("/".join(parts))
    return Source(name, load, y, split, name, files.stamp(parts))


def _ordered(
    sources: list[Source], files: Files, what: str, names: Mapping[str, str]
) -> list[Source]:
    """Check the classes and parts, and sort like :func:`read`, to match a file of groups."""
    path = files.root
    if not sources:
        raise DataError(f"build: expected {what} in {path}, got {count_by_suffix(files.members)}")
    if without := [source.name for source in sources if source.y is None]:
        raise DataError(
            f"build: expected every file of {path} in a folder named after its class, got "
            f"{without[0]}; folders called {', '.join(names)} are parts of the data"
        )
    unassigned = [source.name for source in sources if source.split is None]
    if 0 < len(unassigned) < len(sources):
        raise DataError(
            f"build: expected all files of {path}, or none, in folders of parts such as train and "
            f"test, got {unassigned[0]} in none of them"
        )
    return sorted(sources, key=lambda s: 0 if s.split is None else SPLITS.index(s.split))


def _matrix(files: Files, parts: tuple[str, ...]) -> NDArray[Any]:
    return parse_matrix(files.read(parts), "/".join(parts))


def _recordings(files: Files, size: tuple[int, int], names: Mapping[str, str]) -> list[Source]:
    """Return the motions, videos and folders of images."""
    if not files.root.is_dir():
        if files.ending_with(".amc", ".c3d", *VIDEO_SUFFIXES, *IMAGE_SUFFIXES):
            raise DataError(
                f"build: expected motions and videos in a folder, got {files.root}; unpack it first"
            )
        return []
    folders = {file[:-1] for file in files.ending_with(*IMAGE_SUFFIXES)} - {()}
    readers: list[tuple[Callable[[Path], NDArray[Any]], list[tuple[str, ...]]]] = [
        (lambda file: read_c3d(file)[0], files.ending_with(".c3d")),
        (partial(read_video, size=size), files.ending_with(*VIDEO_SUFFIXES)),
        (partial(read_images, size=size), sorted(folders)),
    ]
    found = _motions(files, names)
    for read, places in readers:
        for place in places:
            load = partial(read, files.root.joinpath(*place))
            found.append(_source(files, place, load, names))
    return found


def _joints(skeleton: Path, motion: Path) -> NDArray[Any]:
    return read_amc(motion, read_asf(skeleton))


def _with_step(source: Source, every: int, how: str, transposed: bool = False) -> Source:
    def load() -> NDArray[Any]:
        return (source.load().T if transposed else source.load())[::every]

    return replace(source, load=load, stamp=f"{source.stamp} {how}")


def _indexed(files: Files, index: Index) -> list[Source]:
    sources: list[Source] = []
    for parts, y, split, group in zip(*index, strict=True):
        found = files.find(parts)
        if found is None:
            raise DataError(
                f"build: expected {'/'.join(parts)} in {files.root}, as listed in the index, got "
                f"none; {len(sources)} of {len(index.files)} files were found before it"
            )
        load, about = partial(_matrix, files, found), (str(y), str(split), str(group))
        sources.append(Source("/".join(parts), load, *about, files.stamp(found)))
    return sources


def _motions(files: Files, names: Mapping[str, str]) -> list[Source]:
    """Match each motion with a skeleton: by name, by folder, or the only one."""
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
                f"build: expected one skeleton (.asf) for {text('/'.join(parts))}, in its folder "
                f"or named like the beginning of its name, got {len(near)}"
            )
        load = partial(_joints, files.root.joinpath(*near[0]), files.root.joinpath(*parts))
        source = _source(files, parts, load, names)
        known = _HDM05.match(stem)
        sources.append(replace(source, y=known["action"]) if known else source)
    return sources


def _packed(path: Path) -> list[Source]:
    """Return the sequences of a ``.npz`` file."""
    arrays = read_npz(path, _PACKED)
    if missing := [name for name in ("frames", "lengths", "label") if name not in arrays]:
        raise DataError(
            f"build: expected arrays frames, lengths and label in {path}, got no {missing[0]}"
        )
    frames, lengths = arrays["frames"], arrays["lengths"]
    valid = lengths.ndim == 1 and lengths.dtype.kind in "iu" and not (lengths < 0).any()
    total = len(frames) if frames.ndim else 0
    # Python integers do not overflow
    if not valid or sum(lengths.tolist()) != total:
        raise DataError(
            f"build: expected lengths in {path} that sum to the {total} frames, got others of "
            f"shape {lengths.shape}"
        )
    columns = {
        k: column(path, lengths, k, arrays[k], of="lengths") for k in _COLUMNS if k in arrays
    }
    if "classes" in arrays and columns["label"].dtype.kind in "iu":
        y, classes = columns["label"], as_text(arrays["classes"], f"classes of {path}")
        if classes.ndim != 1 or not ((y >= 0) & (y < len(classes))).all():
            raise DataError(
                f"build: expected labels that are indices of classes in {path}, got others for "
                f"classes of shape {classes.shape}"
            )
        columns["label"] = classes[y]
    if "split" in columns:
        columns["split"] = as_parts(columns["split"], f"build: expected split of {path}")
    ends, stamp = numpy.cumsum(lengths.astype(numpy.int64)).tolist(), stamp_of(path)
    sources = []
    for i, (start, end) in enumerate(pairwise([0, *ends])):
        own = {k: str(values[i]) for k, values in columns.items()}
        name = own.get("name", f"{path.stem}/{i}")
        about = (own["label"], own.get("split"), own.get("groups", name), stamp)
        sources.append(Source(name, partial(numpy.asarray, frames[start:end]), *about))
    return sources
