"""A line about long work on pairs."""

import sys
import time
from types import TracebackType


class Progress:
    """Writes how much is done to standard error, every other second, if wanted.

    Parameters
    ----------
    wanted : bool
    what : str
    """

    def __init__(self, wanted: bool, what: str) -> None:
        self.wanted = wanted
        self.what = what
        self._last = time.monotonic()
        self._written = False

    def __call__(self, done: int, total: int) -> None:
        """So much is done."""
        now = time.monotonic()
        if self.wanted and now - self._last > 2:
            self._last, self._written = now, True
            print(f"\r{self.what} {done} of {total}", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._written:
            print(file=sys.stderr)
