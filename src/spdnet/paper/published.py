"""The data sets of the paper: where they are published, and how what was obtained is brought in."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

from spdnet._checks import require_choice
from spdnet.data.descriptor import Descriptor, build
from spdnet.data.errors import DataError
from spdnet.data.io.download import download
from spdnet.data.io.files import open_files
from spdnet.data.io.index import Index, read_index
from spdnet.data.sources import PARTS, Source, matrix_sources, sequence_sources

#: folders of PaSC that are tested on
_TASKS = dict.fromkeys(("control", "handheld"), "test")
_AT = "https://data.vision.ee.ethz.ch/zzhiwu/ManifoldNetData/SPDData"


@dataclass(frozen=True)
class Published:
    """A data set of the paper.

    Attributes
    ----------
    title : str
    url : str
        Of the SPD matrices that the authors of the paper publish.
    raw : str
        What else it can be built from.
    descriptor : Descriptor
        Of its sequences.
    drawn : bool
        Whether the parts are drawn later, so that sequences are kept as they are.
    clips : bool
        Whether numbers at the end of the names of the authors' files are those of clips.
    """

    title: str
    url: str
    raw: str
    descriptor: Descriptor
    drawn: bool = False
    clips: bool = False


#: by name; with the whole of each sequence, its clips come to about the paper's counts: 1747 of 557
#: videos, 18 000 of 1170 sequences, 12 529 of 1180 videos
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
    """Where data sets are kept: ``$SPDNET_DATA``, or a folder of the user's own cache."""
    named = os.environ.get("SPDNET_DATA")
    if named:
        return Path(named)
    import pooch

    try:
        found = Path(pooch.os_cache("spdnet"))
    except RuntimeError:  # no home folder
        found = Path()
    if not found.is_absolute():  # earlier versions of platformdirs leave ~ as it is
        raise DataError(
            "data: expected a home folder to keep data sets in, got none; name a folder in the "
            "environment variable SPDNET_DATA"
        )
    return found


def data_file(name: str) -> Path:
    """The file that a data set of the paper is kept in."""
    require_choice("data", "name", name, PUBLISHED)
    return data_folder() / f"{name}.npz"


def how_to_get(name: str) -> str:
    """What to put where, for people."""
    known = PUBLISHED[name]
    return (
        f"{known.title} is looked for in {data_file(name)}.\n"
        f"Get the SPD matrices of the authors with: spdnet data fetch {name}\n"
        f"Or, if you have them as a file or folder:  spdnet data import {name} "
        f"{known.url.rsplit('/', 1)[1]}\n"
        f"Or from the data themselves, which are:    spdnet data import {name} FOLDER\n"
        f"    {known.raw}"
    )


def fetch(
    name: str,
    *,
    on_bytes: Callable[[int, int | None], None] | None = None,
    on_source: Callable[[int, int], None] | None = None,
) -> Path:
    """Download the SPD matrices that the authors publish, and bring them in.

    Parameters
    ----------
    name : {"afew", "hdm05", "pasc"}
    on_bytes, on_source : callable, optional
        Called with what is done and what there is: bytes (None if the server does not tell), and
        files.

    Returns
    -------
    Path
        See :func:`data_file`.
    """
    require_choice("fetch", "name", name, PUBLISHED)
    _require_new(name)
    archive = download(PUBLISHED[name].url, data_folder() / "downloads", on_bytes=on_bytes)
    return import_dataset(name, archive, on_source=on_source)


def import_dataset(
    name: str,
    path: str | Path,
    *,
    index: str | Path | None = None,
    on_source: Callable[[int, int], None] | None = None,
) -> Path:
    """Bring a data set in that was obtained by hand.

    Parameters
    ----------
    name : {"afew", "hdm05", "pasc"}
    path : path
        The authors' archive, packed or not; or what it can be built from: see
        :data:`PUBLISHED`.
    index : path, optional
        The authors' index, a ``.mat`` file; found by itself if it lies among the others with
        ``spddb`` in its name.
    on_source : callable, optional
        Called with how many files are done, and how many there are.

    Returns
    -------
    Path
        See :func:`data_file`.
    """
    require_choice("import", "name", name, PUBLISHED)
    _require_new(name)
    path, known = Path(path), PUBLISHED[name]
    parts = PARTS | (_TASKS if name == "pasc" else {})
    about = {
        "data": known.title,
        "from": path.name,
        "made": time.strftime("%Y-%m-%d %H:%M:%S %z"),
    }
    found = None if index is None else read_index(index)
    if found is None and not _is_sequences(path):
        found = _own_index(path)
    if found is not None or not _is_sequences(path):
        sources = matrix_sources(path, found, clips=known.clips, parts=parts)
        if _is_matrix(sources[0]):
            sources = [_tested(source) for source in sources]
            return build(sources, data_file(name), provenance=about, on_source=on_source)
    sources = [_tested(source) for source in sequence_sources(path, parts=parts)]
    if known.drawn:
        return _keep_sequences(sources, data_file(name), on_source)
    return build(sources, data_file(name), known.descriptor, provenance=about, on_source=on_source)


def _require_new(name: str) -> None:
    file = data_file(name)
    if file.exists():
        raise FileExistsError(
            f"data: expected no {name} yet, but {file} is there; delete it to bring in another"
        )


def _is_sequences(path: Path) -> bool:
    """Whether it can be nothing but sequences."""
    if path.suffix.lower() == ".npz":
        return True
    return not open_files(path).ending_with(".mat", ".npy")


def _is_matrix(source: Source) -> bool:
    """Whether it holds a symmetric matrix rather than features of frames."""
    values = source.load()
    square = values.ndim == 2 and values.shape[0] == values.shape[1] and values.dtype.kind in "biuf"
    return bool(square and numpy.allclose(values, values.T, equal_nan=True))


def _own_index(path: Path) -> Index | None:
    """The index among the files themselves."""
    files = open_files(path)
    named = [p for p in files.ending_with(".mat") if "spddb" in p[-1].lower()]
    if not named:
        return None
    if len(named) > 1:
        raise DataError(
            f"import: expected one index in {path}, got {', '.join('/'.join(p) for p in named)}; "
            "name the one to use with index"
        )
    return read_index(files.read(named[0]), "/".join(named[0]))


def _tested(source: Source) -> Source:
    """Validation data count as test data, as in the paper."""
    if source.split != "val":
        return source
    return Source(source.name, source.load, source.y, "test", source.group)


def _keep_sequences(
    sources: Sequence[Source],
    file: Path,
    on_source: Callable[[int, int], None] | None,
) -> Path:
    """All frames one after another in one file."""
    frames: list[Any] = []
    for i, source in enumerate(sources, 1):
        frames.append(source.load())
        if frames[-1].dtype.kind not in "biuf" or frames[-1].ndim < 2:
            raise DataError(
                f"import: expected frames (T, ...) of real numbers in {source.name}, got "
                f"{frames[-1].dtype} of shape {frames[-1].shape}"
            )
        if frames[-1].shape[1:] != frames[0].shape[1:]:
            raise DataError(
                f"import: expected frames of one shape, {frames[0].shape[1:]}, got "
                f"{frames[-1].shape[1:]} in {source.name}"
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
    draft = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        with draft.open("wb") as handle:
            numpy.savez(handle, **arrays)  # type: ignore[arg-type]
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
    return file
