"""Files in a folder or a zip archive, with checks of names and sizes."""

import os
import stat
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PureWindowsPath

from spdnet.data.errors import DataError, converting

#: largest file in an archive
MAX_FILE = 2**30
#: largest compression ratio of a file above _SMALL bytes
MAX_RATIO = 100
_SMALL = 2**24
#: supported compression methods; others may need unbounded memory
PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@dataclass(frozen=True)
class Files:
    """Files of a folder or zip archive, except hidden ones."""

    root: Path
    members: dict[tuple[str, ...], str]  # parts of the path: name in the archive

    def ending_with(self, *suffixes: str) -> list[tuple[str, ...]]:
        """Return the files with these suffixes, ignoring case, sorted."""
        return sorted(parts for parts in self.members if parts[-1].lower().endswith(suffixes))

    def stamp(self, parts: tuple[str, ...]) -> str:
        """Return a string that changes whenever the file changes."""
        if self.root.is_dir():
            return stamp_of(self.root.joinpath(*parts))
        info = self._archive.getinfo(self.members[parts])
        return f"{info.file_size} {info.CRC}"

    def find(self, end: tuple[str, ...]) -> tuple[str, ...] | None:
        """Return the least nested file whose path ends in ``end``, ignoring case."""
        return self._ends.get(tuple(part.lower() for part in end))

    @cached_property
    def _ends(self) -> dict[tuple[str, ...], tuple[str, ...]]:
        ends: dict[tuple[str, ...], tuple[str, ...]] = {}
        for parts in sorted(self.members, key=len):
            lowered = tuple(part.lower() for part in parts)
            for n in range(1, len(parts) + 1):
                ends.setdefault(lowered[-n:], parts)
        return ends

    @cached_property
    def _archive(self) -> zipfile.ZipFile:
        return zipfile.ZipFile(self.root)  # cached, because the table of contents may be long

    def read(self, parts: tuple[str, ...]) -> bytes:
        """Read a file."""
        if self.root.is_dir():
            return self.root.joinpath(*parts).read_bytes()
        name = "/".join(parts)
        with converting(f"read: expected an intact archive, but {name} in {self.root} is damaged"):
            return self._archive.read(self.members[parts])


def open_files(path: str | Path) -> Files:
    """List the files of a folder or a zip archive; nothing is unpacked.

    Raise a DataError for damaged or encrypted archives, paths outside of the archive, links,
    duplicate names, and zip bombs.
    """
    path = Path(path)
    if path.is_dir():
        found = (file.relative_to(path).parts for file in path.rglob("*") if file.is_file())
        members = {parts: "" for parts in found if not _is_hidden(parts)}
        names = (os.fsencode(part) for parts in members for part in parts)
        distinct_text(names, "utf-8", path)
        return Files(path, members)
    if not path.is_file():
        raise FileNotFoundError(f"read: expected a folder or an archive at {path}, got none")
    expected = f"read: expected a folder or a zip archive, but {path} is neither, or damaged"
    with converting(expected), zipfile.ZipFile(path) as archive:
        return Files(path, _members(archive, path))


def _is_hidden(parts: tuple[str, ...]) -> bool:
    return "__MACOSX" in parts or any(part.startswith(".") for part in parts)


def is_bomb(size: int, packed: int, harmless: int = _SMALL) -> bool:
    """Return whether the compression ratio is suspicious, for data above a harmless size."""
    return size > harmless and size > MAX_RATIO * max(1, packed)


def stamp_of(path: Path) -> str:
    """Return a string that changes whenever the file or the listing of the folder changes."""
    about = path.stat()
    return f"{path.resolve()} {about.st_size} {about.st_mtime_ns}"


def text(name: str) -> str:
    r"""Return a file name as valid text, with escapes such as ``\xe9`` for other bytes."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def distinct_text(raws: Iterable[bytes], codec: str, where: object) -> list[str]:
    r"""Decode names, with escapes such as ``\xe9``; raise an error if two become the same."""
    seen: dict[str, bytes] = {}
    names = []
    for raw in raws:
        name = raw.decode(codec, "backslashreplace").rstrip("\0")
        if seen.setdefault(name, raw) != raw:
            raise DataError(
                f"read: expected distinct names in {where}, got {seen[name]!r} and "
                f"{raw!r}, which both become {name!r}; rename one of them"
            )
        names.append(name)
    return names


def safe_parts(name: str) -> tuple[str, ...] | None:
    """Split a path at both kinds of slashes; return None if it leads out of its folder."""
    pure = PureWindowsPath(name)  # accepts both slashes
    parts = tuple(p for p in pure.parts if p != ".")
    if pure.drive or pure.root or ".." in parts or not parts or "\0" in name:
        return None
    return parts


def _members(archive: zipfile.ZipFile, path: Path) -> dict[tuple[str, ...], str]:
    members: dict[tuple[str, ...], str] = {}
    seen: set[tuple[str, ...]] = set()
    for info in archive.infolist():
        parts, size, packed = safe_parts(info.orig_filename), info.file_size, info.compress_size
        kind = stat.S_IFMT(info.external_attr >> 16)
        is_folder = info.filename.endswith(("/", "\\")) or kind == stat.S_IFDIR
        lowered = tuple(part.lower() for part in parts or ())
        faults = {
            "two files of this name": not is_folder and lowered in seen,
            "a path outside of the archive": parts is None,
            "a link or a device": kind not in (0, stat.S_IFREG, stat.S_IFDIR),
            "a password": info.flag_bits & 1,
            "an unsupported compression method": info.compress_type not in PACKED,
            f"{size} bytes packed in {packed}": size > MAX_FILE or is_bomb(size, packed),
        }
        if fault := next((text for text, found in faults.items() if found), None):
            raise DataError(
                f"read: expected a safe archive, but {path} has {fault}: {info.filename!r}"
            )
        if not is_folder and parts is not None:
            seen.add(lowered)
            if not _is_hidden(parts):
                members[parts] = info.filename
    packed = sum(info.compress_size for info in archive.infolist())
    if packed > path.stat().st_size:
        raise DataError(
            f"read: expected a safe archive, but the files in {path} overlap: they are "
            f"{packed} bytes in {path.stat().st_size}"
        )
    return members
