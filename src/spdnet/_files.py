"""Atomic writing of files."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_writer(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file for writing, which replaces ``path`` if no error occurs.

    Readers see the old file or the complete new one, also after a power failure.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with draft.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def atomic_write(path: Path, content: str | bytes) -> None:
    """Write a file atomically; lone surrogates in text, as in undecodable paths, become ``?``."""
    with atomic_writer(path) as file:
        file.write(content.encode("utf-8", "replace") if isinstance(content, str) else content)


def is_draft(path: Path) -> bool:
    """Return whether ``path`` is a temporary file, which a killed process may leave behind."""
    return path.name.startswith(".") and path.name.endswith(".part")
