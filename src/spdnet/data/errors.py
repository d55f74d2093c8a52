"""Errors of files that cannot be read."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class DataError(ValueError):
    """A file or folder that cannot be read as labeled matrices."""


@contextmanager
def converting(message: str) -> Iterator[None]:
    """Convert the many types of errors that parsers raise on damaged files to DataError."""
    try:
        yield
    except (DataError, MemoryError, FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except Exception as error:
        raise DataError(f"{message}: {error or type(error).__name__}") from error


@contextmanager
def decoding(expected: str, file: str | Path, extra: str) -> Iterator[None]:
    """Convert missing libraries and all errors of decoders to DataError."""
    try:
        yield
    except ImportError as error:
        raise DataError(
            f'{expected} and its library, got {error}; pip install "spdnet[{extra}]"'
        ) from error
    except MemoryError:
        raise
    except Exception as error:
        raise DataError(f"{expected}, but {file} is missing or damaged: {error!r}") from error
