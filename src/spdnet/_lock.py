"""Locks that keep other processes out of a folder or file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

#: name of the lock file of a folder
LOCK = ".lock"


class LockedError(ValueError):
    """Error raised if another process holds the lock."""


def acquire(path: Path, message: str) -> BaseFileLock:
    """Acquire a lock file without waiting; the lock ends with the process.

    The file is created if needed and stays when the lock is released. If another process holds the
    lock, a LockedError with ``message`` is raised.
    """
    lock = FileLock(path, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise LockedError(message) from None
    return lock


@contextmanager
def locked(folder: Path, message: str) -> Iterator[None]:
    """Hold the lock of a folder."""
    lock = acquire(folder / LOCK, message)
    try:
        yield
    finally:
        lock.release()
