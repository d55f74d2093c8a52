"""What is raised for data that cannot be read."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class DataError(ValueError):
    """A file or folder that cannot be read as labelled matrices; the message says why."""


@contextmanager
def decoding(expected: str, file: str | Path, extra: str) -> Iterator[None]:
    """Missing libraries, and all that decoders raise on damaged bytes, as our error."""
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
