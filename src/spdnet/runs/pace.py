"""Estimate of the remaining time."""

import time


class Pace:
    """Estimate the remaining time of ``total`` steps of about the same length."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._began = time.monotonic()
        self._taken: list[float] = []

    def after(self, done: int, *, counts: bool = True) -> str:
        """Return for example ``", about 4 min left"``; steps done before do not count."""
        now = time.monotonic()
        if counts:
            self._taken.append(now - self._began)
        self._began = now
        mean = sum(self._taken) / max(1, len(self._taken))
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
