"""Files below a folder or in an archive, read without trusting their names."""

import os
import stat
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PureWindowsPath

from spdnet.data.errors import DataError

#: an archive may not hold a larger file
MAX_FILE = 2**30
#: nor one that shrank more than this, once it is large
MAX_RATIO = 100
_SMALL = 2**24
#: ways to pack: others take as much memory as the file likes
PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@dataclass(frozen=True)
class Files:
    """What lies below a folder, or in a zip archive.

    Attributes
    ----------
    root : Path
        The folder or the archive.
    members : dict
        By the folders and the name of each file, how the archive calls it; empty for a folder's.
    """

    root: Path
    members: dict[tuple[str, ...], str]

    def ending_with(self, *suffixes: str) -> list[tuple[str, ...]]:
        """Those with certain suffixes, whatever their case, in order; hidden ones do not count."""
        return sorted(
            parts
            for parts in self.members
            if parts[-1].lower().endswith(suffixes)
            and not parts[-1].startswith(".")
            and "__MACOSX" not in parts
        )

    def stamp(self, parts: tuple[str, ...]) -> str:
        """Changes when the file does."""
        if self.root.is_dir():
            return stamp_of(self.root.joinpath(*parts))
        info = self._archive.getinfo(self.members[parts])
        return f"{info.file_size} {info.CRC}"

    def find(self, end: tuple[str, ...]) -> tuple[str, ...] | None:
        """The file whose path ends so, whatever the case; the one that is least deep."""
        wanted = tuple(part.lower() for part in end)
        return self._ends.get(wanted)

    @cached_property
    def _ends(self) -> dict[tuple[str, ...], tuple[str, ...]]:
        """By every end of a path, in small letters, its file."""
        ends: dict[tuple[str, ...], tuple[str, ...]] = {}
        for parts in sorted(self.members, key=len):
            small = tuple(part.lower() for part in parts)
            for n in range(1, len(parts) + 1):
                ends.setdefault(small[-n:], parts)
        return ends

    @cached_property
    def _archive(self) -> zipfile.ZipFile:
        """The archive, opened once: its table of contents may be long."""
        return zipfile.ZipFile(self.root)

    def read(self, parts: tuple[str, ...]) -> bytes:
        """The bytes of a file."""
        if self.root.is_dir():
            return self.root.joinpath(*parts).read_bytes()
        try:
            return self._archive.read(self.members[parts])
        except MemoryError:
            raise
        except Exception as error:  # of zipfile, and of each way to unpack
            raise DataError(
                f"read: expected a whole archive, but {'/'.join(parts)} in {self.root} is damaged: "
                f"{error}"
            ) from error


def open_files(path: str | Path) -> Files:
    """The files of a folder, or of a zip archive.

    Nothing is unpacked. An archive is refused with names that lead out of it, links, passwords,
    two files of one name, or bombs.

    Parameters
    ----------
    path : path

    Raises
    ------
    DataError, FileNotFoundError
    """
    path = Path(path)
    if path.is_dir():
        found = (file for file in path.rglob("*") if file.is_file())
        members = {file.relative_to(path).parts: "" for file in found}
        require_distinct("read", (part for parts in members for part in parts))
        return Files(path, members)
    if not path.is_file():
        raise FileNotFoundError(f"read: expected a folder or an archive at {path}, got none")
    try:
        with zipfile.ZipFile(path) as archive:
            return Files(path, _members(archive, path))
    except (DataError, PermissionError, MemoryError):
        raise
    except Exception as error:  # zipfile has many names for damage
        raise DataError(
            f"read: expected a folder or a zip archive, but {path} is neither, or damaged: {error}"
        ) from error


def is_bomb(size: int, packed: int, harmless: int = _SMALL) -> bool:
    """Whether so many bytes are too many to come from so few, and more than is harmless."""
    return size > harmless and size > MAX_RATIO * max(1, packed)


def stamp_of(path: Path) -> str:
    """Changes when a file, or what a folder lists, does."""
    about = path.stat()
    return f"{path.resolve()} {about.st_size} {about.st_mtime_ns}"


def text(name: str) -> str:
    r"""Render a file name as text that can be written anywhere.

    Bytes that are not UTF-8 are written as Python escapes such as ``\xe9``.
    """
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def require_distinct(who: str, names: Iterable[str]) -> None:
    """Refuse different names that :func:`text` renders alike."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(text(name), name)
        if other != name:
            raise DataError(
                f"{who}: expected names that differ when written as text, got "
                f"{os.fsencode(other)!r} and {os.fsencode(name)!r}; rename one of them"
            )


def safe_parts(name: str) -> tuple[str, ...] | None:
    """The folders and the file of a path, whichever slashes it has; None if it leads elsewhere."""
    pure = PureWindowsPath(name)  # takes both slashes
    parts = tuple(p for p in pure.parts if p != ".")
    if pure.drive or pure.root or ".." in parts or not parts or "\0" in name:
        return None
    return parts


def _members(archive: zipfile.ZipFile, path: Path) -> dict[tuple[str, ...], str]:
    members: dict[tuple[str, ...], str] = {}
    seen: set[tuple[str, ...]] = set()
    packed = 0
    for info in archive.infolist():
        parts = safe_parts(info.orig_filename)
        kind = stat.S_IFMT(info.external_attr >> 16)
        if parts is None:
            fault = "a name that leads out of it"
        elif kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            fault = "a link or a device"
        elif info.flag_bits & 1:
            fault = "a password"
        elif info.compress_type not in PACKED:
            fault = "a file that is packed in a way of its own"
        elif info.file_size > MAX_FILE or is_bomb(info.file_size, info.compress_size):
            fault = f"{info.file_size} bytes packed in {info.compress_size}"
        else:
            fault = ""
        small = tuple(part.lower() for part in parts or ())
        is_folder = info.filename.endswith(("/", "\\")) or kind == stat.S_IFDIR
        if not is_folder and small in seen:
            fault = "two files of this name"
        packed += info.compress_size
        if fault:
            raise DataError(
                f"read: expected a harmless archive, but {path} has {fault}: {info.filename!r}"
            )
        if not is_folder and parts is not None:
            seen.add(small)
            members[parts] = info.filename
    if packed > path.stat().st_size:
        raise DataError(
            f"read: expected a harmless archive, but the files in {path} overlap: they are "
            f"{packed} bytes in {path.stat().st_size}"
        )
    return members
