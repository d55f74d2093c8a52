"""Data sets of the paper: download and import."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy

from spdnet._checks import require_choice
from spdnet._files import atomic_writer
from spdnet.data.descriptor import Descriptor, build
from spdnet.data.errors import DataError
from spdnet.data.io.download import download
from spdnet.data.io.files import open_files
from spdnet.data.io.index import Index, read_index
from spdnet.data.sources import PARTS, Source, matrix_sources, sequence_sources

_OnSource = Callable[[int, int], None] | None
#: test folders of PaSC
_TASKS = dict.fromkeys(("control", "handheld"), "test")
_AT = "https://data.vision.ee.ethz.ch/zzhiwu/ManifoldNetData/SPDData"


@dataclass(frozen=True)
class Published:
    """A data set of the paper."""

    title: str
    url: str  # address of the SPD matrices of the authors
    raw: str  # description of the original data
    descriptor: Descriptor
    drawn: bool = False  # the split is random, so that the sequences are kept
    clips: bool = False  # numbers at the end of the authors' file names count clips


#: data sets by name; sequences and clips are about as many as in the paper: 1747 from 557 videos,
#: 18 000 from 1170 sequences, 12 529 from 1180 videos
PUBLISHED = {
    "afew": Published(
        "AFEW",
        f"{_AT}/AFEW_SPD_data.zip",
        "folders train/<class> and val/<class> with videos of faces, or folders of their frames",
        Descriptor(clip_length=0.5, clips=2),
        clips=True,
    ),
    "hdm05": Published(
        "HDM05",
        f"{_AT}/HDM05_SPDData.zip",
        "a folder with the cut .amc files and their .asf skeletons, or .c3d files in folders of "
        "classes",
        Descriptor(clip_length=0.5, clips=15),
        drawn=True,
    ),
    "pasc": Published(
        "PaSC",
        f"{_AT}/PaSC_SPDData.zip",
        "folders train/<person>, control/<person> and handheld/<person> with files of features "
        "(frames, d)",
        Descriptor(kind="gaussian", pca=400, clip_length=0.5, clips=10),
    ),
}


def data_folder() -> Path:
    """Return the folder of the data sets: ``$SPDNET_DATA``, or the user's cache."""
    named = os.environ.get("SPDNET_DATA")
    if named:
        return Path(named)
    import pooch

    try:
        found = Path(pooch.os_cache("spdnet"))
    except RuntimeError:  # no home folder
        found = Path()
    if not found.is_absolute():  # some versions of platformdirs do not expand ~
        raise DataError(
            "data: expected a home folder for data sets, got none; set the "
            "environment variable SPDNET_DATA to a folder"
        )
    return found


def data_file(name: str) -> Path:
    """Return the file of a data set of the paper."""
    require_choice("data", "name", name, PUBLISHED)
    return data_folder() / f"{name}.npz"


def how_to_get(name: str) -> str:
    """Return instructions for getting a data set."""
    known = PUBLISHED[name]
    return (
        f"{known.title} is expected in {data_file(name)}.\n"
        f"Download the authors' SPD matrices:   spdnet data fetch {name}\n"
        f"Or import them from a file or folder: spdnet data import {name} "
        f"{known.url.rsplit('/', 1)[1]}\n"
        f"Or import the original data:          spdnet data import {name} FOLDER\n"
        f"    FOLDER: {known.raw}"
    )


def fetch(
    name: str,
    *,
    on_bytes: Callable[[int, int | None], None] | None = None,
    on_source: _OnSource = None,
) -> Path:
    """Download and import the SPD matrices of the authors, and return :func:`data_file`.

    ``on_bytes`` and ``on_source`` are called with the bytes, or files, done and their total.
    """
    _new_file(name)
    archive = download(PUBLISHED[name].url, data_folder() / "downloads", on_bytes=on_bytes)
    return import_dataset(name, archive, on_source=on_source)


def import_dataset(
    name: str, path: str | Path, *, index: str | Path | None = None, on_source: _OnSource = None
) -> Path:
    """Import a data set that was obtained manually, and return :func:`data_file`.

    ``path`` is the authors' archive (zip file or folder), or the original data; ``index`` is their
    ``.mat`` file, by default the one with ``spddb`` in its name. For ``on_source`` see
    :func:`fetch`.
    """
    path, file = Path(path), _new_file(name)
    known = PUBLISHED[name]
    parts = PARTS | (_TASKS if name == "pasc" else {})
    made = time.strftime("%Y-%m-%d %H:%M:%S %z")
    about = {"data": known.title, "from": path.name, "made": made}
    is_sequences = path.suffix.lower() == ".npz" or not open_files(path).ending_with(".mat", ".npy")
    if index is not None or not is_sequences:
        found = _find_index(path) if index is None else read_index(index)
        sources = matrix_sources(path, found, clips=known.clips, parts=parts)
        if _is_symmetric(sources[0].load()):
            return build(_val_as_test(sources), file, provenance=about, on_source=on_source)
    sources = _val_as_test(sequence_sources(path, parts=parts))
    if known.drawn:
        return _write_sequences(sources, file, on_source)
    return build(sources, file, known.descriptor, provenance=about, on_source=on_source)


def _new_file(name: str) -> Path:
    """Return the file of a data set; raise an error if it exists."""
    file = data_file(name)
    if file.exists():
        raise FileExistsError(
            f"data: expected no data set {name}, but {file} exists; delete it to import it again"
        )
    return file


def _is_symmetric(values: Any) -> bool:
    """Return whether values are a symmetric matrix, rather than features of frames."""
    square = values.ndim == 2 and values.shape[0] == values.shape[1] and values.dtype.kind in "biuf"
    return bool(square and numpy.allclose(values, values.T, equal_nan=True))


def _find_index(path: Path) -> Index | None:
    files = open_files(path)
    named = [p for p in files.ending_with(".mat") if "spddb" in p[-1].lower()]
    if not named:
        return None
    if len(named) > 1:
        raise DataError(
            f"import: expected one index in {path}, got {', '.join('/'.join(p) for p in named)}; "
            "choose one with --index"
        )
    return read_index(files.read(named[0]), "/".join(named[0]))


def _val_as_test(sources: Sequence[Source]) -> list[Source]:
    """Use validation data as test data, as the paper does."""
    return [replace(s, split="test") if s.split == "val" else s for s in sources]


def _write_sequences(sources: Sequence[Source], file: Path, on_source: _OnSource) -> Path:
    """Write the concatenated frames of all sequences to a file."""
    frames: list[Any] = []
    for i, source in enumerate(sources, 1):
        frames.append(source.load())
        shape, dtype, expected = frames[-1].shape, frames[-1].dtype, frames[0].shape[1:]
        if dtype.kind not in "biuf" or len(shape) < 2:
            raise DataError(
                f"import: expected frames (T, ...) of real numbers in {source.name}, got {dtype} "
                f"of shape {shape}"
            )
        if shape[1:] != expected:
            raise DataError(
                f"import: expected frames of one shape {expected}, got {shape[1:]} in {source.name}"
            )
        if on_source is not None:
            on_source(i, len(sources))
    arrays = {
        "frames": numpy.concatenate(frames),
        "lengths": numpy.array([len(f) for f in frames]),
        "label": numpy.array([source.y for source in sources]),
        "name": numpy.array([source.name for source in sources]),
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_writer(file) as handle:
        numpy.savez(handle, **arrays)  # type: ignore[arg-type]
    return file
