"""Estimate of the remaining time."""

import time


class Pace:
    """Estimate the remaining time of ``total`` steps of about the same length."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._started = time.monotonic()
        self._durations: list[float] = []

    def after(self, done: int, *, counts: bool = True) -> str:
        """Return text such as ``", about 4 min left"``; skipped steps do not count."""
        now = time.monotonic()
        if counts:
            self._durations.append(now - self._started)
        self._started = now
        mean = sum(self._durations) / max(1, len(self._durations))
        return time_left(mean * (self.total - done))


def time_left(seconds: float) -> str:
    """Format the remaining time as the end of a sentence; empty if it is short.

    Examples
    --------
    >>> from spdnet.runs.pace import time_left
    >>> time_left(4), time_left(61), time_left(600), time_left(9000)
    ('', ', about 61 s left', ', about 10 min left', ', about 2.5 h left')
    """
    if seconds < 10:
        return ""
    if seconds < 100:
        return f", about {seconds:.0f} s left"
    if seconds < 100 * 60:
        return f", about {seconds / 60:.0f} min left"
    return f", about {seconds / 3600:.1f} h left"
